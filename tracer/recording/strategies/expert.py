"""Expert parallelism: which modules' experts lie on different ranks."""

from __future__ import annotations

from typing import Any

from analyzers.run import StyledModules
from tracer.recording.strategies.module_names import grouped
from tracer.recording.strategies.parallel_styles import styled_modules
from tracer.recording.strategies.program import Program
from tracer.recording.strategies.protocol import RecordedStrategy

# What programs call the dimension: torchtitan and Megatron.
_DIMS = {"ep", "expert", "expert_parallel"}


class Expert(RecordedStrategy):
    """Tokens sent to the ranks that have their experts, and back."""

    name = "expert"

    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return a row for the modules that are alike."""
        rows = [row for row in styled_modules(program) if is_of_experts(row)]
        return {"expert": grouped(rows)} if rows else None


def is_of_experts(row: StyledModules) -> bool:
    """Whether a style names experts (torchtitan's ExpertParallel), or a dimension of experts splits parameters."""
    return any("Expert" in style for style in row.styles) or bool(_DIMS & set(row.dims) and row.placements)
