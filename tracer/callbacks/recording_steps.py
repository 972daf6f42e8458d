"""`RecordingSteps`: a session behind a callback, which never ends the training."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path

from torch import nn

from tracer.config import Plan
from tracer.errors import TracerError
from tracer.sessions import OnReport, Session

_LOG = logging.getLogger("tracer")


class RecordingSteps:
    """Drive a session step by step. What goes wrong is logged and ends the recording, not the training."""

    def __init__(self, output: str | Path, plan: Plan | None, force: bool, on_report: OnReport | None) -> None:
        """Raises UsageError where the plan cannot be followed: nothing has been trained yet."""
        self._plan = plan or Plan()
        self._plan.check()
        self._output = output
        self._force = force
        self._on_report = on_report
        self._session: Session | None = None
        self.has_begun = False

    def begin(self, model: nn.Module, steps: float | None = None) -> None:
        """Make a session for a training of so many steps, if that is known; the recording begins after its first."""
        self.has_begun = True
        known = int(steps) if steps is not None and 0 < steps < math.inf else None
        self._try(lambda: self._new_session(model, known))

    def step(self) -> None:
        """Say that the optimizer has stepped."""
        if self._session is not None:
            self._try(self._session.step)

    def end(self) -> None:
        """Keep the rounds that are complete, now that training has ended."""
        if self._session is not None:
            self._try(self._session.close)
        self._session, self.has_begun = None, False

    def fail(self, error: BaseException) -> None:
        """Keep what all ranks have: training has failed, and the other ranks learn why."""
        if self._session is not None:
            self._session.__exit__(type(error), error, error.__traceback__)
        self._session, self.has_begun = None, False

    def _new_session(self, model: nn.Module, steps: int | None) -> None:
        self._session = Session(
            self._output, model, plan=self._plan, steps=steps, force=self._force, strict=True, on_report=self._on_report
        )

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except TracerError as error:
            self._session = None
            _LOG.warning("%s: not recorded whole: %s", self._output, error)
