"""Records what `tracer whatif` is judged by, and judges it: a trace, and beside it the step under other settings.

    python benchmarks/whatif.py record FOLDER [--models resnet50,vgg16:64] [--links nvlink,host,sockets] [--gpus 1,2,4]
    python benchmarks/whatif.py judge FOLDER

One launch for each link and number of GPUs. In each, for each model (with its batch, if another than usual): a
recording of 25 MB buckets into FOLDER/MODEL-LINK-GPUS, then the same weights wrapped in DDP anew for every cap and for
every change of DDP's other options, in turn, several times over.
FOLDER/truth.jsonl has a line for each cell: the same command goes on where one has ended. `judge` predicts every cell
from the recording of its row, and from that of one GPU with the row's calibration, and prints the errors, and how many
truths lie in the interval of their prediction: nine of ten are to.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

from analyzers.prediction import Options, Prediction, whatif
from analyzers.rank.summary import summarize
from analyzers.run.calibration import read_calibration
from analyzers.run.manifest import LINKS as LINKS_FILE
from tracer.atomic_files import hidden_folder
from tracer.config import CalibrationPlan, DdpOptions, ModelName, Plan, RecordConfig
from tracer.launching.elastic import Job, launch, quiet_launcher
from tracer.recording.collect import Finisher, Taking
from tracer.recording.rank_process import LAUNCHER, WORK, die_with, pick_device, progress_of, refusing
from tracer.workload.train import endless_batches, train
from tracer.workload.training_step import Training, begin, parallelize, train_step

TRUTH = "truth.jsonl"
RECORDED_MB = 25.0
CAPS: list[float | None] = [None, 1, 2, 5, 10, RECORDED_MB, 50, 100]


@dataclass(frozen=True)
class Change:
    """What a cell changes of the recorded run besides the cap: for DDP, for the step, and as it is asked for."""

    ddp: dict[str, Any] = field(default_factory=dict)
    microbatches: int = 1
    asked: dict[str, Any] = field(default_factory=dict)


CHANGES = {
    "bucket views": Change({"gradient_as_bucket_view": True}, asked={"bucket_views": True}),
    "buffers stay": Change({"broadcast_buffers": False}, asked={"broadcast_buffers": False}),
    "bf16 gradients": Change({"comm_hook": "bf16"}, asked={"gradient_itemsize": 2}),
    "2 microbatches": Change(microbatches=2, asked={"accumulations": (2,)}),
    "4 microbatches": Change(microbatches=4, asked={"accumulations": (4,)}),
}
# Cells whose step is this far from the recorded cap's have moved.
MOVED = 0.02
# Samples of a cell that differ by more than this tell no truth.
SCATTERED = 0.05
# What a cell is predicted from.
OWN, ONE = "its own trace", "one GPU's trace"
LINKS: dict[str, dict[str, str]] = {
    "nvlink": {},
    "host": {"NCCL_P2P_DISABLE": "1"},
    "sockets": {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
}
BATCHES: dict[ModelName, int] = {"resnet50": 64, "vgg16": 32, "transformer": 32, "resnet18": 128}
# Of one visit of a cell: steps that build the buckets and settle, and then so long.
SETTLING = 4
VISIT_S = 0.6
FEWEST, MOST = 6, 30


def config_of(model: ModelName, batch: int, link: str, gpus: int) -> RecordConfig:
    """What is recorded of a model: 25 MB buckets, or one GPU alone."""
    return RecordConfig(
        model=model,
        strategy="ddp" if gpus > 1 else "single",
        device="cuda",
        devices=gpus,
        batch=batch,
        plan=Plan(wait=8, warmup=3, active=5, rounds=3),
        image_size=32 if model == "resnet18" else 224,
        seed=0,
        bf16=model != "resnet18",
        ddp=DdpOptions(bucket_mb=RECORDED_MB),
        calibration=CalibrationPlan(("all_reduce", "broadcast"), 4096, 512 << 20, 2) if gpus > 1 else None,
        place=f"{model}-{link}-{gpus}",
    )


def record(folder: Path, link: str, gpus: int, models: Sequence[tuple[ModelName, int]], visits: int) -> None:
    """One launch: recordings and cells of all models over one link."""
    known = {(cell["model"], cell["link"], cell["gpus"]) for cell in cells(folder / TRUTH)}
    configs = [config_of(model, batch, link, gpus) for model, batch in models if (model, link, gpus) not in known]
    if not configs:
        return
    # The links are the same for all models of a launch, and measured once.
    configs = [configs[0], *(msgspec.structs.replace(each, calibration=None) for each in configs[1:])]
    os.environ.update(LINKS[link])
    with hidden_folder(folder / f"{link}-{gpus}") as hidden:
        finishers = (Finisher(hidden / c.place, folder / c.place, force=True, work=hidden / WORK) for c in configs)
        taking = Taking(tuple(finishers))
        script = str(Path(__file__).resolve())
        encoded = msgspec.json.encode(configs).decode()
        arguments = (script, "--rank", encoded, str(hidden), str(folder / TRUTH), link, str(visits))
        launch(Job(arguments, "cuda", gpus), hidden, lambda label, done, total: None, taking.look)
        taking.look()
        if taking.errors:
            sys.exit(taking.errors[0])
    for config in configs[1:] if gpus > 1 else []:
        shutil.copyfile(folder / configs[0].place / LINKS_FILE, folder / config.place / LINKS_FILE)
    for key in LINKS[link]:
        del os.environ[key]


def rank(configs: list[RecordConfig], folder: Path, truth: Path, link: str, visits: int) -> None:
    """One rank of a launch."""
    number = int(os.environ["RANK"])
    device, progress = pick_device("cuda"), progress_of(number, folder)
    with refusing(number, folder):
        dist.init_process_group("nccl")
        for config in configs:
            train(config, folder / config.place, device, progress)
            gc.collect()
            measure(config, device, truth, link, visits)
            gc.collect()
            torch.cuda.empty_cache()
        dist.destroy_process_group()


def measure(config: RecordConfig, device: torch.device, truth: Path, link: str, visits: int) -> None:
    """The unprofiled step of a model under every cap and change."""
    training = begin(msgspec.structs.replace(config, strategy="single"), device)
    batches = endless_batches(config)
    samples: dict[tuple[float | None, str | None], list[float]] = {cell: [] for cell in _measured(config)}
    for visit in range(visits):
        for cell in samples if visit % 2 == 0 else reversed(samples):
            samples[cell].append(_visit(training, _changed(config, *cell), batches))
    if int(os.environ["RANK"]) == 0:
        with truth.open("a") as file:
            for (cap, change), times in samples.items():
                where = {"model": config.model, "link": link, "gpus": config.devices}
                step = {"step_ns": round(statistics.median(times)), "samples_ns": times}
                print(json.dumps(where | {"bucket_mb": cap, "change": change} | step), file=file)


def _measured(config: RecordConfig) -> list[tuple[float | None, str | None]]:
    """Caps and changes to measure: one GPU has no buckets."""
    if config.strategy != "ddp":
        return [(None, None), *((None, name) for name, change in CHANGES.items() if change.microbatches > 1)]
    return [*((cap, None) for cap in CAPS), *((RECORDED_MB, name) for name in CHANGES)]


def _changed(config: RecordConfig, cap: float | None, name: str | None) -> RecordConfig:
    change = Change() if name is None else CHANGES[name]
    ddp = msgspec.structs.replace(config.ddp, bucket_mb=cap, **change.ddp)
    return msgspec.structs.replace(config, ddp=ddp, grad_accumulation=change.microbatches)


def _visit(training: Training, config: RecordConfig, batches: Iterator[Any]) -> float:
    """The step of one wrapping, in ns."""
    # What wrapped the model before goes only now, and its hooks with it.
    gc.collect()
    wrapped = replace(training, config=config, model=parallelize(training.model, config))

    return visit(lambda: train_step(wrapped, [next(batches) for _ in range(config.grad_accumulation)]))


def visit(step: Callable[[], None]) -> float:
    """What a step takes: the mean over a block, of the slowest rank, in ns."""
    for _ in range(SETTLING):
        step()
    began = _now()
    for _ in range(2):
        step()
    steps = round(_slowest(VISIT_S * 1e9 / ((_now() - began) / 2)))
    steps = max(FEWEST, min(MOST, steps))
    began = _now()
    for _ in range(steps):
        step()
    return _slowest((_now() - began) / steps)


def _now() -> int:
    """The time when all devices are idle and all ranks here."""
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    return time.perf_counter_ns()


def _slowest(value: float) -> float:
    tensor = torch.tensor([value], dtype=torch.float64, device="cuda")
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor.item())


def cells(truth: Path) -> list[dict[str, Any]]:
    """The cells that are known."""
    return [json.loads(line) for line in truth.read_text().splitlines()] if truth.is_file() else []


@dataclass(frozen=True)
class Cell:
    """One cell: its step as measured (several times: samples) and as predicted, and its row's as recorded.

    `unchanged_ns` is of as many microbatches, and of it is the gain that is predicted, within `interval_ns`. `alone_ns`
    is the measured step of one GPU, null where there is none; `efficiency` is the predicted one.
    """

    row: str
    source: str
    name: str
    samples_ns: list[float]
    predicted_ns: int
    gain_ns: int
    interval_ns: tuple[int, int]
    unchanged_ns: int
    is_recommended: bool
    alone_ns: float | None
    efficiency: float | None

    @property
    def measured_ns(self) -> float:
        """The median sample."""
        return statistics.median(self.samples_ns)

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return self.predicted_ns / self.measured_ns - 1

    @property
    def error_of_gain(self) -> float:
        """That of the predicted gain alone, without that of the run's own step as replayed."""
        return (self.unchanged_ns - self.gain_ns) / self.measured_ns - 1

    @property
    def is_known(self) -> bool:
        """Whether its samples agree."""
        return max(self.samples_ns) / min(self.samples_ns) - 1 <= SCATTERED

    @property
    def is_covered(self) -> bool:
        """Whether the gain's interval has what was measured."""
        low, high = self.interval_ns
        return low <= self.unchanged_ns - self.measured_ns <= high

    @property
    def has_moved(self) -> bool:
        """Whether its step differs from the recorded one."""
        return abs(self.measured_ns / self.unchanged_ns - 1) > MOVED


