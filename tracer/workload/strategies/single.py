"""One process on one device."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from tracer.config import RecordConfig
from tracer.workload.strategies.protocol import WorkloadStrategy


class SingleStrategy(WorkloadStrategy):
    """The model by itself."""

    def wrap(self, model: nn.Module, units: Sequence[nn.Module], config: RecordConfig) -> nn.Module:
        """Return the model as it is."""
        return model
