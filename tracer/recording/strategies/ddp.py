"""DistributedDataParallel, which alone can leave out gradient synchronization."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from tracer.recording.strategies.program import Program, ddp_of, is_replicated
from tracer.recording.strategies.protocol import RecordedStrategy


class Ddp(RecordedStrategy):
    """Gradients all-reduced in buckets during the backward."""

    name = "ddp"

    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return that it is used; its settings are DDP's own logging data, in `settings`."""
        used = any(ddp_of(model) is not None or is_replicated(model) for model in program.models)
        return {} if used else None

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None] | None:
        """Return DDP's `no_sync`."""
        ddp = ddp_of(model)
        return None if ddp is None else ddp.no_sync()
