"""Records what `tracer whatif` of FSDP2 is judged by, and judges it: a trace, and the step under other settings.

    python benchmarks/sharded.py record FOLDER [--models transformer:32,vgg16:32] [--links nvlink,host,sockets]
    python benchmarks/sharded.py judge FOLDER

One launch for each link. In each, for each model and batch: a recording of FSDP2 as it is by default into
FOLDER/MODEL-BATCH-LINK-GPUS, then, unprofiled, the same under every change, in turn, several times over.
FOLDER/truth.jsonl has a line for each cell. `judge` predicts every cell from the recording of its row.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from whatif import LINKS, SCATTERED, TRUTH, cells, visit

from analyzers.prediction import Options, whatif
from analyzers.rank import summarize
from analyzers.run.manifest import LINKS as LINKS_FILE
from tracer.atomic_files import hidden_folder
from tracer.config import CalibrationPlan, ModelName, Plan, RecordConfig
from tracer.launching.elastic import Job, launch, quiet_launcher
from tracer.recording.collect import Finisher, Taking
from tracer.recording.rank_process import LAUNCHER, WORK, die_with, pick_device, progress_of, refusing
from tracer.workload.models_and_data import shard_units
from tracer.workload.train import endless_batches, train
from tracer.workload.training_step import Training, begin, train_step


@dataclass(frozen=True)
class Change:
    """What a cell changes of FSDP2 as it is by default."""

    prefetch: str = "backward"  # or "both", "none"
    reshard_after_forward: bool = True
    own_group: bool = False  # reduce-scatters have a process group, and so a communicator, of their own
    gather_bf16: bool = False
    reduce_bf16: bool = False


RECORDED = "as recorded"
CHANGES = {
    RECORDED: Change(),
    "prefetch none": Change(prefetch="none"),
    "prefetch both": Change(prefetch="both"),
    "stay gathered": Change(reshard_after_forward=False),
    "own group": Change(own_group=True),
    "own group, stay gathered": Change(reshard_after_forward=False, own_group=True),
    "own group, prefetch none": Change(prefetch="none", own_group=True),
    "bf16 gradients": Change(reduce_bf16=True),
    "bf16": Change(gather_bf16=True, reduce_bf16=True),
    "bf16, stay gathered": Change(reshard_after_forward=False, gather_bf16=True, reduce_bf16=True),
}


class OverOwnGroup:
    """FSDP2's reduce-scatter over another process group of the same ranks."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """As without it."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> Any:
        """Reduce over the own group."""
        return dist.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=self.group, async_op=async_op)


def config_of(model: ModelName, batch: int, link: str, gpus: int) -> RecordConfig:
    """What is recorded of a model: FSDP2 as it is by default."""
    return RecordConfig(
        model=model,
        strategy="fsdp",
        device="cuda",
        devices=gpus,
        batch=batch,
        plan=Plan(wait=8, warmup=3, active=5, rounds=3),
        image_size=224,
        seed=0,
        bf16=True,
        calibration=CalibrationPlan(("all_gather", "reduce_scatter"), 65536, 256 << 20, 2),
        place=f"{model}-{batch}-{link}-{gpus}",
    )


