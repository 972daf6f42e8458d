"""Records what `tracer whatif --straggler` is judged by, and judges it: steps with a slowed rank, and without.

    python benchmarks/lateness.py record FOLDER [--models resnet50,transformer:64] [--ways device-8,host-10]
        [--strategy ddp] [--gpus 2] [--visits 4]
    python benchmarks/lateness.py judge FOLDER

One launch. In it, for each model (with its batch, if another than usual) and each way of slowing its last rank: a
recording into FOLDER/MODEL-BATCH-WAY (FSDP2's into FOLDER/fsdp-MODEL-BATCH-WAY), then steps with and without it in
turn, several times over. `device` sleeps on the device before each forward, `host` spends time in Python there.
FOLDER/truth.jsonl has a line for each cell. On CPUs it shows that it runs, and nothing else.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel

from analyzers.prediction import Options, whatif
from analyzers.rank.summary import summarize
from tracer.atomic_files import hidden_folder
from tracer.config import CalibrationPlan, Collective, DeviceType, ModelName, Plan, RecordConfig, Strategy
from tracer.launching.elastic import Job, launch, quiet_launcher
from tracer.recording.collect import Finisher, Taking
from tracer.recording.rank_process import LAUNCHER, WORK, die_with, pick_device, progress_of, refusing
from tracer.workload.models_and_data import Batch
from tracer.workload.train import endless_batches, train
from tracer.workload.training_step import Training, begin, train_step

TRUTH = "truth.jsonl"
# Ways of slowing a rank: where, and by how many ms a step.
WAYS: dict[str, tuple[str, float]] = {
    "device-2": ("device", 2.0),
    "device-8": ("device", 8.0),
    "host-3": ("host", 3.0),
    "host-10": ("host", 10.0),
    "host-30": ("host", 30.0),
}
# Samples of a cell that differ by more than this tell no truth.
SCATTERED = 0.05
SETTLING, VISIT_S, FEWEST, MOST = 8, 0.8, 6, 40
WRAPPED = (DistributedDataParallel, FSDPModule)
KINDS: dict[str, tuple[Collective, ...]] = {"ddp": ("all_reduce",), "fsdp": ("all_gather", "reduce_scatter")}
BATCHES: dict[ModelName, int] = {"resnet50": 64, "vgg16": 32, "transformer": 32, "resnet18": 128}


class Slowing:
    """What slows this rank before each forward, while it is on."""

    def __init__(self, device: torch.device) -> None:
        self.way: tuple[str, float] | None = None
        self.device = device
        self._depth = 0  # of FSDP2's modules, which hold one another, the outermost is the model
        self._cycles_per_ms = _cycles_per_ms() if device.type == "cuda" else 0.0
        register_module_forward_pre_hook(self._before)
        register_module_forward_hook(self._after)

    def _before(self, module: nn.Module, inputs: Any) -> None:
        if not isinstance(module, WRAPPED):
            return
        self._depth += 1
        if self.way is None or self._depth > 1:
            return
        where, late_ms = self.way
        if where == "device" and self.device.type == "cuda":
            torch.cuda._sleep(int(late_ms * self._cycles_per_ms))
            return
        until = time.perf_counter() + late_ms / 1e3
        while time.perf_counter() < until:
            pass

    def _after(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._depth -= isinstance(module, WRAPPED)


def _cycles_per_ms() -> float:
    """How many cycles the device sleeps in a ms, measured."""
    begin_event, end_event = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)
    begin_event.record()
    torch.cuda._sleep(50_000_000)
    end_event.record()
    torch.cuda.synchronize()
    return float(50_000_000 / begin_event.elapsed_time(end_event))


def place_of(model: str, batch: int, way: str, strategy: str) -> str:
    """Where a recording is, below the folder."""
    return f"{model}-{batch}-{way}" if strategy == "ddp" else f"{strategy}-{model}-{batch}-{way}"


def config_of(
    model: ModelName, batch: int, way: str, strategy: Strategy, gpus: int, device: DeviceType
) -> RecordConfig:
    """What is recorded of a model that is slowed in one way."""
    calibration = CalibrationPlan(KINDS[strategy], 4096, 128 << 20, 2)
    return RecordConfig(
        model=model,
        strategy=strategy,
        device=device,
        devices=gpus,
        batch=batch,
        plan=Plan(wait=8, warmup=3, active=6, rounds=3),
        image_size=32 if model == "resnet18" else 224,
        seed=0,
        bf16=model != "resnet18",
        calibration=calibration if device == "cuda" else None,
        place=place_of(model, batch, way, strategy),
    )


def record(folder: Path, configs: list[RecordConfig], visits: int) -> None:
    """One launch: recordings and cells of all that are not known."""
    known = {_place_of(cell) for cell in cells(folder / TRUTH)}
    configs = [config for config in configs if config.place not in known]
    if not configs:
        return
    device, gpus = configs[0].device, configs[0].devices
    with hidden_folder(folder / "lateness") as hidden:
        finishers = (Finisher(hidden / c.place, folder / c.place, force=True, work=hidden / WORK) for c in configs)
        taking = Taking(tuple(finishers))
        encoded = msgspec.json.encode(configs).decode()
        script = str(Path(__file__).resolve())
        arguments = (script, "--rank", encoded, str(hidden), str(folder / TRUTH), str(visits))
        launch(Job(arguments, device, gpus), hidden, lambda label, done, total: None, taking.look)
        taking.look()
        if taking.errors:
            sys.exit(taking.errors[0])


def rank(configs: list[RecordConfig], folder: Path, truth: Path, visits: int) -> None:
    """One rank of the launch."""
    number = int(os.environ["RANK"])
    device, progress = pick_device(configs[0].device), progress_of(number, folder)
    with refusing(number, folder):
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        slowing = Slowing(device)
        is_late = number == dist.get_world_size() - 1
        for config in configs:
            way = WAYS[_way_of(config)]
            slowing.way = way if is_late else None
            train(config, folder / config.place, device, progress)
            gc.collect()
            _measure(config, slowing, way if is_late else None, truth, visits)
            gc.collect()
        dist.destroy_process_group()


def _measure(config: RecordConfig, slowing: Slowing, way: tuple[str, float] | None, truth: Path, visits: int) -> None:
    """The unprofiled step with and without what slows it, in turn."""
    training, batches = begin(config, slowing.device), endless_batches(config)
    samples: dict[str, list[float]] = {"late": [], "even": []}
    for visit in range(visits):
        for name in sorted(samples, reverse=visit % 2 == 1):
            slowing.way = way if name == "late" else None
            samples[name].append(_visit(training, batches))
    if int(os.environ["RANK"]) == 0:
        cell = {"model": config.model, "batch": config.batch, "way": _way_of(config), "gpus": config.devices}
        cell["strategy"] = config.strategy
        with truth.open("a") as file:
            print(json.dumps(cell | {f"{name}_ns": times for name, times in samples.items()}), file=file)


def _way_of(config: RecordConfig) -> str:
    return config.place.removeprefix(place_of(config.model, config.batch, "", config.strategy))


def _place_of(cell: dict[str, Any]) -> str:
    return place_of(cell["model"], cell["batch"], cell["way"], cell["strategy"])


def _visit(training: Training, batches: Iterator[Batch]) -> float:
    """The mean step of a block, of the slowest rank, in ns."""
    device = training.device
    for _ in range(SETTLING):
        train_step(training, [next(batches)])
    began = _now(device)
    train_step(training, [next(batches)])
    steps = round(_slowest(VISIT_S * 1e9 / (_now(device) - began), device))
    steps = max(FEWEST, min(MOST, steps))
    began = _now(device)
    for _ in range(steps):
        train_step(training, [next(batches)])
    return _slowest((_now(device) - began) / steps, device)


def _now(device: torch.device) -> int:
    """The time when all devices are idle and all ranks here."""
    for _ in range(2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
    return time.perf_counter_ns()


def _slowest(value: float, device: torch.device) -> float:
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor.item())


def cells(truth: Path) -> list[dict[str, Any]]:
    """The cells that are known."""
    return [json.loads(line) for line in truth.read_text().splitlines()] if truth.is_file() else []


@dataclass(frozen=True)
class Cell:
    """One cell, in ns: the step with the late rank and without it as measured; as recorded; as predicted without."""

    name: str
    late_samples_ns: list[float]
    even_samples_ns: list[float]
    recorded_ns: int
    predicted_ns: int
    interval_ns: tuple[int, int]
    reliable: bool

    @property
    def late_ns(self) -> float:
        """The median sample with the late rank."""
        return statistics.median(self.late_samples_ns)

    @property
    def even_ns(self) -> float:
        """The median sample without it."""
        return statistics.median(self.even_samples_ns)

    @property
    def is_known(self) -> bool:
        """Whether its samples agree."""
        samples = self.late_samples_ns, self.even_samples_ns
        return all(max(each) / min(each) - 1 <= SCATTERED for each in samples)

    @property
    def error(self) -> float:
        """As a share of the step without the late rank."""
        return self.predicted_ns / self.even_ns - 1

    @property
    def is_covered(self) -> bool:
        """Whether the gain's interval has what was measured."""
        return self.interval_ns[0] <= self.late_ns - self.even_ns <= self.interval_ns[1]

    def __str__(self) -> str:
        steps = f"{self.late_ns / 1e6:.2f} -> {self.even_ns / 1e6:.2f} ms, predicted {self.predicted_ns / 1e6:.2f}"
        steps += f" from {self.recorded_ns / 1e6:.2f} as recorded"
        doubt = "" if self.reliable else " ?"
        outside = "" if self.is_covered else ", outside its interval"
        scattered = "" if self.is_known else f"; samples scatter by more than {SCATTERED:.0%}"
        return f"{self.name}: {steps} ({self.error:+.1%}){doubt}{outside}{scattered}"


