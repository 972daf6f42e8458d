"""`Recorder`: profiles and times a training loop step by step.

The recorder never calls the training step. The loop calls `step()` after each of its steps, and the recorder decides
what the next ones are for:

    wait     | round: unprofiled | light profile | no-sync | full profile | round: ... | light profile, no-sync
    settling | a block: `warmup` untimed steps, then `active` timed ones; ranks meet and devices are idle at its edges

Interleaving lets drift fall on all blocks alike. Every round leaves its traces in a folder of its own, of which a
typical one is kept; the last block profiles steps without gradient synchronization. With `every` there is another
recording of one round every so many steps, each in a folder of its own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import msgspec
import torch
from torch import Tensor, nn

from analyzers.run import LIGHT, NOSYNC, DeviceState
from tracer.config import Plan
from tracer.errors import SessionIncomplete
from tracer.recording.device_states import open_gpus
from tracer.recording.model_facts import ddp_of, gpus_of
from tracer.recording.module_ranges import module_ranges
from tracer.recording.profiles import Profiling
from tracer.recording.rank_part import (
    FULL,
    ROUND,
    RUN,
    STEP,
    Facts,
    RankPart,
    part,
    read_parts,
    recordings,
    typical_round,
    write_part,
)
from tracer.recording.rendezvous import PATIENCE, Meeting

Progress = Callable[[str, int, int], None]


def silent(label: str, done: int, total: int) -> None:
    """Do nothing: nobody asks how far it is."""


@dataclass(frozen=True)
class Subject:
    """What is recorded. Without an optimizer no step is trained without synchronization: it would change the training.

    With one, weights, buffers and the optimizer's state are put back after such steps. Where it `goes_on`, more
    is added to the ranks' parts when the recording is complete.
    """

    model: nn.Module
    facts: Facts
    optimizer: torch.optim.Optimizer | None = None
    goes_on: bool = False

    @property
    def may_skip_sync(self) -> bool:
        """Whether there can be steps without gradient synchronization."""
        return self.optimizer is not None and ddp_of(self.model) is not None


@dataclass(frozen=True)
class StepBlock:
    """Steps of one sort: the control it samples, the profile it runs under, where its trace goes."""

    label: str
    control: str | None = None
    profile: str | None = None
    nosync: bool = False
    keep: str | None = None
    ends_round: bool = False


@dataclass
class RecordedSoFar:
    """What one recording has so far: a sample a block of each control, in ns, and how many rounds are complete.

    `device_states` has each device of this rank, round by round.
    """

    folder: Path
    samples_ns: dict[str, list[int]] = field(default_factory=dict)
    rounds: int = 0
    device_states: list[DeviceState] = field(default_factory=list)


class Recorder:
    """Record a training loop: `begin()`, train a step, call `step()`, until that returns False; `close()` in any case.

    As a context manager it does both, and leaving it earlier raises SessionIncomplete. `on_recorded` hears, on every
    rank, of each folder that has all of it.
    """

    def __init__(
        self,
        folder: Path,
        subject: Subject,
        plan: Plan,
        progress: Progress = silent,
        on_recorded: Callable[[Path], None] = lambda folder: None,
        patience: timedelta = PATIENCE,
    ) -> None:
        self.part: RankPart | None = None
        self.done = 0
        self._folder = folder
        self._subject = subject
        self._plan = plan
        self._progress = progress
        self._on_recorded = on_recorded
        self._gpus = gpus_of(subject.model)
        self._open_gpus = open_gpus(self._gpus)
        self.meeting = Meeting(patience)
        self.recorded = 0
        self._identity = ""
        self._label: str | None = "settling"
        self._total = plan.wait
        self._finished = False
        self._schedule = self._run()

    def __enter__(self) -> Recorder:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and not self._finished:
            raise SessionIncomplete(self.how_far())

    def begin(self) -> None:
        """Meet the other ranks: the next step is the first of the recording. Raises TracerError where they do not come.

        Every rank does, and none does twice.
        """
        next(self._schedule)

    def step(self) -> bool:
        """Say that a training step has ended. Returns False once the recording is complete."""
        self.done += 1
        self._finished = next(self._schedule, True) is True
        if self._label is not None:
            self._progress(self._label, self.done, self._total)
        return not self._finished

    def close(self, why: str = "its training ended") -> None:
        """End the recording here; a profiler that is at work is stopped, and ranks that would wait learn why."""
        self._schedule.close()
        if not self._finished:
            self.meeting.leave(why)

    def how_far(self) -> str:
        """Return how far the recording came."""
        return f"training ended after {self.done} steps; this recording takes {self._total}"

    def is_first_here(self) -> bool:
        """Whether no lower rank fills the same folder."""
        return all(
            part.rank >= self.meeting.rank for recording in recordings(self._folder) for part in read_parts(recording)
        )

    def _run(self) -> Generator[None, None, None]:
        """The whole recording; each `yield` is one training step of the caller."""
        plan = self._plan
        blocks = _blocks(plan.rounds, not self._gpus, self._subject.may_skip_sync)
        self._total = plan.wait + _length(plan, blocks)
        taken = RecordedSoFar(self._place())
        self._identity = self.meeting.told(uuid.uuid4().hex)
        self._leave_part(taken)
        self.meeting.together()
        self._progress("settling", 0, self._total)
        for _ in range(plan.wait):
            yield
        yield from self._recording(taken, blocks)
        while plan.every is not None:
            self._label = None
            while (self.done - plan.wait) % plan.every:
                yield
            blocks = _blocks(1, not self._gpus, nosync=False)
            self._total = self.done + _length(plan, blocks)
            taken = RecordedSoFar(self._place())
            self._leave_part(taken)
            yield from self._recording(taken, blocks)

    def _place(self) -> Path:
        """The folder of the recording that begins now."""
        return self._folder / (RUN if self._plan.every is None else STEP.format(number=self.done))

    def _recording(self, taken: RecordedSoFar, blocks: list[StepBlock]) -> Iterator[None]:
        for block in blocks:
            self._label = block.label
            with _without_sync(self._subject) if block.nosync else nullcontext():
                yield from self._profiled(block, taken) if block.profile else self._timed(block, taken)
            if block.ends_round:
                taken.rounds += 1
                self._leave_part(taken)
        self._leave_part(taken, self._kept_rounds(taken))
        self.recorded += 1
        self._on_recorded(taken.folder)

    def _timed(self, block: StepBlock, taken: RecordedSoFar) -> Iterator[None]:
        for _ in range(self._plan.warmup):
            yield
        start_ns = self._edge()
        for _ in range(self._plan.active):
            yield
        self._sample(block, taken, start_ns)

    def _profiled(self, block: StepBlock, taken: RecordedSoFar) -> Iterator[None]:
        plan = self._plan
        # Ranges cost host time, which a light window is there to save.
        ranges = nullcontext() if block.profile == "light" else module_ranges(self._subject.model)
        with ranges, Profiling(block.profile or "", plan.warmup, plan.active) as profiling:
            for step in range(plan.warmup):
                yield
                if step == plan.warmup - 1 and block.keep == LIGHT:
                    # The devices still have this step to do, which is neither timed nor kept in the trace.
                    taken.device_states += [gpu.state(taken.rounds + 1) for gpu in self._open_gpus]
                self._synchronize()
                profiling.step()
            start_ns = self._edge()
            for step in range(plan.active):
                yield
                if step == plan.active - 1:
                    self._sample(block, taken, start_ns)
                profiling.step()
        if block.keep is not None:
            folder = NOSYNC if block.nosync else f"{ROUND.format(number=taken.rounds + 1)}/{block.keep}"
            profiling.write(taken.folder / folder, self.meeting.rank)

    def _edge(self) -> int:
        """Devices idle, all ranks here: the moment a block begins, in ns."""
        self._synchronize()
        self.meeting.together()
        return time.perf_counter_ns()

    def _sample(self, block: StepBlock, taken: RecordedSoFar, start_ns: int) -> None:
        self._synchronize()
        if block.control is not None:
            step_ns = (time.perf_counter_ns() - start_ns) // self._plan.active
            taken.samples_ns.setdefault(block.control, []).append(step_ns)

    def _synchronize(self) -> None:
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)

    def _kept_rounds(self, taken: RecordedSoFar) -> dict[str, int]:
        """Which round's traces all ranks keep, for each window."""
        windows = [window for window in (LIGHT, FULL) if window in taken.samples_ns]
        if taken.rounds == 1:
            return dict.fromkeys(windows, 1)
        answers = self.meeting.heard(msgspec.json.encode(taken.samples_ns).decode())
        samples = [msgspec.json.decode(text, type=dict[str, list[int]]) for text in answers]
        chosen = {
            window: typical_round([samples_ns[window] for samples_ns in samples]) for window in windows if samples
        }
        told = self.meeting.told(msgspec.json.encode(chosen).decode())
        return msgspec.json.decode(told, type=dict[str, int])

    def _leave_part(self, taken: RecordedSoFar, kept_rounds: dict[str, int] | None = None) -> None:
        """What this rank knows so far, on disk: whatever ends it, what it has is there."""
        rank_part = part(self._subject.model, self._subject.facts)
        self.part = msgspec.structs.replace(
            rank_part,
            recording=f"{self._identity}-{taken.folder.name}",
            plan=self._plan,
            steps=self.done,
            of_steps=self._total,
            rounds=taken.rounds,
            samples_ns=taken.samples_ns,
            device_states=taken.device_states,
            kept_rounds=kept_rounds,
            why_no_nosync=_why_no_nosync(self._subject),
            ended=kept_rounds is not None and not self._subject.goes_on,
        )
        write_part(taken.folder, self.part)