def record(folder: Path, link: str, gpus: int, models: Sequence[tuple[ModelName, int]], visits: int) -> None:
    """One launch: recordings and cells of all models over one link."""
    known = {(cell["model"], cell["batch"], cell["link"], cell["gpus"]) for cell in cells(folder / TRUTH)}
    configs = [
        config_of(model, batch, link, gpus) for model, batch in models if (model, batch, link, gpus) not in known
    ]
    if not configs:
        return
    # The links are the same for all models of a launch, and measured once.
    configs = [configs[0], *(msgspec.structs.replace(each, calibration=None) for each in configs[1:])]
    os.environ.update(LINKS[link])
    with hidden_folder(folder / f"{link}-{gpus}") as hidden:
        finishers = (Finisher(hidden / c.place, folder / c.place, force=True, work=hidden / WORK) for c in configs)
        taking = Taking(tuple(finishers))
        encoded = msgspec.json.encode(configs).decode()
        arguments = (str(Path(__file__).resolve()), "--rank", encoded, str(hidden), str(folder / TRUTH), link)
        launch(Job((*arguments, str(visits)), "cuda", gpus), hidden, lambda label, done, total: None, taking.look)
        taking.look()
        if taking.errors:
            sys.exit(taking.errors[0])
    for config in configs[1:]:
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
    """The unprofiled step under every change."""
    batches = endless_batches(config)
    own_group = dist.new_group()
    # Batch norm takes no inputs of bf16 beside running statistics of fp32.
    changes = {name: each for name, each in CHANGES.items() if not (each.gather_bf16 and "resnet" in config.model)}
    trainings = {name: _sharded(config, change, device, own_group) for name, change in changes.items()}
    samples: dict[str, list[float]] = {name: [] for name in changes}
    for number in range(visits):
        order = list(changes)[1:][:: 1 if number % 2 == 0 else -1]
        # Links drift within minutes: what is as recorded is measured between the others, too.
        for place, name in enumerate(order):
            for each in (name,) if place % 2 else (RECORDED, name):
                samples[each].append(visit(partial(_step, trainings[each], batches)))
    if int(os.environ["RANK"]) == 0:
        with truth.open("a") as file:
            for name, times in samples.items():
                where = {"model": config.model, "batch": config.batch, "link": link, "gpus": config.devices}
                step = {"step_ns": round(statistics.median(times)), "samples_ns": times}
                print(json.dumps(where | {"change": name} | step), file=file)


def _step(training: Training, batches: Iterator[Any]) -> None:
    train_step(training, [next(batches)])


