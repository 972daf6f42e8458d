"""Records what `tracer whatif --host-time` is judged by, and judges it: launch-bound steps, and those as CUDA graphs.

    python benchmarks/hosts.py record FOLDER [--models resnet18,resnet50,transformer,vgg16] [--visits 4]
    python benchmarks/hosts.py judge FOLDER

One launch on one GPU. For each model and batch: a recording of its step as it is, and one whose host takes twice as
long for every operator; then, unprofiled, in turn, several times over: both steps, and the whole step as a CUDA graph.
The host's own time is that of launching one step when the device is idle. FOLDER/truth.jsonl has a line for each cell.
`judge` predicts the step as it is from the slowed one, with the share of the host's own time that is left, and the
graph's from both, with nothing left. On a CPU there is no graph, and it shows that it runs, nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from analyzers.prediction import Options, whatif
from analyzers.rank.summary import summarize
from tracer.atomic_files import hidden_folder
from tracer.config import DeviceType, ModelName, Plan, RecordConfig
from tracer.launching.elastic import Job, launch, quiet_launcher
from tracer.recording.collect import Finisher, Taking
from tracer.recording.rank_process import LAUNCHER, WORK, die_with, pick_device, progress_of, refusing
from tracer.workload.train import endless_batches, train
from tracer.workload.training_step import Training, begin, to_device, train_step

TRUTH = "truth.jsonl"
BATCHES: dict[ModelName, tuple[int, ...]] = {
    "resnet18": (16, 64, 128, 512),
    "resnet50": (2, 8, 16, 32),
    "transformer": (1, 2, 4, 8),
    "vgg16": (4, 32),
}
PLAIN, SLOW, GRAPH = "plain", "slow", "graph"
SETTLING, VISIT_S, FEWEST, MOST = 6, 0.5, 6, 60
LAUNCHES = 12


class Slowed(TorchDispatchMode):
    """Its host takes twice as long for every operator, backward passes included."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and then do nothing for as long as it took."""
        began = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        until = 2 * time.perf_counter() - began
        while time.perf_counter() < until:
            pass
        return result


def pace(way: str) -> contextlib.AbstractContextManager[Any]:
    """Steps within go at this way's pace."""
    return Slowed() if way == SLOW else contextlib.nullcontext()


def config_of(model: ModelName, batch: int, way: str, device: DeviceType) -> RecordConfig:
    """What is recorded of a model on one GPU."""
    return RecordConfig(
        model=model,
        strategy="single",
        device=device,
        devices=1,
        batch=batch,
        plan=Plan(wait=8, warmup=3, active=6, rounds=3),
        image_size=32 if model == "resnet18" else 224,
        seed=0,
        bf16=model != "resnet18",
        place=f"{model}-{batch}-{way}",
    )


def record(folder: Path, models: list[ModelName], device: DeviceType, visits: int) -> None:
    """One launch: recordings and cells of all models and batches that are not known."""
    known = {(cell["model"], cell["batch"]) for cell in cells(folder / TRUTH)}
    rows = [(model, batch) for model in models for batch in BATCHES[model] if (model, batch) not in known]
    configs = [config_of(*row, way, device) for row in rows for way in (PLAIN, SLOW)]
    if not configs:
        return
    with hidden_folder(folder / "hosts") as hidden:
        finishers = (Finisher(hidden / c.place, folder / c.place, force=True, work=hidden / WORK) for c in configs)
        taking = Taking(tuple(finishers))
        encoded = msgspec.json.encode(configs).decode()
        script = str(Path(__file__).resolve())
        arguments = (script, "--rank", encoded, str(hidden), str(folder / TRUTH), str(visits))
        launch(Job(arguments, device, 1), hidden, lambda label, done, total: None, taking.look)
        taking.look()
        if taking.errors:
            sys.exit(taking.errors[0])


def rank(configs: list[RecordConfig], folder: Path, truth: Path, visits: int) -> None:
    """The one rank of the launch."""
    number = int(os.environ["RANK"])
    device, progress = pick_device(configs[0].device), progress_of(number, folder)
    with refusing(number, folder):
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        for config in configs:
            way = config.place.rpartition("-")[2]
            with pace(way):
                train(config, folder / config.place, device, progress)
            gc.collect()
            if way == SLOW:
                _measure(config, device, truth, visits)
        dist.destroy_process_group()


