"""DistributedDataParallel around the model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from tracer.config import RecordConfig
from tracer.recording import wrap_ddp
from tracer.workload.strategies.protocol import WorkloadStrategy


class DdpStrategy(WorkloadStrategy):
    """Gradients all-reduced in buckets."""

    def wrap(self, model: nn.Module, units: Sequence[nn.Module], config: RecordConfig) -> nn.Module:
        """Wrap the model in DDP, with its options."""
        options = config.ddp
        wrapped = wrap_ddp(
            model,
            options.broadcast_buffers,
            device_ids=None if config.device == "cpu" else [torch.cuda.current_device()],
            bucket_cap_mb=options.bucket_mb,
            find_unused_parameters=options.find_unused,
            gradient_as_bucket_view=options.gradient_as_bucket_view,
            static_graph=options.static_graph,
        )
        if options.comm_hook == "bf16":
            wrapped.register_comm_hook(None, bf16_compress_hook)
        return wrapped

    def synchronized_at_last(self, model: nn.Module, number: int, count: int) -> AbstractContextManager[None]:
        """Return DDP's no_sync, but for the last microbatch."""
        assert isinstance(model, DistributedDataParallel)
        return model.no_sync() if number < count else nullcontext()
