"""What a profile costs: steps under each setting against unprofiled steps, interleaved in one process.

    python benchmarks/profiling.py [--rounds 6] [--steps 20] [--workloads nanogpt,resnet18,resnet50,transformer]
    torchrun --nproc_per_node 2 benchmarks/profiling.py

Prints, for each workload, the median step of each setting, and the ratio of its blocks to the unprofiled blocks before
and after them: the median and the extremes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# Without it CUPTI stays attached after a profile of Kineto's: docs/dev/decisions/recording.md.
os.environ.setdefault("TEARDOWN_CUPTI", "1")

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from tracer.recording.windows import checked_activity, module_ranges
from tracer.workload import models_and_data as workloads

CPU, CUDA = ProfilerActivity.CPU, ProfilerActivity.CUDA
FULL: dict[str, Any] = {"activities": [CPU, CUDA], "record_shapes": True}
WARMUP = 5


@dataclass(frozen=True)
class Workload:
    model: str
    batch: int
    image_size: int
    bf16: bool


WORKLOADS = {
    # The size that nanoGPT trains on one GPU by default (train_shakespeare_char.py): 6 layers of 384.
    "nanogpt": Workload("transformer-6x384", 16, 0, True),
    "resnet18": Workload("resnet18", 128, 32, False),
    "resnet50": Workload("resnet50", 64, 224, True),
    "transformer": Workload("transformer", 32, 0, True),
}


@contextmanager
def kineto(model: nn.Module, ranges: bool = False, **settings: Any) -> Iterator[None]:
    with module_ranges(model) if ranges else nullcontext(), profile(**settings):
        yield


@contextmanager
def records(model: nn.Module) -> Iterator[None]:
    with checked_activity():
        yield


Setting = Callable[[nn.Module], AbstractContextManager[None]]
SETTINGS: dict[str, Setting] = {
    "records": records,
    "kineto cuda": partial(kineto, activities=[CUDA]),
    "kineto full": partial(kineto, **FULL),
    "full + module ranges": partial(kineto, ranges=True, **FULL),
}


def train_step(workload: Workload, ddp: bool) -> tuple[nn.Module, Callable[[], None]]:
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    model = build(workload).to(device)
    if ddp:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    data = "transformer" if workload.model.startswith("transformer") else workload.model
    few = workloads.synthetic_batches(data, workload.batch, workload.image_size, pinned=True)  # type: ignore[arg-type]
    batches = cycle(few)

    def step() -> None:
        inputs, targets = (t.to(device, non_blocking=True) for t in next(batches))
        with torch.autocast("cuda", torch.bfloat16) if workload.bf16 else nullcontext():
            loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step


def build(workload: Workload) -> nn.Module:
    if workload.model == "transformer-6x384":
        return workloads.Transformer(width=384, heads=6, layers=6)
    return workloads.build_model(workload.model)  # type: ignore[arg-type]


def timed(step: Callable[[], None], steps: int) -> float:
    """Return a step in ns, over a block that begins and ends with idle devices, all ranks there."""
    for _ in range(WARMUP):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start) / steps


def under(setting: Setting, model: nn.Module, step: Callable[[], None], steps: int) -> float:
    with setting(model):
        return timed(step, steps)


def measured(model: nn.Module, step: Callable[[], None], chosen: list[str], options: Any) -> dict[str, list[float]]:
    """Return each setting's blocks, each between two unprofiled ones, whose mean stands beside it as `NAME plain`."""
    samples: dict[str, list[float]] = {name: [] for setting in chosen for name in (setting, f"{setting} plain")}
    for _ in range(options.rounds):
        before = timed(step, options.steps)
        for setting in chosen:
            samples[setting].append(under(SETTINGS[setting], model, step, options.steps))
            after = timed(step, options.steps)
            samples[f"{setting} plain"].append((before + after) / 2)
            before = after
    return samples


def show(name: str, chosen: list[str], samples: dict[str, list[float]]) -> None:
    for setting in chosen:
        plain = samples[f"{setting} plain"]
        ratios = [cost / beside for cost, beside in zip(samples[setting], plain, strict=True)]
        step_ms, plain_ms = (statistics.median(values) / 1e6 for values in (samples[setting], plain))
        ratio = f"x{statistics.median(ratios):.3f}   [{min(ratios):.3f}, {max(ratios):.3f}]"
        print(f"{name:12} {setting:22} {step_ms:9.3f} ms, unprofiled {plain_ms:9.3f} ms   {ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    options = parser.parse_args()
    ddp = "LOCAL_RANK" in os.environ
    if ddp:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    chosen = options.settings.split(",")
    for name in options.workloads.split(","):
        model, step = train_step(WORKLOADS[name], ddp)
        for _ in range(20):
            step()
        samples = measured(model, step, chosen, options)
        if int(os.environ.get("RANK", 0)) == 0:
            show(name, chosen, samples)
            print(json.dumps({"workload": name, **samples}), file=sys.stderr)
        del model, step
    if ddp:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