def _measure(config: RecordConfig, device: torch.device, truth: Path, visits: int) -> None:
    """The unprofiled step of each way, in turn."""
    training = begin(config, device)
    batch = to_device(training, next(endless_batches(config)))

    def step() -> None:
        train_step(training, [batch])

    ways: dict[str, Callable[[], None]] = {PLAIN: step, SLOW: step}
    for _ in range(SETTLING):
        step()
    if device.type == "cuda":
        ways[GRAPH] = _graph(training, step)
    samples: dict[str, list[float]] = {way: [] for way in ways}
    host: dict[str, float] = {}
    for visit in range(visits):
        for way in ways if visit % 2 == 0 else reversed(ways):
            with pace(way):
                samples[way].append(_visit(ways[way], device))
                host[way] = min(_host_ns(ways[way], device), host.get(way, float("inf")))
    cell = {"model": config.model, "batch": config.batch, "samples_ns": samples, "host_ns": host}
    with truth.open("a") as file:
        print(json.dumps(cell), file=file)


def _graph(training: Training, step: Callable[[], None]) -> Callable[[], None]:
    """The whole step as a CUDA graph: forward, backward and optimizer."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(SETTLING):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    training.optimizer.zero_grad()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _visit(step: Callable[[], None], device: torch.device) -> float:
    """The mean step of a block, in ns."""
    for _ in range(SETTLING):
        step()
    began = _now(device)
    for _ in range(3):
        step()
    steps = max(FEWEST, min(MOST, round(VISIT_S * 3e9 / (_now(device) - began))))
    began = _now(device)
    for _ in range(steps):
        step()
    return (_now(device) - began) / steps


def _host_ns(step: Callable[[], None], device: torch.device) -> float:
    """What launching one step takes when the device is idle: the median, in ns."""
    times = []
    for _ in range(LAUNCHES):
        began = _now(device)
        step()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times)


def _now(device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter_ns()


def cells(truth: Path) -> list[dict[str, Any]]:
    """The cells that are known."""
    return [json.loads(line) for line in truth.read_text().splitlines()] if truth.is_file() else []


@dataclass(frozen=True)
class Cell:
    """One cell: the recorded step, the one that was asked for as measured, and as predicted, in ns."""

    name: str
    before_ns: float
    after_ns: float
    host_time: float
    predicted_ns: int
    interval_ns: tuple[int, int]
    reliable: bool

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return self.predicted_ns / self.after_ns - 1

    @property
    def is_covered(self) -> bool:
        """Whether the gain's interval has what was measured."""
        return self.interval_ns[0] <= self.before_ns - self.after_ns <= self.interval_ns[1]

    def __str__(self) -> str:
        steps = f"{self.before_ns / 1e6:.2f} -> {self.after_ns / 1e6:.2f} ms, predicted {self.predicted_ns / 1e6:.2f}"
        doubt, outside = "" if self.reliable else " ?", "" if self.is_covered else ", outside its interval"
        return f"{self.name}, host time {self.host_time:.2f}: {steps} ({self.error:+.1%}){doubt}{outside}"


def judge(folder: Path) -> list[Cell]:
    """Predict each slowed run with its host's plain pace, and each run as a CUDA graph."""
    found = []
    for cell in cells(folder / TRUTH):
        step_ns = {way: statistics.median(samples) for way, samples in cell["samples_ns"].items()}
        asked = {SLOW: {PLAIN: cell["host_ns"][PLAIN] / cell["host_ns"][SLOW], GRAPH: 0.0}, PLAIN: {GRAPH: 0.0}}
        for way, of_way in asked.items():
            run = summarize(folder / f"{cell['model']}-{cell['batch']}-{way}")
            for to, left in of_way.items():
                if to in step_ns:
                    one = whatif(run, Options(host_times=(left,))).others[0]
                    name = f"{run.name} to {to}"
                    found.append(_cell(name, step_ns[way], step_ns[to], left, one))
    return found


def _cell(name: str, before_ns: float, after_ns: float, left: float, one: Any) -> Cell:
    return Cell(name, before_ns, after_ns, left, one.predicted_step_ns, one.within_ns, one.reliable)


def in_words(judged: list[Cell]) -> Iterator[str]:
    """A line for each cell, and for all."""
    yield from map(str, judged)
    if judged:
        errors = [abs(cell.error) for cell in judged]
        wrong = sum(abs(cell.predicted_ns - cell.after_ns) for cell in judged)
        change = sum(abs(cell.before_ns - cell.after_ns) for cell in judged)
        covered = sum(cell.is_covered for cell in judged)
        yield f"{len(judged)} cells, {covered} in their interval, median {statistics.median(errors):.2%}, worst " + (
            f"{max(errors):.2%}; error {wrong / change:.2f} of that of predicting no change"
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
    parser.add_argument("--models", default="resnet18,resnet50,transformer")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--visits", type=int, default=4, help="of each way")
    options = parser.parse_args()
    if options.what == "judge":
        print(*in_words(judge(options.folder)), sep="\n")
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    quiet_launcher()
    record(options.folder.absolute(), options.models.split(","), options.device, options.visits)


if __name__ == "__main__":
    main()
