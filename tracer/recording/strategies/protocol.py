"""What each strategy is asked about a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from torch import nn

from tracer.recording.strategies.program import Program


class RecordedStrategy(ABC):
    """One strategy, `name` in run.json. Whoever looks at a program imports nothing that it has not imported itself."""

    name: ClassVar[str]

    @abstractmethod
    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return what fields of `analyzers.run.Parallelism` say of it; None where the program does not use it.

        What it raises costs its own description alone.
        """

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None] | None:
        """Return where steps run without gradient synchronization; None where it cannot leave that out."""
        return None
