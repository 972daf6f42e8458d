"""Facts of a training model: parameters, DDP's buckets, devices."""

from __future__ import annotations

import platform
import re
import resource
import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from analyzers.run import Bucket, Parameter
from tracer.recording import torch_compat as compat
from tracer.recording.strategies import all_objects, ddp_of, inner

# Of what DDP's own logger says: how it was set up, and the times it measured, ns, to be held against those in traces.
DDP_FIGURES = re.compile(r"avg_\w+_time$|find_unused_parameters$|gradient_as_bucket_view$|broadcast_buffers$")


def find_model(optimizer: torch.optim.Optimizer | None = None) -> nn.Module | None:
    """Find the model that this process trains: of modules that are no other's part, the one with most parameters.

    An optimizer tells it from a teacher that is larger: its are parameters of the model. Inside of it a DDP or
    DataParallel is the model. Modules are looked for among all objects, so that a wrapper is found whoever made it.
    """
    # The type alone decides: isinstance would ask objects for `__class__`, which proxies answer by loading things.
    modules = [
        candidate
        for candidate in all_objects()
        if issubclass(type(candidate), nn.Module) and "_modules" in vars(candidate)
    ]
    inside = {id(child) for module in modules for child in module.children()}
    roots = [module for module in modules if id(module) not in inside and _trained(module)]
    groups = optimizer.param_groups if optimizer is not None else []
    stepped = {id(parameter) for group in groups for parameter in group["params"]}
    trained = [root for root in roots if any(id(parameter) in stepped for parameter in root.parameters())]
    root = max(trained or roots, key=_trained, default=None)
    return None if root is None else _wrapper_in(root)


def _wrapper_in(root: nn.Module) -> nn.Module:
    if ddp_of(root) is not None:
        return root
    wrappers = [module for module in root.modules() if isinstance(module, DistributedDataParallel | nn.DataParallel)]
    return max(wrappers, key=_trained, default=root)


def _trained(module: nn.Module) -> int:
    """Elements of parameters that take part in training."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def class_name(model: nn.Module) -> str:
    """Return the name of a model's own class, without what wraps, shards or compiles it."""
    unwrapped = inner(model)
    kind = type(getattr(unwrapped, "_orig_mod", unwrapped))
    # fully_shard makes a class of a model's: FSDPTransformer, of FSDPModule and Transformer.
    last = kind.__bases__[-1].__name__
    return last if kind.__name__ == f"FSDP{last}" else kind.__name__


def gpus_of(model: nn.Module) -> list[int]:
    """Return the GPUs that this process drives; touching any other would create a context there."""
    if isinstance(model, nn.DataParallel):
        return list(model.device_ids)
    return sorted({parameter.device.index for parameter in model.parameters() if parameter.device.type == "cuda"})


def device_names(model: nn.Module) -> list[str]:
    """Return the names of the devices that this process drives."""
    gpus = gpus_of(model)
    return [torch.cuda.get_device_name(gpu) for gpu in gpus] or [platform.processor() or platform.machine()]


def peak_memory(model: nn.Module) -> tuple[str, int]:
    """Return the most memory in bytes that this process has used so far, and what says so."""
    gpus = gpus_of(model)
    if gpus:
        source = "torch.cuda.max_memory_allocated, the greatest of the process's devices"
        return source, max(torch.cuda.max_memory_allocated(gpu) for gpu in gpus)
    # getrusage(2): KiB, but bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return "getrusage's ru_maxrss, the process's resident memory", (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    )


def parameters_of(model: nn.Module) -> list[Parameter]:
    """Return the parameters in the model's order, in which DDP numbers them."""
    return [
        Parameter(name, list(parameter.shape), str(parameter.dtype).removeprefix("torch."), name.rpartition(".")[0])
        for name, parameter in inner(model).named_parameters()
    ]


def bucket_cap_mb(model: nn.Module) -> float | None:
    """Return the cap that DDP was given, None for its default."""
    ddp = ddp_of(model)
    return None if ddp is None or ddp.bucket_bytes_cap_default else float(ddp.bucket_bytes_cap) / 2**20


def ddp_figures(model: nn.Module) -> dict[str, int] | None:
    """Return how DDP says it is set up, and its own times; None without DDP."""
    ddp = ddp_of(model)
    if ddp is None:
        return None
    data = compat.ddp_logging_data(ddp)
    return {name: int(value) for name, value in sorted(data.items()) if DDP_FIGURES.match(name)}


def buckets_of(model: nn.Module) -> list[Bucket] | None:
    """Return DDP's buckets in reduction order, as rebuilt after the first step; None where DDP does not say."""
    ddp = ddp_of(model)
    if ddp is None:
        return None
    data = compat.ddp_logging_data(ddp)
    sizes = [int(size) for size in data.get("rebuilt_bucket_sizes", "").split(",") if size.strip()]
    groups = [group for group in data.get("rebuilt_per_bucket_param_indices", "").split(",") if group.strip()]
    indices = [[int(index) for index in group.split()] for group in groups]
    return [Bucket(size, group) for size, group in zip(sizes, indices, strict=True)] or None
