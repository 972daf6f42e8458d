"""Compatibility of torch versions, and access to private names (2.4 to 2.15)."""

from __future__ import annotations

import inspect
import os
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

Store = Any


def meeting_store(name: str) -> Store:
    """Return a named corner in the store that the default process group was made with.

    Raises ValueError where the group has none.
    """
    return distributed_c10d.PrefixStore(attempt() + name, distributed_c10d._get_default_store())


def attempt() -> str:
    """Return what tells these ranks from those that torchrun started before, whose words may still be in the store.

    Agents of several hosts count their own restarts: their ranks have a new store each time (c10d's rendezvous).
    """
    on_one_host = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if on_one_host else "0"
    return "" if restarts == "0" else f"attempt-{restarts}-"


def rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks; a process without a group is rank 0 of 1."""
    if not (torch.distributed.is_available() and distributed_c10d.is_initialized()):
        return 0, 1
    return distributed_c10d.get_rank(), distributed_c10d.get_world_size()


def wrap_ddp(model: nn.Module, sync_buffers: bool, **settings: Any) -> DistributedDataParallel:
    """Wrap a model in DDP that broadcasts buffers before each forward, or does not.

    torch 2.15 has a new name for that and warns of the old one, which is all that torch 2.11 knows.
    """
    parameters = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    settings[name] = sync_buffers
    return DistributedDataParallel(model, **settings)


def compile_in_place(module: nn.Module) -> None:
    """Compile a model with torch.compile, keeping parameters' names and layouts; each input shape has its own code.

    Code for any shape, which torch turns to at the second one, is slower, and not all of it compiles: torch 2.15's
    inductor fails on stages of a ResNet one by one. Where inductor may choose channels last by itself, torch 2.11's
    fails on GPUs under DDP, which cuts the graph by buckets, at maps of one pixel: a ResNet's last stage at 32 px
    (pytorch issue 171622 has the same assertion).
    """
    import torch._dynamo.config  # takes a second

    # 8 by default, and eager from there on. A ResNet has as many stages and blocks of different shapes, each once more
    # for an epoch's last batch and for evaluation.
    config = torch._dynamo.config
    # torch 2.6 has the older name alone.
    setattr(config, "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit", 64)
    module.compile(dynamic=False, options={"layout_optimization": False})


def ddp_logging_data(model: DistributedDataParallel) -> dict[str, Any]:
    """Return what DDP says about itself, bucket sizes and their parameters' indices among it."""
    return cast(dict[str, Any], model._get_ddp_logging_data())  # type: ignore[no-untyped-call]


def backend() -> str | None:
    """Return the default process group's backend, None without a group."""
    if not (torch.distributed.is_available() and distributed_c10d.is_initialized()):
        return None
    return str(distributed_c10d.get_backend())


def torchvision_version() -> str | None:
    """Return torchvision's version if installed, without importing it, which takes a second."""
    try:
        return metadata.version("torchvision")
    except metadata.PackageNotFoundError:
        return None


def nccl_version() -> str | None:
    """Return the NCCL version that torch was built with, null in a build without CUDA."""
    if not torch.cuda.is_available():
        return None
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version))


def trace_violations(file: Path) -> dict[str, list[str]] | None:
    """Return what torch's own validator finds in a trace, messages by rule.

    None where this torch has no validator (2.15 has), or where it fails on the file.
    """
    try:
        from torch.profiler._trace_validator import validate_trace
    except ImportError:
        return None
    try:
        _, violations = validate_trace(str(file))
    except Exception:  # private code, over a file that may hold anything
        return None
    found: dict[str, list[str]] = {}
    for violation in violations:
        found.setdefault(violation.rule_name.removeprefix("_check_"), []).append(violation.message)
    return found


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured on this thread's stream: nothing that is called now is done yet."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
