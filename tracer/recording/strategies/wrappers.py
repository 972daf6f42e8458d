"""Models inside of DDP and DataParallel."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def ddp_of(model: nn.Module) -> DistributedDataParallel | None:
    """Return the DDP that a model is, compiled or not."""
    eager = getattr(model, "_orig_mod", model)
    return eager if isinstance(eager, DistributedDataParallel) else None


def inner(model: nn.Module) -> nn.Module:
    """Return the model inside DDP's or DataParallel's wrapper, which prefixes every name."""
    wrapper = ddp_of(model) or model
    unwrapped = wrapper.module if isinstance(wrapper, DistributedDataParallel | nn.DataParallel) else model
    assert isinstance(unwrapped, nn.Module)
    return unwrapped
