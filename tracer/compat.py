"""Where versions of torch differ. torch 2.11 to 2.15 are known to work; nothing else in the project asks for a version."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn


def default_store() -> dist.Store:
    """The store that the default process group was made with."""
    return cast(dist.Store, dist.distributed_c10d._get_default_store())


def ddp_logging_data(model: nn.parallel.DistributedDataParallel) -> dict[str, Any]:
    """What DDP says of itself: bucket sizes and the indices of their parameters among them."""
    return cast(dict[str, Any], model._get_ddp_logging_data())


def nccl_version() -> str | None:
    """The NCCL that torch was built with, null in a build without CUDA."""
    if not torch.cuda.is_available():
        return None
    version = torch.cuda.nccl.version()  # a tuple; an int of the form 21005 before torch 1.13
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def autocast(device: str, enabled: bool) -> torch.autocast:
    """bf16 autocast; its cache is kept, as `torch.autocast` has it by default."""
    return torch.autocast(device, torch.bfloat16, enabled=enabled)
