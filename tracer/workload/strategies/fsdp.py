"""FSDP2 around the model's parts and the model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from tracer.config import RecordConfig
from tracer.workload.strategies.protocol import WorkloadStrategy


class FsdpStrategy(WorkloadStrategy):
    """Parameters sharded over all ranks, gathered part by part."""

    forward_takes_all_ranks = True

    def units(self, model: nn.Module, shards: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """Return the parts, each of which is gathered by itself."""
        return shards

    def wrap(self, model: nn.Module, units: Sequence[nn.Module], config: RecordConfig) -> nn.Module:
        """Shard the parts, then what of the model is in none."""
        for unit in units:
            fully_shard(unit)
        fully_shard(model)
        return model

    def synchronized_at_last(self, model: nn.Module, number: int, count: int) -> AbstractContextManager[None]:
        """Tell FSDP whether this microbatch's backward reduces gradients."""
        assert isinstance(model, FSDPModule)
        if count > 1:
            model.set_requires_gradient_sync(number == count)
        return nullcontext()