def _sharded(config: RecordConfig, change: Change, device: torch.device, own_group: dist.ProcessGroup) -> Training:
    """The model with one change."""
    training = begin(msgspec.structs.replace(config, strategy="single"), device)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if change.gather_bf16 else None,
        reduce_dtype=torch.bfloat16 if change.reduce_bf16 else torch.float32,
        cast_forward_inputs=False,
    )
    units = [_shard(unit, policy) for unit in shard_units(training.model)]
    model = _shard(training.model, policy)
    if not change.reshard_after_forward:
        model.set_reshard_after_forward(False)
    for unit, following in zip(units, [*units[1:], None], strict=True):
        if change.prefetch == "both" and following is not None:
            unit.set_modules_to_forward_prefetch([following])
        if change.prefetch == "none":
            # What is gathered already is not gathered again: in the place of the module before it.
            unit.set_modules_to_backward_prefetch([unit])
    if change.prefetch == "none":
        model.set_modules_to_backward_prefetch([model])
    if change.own_group:
        for module in (*units, model):
            module.set_custom_reduce_scatter(OverOwnGroup(own_group))  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(training.model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    return replace(training, optimizer=optimizer)


def _shard(module: nn.Module, policy: MixedPrecisionPolicy) -> FSDPModule:
    fully_shard(module, mp_policy=policy)
    assert isinstance(module, FSDPModule)
    return module


# As each change is asked for. Forward prefetch is measured alone: it changes nothing where hosts are ahead.
ASKED: dict[str, dict[str, Any]] = {
    "prefetch none": {"prefetch": False},
    "stay gathered": {"reshard_after_forward": False},
    "own group": {"separate_reduce_scatter_group": True},
    "own group, stay gathered": {"separate_reduce_scatter_group": True, "reshard_after_forward": False},
    "own group, prefetch none": {"separate_reduce_scatter_group": True, "prefetch": False},
    "bf16 gradients": {"reduce_itemsize": 2},
    "bf16": {"param_itemsize": 2, "reduce_itemsize": 2},
    "bf16, stay gathered": {"param_itemsize": 2, "reduce_itemsize": 2, "reshard_after_forward": False},
}


@dataclass(frozen=True)
class Cell:
    """One cell: its step as measured (several times: samples) and as predicted, and that of the row as recorded."""

    row: str
    name: str
    samples_ns: list[float]
    predicted_ns: int
    interval_ns: tuple[int, int]
    recorded_ns: list[float]
    own_ns: int

    @property
    def error(self) -> float:
        """Of the step over that of the recorded settings, measured and predicted: links drift, for all cells alike."""
        measured = statistics.median(self.samples_ns) / statistics.median(self.recorded_ns)
        return self.predicted_ns / self.own_ns / measured - 1

    @property
    def is_known(self) -> bool:
        """Whether its samples agree."""
        return max(self.samples_ns) / min(self.samples_ns) - 1 <= SCATTERED

    @property
    def is_covered(self) -> bool:
        """Whether the gain's interval has what was measured."""
        low, high = self.interval_ns
        return low <= statistics.median(self.recorded_ns) - statistics.median(self.samples_ns) <= high

    @property
    def change(self) -> float:
        """What was measured over the recorded settings, less 1: the error of predicting no change."""
        return statistics.median(self.samples_ns) / statistics.median(self.recorded_ns) - 1


def judge(folder: Path) -> list[Cell]:
    """Predict all cells, each from its row's recording."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for cell in cells(folder / TRUTH):
        rows.setdefault("{model}-{batch}-{link}-{gpus}".format(**cell), []).append(cell)
    found = []
    for row, measured in rows.items():
        recorded_ns = next(cell["samples_ns"] for cell in measured if cell["change"] == RECORDED)
        summary = summarize(folder / row)
        for cell in measured:
            if asked := ASKED.get(cell["change"]):
                (predicted,) = whatif(summary, Options(**asked)).of_settings
                found.append(
                    Cell(
                        row=row,
                        name=cell["change"],
                        samples_ns=cell["samples_ns"],
                        predicted_ns=predicted.predicted_step_ns,
                        interval_ns=predicted.within_ns,
                        recorded_ns=recorded_ns,
                        own_ns=predicted.before_ns,
                    )
                )
    return found


def in_words(judged: Sequence[Cell]) -> Iterator[str]:
    """A line for each cell, and for all."""
    yield f"ms: measured, predicted; error of the change; (samples that scatter by more than {SCATTERED:.0%})"
    for row in dict.fromkeys(cell.row for cell in judged):
        of_row = [cell for cell in judged if cell.row == row]
        yield f"  {row}: as recorded {statistics.median(of_row[0].recorded_ns) / 1e6:.1f}, {of_row[0].own_ns / 1e6:.1f}"
        for cell in of_row:
            words = f"{statistics.median(cell.samples_ns) / 1e6:.1f}, {cell.predicted_ns / 1e6:.1f} {cell.error:+.1%}"
            yield f"      {cell.name}: {words if cell.is_known else f'({words})'}"
        yield f"      {_errors(of_row)}"
    yield f"  all: {_errors(judged)}"


def _errors(judged: Sequence[Cell]) -> str:
    known = [cell for cell in judged if cell.is_known]
    if not known:
        return "no cells that tell"
    errors = [abs(cell.error) for cell in known]
    words = f"{len(known)} cells, {sum(cell.is_covered for cell in known)} in their interval, "
    words += f"median {statistics.median(errors):.1%}, worst {max(errors):.1%}"
    unchanged = statistics.median(abs(cell.change) for cell in known)
    return f"{words}; predicting no change: median {unchanged:.1%}"


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
    parser.add_argument("--models", default="transformer:32,transformer:64,vgg16:32", help="each with its batch")
    parser.add_argument("--links", default="nvlink,host")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--visits", type=int, default=3, help="of each cell")
    options = parser.parse_args()
    if options.what == "judge":
        print(*in_words(judge(options.folder)), sep="\n")
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    quiet_launcher()
    models = [(name, int(batch)) for name, _, batch in (each.partition(":") for each in options.models.split(","))]
    for link in options.links.split(","):
        began = time.monotonic()
        record(options.folder.absolute(), link, options.gpus, models, options.visits)
        print(f"{link}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
