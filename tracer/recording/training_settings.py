"""Training settings that advice must know: loaders, optimizers, allocator, autocast, layouts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from analyzers.run import LoaderSettings, OptimizerSettings, TrainingSettings
from tracer.recording.strategies import all_objects, inner, is_compiled

# Its name until torch 2.9 and since.
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
MOST_LISTED = 8
T = TypeVar("T")


@dataclass
class Forwards:
    """What was seen of a model's forwards: how many there were, and the dtype of the last one's autocast."""

    count: int = 0
    steps: int = 0
    autocast: str | None = None

    def _note(self, module: nn.Module, inputs: Any) -> None:
        self.count += 1
        device = "cuda" if torch.cuda.is_available() else "cpu"
        enabled = torch.is_autocast_enabled(device)
        self.autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.") if enabled else None

    @contextmanager
    def watched(self, model: nn.Module, steps: int) -> Iterator[None]:
        """Look at so many steps' forwards while this is entered; a compiled model's graph a hook would break."""
        root = inner(model)
        if is_compiled(root) or hasattr(root, "_orig_mod"):
            yield
            return
        self.steps += steps
        handle = root.register_forward_pre_hook(self._note)
        try:
            yield
        finally:
            handle.remove()


def training_settings(model: nn.Module, forwards: Forwards) -> TrainingSettings:
    """Return the settings of the training that this process does, as far as its objects say."""
    objects = all_objects()
    return TrainingSettings(
        loaders=_loaders(objects),
        optimizers=_distinct(map(_optimizer, _of_kind(objects, torch.optim.Optimizer))),
        allocator=" ".join(os.environ[name] for name in ALLOCATOR if name in os.environ),
        autocast=forwards.autocast,
        matmul_precision=torch.get_float32_matmul_precision(),
        memory_format=_memory_format(model),
        forwards_per_step=round(forwards.count / forwards.steps, 2) if forwards.steps else None,
    )


def _distinct(found: Iterable[T]) -> list[T]:
    """Those that differ, the first of many."""
    distinct: list[T] = []
    for one in found:
        if one not in distinct and len(distinct) < MOST_LISTED:
            distinct.append(one)
    return distinct


def _loaders(objects: list[Any]) -> list[LoaderSettings]:
    """What DataLoaders keep; where a script kept none, what their iterators do, of themselves with an underscore."""
    loaders = [*map(vars, _of_kind(objects, DataLoader))]
    iterators = map(vars, _of_kind(objects, _BaseDataLoaderIter))
    kept = loaders or [{name[1:]: value for name, value in own.items()} for own in iterators]
    return _distinct(map(_loader, kept))


def _of_kind(objects: list[Any], kind: type[Any]) -> list[Any]:
    """Those of a class or a subclass: the type alone decides, since proxies load things to answer for `__class__`."""
    kinds = {found for found in set(map(type, objects)) if issubclass(found, kind)}
    return [found for found in objects if type(found) in kinds]


def _loader(kept: dict[str, Any]) -> LoaderSettings:
    return LoaderSettings(
        batch_size=_known(kept.get("batch_size"), int),
        workers=_known(kept.get("num_workers"), int),
        pin_memory=_known(kept.get("pin_memory"), bool),
        prefetch_factor=_known(kept.get("prefetch_factor"), int),
        persistent_workers=_known(kept.get("persistent_workers"), bool),
    )


def _optimizer(optimizer: torch.optim.Optimizer) -> OptimizerSettings:
    defaults = getattr(optimizer, "defaults", {})
    foreach, fused = (_known(defaults.get(name), bool) for name in ("foreach", "fused"))
    return OptimizerSettings(type(optimizer).__name__, foreach, fused)


def _known(value: Any, kind: type[T]) -> T | None:
    return value if isinstance(value, kind) else None


def _memory_format(model: nn.Module) -> str | None:
    """How convolutions' weights lie in memory; None of a model without any."""
    weights = [weight for weight in inner(model).parameters() if weight.dim() == 4 and min(weight.shape[1:3]) > 1]
    if not weights:
        return None
    last = all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    return "channels_last" if last else "contiguous"
