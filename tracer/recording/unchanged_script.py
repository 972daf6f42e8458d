"""Recording of an unchanged script: counts optimizer steps and finds the model.

The hook arms this in every process of the script that imports torch. A process in which no optimizer steps (a
loader's worker, a launcher) is left alone. Whatever goes wrong here ends the recording, never the training.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from tracer.config import Hook, hooked
from tracer.errors import TracerError
from tracer.recording import torch_compat as compat
from tracer.recording.model_facts import find_model
from tracer.recording.rank_part import facts_of, read_parts, recordings
from tracer.recording.rank_process import (
    RECORDED,
    claim,
    die_with,
    has_session,
    leave_notes,
    leave_reason,
    seldom_progress_of,
)
from tracer.recording.recorder import Recorder, Subject
from tracer.recording.rendezvous import Meeting
from tracer.recording.windows import is_ours, other_user

# A script whose ranks do not all train waits this long, once.
PATIENCE = timedelta(minutes=2)
# So many steps of others, one after the other, and the optimizer that steps are counted by steps no more.
SILENCE = 200


def arm() -> None:
    """Count this process's training steps from now on."""
    hook = hooked()
    if hook is None:
        return
    die_with(hook.launcher)
    watched = Watched(hook)
    _after_steps(watched)
    _before_profilers(watched)
    atexit.register(watched.end)