def judge(folder: Path) -> list[Cell]:
    """Predict all cells, each from its row's recording, and from that of one GPU."""
    rows: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for cell in cells(folder / TRUTH):
        rows.setdefault((cell["model"], cell["link"], cell["gpus"]), []).append(cell)
    alone = {model: measured[0]["step_ns"] for (model, _, gpus), measured in rows.items() if gpus == 1}
    found = []
    for (model, link, gpus), measured in rows.items():
        own, single = folder / f"{model}-{link}-{gpus}", folder / f"{model}-nvlink-1"
        found += _judged(own, OWN, own, measured, alone.get(model))
        if gpus > 1 and single.is_dir():
            found += _judged(own, ONE, single, measured, alone.get(model))
    return found


def _judged(row: Path, source: str, run: Path, measured: list[dict[str, Any]], alone_ns: float | None) -> list[Cell]:
    gpus = measured[0]["gpus"]
    of_caps = [cell for cell in measured if cell.get("change") is None]
    links = read_calibration(row / LINKS_FILE) if gpus > 1 else None
    summary = summarize(run)
    recorded_mb = RECORDED_MB if gpus > 1 else None
    unchanged_ns = next(cell["step_ns"] for cell in of_caps if cell["bucket_mb"] == recorded_mb)

    def judged(cell: dict[str, Any], name: str, scenario: Prediction, batches: int, is_recommended: bool) -> Cell:
        return Cell(
            row=row.name,
            source=source,
            name=name,
            samples_ns=cell["samples_ns"],
            predicted_ns=scenario.predicted_step_ns,
            gain_ns=scenario.gain_ns,
            interval_ns=scenario.within_ns,
            unchanged_ns=batches * unchanged_ns,
            is_recommended=is_recommended,
            alone_ns=alone_ns,
            efficiency=scenario.efficiency,
        )

    cells = []
    if gpus > 1:
        found = whatif(summary, Options(bucket_mb=[cell["bucket_mb"] for cell in of_caps], gpus=(gpus,)), links)
        for cell, scenario in zip(of_caps, found.of_settings, strict=True):
            cap = "default" if scenario.bucket_mb is None else f"{scenario.bucket_mb:g}"
            best = found.recommended
            cells.append(judged(cell, cap, scenario, 1, best is not None and scenario.bucket_mb == best.bucket_mb))
    for cell in measured:
        if name := cell.get("change"):
            change = CHANGES[name]
            of_ddp: dict[str, Any] = {"bucket_mb": (recorded_mb,), "gpus": (gpus,)} if gpus > 1 else {}
            found = whatif(summary, Options(**of_ddp, **change.asked), links)
            (scenario,) = found.others if change.microbatches > 1 else found.of_settings
            cells.append(judged(cell, name, scenario, change.microbatches, is_recommended=False))
    return cells


