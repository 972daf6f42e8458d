"""nn.DataParallel: one process, all devices."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from tracer.config import RecordConfig
from tracer.workload.strategies.protocol import WorkloadStrategy


class DataParallelStrategy(WorkloadStrategy):
    """A batch split over the process's devices, weights copied to each in every forward."""

    def wrap(self, model: nn.Module, units: Sequence[nn.Module], config: RecordConfig) -> nn.Module:
        """Wrap the model in DataParallel over all devices."""
        return nn.DataParallel(model, device_ids=list(range(config.devices)))