class Watched:
    """One process of the script, from its first optimizer step on; steps that GradScaler skipped count."""

    def __init__(self, hook: Hook) -> None:
        self.is_disabled = False
        self._hook = hook
        self._counter = StepCounter(hook.plan.wait)
        self._recorder: Recorder | None = None
        self._why_not: str | None = None
        self._notes: list[str] = []
        self._captures = False
        self._pid = os.getpid()

    def stepped(self, optimizer: Optimizer) -> None:
        """Count a step that an optimizer has made; one that a CUDA graph is captured from is not made yet.

        Raises SystemExit where every rank that tracer has started would train the same by itself.
        """
        if self.is_disabled:
            return
        if compat.is_capturing():
            self._never_raise(self._note_capture)
        else:
            self._never_raise(lambda: self._count(optimizer))

    def disable(self, why: str) -> None:
        """Stop recording, and say why."""
        if self.is_disabled or self._is_a_fork():
            return
        leave_reason(Path(self._hook.folder), why)
        self._why_not = why
        if self._recorder is not None:
            self._end(why)

    def end(self) -> None:
        """Stop when the process ends: what it has recorded is on disk already."""
        if self._recorder is None or self._is_a_fork():
            return
        if self._counter.has_stopped:
            # Too few steps to say so before.
            leave_reason(Path(self._hook.folder), "the optimizer that steps were counted by stopped; another went on")
        self._end("its training ended", self._counter.steps if self._counter.is_told else None)

    def _count(self, optimizer: Optimizer) -> None:
        if self._is_a_fork():
            return
        if self._recorder is None:
            self._begin(optimizer)
        if self._recorder is None:
            return
        if self._counter.count(id(optimizer), threading.get_ident(), type(optimizer).__name__):
            self._step(self._recorder)

    def _note_capture(self) -> None:
        """Say once that steps go by unseen which a CUDA graph replays."""
        if not self._captures:
            self._captures = True
            leave_reason(
                Path(self._hook.folder),
                "an optimizer's step was captured in a CUDA graph; where that is replayed, nothing here sees a step: "
                "use tracer.Session",
            )

    def _see_that_ranks_met(self) -> None:
        """See whether the ranks that torchrun or tracer has started are in a process group: else each trains alone.

        Raises SystemExit where tracer has chosen how many there are.
        """
        ranks = os.environ.get("WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else "1"
        if ranks == "1" or compat.backend() is not None:
            return
        alone = f"the script joined no process group in its first step: each of its {ranks} ranks"
        folder = Path(self._hook.folder)
        if self._hook.once:
            self.is_disabled = True
            once = f"To record it on one: {self._hook.once}"
            leave_reason(folder, f"{alone} would train all by itself, and was stopped. {once}")
            raise SystemExit(1)
        self._notes = [f"{alone} trains by itself, and one of them is recorded"]
        if os.environ.get("RANK") == "0":
            leave_notes(folder, [f"warning: {note}" for note in self._notes])

    def _begin(self, optimizer: Optimizer) -> None:
        """Begin to record, after the first step of all, unless something is against it."""
        self._see_that_ranks_met()
        if has_session():
            # The script has a session of its own, which fills the same folder.
            self.is_disabled = True
            return
        model = find_model(optimizer)
        if self._why_not is None and (why := self._objection(model)) is not None:
            self.disable(why)
        if self._why_not is not None or model is None:
            self.is_disabled = True
            # Other ranks may record: they need not wait for this one.
            Meeting().leave(self._why_not or "")
            return
        folder = Path(self._hook.folder)
        subject = Subject(model, facts_of(model, self._hook.command, self._notes))
        progress = seldom_progress_of(compat.rank_and_size()[0], folder)
        self._recorder = Recorder(
            folder,
            subject,
            self._hook.plan,
            progress,
            _mark_recorded,
            PATIENCE,
            tell=lambda text: leave_notes(folder, [text]),
        )
        self._recorder.begin()

    def _objection(self, model: nn.Module | None) -> str | None:
        """Why a process that trains this model is not recorded; one that is has its rank for itself from now on."""
        if model is None:
            return "an optimizer stepped, but there is no module with parameters that require gradients"
        other = other_user()
        if other is not None:
            return f"{other} uses CUPTI in the script's process, and there can be but one"
        rank, _ = compat.rank_and_size()
        folder = Path(self._hook.folder)
        if _has_recorded(folder, rank) or not claim(folder, rank):
            return f"another process of the script was recorded as rank {rank} before"
        return None

    def _step(self, recorder: Recorder) -> None:
        if has_session():
            self._end("the script has a session of its own")
        elif not recorder.step():
            self._release_model()

    def _release_model(self) -> None:
        """Do nothing any more; nor may the model live on here that the script has done with."""
        self.is_disabled = True
        self._recorder = None

    def _end(self, why: str, trained: int | None = None) -> None:
        recorder = self._recorder
        self._release_model()
        if recorder is not None:
            with suppress(Exception):
                recorder.close(why, trained)

    def _is_a_fork(self) -> bool:
        """Whether this is a copy of the process that records. Before that begins, a copy may be what trains."""
        if os.getpid() == self._pid:
            return False
        if self._recorder is None:
            self._pid = os.getpid()
        return self._recorder is not None

    def _never_raise(self, act: Callable[[], None]) -> None:
        """Do something that the training must not fail from."""
        try:
            act()
        except Exception as error:
            self.disable(f"{type(error).__name__}: {error}" if not isinstance(error, TracerError) else str(error))


def _mark_recorded(recording: Path) -> None:
    """Say that this rank has a recording, which may be put in its place, and so be no longer in the folder."""
    rank, _ = compat.rank_and_size()
    (recording.parent / RECORDED.format(rank=rank)).touch()


def _has_recorded(folder: Path, rank: int) -> bool:
    """Whether a process that may have ended has left of this rank what can be used."""
    parts = [part for recording in recordings(folder) for part in read_parts(recording)]
    return (folder / RECORDED.format(rank=rank)).exists() or any(part.rank == rank and part.rounds for part in parts)


def _after_steps(watched: Watched) -> None:
    """Hear of every optimizer's step, and of those that GradScaler skipped."""
    within = threading.local()
    _after_own_steps(watched, within)
    _after_scaled_steps(watched, within)


def _after_own_steps(watched: Watched, within: threading.local) -> None:
    """Hear of every optimizer's step, once torch's own range around it is closed.

    torch's post hooks run inside of that range, so that the profiler's steps would begin in the middle of it. Of
    optimizers that step within a step (ZeroRedundancyOptimizer's, a subclass's super().step()) the outer one counts.
    """
    patch = Optimizer.profile_hook_step

    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        ranged = patch(step)

        @wraps(ranged)
        def stepping(self: Optimizer, *arguments: Any, **options: Any) -> Any:
            # Within torch.compile it would break the graph to hear of a step.
            if torch.compiler.is_compiling() or watched.is_disabled or getattr(within, "step", False):
                return ranged(self, *arguments, **options)
            within.step = True
            try:
                result = ranged(self, *arguments, **options)
            finally:
                within.step = False
            within.heard = True
            watched.stepped(self)
            return result

        return stepping

    Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[method-assign, assignment]


def _after_scaled_steps(watched: Watched, within: threading.local) -> None:
    """Hear of a step that GradScaler skipped: `within.heard` says whether the optimizer has been heard of in it."""
    scaled = torch.amp.GradScaler.step

    @wraps(scaled)
    def scaled_step(self: Any, optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
        if watched.is_disabled:
            return scaled(self, optimizer, *arguments, **options)
        within.heard = False
        result = scaled(self, optimizer, *arguments, **options)
        if not within.heard:
            # Its gradients were not finite, and the optimizer was not asked; the step was trained all the same.
            watched.stepped(optimizer)
        return result

    torch.amp.GradScaler.step = scaled_step  # type: ignore[method-assign]


def _before_profilers(watched: Watched) -> None:
    """Hear of every profiler that is not ours: there can be but one, and the script's goes first."""
    for kind in (torch.profiler.profiler._KinetoProfile, torch.autograd.profiler.profile):
        _hear_of(kind, watched)


def _hear_of(kind: Any, watched: Watched) -> None:
    make = kind.__init__

    @wraps(make)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
        if not is_ours() and (arguments[:1] or [options.get("enabled", True)])[0] is not False:
            watched.disable("the script uses torch.profiler itself: `tracer report` reads the traces that it writes")
        make(self, *arguments, **options)

    kind.__init__ = __init__


class StepCounter:
    """A training step ends with a step of the optimizer that steps least often during the wait.

    If a GAN's discriminator steps five times per generator step, the generator's optimizer counts; among equals the one
    that stepped last. The first of all counts until the wait ends: the one that takes over then does not count the
    iteration that was counted already. During the wait another optimizer or thread may take over; afterwards
    none may: a profiler records the thread that it began in.
    """

    def __init__(self, wait: int) -> None:
        self.steps = 0  # of the training
        self._wait = wait
        self._seen: Counter[int] = Counter()
        self._clock: int | None = None
        self._thread = 0
        self._silent = 0
        self._is_counted = False  # the iteration in which another takes over, by the first one's step

    def count(self, optimizer: int, thread: int, name: str) -> bool:
        """Count a step of an optimizer, which `name` is the class of; return whether it ends a training step.

        Raises TracerError where those that do can no longer be told.
        """
        if self._clock is None:
            self._clock, self._thread = optimizer, thread
        if thread != self._thread:
            if optimizer != self._clock:
                return False
            if self.steps >= self._wait:
                raise TracerError("the optimizer that steps are counted by went on in another thread")
            self._thread = thread
        self._seen[optimizer] += 1
        if optimizer == self._clock:
            if self._is_counted:
                self._is_counted, self._silent = False, 0
                return False
            self._end_step()
            return True
        self._silent += 1
        if self._silent == SILENCE:
            if self.steps >= self._wait:
                raise TracerError(
                    f"the optimizer that steps were counted by has stopped, while another ({name}) goes on"
                )
            self._clock, self._silent = optimizer, 0
        return False

    @property
    def is_told(self) -> bool:
        """Whether steps are the training's own: of several optimizers others count at first than do in the end."""
        return len(self._seen) == 1

    @property
    def has_stopped(self) -> bool:
        """Whether others have stepped on since the last training step, more often than there were training steps."""
        return self._silent > self.steps

    def _end_step(self) -> None:
        self.steps += 1
        self._silent = 0
        if self.steps == self._wait:
            # The counter keeps the order in which optimizers came.
            last = min(reversed(self._seen), key=self._seen.__getitem__)
            # It steps as often, and has yet to step in this iteration.
            self._is_counted = self._seen[last] == self._seen[self._clock or 0] - 1
            self._clock = last
