"""What a profile costs: steps under each profiler setting against unprofiled steps, interleaved in one process.

    python benchmarks/profiling.py [--rounds 6] [--steps 10] [--workloads resnet18,resnet50,transformer]

Prints, for each workload, the median step of each setting and its ratio to the unprofiled step next to it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from tracer.recording.module_ranges import module_ranges
from tracer.workload import models_and_data as workloads

CPU, CUDA = ProfilerActivity.CPU, ProfilerActivity.CUDA
SETTINGS: dict[str, dict[str, Any]] = {
    "cuda": {"activities": [CUDA]},
    "cpu+cuda": {"activities": [CPU, CUDA]},
    "+shapes": {"activities": [CPU, CUDA], "record_shapes": True},
    "+module ranges": {"activities": [CPU, CUDA], "record_shapes": True},
    "+with_modules": {"activities": [CPU, CUDA], "record_shapes": True, "with_stack": True, "with_modules": True},
}


@dataclass(frozen=True)
class Workload:
    model: str
    batch: int
    image_size: int
    bf16: bool


WORKLOADS = {
    "resnet18": Workload("resnet18", 128, 32, False),
    "resnet50": Workload("resnet50", 64, 224, True),
    "transformer": Workload("transformer", 32, 0, True),
}


def train_step(workload: Workload, ddp: bool) -> tuple[nn.Module, Callable[[], None]]:
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    model: nn.Module = workloads.build_model(workload.model).to(device)  # type: ignore[arg-type]
    if ddp:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    few = workloads.synthetic_batches(workload.model, workload.batch, workload.image_size, pinned=True)  # type: ignore[arg-type]
    batches = cycle(few)

    def step() -> None:
        inputs, targets = (t.to(device, non_blocking=True) for t in next(batches))
        with torch.autocast("cuda", torch.bfloat16) if workload.bf16 else nullcontext():
            loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step


def timed(step: Callable[[], None], steps: int, after: Callable[[], None] = lambda: None) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for number in range(steps):
        step()
        if number == steps - 1:
            torch.cuda.synchronize()
            end = time.perf_counter_ns()
        after()
    return (end - start) / steps


def profiled(name: str, model: nn.Module, step: Callable[[], None], steps: int) -> float:
    ranges = module_ranges(model) if name == "+module ranges" else nullcontext()
    with ranges, profile(schedule=schedule(wait=0, warmup=2, active=steps, repeat=1), **SETTINGS[name]) as profiler:
        for _ in range(2):
            step()
            torch.cuda.synchronize()
            profiler.step()
        return timed(step, steps, profiler.step)


def unprofiled(step: Callable[[], None], steps: int) -> float:
    for _ in range(2):
        step()
    return timed(step, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    options = parser.parse_args()
    ddp = "LOCAL_RANK" in os.environ
    if ddp:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    rank = int(os.environ.get("RANK", 0))
    for name in options.workloads.split(","):
        model, step = train_step(WORKLOADS[name], ddp)
        for _ in range(20):
            step()
        first = [unprofiled(step, options.steps) for _ in range(options.rounds)]
        samples: dict[str, list[float]] = {}
        ratios: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for setting in options.settings.split(","):
                plain = unprofiled(step, options.steps)
                cost = profiled(setting, model, step, options.steps)
                samples.setdefault("unprofiled", []).append(plain)
                samples.setdefault(setting, []).append(cost)
                ratios.setdefault(setting, []).append(cost / plain)
        if rank == 0:
            print(
                f"{name}: unprofiled {statistics.median(samples['unprofiled']) / 1e6:.3f} ms a step between profiles, "
                f"{statistics.median(first) / 1e6:.3f} ms before the first profile of the process"
            )
            for setting, values in ratios.items():
                step_ms = statistics.median(samples[setting]) / 1e6
                ratio = f"x{statistics.median(values):.3f}   [{min(values):.3f}, {max(values):.3f}]"
                print(f"  {setting:16} {step_ms:9.3f} ms   {ratio}", flush=True)
            print(json.dumps({"workload": name, "before": first, **samples}), file=sys.stderr)
        del model, step
    if ddp:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
