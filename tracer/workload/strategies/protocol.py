"""What a strategy of the built-in workload does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import nn

from tracer.config import RecordConfig


class WorkloadStrategy(ABC):
    """One process for each device with a model of its own; strategies differ from this where they say so."""

    # Whether a forward takes all ranks, so that one rank alone cannot test the model.
    forward_takes_all_ranks = False

    def units(self, model: nn.Module, shards: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """Return what is compiled and wrapped module by module: the whole model, or `shards`, its repeated parts."""
        return [model]

    @abstractmethod
    def wrap(self, model: nn.Module, units: Sequence[nn.Module], config: RecordConfig) -> nn.Module:
        """Return the model as it is trained."""

    def synchronized_at_last(self, model: nn.Module, number: int, count: int) -> AbstractContextManager[None]:
        """Return where microbatch `number` of `count` runs, from 1: gradients are synchronized with the last."""
        return nullcontext()
