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
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from tracer import compat, session
from tracer.config import Hook, hooked
from tracer.manifest import facts_of
from tracer.models import find_model
from tracer.profiles import is_ours
from tracer.ranks import claim, die_with, leave_reason, progress_of
from tracer.recorder import Recorder, Subject

# A script whose ranks do not all train waits this long, once.
PATIENCE = timedelta(minutes=2)


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

    A training step ends with a step of the optimizer that steps least often during the wait: of a GAN's two, in which
    one steps five times as often as the other, that other. Steps that GradScaler skipped count.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._recorder: Recorder | None = None
        self._out = False
        self._pid = os.getpid()
        self._thread = 0
        self._seen: Counter[int] = Counter()
        self._names: dict[int, str] = {}
        self._clock = 0

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        if self._out or os.getpid() != self._pid:
            return
        key = id(optimizer)
        if self._recorder is None:
            self._guard(lambda: self._begin(key))
        if self._out or threading.get_ident() != self._thread:
            return
        self._seen[key] += 1
        self._names[key] = type(optimizer).__name__
        if key == self._clock:
            self._guard(self._step)

    def stay_out(self, why: str) -> None:
        """Record no more, and say why."""
        if self._out or os.getpid() != self._pid:
            return
        self._out = True
        leave_reason(Path(self._hook.folder), why)
        if self._recorder is not None:
            self._recorder.close(why)

    def end(self) -> None:
        """The process ends: what it has recorded is on disk already."""
        if self._recorder is not None and not self._out and os.getpid() == self._pid:
            self._out = True
            self._guard(self._recorder.close)

    def seen_scaled(self, optimizer: Optimizer) -> int:
        """How often an optimizer has stepped so far."""
        return self._seen[id(optimizer)]

    def _begin(self, key: int) -> None:
        """Begin to record, after the first step of all."""
        if session.is_in_use():
            # The script has a session of its own, which fills the same folder.
            self._out = True
            return
        model = find_model()
        if model is None:
            self.stay_out("an optimizer stepped, but there is no module with parameters that require gradients")
            return
        folder = Path(self._hook.folder)
        facts = facts_of(model, self._hook.command, {})
        subject = Subject(model, facts)
        rank, _ = compat.rank_and_size()
        if not claim(folder, rank):
            self.stay_out(f"another process of the script was recorded as rank {rank} before")
            return
        recorder = Recorder(folder, subject, self._hook.plan, progress_of(rank, folder), patience=PATIENCE)
        self._thread, self._clock = threading.get_ident(), key
        self._recorder = recorder
        recorder.__enter__()

    def _step(self) -> None:
        recorder = self._recorder
        assert recorder is not None
        if recorder.done == self._hook.plan.wait - 1:
            # The counter keeps the order in which optimizers came: of those that step as often, the first.
            self._clock = min(self._seen, key=self._seen.__getitem__)
        if not recorder.step():
            self._out = True

    def _guard(self, act: Callable[[], None]) -> None:
        """Do something that the training must not fail from."""
        try:
            act()
        except Exception as error:
            self.stay_out(f"{type(error).__name__}: {error}" if not str(error) else str(error))


def _after_steps(watched: Watched) -> None:
    """Hear of every optimizer's step, once torch's own range around it is closed.

    torch's post hooks run inside of that range, so that the profiler's steps would begin in the middle of it.
    """
    patch = Optimizer.profile_hook_step

    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        ranged = patch(step)

        @wraps(ranged)
        def stepping(self: Optimizer, *arguments: Any, **options: Any) -> Any:
            result = ranged(self, *arguments, **options)
            watched.stepped(self)
            return result

        return stepping

    Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[method-assign, assignment]
    scaled = torch.amp.GradScaler.step

    @wraps(scaled)
    def scaled_step(self: Any, optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
        before = watched.seen_scaled(optimizer)
        result = scaled(self, optimizer, *arguments, **options)
        if watched.seen_scaled(optimizer) == before:
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
