"""nn.DataParallel: one process drives several devices."""

from __future__ import annotations

from typing import Any

from torch import nn

from tracer.recording.strategies.program import Program
from tracer.recording.strategies.protocol import RecordedStrategy


class DataParallel(RecordedStrategy):
    """Weights copied to each device before the forward, gradients added up on the first."""

    name = "dp"

    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return that it is used; it has no settings that matter."""
        return {} if isinstance(program.model, nn.DataParallel) else None
