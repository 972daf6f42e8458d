"""A recording session: watches a training loop step by step, times it with and without the profiler, writes traces.

The session never calls the training step. The loop calls `session.step()` after each of its steps, and the session
decides what the next ones are for:

    wait     | round: unprofiled | light profile | no-sync | full profile | round: ... | light profile, no-sync
    settling | a block: `warmup` untimed steps, then `active` timed ones; ranks meet and devices are idle at its edges

Interleaving lets drift fall on all blocks alike. Every round leaves its traces in a folder of its own, for whoever
assembles the run to choose a typical one; the last block profiles steps without gradient synchronization.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from analyzers.run import LIGHT, NOSYNC
from tracer import compat
from tracer.config import Plan
from tracer.ranges import module_ranges

Progress = Callable[[str, int, int], None]

# Where a round's traces lie until one is chosen.
ROUND = "round{number}"
FULL = "full"

# A rank that does not come within this time has failed or hangs; the launcher stops the others.
MEETING = timedelta(minutes=10)

PROFILES: dict[str, dict[str, Any]] = {
    # Device activity and its launches: the cheapest profile there is, without steps and operators.
    "light": {"activities": [ProfilerActivity.CUDA]},
    "full": {"activities": [ProfilerActivity.CPU, ProfilerActivity.CUDA], "record_shapes": True},
    # On a CPU run the operators are the device's activity, so that one profile says everything.
    "cpu": {"activities": [ProfilerActivity.CPU], "record_shapes": True},
}


class SessionIncomplete(Exception):
    """The training loop ended before the recording had all its steps."""


@dataclass(frozen=True)
class Block:
    """Steps of one sort: the control it samples, the profile it runs under, the folder that keeps its trace."""

    label: str
    control: str | None = None
    profile: str | None = None
    nosync: bool = False
    folder: Path | None = None


class Session:
    """Record a training loop: enter the session, train a step, call `step()`, until that returns False.

    `samples_ns` then holds, for each control, the mean step of each of its blocks in ns. Leaving earlier raises
    SessionIncomplete.
    """

    def __init__(
        self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, plan: Plan, progress: Progress
    ) -> None:
        self.samples_ns: dict[str, list[int]] = {}
        self._folder = folder
        self._model = model
        self._optimizer = optimizer
        self._plan = plan
        self._progress = progress
        self._gpus = _gpus(model)
        self._blocks = _blocks(plan, folder, not self._gpus, isinstance(model, DistributedDataParallel))
        self._total = plan.wait + len(self._blocks) * (plan.warmup + plan.active)
        self._label = "settling"
        self._done = 0
        self._finished = False
        self._meetings = 0
        self._schedule = self._run()

    def __enter__(self) -> Session:
        self._progress(self._label, 0, self._total)
        next(self._schedule)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._schedule.close()
        if kind is None and not self._finished:
            raise SessionIncomplete(f"training ended after {self._done} steps; this recording takes {self._total}")

    def step(self) -> bool:
        """Say that a training step has ended. False once the recording is complete."""
        self._done += 1
        self._progress(self._label, self._done, self._total)
        self._finished = next(self._schedule, True) is True
        return not self._finished

    def _run(self) -> Generator[None, None, None]:
        """The whole recording; each `yield` is one training step of the caller."""
        for _ in range(self._plan.wait):
            yield
        for block in self._blocks:
            self._label = block.label
            with _without_sync(self._model, self._optimizer) if block.nosync else nullcontext():
                yield from self._profiled(block) if block.profile else self._timed(block)

    def _timed(self, block: Block) -> Iterator[None]:
        for _ in range(self._plan.warmup):
            yield
        start_ns = self._edge()
        for _ in range(self._plan.active):
            yield
        self._sample(block, start_ns)

    def _profiled(self, block: Block) -> Iterator[None]:
        plan = self._plan
        cycle = schedule(wait=0, warmup=plan.warmup, active=plan.active, repeat=1)
        # Ranges cost host time, which a light window is there to save.
        ranges = nullcontext() if block.profile == "light" else module_ranges(self._model)
        with ranges, profile(schedule=cycle, acc_events=True, **PROFILES[block.profile or ""]) as profiler:
            for _ in range(plan.warmup):
                yield
                self._synchronize()
                profiler.step()
            start_ns = self._edge()
            for step in range(plan.active):
                yield
                if step == plan.active - 1:
                    self._sample(block, start_ns)
                profiler.step()
        if block.folder is not None:
            block.folder.mkdir(parents=True, exist_ok=True)
            rank, _ = compat.rank_and_size()
            profiler.export_chrome_trace(str(block.folder / f"rank{rank}.json.gz"))

    def _edge(self) -> int:
        """Devices idle, all ranks here: the moment a block begins, in ns."""
        self._synchronize()
        self._meet()
        return time.perf_counter_ns()

    def _sample(self, block: Block, start_ns: int) -> None:
        self._synchronize()
        if block.control is not None:
            step_ns = (time.perf_counter_ns() - start_ns) // self._plan.active
            self.samples_ns.setdefault(block.control, []).append(step_ns)

    def _synchronize(self) -> None:
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)

    def _meet(self) -> None:
        """Wait for all ranks, on the host alone: a collective would put a kernel of ours into the trace."""
        _, size = compat.rank_and_size()
        if size == 1:
            return
        store = compat.meeting_store(f"tracer-meeting-{self._meetings}")
        self._meetings += 1
        if store.add("arrived", 1) == size:
            store.set("open", "")
        store.wait(["open"], MEETING)


def _blocks(plan: Plan, folder: Path, on_cpu: bool, is_ddp: bool) -> list[Block]:
    """All blocks in order. A profile is always followed by unprofiled steps, in which CUPTI detaches itself."""
    blocks = []
    for number in range(1, plan.rounds + 1):
        prefix = f"round {number} of {plan.rounds}"
        traces = folder / ROUND.format(number=number)
        blocks.append(Block(f"{prefix}: unprofiled", "unprofiled"))
        if not on_cpu:
            blocks.append(Block(f"{prefix}: light profile", "light", "light", folder=traces / LIGHT))
        if is_ddp:
            blocks.append(Block(f"{prefix}: without gradient synchronization", "nosync", nosync=True))
        else:
            blocks.append(Block(f"{prefix}: settling"))
        full = "cpu" if on_cpu else "full"
        blocks.append(Block(f"{prefix}: full profile", "full", full, folder=traces / FULL))
    if is_ddp:
        window = "cpu" if on_cpu else "light"
        blocks.append(Block("settling"))
        blocks.append(Block("profile without gradient synchronization", None, window, True, folder / NOSYNC))
    return blocks


@contextmanager
def _without_sync(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """DDP without gradient synchronization; afterwards every replica is again what all were before."""
    assert isinstance(model, DistributedDataParallel)
    state = [*model.parameters(), *model.buffers()]
    state += [value for values in optimizer.state.values() for value in values.values() if isinstance(value, Tensor)]
    saved = [tensor.detach().clone() for tensor in state]
    with model.no_sync():
        yield
    with torch.no_grad():
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)


def _gpus(model: nn.Module) -> list[int]:
    """The GPUs this process drives; touching any other would create a context there."""
    if isinstance(model, nn.DataParallel):
        return list(model.device_ids)
    return sorted({parameter.device.index for parameter in model.parameters() if parameter.device.type == "cuda"})