def _length(plan: Plan, blocks: list[StepBlock]) -> int:
    return len(blocks) * (plan.warmup + plan.active)


def _blocks(rounds: int, on_cpu: bool, nosync: bool) -> list[StepBlock]:
    """All blocks in order. A profile is always followed by unprofiled steps, in which CUPTI detaches itself."""
    blocks = []
    for number in range(1, rounds + 1):
        prefix = f"round {number} of {rounds}"
        blocks.append(StepBlock(f"{prefix}: unprofiled", "unprofiled"))
        if not on_cpu:
            blocks.append(StepBlock(f"{prefix}: light profile", "light", "light", keep=LIGHT))
        if nosync:
            blocks.append(StepBlock(f"{prefix}: without gradient synchronization", "nosync", nosync=True))
        else:
            blocks.append(StepBlock(f"{prefix}: settling"))
        full = "cpu" if on_cpu else "full"
        blocks.append(StepBlock(f"{prefix}: full profile", "full", full, keep=FULL, ends_round=True))
    if nosync:
        window = "cpu" if on_cpu else "light"
        blocks.append(StepBlock("settling"))
        blocks.append(StepBlock("profile without gradient synchronization", None, window, nosync=True, keep=NOSYNC))
    return blocks


def _why_no_nosync(subject: Subject) -> str | None:
    """Why there is no control without gradient synchronization; None where there is one."""
    if subject.may_skip_sync:
        return None
    if subject.optimizer is None:
        return "steps without gradient synchronization would change this training, and only it knows what else to undo"
    return f"only DDP can leave out gradient synchronization, not strategy {subject.facts.strategy}"


@contextmanager
def _without_sync(subject: Subject) -> Iterator[None]:
    """DDP without gradient synchronization; afterwards every replica is again what all were before."""
    model, optimizer = ddp_of(subject.model), subject.optimizer
    assert model is not None
    assert optimizer is not None
    state = [*model.parameters(), *model.buffers()]
    state += [value for values in optimizer.state.values() for value in values.values() if isinstance(value, Tensor)]
    saved = [tensor.detach().clone() for tensor in state]
    with model.no_sync():
        yield
    with torch.no_grad():
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)