def judge(folder: Path) -> list[Cell]:
    """Predict each slowed run with its last rank as the others."""
    found = []
    for cell in cells(folder / TRUTH):
        name = _place_of(cell)
        asked = whatif(summarize(folder / name), Options(straggler=cell["gpus"] - 1))
        predicted, recorded_ns = asked.others[0], asked.baseline.measured_step_ns
        step_ns, interval_ns = predicted.predicted_step_ns, predicted.within_ns
        found.append(
            Cell(name, cell["late_ns"], cell["even_ns"], recorded_ns, step_ns, interval_ns, predicted.reliable)
        )
    return found


def in_words(judged: list[Cell]) -> Iterator[str]:
    """A line for each cell, and for all."""
    yield from map(str, judged)
    known = [cell for cell in judged if cell.is_known]
    if known:
        errors = [abs(cell.error) for cell in known]
        wrong = sum(abs(cell.predicted_ns - cell.even_ns) for cell in known)
        change = sum(abs(cell.late_ns - cell.even_ns) for cell in known)
        covered = sum(cell.is_covered for cell in known)
        yield (
            f"{len(known)} cells that tell, {covered} in their interval, median {statistics.median(errors):.2%}, worst "
            + (f"{max(errors):.2%}; error {wrong / change:.2f} of that of predicting no change")
        )


def main() -> None:
    """Record what is missing, or judge what there is."""
    if sys.argv[1:2] == ["--rank"]:
        die_with(int(os.environ.get(LAUNCHER, 0)))
        configs = msgspec.json.decode(sys.argv[2], type=list[RecordConfig])
        rank(configs, Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--models", default="resnet50,transformer", help="each with its batch after a colon, or as usual"
    )
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--visits", type=int, default=4, help="of each cell")
    options = parser.parse_args()
    if options.what == "judge":
        print(*in_words(judge(options.folder)), sep="\n")
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    quiet_launcher()
    configs = []
    for model, _, batch in (each.partition(":") for each in options.models.split(",")):
        size = int(batch) if batch else BATCHES[model] if options.device == "cuda" else 4
        configs += [
            config_of(model, size, way, options.strategy, options.gpus, options.device)
            for way in options.ways.split(",")
        ]
    record(options.folder.absolute(), configs, options.visits)


if __name__ == "__main__":
    main()
