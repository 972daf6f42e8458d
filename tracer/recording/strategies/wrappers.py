"""Models inside of DDP and DataParallel."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

# DDP without a wrapper, as torchtitan's replicas have it.
_REPLICATE = "torch.distributed._composable.replicate"


def ddp_of(model: nn.Module) -> DistributedDataParallel | None:
    """Return the DDP that a model is, compiled or not."""
    eager = getattr(model, "_orig_mod", model)
    return eager if isinstance(eager, DistributedDataParallel) else None


def is_replicated(model: nn.Module) -> bool:
    """Whether `replicate` reduces a model's gradients: it wraps nothing, and makes the model's class one of its own."""
    return any(base.__module__ == _REPLICATE for base in type(model).__mro__)


def inner(model: nn.Module) -> nn.Module:
    """Return the model inside DDP's or DataParallel's wrapper, which prefixes every name."""
    wrapper = ddp_of(model) or model
    unwrapped = wrapper.module if isinstance(wrapper, DistributedDataParallel | nn.DataParallel) else model
    assert isinstance(unwrapped, nn.Module)
    return unwrapped
