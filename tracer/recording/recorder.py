"""`Recorder`: profiles and times a training loop step by step.

The recorder never calls the training step. The loop calls `step()` after each of its steps, and the recorder decides
what the next ones are for:

    wait     | round: unprofiled | no-sync | light profile | full profile | round: ...
    settling | a block: `warmup` untimed steps, then `active` timed ones (`windows.step_blocks` has their order)

Training that is not ours may end at any step: while it settles, two of its first steps are profiled, and kept where it
ends before a round is whole. Interleaving lets drift fall on all blocks alike. Steps are timed by events on the device;
ranks meet and devices come to rest only at the edges of profiles. Devices are at rest, too, before the untimed steps in
which an unprofiled block times the host. Every round leaves its traces in a folder of its own, of which a typical one
is kept. With `every` there is another recording of one round every so many steps, each in a folder of its own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import msgspec
import torch
from torch import nn

from analyzers.run import HOST, LIGHT, NOSYNC, UNPROFILED, Parallelism, TrainingSettings
from analyzers.units import count
from tracer.config import EARLY_ACTIVE, EARLY_STEPS, EARLY_UNTIMED, EARLY_WARMUP, DeviceType, LightRecorder, Plan
from tracer.errors import SessionIncomplete, TracerError
from tracer.recording.device_states import open_gpus
from tracer.recording.host_states import HostWatch
from tracer.recording.model_facts import gpus_of
from tracer.recording.rank_part import (
    RUN,
    STEP,
    Facts,
    RankPart,
    RankRounds,
    RecordedSoFar,
    kept_rounds,
    part,
    read_parts,
    recordings,
    write_part,
)
from tracer.recording.rendezvous import PATIENCE, Meeting
from tracer.recording.strategies import Program, no_sync, parallelism_of, program_of, watched_splits, without_sync
from tracer.recording.torch_compat import rank_and_size
from tracer.recording.training_settings import Forwards, training_settings
from tracer.recording.windows import (
    EARLY,
    FULL,
    CuptiWindow,
    HostTimes,
    KinetoWindow,
    Outlook,
    PythonSamples,
    StepBlock,
    StepTimes,
    blocks_of_round,
    early_block,
    module_ranges,
    pace_s,
    why_unusable,
)

Progress = Callable[[str, int, int], None]
# So many of the untimed steps before an unprofiled block's begin with the devices at rest, to time their host; the last
# one does not, so that what is timed begins with a queue as full as it is in training.
HOST_STEPS = 2
NS_PER_S = 1_000_000_000
# What a part has as it is recorded so far.
_SO_FAR = ("rounds", "has_early", "step_numbers", "failed_light", "failed_nosync", "device_states")


def silent(label: str, done: int, total: int) -> None:
    """Do nothing: nobody asks how far it is."""


@dataclass(frozen=True)
class Subject:
    """What is recorded. Without an optimizer no step is trained without synchronization: it would change the training.

    With one, weights, buffers and the optimizer's state are put back after such steps. Where it `goes_on`, it trains as
    long as the recording wants, and more is added to the ranks' parts when that is complete. `uncounted` steps were
    taken before the recording began.
    """

    model: nn.Module
    facts: Facts
    optimizer: torch.optim.Optimizer | None = None
    goes_on: bool = False
    uncounted: int = 0

    @property
    def may_skip_sync(self) -> bool:
        """Whether there can be steps without gradient synchronization."""
        return self.optimizer is not None and no_sync(self.model) is not None


class Recorder:
    """Record a training loop: `begin()`, train a step, call `step()`, until that returns False; `close()` in any case.

    As a context manager it does both, and leaving it earlier raises SessionIncomplete. `on_recorded` hears, on every
    rank, of each folder that has all of it, and `tell`, on rank 0, what the recording will take.
    """

    def __init__(
        self,
        folder: Path,
        subject: Subject,
        plan: Plan,
        progress: Progress = silent,
        on_recorded: Callable[[Path], None] = lambda folder: None,
        patience: timedelta = PATIENCE,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.part: RankPart | None = None
        self.done = 0
        self._folder = folder
        self._subject = subject
        self._plan = plan
        self._progress = progress
        self._on_recorded = on_recorded
        self._tell = tell
        self._program = Program(subject.model)
        self._parallelism: Parallelism | None = None
        self._watching = ExitStack()
        self._gpus = gpus_of(subject.model)
        self._open_gpus = open_gpus(self._gpus)
        self._hosts = HostWatch()
        self._forwards = Forwards()
        self._training: TrainingSettings | None = None
        self.meeting = Meeting(patience)
        self.recorded = 0
        self._taken = RecordedSoFar(folder)
        self._identity = ""
        self._light: LightRecorder = plan.light
        self._why_not_cupti: str | None = None
        self._why_no_stacks: str | None = None
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

    def close(self, why: str = "its training ended", trained: int | None = None) -> None:
        """End the recording here; a profiler that is at work is stopped, and ranks that would wait learn why.

        `trained` is how many steps training has taken that has ended.
        """
        self._schedule.close()
        self._watching.close()
        if self._finished:
            return
        self.meeting.leave(why)
        if self.part is not None and self.part.kept_rounds is None:
            self.part = msgspec.structs.replace(self.part, trained=trained)
            with suppress(TracerError):  # what is kept does not need it
                write_part(self._taken.folder, self.part)

    @property
    def device(self) -> DeviceType:
        """Return what the model is on."""
        return "cuda" if self._gpus else "cpu"

    def how_far(self) -> str:
        """Return how far the recording came, and what would fit a training as short as this one."""
        done, total = self._subject.uncounted + self.done, self._subject.uncounted + self._total
        fits = self._plan.fitting(self.done, self.device) is not None
        shorter = f", and is shortened to fit with steps={done}" if fits else ""
        return f"training ended after {count(done, 'step')}; this recording takes {total}{shorter}"

    def is_first_here(self) -> bool:
        """Whether no lower rank fills the same folder."""
        return all(
            part.rank >= self.meeting.rank for recording in recordings(self._folder) for part in read_parts(recording)
        )

    def _run(self) -> Generator[None, None, None]:
        """The whole recording; each `yield` is one training step of the caller."""
        with self._hosts.collections:
            yield from self._recordings()

    def _recordings(self) -> Iterator[None]:
        plan = self._plan
        self._taken = taken = RecordedSoFar(self._place())
        self._identity = self.meeting.broadcast(uuid.uuid4().hex)
        self._program = program_of(self._subject.model, *rank_and_size())
        self._watching.enter_context(watched_splits(self._program))
        self._agree_on_light()
        nosync = self._subject.may_skip_sync
        self._total = plan.wait + self._length(plan.rounds, nosync)
        self._leave_part(taken)
        self.meeting.barrier()
        self._progress("settling", 0, self._total)
        yield from self._settling(taken)
        yield from self._recording(taken, plan.rounds, nosync)
        while plan.every is not None:
            self._label = None
            while (self.done - plan.wait) % plan.every:
                yield
            self._total = self.done + self._length(1, nosync=False)
            self._taken = taken = RecordedSoFar(self._place())
            self._leave_part(taken)
            yield from self._recording(taken, 1, nosync=False)

    def _settling(self, taken: RecordedSoFar) -> Iterator[None]:
        """Wait; where training may end early, two of its steps are profiled meanwhile."""
        plan, left, outlook = self._plan, self._plan.wait, None
        if not self._subject.goes_on and left >= EARLY_STEPS:
            for _ in range(EARLY_UNTIMED):
                yield
            yield from self._profiled(early_block(bool(self._gpus)), taken, EARLY_WARMUP, EARLY_ACTIVE)
            outlook = self._outlook(taken)
            taken.has_early = True
            self._leave_part(taken)
            left -= EARLY_STEPS
        ends_s: list[float] = []
        for _ in range(left):
            yield
            ends_s.append(time.perf_counter())
        step_s = pace_s(ends_s)
        if outlook is not None and step_s is not None and self.meeting.rank == 0:
            self._tell(outlook.in_words(plan, self.device, self.meeting.size, step_s))

    def _outlook(self, taken: RecordedSoFar) -> Outlook:
        """What the early window says, which has just been written."""
        hosts = self._hosts.states()
        file = taken.folder / EARLY / f"rank{self.meeting.rank}.json.gz"
        nbytes = file.stat().st_size if file.exists() else 0
        return Outlook(sum(hosts.host_ns) / NS_PER_S / EARLY_ACTIVE, time.time() - self._hosts.read_s, nbytes)

    def _length(self, rounds: int, nosync: bool) -> int:
        blocks = (self._round(number, rounds, nosync) for number in range(1, rounds + 1))
        return sum(block.length(self._plan) for of_round in blocks for block in of_round)

    def _round(self, number: int, rounds: int, nosync: bool) -> list[StepBlock]:
        return blocks_of_round(number, rounds, self._light if self._gpus else None, nosync)

    def _place(self) -> Path:
        """The folder of the recording that begins now."""
        return self._folder / (RUN if self._plan.every is None else STEP.format(number=self.done))

    def _recording(self, taken: RecordedSoFar, rounds: int, nosync: bool) -> Iterator[None]:
        self._hosts.forget()
        for number in range(1, rounds + 1):
            light = self._light
            for block in self._round(number, rounds, nosync):
                # In an order for CUPTI alone, where it has just failed, another profile would follow Kineto's.
                if block.keep != NOSYNC or light == self._light:
                    yield from self._block(block, taken)
        self._leave_part(taken, self._kept_rounds(taken))
        self.recorded += 1
        self._on_recorded(taken.folder)

    def _block(self, block: StepBlock, taken: RecordedSoFar) -> Iterator[None]:
        self._label = block.label
        with without_sync(self._subject.model, self._subject.optimizer) if block.nosync else nullcontext():
            if block.profile:
                yield from self._profiled(block, taken, self._plan.warmup, self._plan.active)
            else:
                yield from self._timed(block, taken)
        if block.ends_round:
            taken.rounds += 1
            self._leave_part(taken)

    def _timed(self, block: StepBlock, taken: RecordedSoFar) -> Iterator[None]:
        warmup = self._plan.warmup
        of_host = min(HOST_STEPS, warmup - 1) if self._gpus and block.control == UNPROFILED else 0
        yield from self._with_host_timed(of_host, taken)
        for _ in range(warmup - of_host):
            yield
        began_s, done, more = time.perf_counter(), 0, block.timed(self._plan)
        while more:
            yield from self._marked(more, block, taken)
            done, more = done + more, 0
            if block.goes_on(self._plan):
                # Ranks would not all say the same. They meet between stretches of steps: no step has that in it.
                more = int(self.meeting.broadcast(str(block.more(self._plan, done, time.perf_counter() - began_s))))
                self._total += more

    def _marked(self, steps: int, block: StepBlock, taken: RecordedSoFar) -> Iterator[None]:
        times = self._new_times(block, taken)
        for _ in range(steps):
            yield
            self._mark(times)

    def _with_host_timed(self, steps: int, taken: RecordedSoFar) -> Iterator[None]:
        times = HostTimes()
        if steps:
            taken.times.setdefault(HOST, {}).setdefault(taken.round, []).append(times)
        for _ in range(steps):
            self._synchronize()
            times.begin()
            yield
            times.end(self.done)

    def _profiled(self, block: StepBlock, taken: RecordedSoFar, warmup: int, active: int) -> Iterator[None]:
        # Ranges cost host time, which a light window is there to save.
        models = () if block.profile == "light" else self._program.models
        with ExitStack() as ranges, self._window(block, warmup, active) as window:
            for model in models:
                ranges.enter_context(module_ranges(model))
            if models:
                ranges.enter_context(self._forwards.watched(models[0], warmup + active))
            for step in range(warmup):
                yield
                if step == warmup - 1 and block.keep in (LIGHT, FULL):
                    self._hosts.read_clock()
                if step == warmup - 1 and block.keep == LIGHT:
                    # The devices still have this step to do, which is neither timed nor kept in the trace.
                    taken.device_states += [gpu.state(taken.round) for gpu in self._open_gpus]
                self._synchronize()
                window.step()
            self._synchronize()
            self.meeting.barrier()
            times = self._new_times(block, taken)
            samples = ranges.enter_context(PythonSamples(sampling=self._plan.stacks and block.keep in (FULL, EARLY)))
            for step in range(active):
                yield
                self._mark(times)
                if step == active - 1:
                    samples.end()
                    self._synchronize()
                window.step()
        if block.keep is not None:
            rows = [*self._hosts.rows(), *samples.rows()]
            window.write(taken.folder / block.folder(taken.round), self.meeting.rank, rows)
            self._why_no_stacks = self._why_no_stacks or samples.why_not
        if isinstance(window, CuptiWindow):
            self._agree_on(window, block, taken)

    def _window(self, block: StepBlock, warmup: int, active: int) -> CuptiWindow | KinetoWindow:
        if block.profile == "light" and self._light == "cupti":
            return CuptiWindow(warmup)
        return KinetoWindow(block.profile or "", warmup, active)

    def _new_times(self, block: StepBlock, taken: RecordedSoFar) -> StepTimes:
        """The times of a block that begins now."""
        times = StepTimes(self._gpus[0] if self._gpus else None)
        times.mark(self.done)
        self._hosts.begin(self.done)
        if block.control is not None:
            taken.times.setdefault(block.control, {}).setdefault(taken.round, []).append(times)
        return times

    def _mark(self, times: StepTimes) -> None:
        """Say that a step has ended that is timed."""
        times.mark(self.done)
        self._hosts.mark(self.done)

    def _agree_on_light(self) -> None:
        """Have all ranks' light windows recorded the same way: one that cannot use CUPTI alone decides for all."""
        if self._gpus and self._light == "cupti":
            self._why_not_cupti = self._first_objection(why_unusable())
            if self._why_not_cupti is not None:
                self._light = "kineto"

    def _agree_on(self, window: CuptiWindow, block: StepBlock, taken: RecordedSoFar) -> None:
        """Do without a window on all ranks that failed on one; if none succeeded before it, Kineto takes the next."""
        objection = self._first_objection(window.failure)
        if objection is None:
            return
        if block.control is None:
            taken.failed_nosync = objection
            return
        taken.failed_light[taken.round] = objection
        # Perhaps nothing recorded these steps: they are of no window.
        taken.times[block.control][taken.round] = []
        if taken.round == 1:
            self._light, self._why_not_cupti = "kineto", objection

    def _first_objection(self, why_not: str | None) -> str | None:
        """What the first rank has against CUPTI alone, if any has."""
        objections = self.meeting.gather(why_not or "")
        return self.meeting.broadcast(next(filter(None, objections), "")) or None

    def _synchronize(self) -> None:
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)

    def _kept_rounds(self, taken: RecordedSoFar) -> dict[str, int]:
        """Which round's traces all ranks keep, for each window."""
        answers = self.meeting.gather(msgspec.json.encode(taken.of_rank).decode())
        ranks = [msgspec.json.decode(text, type=RankRounds) for text in answers]
        told = self.meeting.broadcast(msgspec.json.encode(kept_rounds(ranks, taken.rounds) if ranks else {}).decode())
        return msgspec.json.decode(told, type=dict[str, int])

    def _leave_part(self, taken: RecordedSoFar, kept_rounds: dict[str, int] | None = None) -> None:
        """What this rank knows so far, on disk: whatever ends it, what it has is there."""
        if taken.rounds <= 1:
            # Before the first step of all some settings are not final; after a round they are.
            self._parallelism = parallelism_of(self._program)
        if taken.rounds > 0 or taken.has_early:
            self._watching.close()
            # Once: it looks at every object of the process.
            self._training = self._training or training_settings(self._subject.model, self._forwards)
        rank_part = part(self._program.models, self._subject.facts, self._parallelism)
        self.part = msgspec.structs.replace(
            rank_part,
            recording=f"{self._identity}-{taken.folder.name}",
            plan=self._plan,
            steps=self.done,
            of_steps=self._total,
            **{name: getattr(taken, name) for name in _SO_FAR},
            steps_ns=taken.of_rank.steps_ns,
            light=self._light if self._gpus else None,
            why_not_cupti=self._why_not_cupti,
            host_states=self._hosts.states(),
            training=self._training,
            kept_rounds=kept_rounds,
            why_no_nosync=_why_no_nosync(self._subject),
            why_no_stacks=self._why_no_stacks,
            ended=kept_rounds is not None and not self._subject.goes_on,
        )
        write_part(taken.folder, self.part)


def _why_no_nosync(subject: Subject) -> str | None:
    """Why there is no control without gradient synchronization; None where there is one."""
    if subject.may_skip_sync:
        return None
    if subject.optimizer is None:
        return "steps without gradient synchronization would change this training, and only it knows what else to undo"
    return f"only DDP can leave out gradient synchronization, not strategy {subject.facts.strategy}"
