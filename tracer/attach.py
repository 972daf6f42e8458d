"""Records a script that nobody changed: counts its optimizers' steps, finds its model, and keeps out of its way.

`tracer.hook` arms this in every process of the script that imports torch. A process in which no optimizer steps (a
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
from torch.optim import Optimizer

from tracer import compat, session
from tracer.config import Hook, hooked
from tracer.errors import TracerError
from tracer.manifest import facts_of
from tracer.meeting import Meeting
from tracer.models import find_model
from tracer.profiles import is_ours
from tracer.ranks import claim, die_with, leave_reason
from tracer.recorder import Recorder, Subject

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
    """One process of the script, from its first optimizer step on.

    A training step ends with a step of the optimizer that steps least often during the wait (of a GAN's two, of which
    one steps five times as often as the other, that other), or of those that do the last. Steps that GradScaler skipped
    count.
    """

    def __init__(self, hook: Hook) -> None:
        self.is_out = False
        self._hook = hook
        self._recorder: Recorder | None = None
        self._why_not: str | None = None
        self._pid = os.getpid()
        self._thread = 0
        self._seen: Counter[int] = Counter()
        self._clock = 0
        self._silent = 0

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        if self.is_out or self._is_a_fork():
            return
        if self._recorder is None:
            self._guard(lambda: self._begin(optimizer))
        if self._recorder is None:
            return
        key = id(optimizer)
        if threading.get_ident() != self._thread:
            if key == self._clock:
                self._guard(self._change_thread)
            return
        self._seen[key] += 1
        self._silent += 1
        if key == self._clock:
            self._silent = 0
            self._guard(self._step)
        elif self._silent == SILENCE:
            self._guard(lambda: self._change_clock(optimizer))

    def stay_out(self, why: str) -> None:
        """Record no more, and say why."""
        if self.is_out or self._is_a_fork():
            return
        leave_reason(Path(self._hook.folder), why)
        self._why_not = why
        if self._recorder is not None:
            self._end(why)

    def end(self) -> None:
        """The process ends: what it has recorded is on disk already."""
        if self._recorder is None or self._is_a_fork():
            return
        if self._silent > self._recorder.done:
            # Too few steps to say so before.
            leave_reason(Path(self._hook.folder), "the optimizer that steps were counted by stopped; another went on")
        self._end("its training ended")

    def _begin(self, optimizer: Optimizer) -> None:
        """Begin to record, after the first step of all."""
        if session.is_in_use():
            # The script has a session of its own, which fills the same folder.
            self.is_out = True
            return
        model = find_model(optimizer)
        rank, _ = compat.rank_and_size()
        folder = Path(self._hook.folder)
        if self._why_not is None and model is None:
            self.stay_out("an optimizer stepped, but there is no module with parameters that require gradients")
        elif self._why_not is None and not claim(folder, rank):
            self.stay_out(f"another process of the script was recorded as rank {rank} before")
        if self._why_not is not None or model is None:
            self.is_out = True
            # Other ranks may record: they need not wait for this one.
            Meeting().leave(self._why_not or "")
            return
        subject = Subject(model, facts_of(model, self._hook.command))
        self._thread, self._clock = threading.get_ident(), id(optimizer)
        self._recorder = Recorder(folder, subject, self._hook.plan, patience=PATIENCE)
        self._recorder.begin()

    def _step(self) -> None:
        recorder = self._recorder
        assert recorder is not None
        if session.is_in_use():
            self._end("the script has a session of its own")
            return
        if recorder.done == self._hook.plan.wait - 1:
            # The counter keeps the order in which optimizers came: of those that step as often the last one ends steps.
            self._clock = min(reversed(self._seen), key=self._seen.__getitem__)
        if not recorder.step():
            self._let_go()

    def _change_clock(self, optimizer: Optimizer) -> None:
        """The optimizer whose steps were counted steps no more, while another one does."""
        assert self._recorder is not None
        if self._recorder.done >= self._hook.plan.wait:
            name = type(optimizer).__name__
            self.stay_out(f"the optimizer that steps were counted by has stopped, while another ({name}) goes on")
        self._clock, self._silent = id(optimizer), 0

    def _change_thread(self) -> None:
        """The optimizer whose steps are counted steps in another thread now; a profiler records the one it began in."""
        assert self._recorder is not None
        if self._recorder.done >= self._hook.plan.wait:
            self.stay_out("the optimizer that steps are counted by went on in another thread")
            return
        self._thread = threading.get_ident()
        self._step()

    def _let_go(self) -> None:
        """Do nothing any more; nor may the model live on here that the script has done with."""
        self.is_out = True
        self._recorder = None

    def _end(self, why: str) -> None:
        recorder = self._recorder
        self._let_go()
        if recorder is not None:
            with suppress(Exception):
                recorder.close(why)

    def _is_a_fork(self) -> bool:
        """Whether this is a copy of the process that records. Before that begins, a copy may be what trains."""
        if os.getpid() == self._pid:
            return False
        if self._recorder is None:
            self._pid = os.getpid()
        return self._recorder is not None

    def _guard(self, act: Callable[[], None]) -> None:
        """Do something that the training must not fail from."""
        try:
            act()
        except Exception as error:
            self.stay_out(f"{type(error).__name__}: {error}" if not isinstance(error, TracerError) else str(error))


def _after_steps(watched: Watched) -> None:
    """Hear of every optimizer's step, once torch's own range around it is closed.

    torch's post hooks run inside of that range, so that the profiler's steps would begin in the middle of it. Of
    optimizers that step within a step (ZeroRedundancyOptimizer's, a subclass's super().step()) the outer one counts.
    """
    patch = Optimizer.profile_hook_step
    within = threading.local()

    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        ranged = patch(step)

        @wraps(ranged)
        def stepping(self: Optimizer, *arguments: Any, **options: Any) -> Any:
            # Within torch.compile it would break the graph to hear of a step.
            if torch.compiler.is_compiling() or watched.is_out or getattr(within, "step", False):
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
    scaled = torch.amp.GradScaler.step

    @wraps(scaled)
    def scaled_step(self: Any, optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
        if watched.is_out:
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
            watched.stay_out("the script uses torch.profiler itself: `tracer report` reads the traces that it writes")
        make(self, *arguments, **options)

    kind.__init__ = __init__