def in_words(judged: Sequence[Cell]) -> Iterator[str]:
    """A line for each row and source, and for all."""
    for source in (OWN, ONE):
        from_it = [cell for cell in judged if cell.source == source]
        yield f"from {source}, ms: measured, error; (of cells whose samples scatter by more than {SCATTERED:.0%})"
        for row in dict.fromkeys(cell.row for cell in from_it):
            of_row = [cell for cell in from_it if cell.row == row]
            best_ns = min((cell.measured_ns for cell in of_row if cell.name not in CHANGES), default=0)
            chosen = [cell.measured_ns / best_ns - 1 for cell in of_row if cell.is_recommended]
            recommended = "".join(f"; the recommended cap's step is {share:.1%} from the best" for share in chosen)
            yield f"  {row}: {'  '.join(map(_in_words, of_row))}"
            yield f"      {_errors(of_row)}{recommended}"
            yield from _efficiency(of_row)
        yield f"  all: {_errors(from_it)}"


def _in_words(cell: Cell) -> str:
    words = f"{cell.measured_ns / 1e6:.2f} {cell.error:+.1%}"
    return f"{cell.name}: {words if cell.is_known else f'({words})'}"


def _efficiency(judged: Sequence[Cell]) -> Iterator[str]:
    """Weak efficiency as measured, one GPU's step over the cell's, and how many points the prediction is off."""
    known = [cell for cell in judged if cell.is_known and cell.alone_ns and cell.efficiency is not None]
    measured = [cell.alone_ns / cell.measured_ns for cell in known if cell.alone_ns]
    off = [100 * (cell.efficiency - m) for cell, m in zip(known, measured, strict=True) if cell.efficiency is not None]
    if off:
        span = f"efficiency {min(measured):.1%} to {max(measured):.1%}"
        yield f"      {span}, predicted {statistics.median(off):+.1f} points (median), worst {max(off, key=abs):+.1f}"


