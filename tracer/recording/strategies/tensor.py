"""Tensor and sequence parallelism: modules split, in which style."""

from __future__ import annotations

from typing import Any

from tracer.recording.strategies.context import is_of_context
from tracer.recording.strategies.expert import is_of_experts
from tracer.recording.strategies.module_names import grouped
from tracer.recording.strategies.parallel_styles import styled_modules
from tracer.recording.strategies.program import Program
from tracer.recording.strategies.protocol import RecordedStrategy


class Tensor(RecordedStrategy):
    """Weights split within a module, activations gathered or reduced around it."""

    name = "tensor"

    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return a row for the modules that are alike."""
        rows = [row for row in styled_modules(program) if not is_of_experts(row) and not is_of_context(row)]
        return {"tensor": grouped(rows)} if rows else None