def _errors(judged: Sequence[Cell]) -> str:
    known = [cell for cell in judged if cell.is_known]
    if not known:
        return "no cells that tell"
    errors = [abs(cell.error) for cell in known]
    moved = [cell for cell in known if cell.has_moved]
    covered = sum(cell.is_covered for cell in known)
    words = f"{len(known)} cells, {covered} in their interval"
    words += f", median {statistics.median(errors):.2%}, worst {max(errors):.2%}"
    of_gains = [abs(cell.error_of_gain) for cell in known]
    words += f"; of gains alone {statistics.median(of_gains):.2%}, {max(of_gains):.2%}"
    if not moved:
        return words
    wrong = sum(abs(cell.predicted_ns - cell.measured_ns) for cell in moved)
    change = sum(abs(cell.unchanged_ns - cell.measured_ns) for cell in moved)
    return f"{words}; {len(moved)} moved, error {wrong / change:.2f} of that of predicting no change"


def main() -> None:
    """Record what is missing, or judge what there is."""
    if sys.argv[1:2] == ["--rank"]:
        die_with(int(os.environ.get(LAUNCHER, 0)))
        configs = msgspec.json.decode(sys.argv[2], type=list[RecordConfig])
        rank(configs, Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["record", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="resnet50,vgg16,transformer", help="each with its batch, or as usual")
    parser.add_argument("--links", default="nvlink,host")
    parser.add_argument("--gpus", default="4")
    parser.add_argument("--visits", type=int, default=3, help="of each cell")
    options = parser.parse_args()
    if options.what == "judge":
        print(*in_words(judge(options.folder)), sep="\n")
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    quiet_launcher()
    named = (each.partition(":") for each in options.models.split(","))
    models = [(name, int(batch or BATCHES[name])) for name, _, batch in named]
    for gpus in map(int, options.gpus.split(",")):
        for link in options.links.split(",") if gpus > 1 else ["nvlink"]:
            began = time.monotonic()
            record(options.folder.absolute(), link, gpus, models, options.visits)
            print(f"{link}, {gpus} GPUs: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
