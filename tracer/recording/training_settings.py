"""Training settings that advice must know: loaders, optimizers, allocator, autocast, layouts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from analyzers.run import LoaderSettings, OptimizerSettings, TrainingSettings
from analyzers.texts import encodable
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
        if torch.compiler.is_compiling():
            return
        self.count += 1
        device = "cuda" if torch.cuda.is_available() else "cpu"
        enabled = torch.is_autocast_enabled(device)
        self.autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.") if enabled else None

    @contextmanager
    def watched(self, model: nn.Module, steps: int) -> Iterator[None]:
        """Look at so many steps' forwards while this is entered; a compiled model's graph a hook would break.

        The hook is the wrapper's: DataParallel's replicas share those of what it wraps.
        """
        is_own_graph = is_compiled(model) or hasattr(model, "_orig_mod") or isinstance(model, torch.jit.ScriptModule)
        if is_own_graph:
            yield
            return
        self.steps += steps
        handle = model.register_forward_pre_hook(self._note)
        try:
            yield
        finally:
            handle.remove()


def training_settings(model: nn.Module, forwards: Forwards) -> TrainingSettings:
    """Return the settings of the training that this process does, as far as its objects say; it fails no recording."""
    objects = all_objects()
    allocator = " ".join(os.environ[name] for name in ALLOCATOR if name in os.environ)
    return TrainingSettings(
        loaders=_loaders(objects),
        optimizers=_distinct(_answer(_optimizer, found) for found in _of_kind(objects, torch.optim.Optimizer)),
        allocator=encodable(allocator),
        autocast=forwards.autocast,
        # It raises where a script sets torch's newer fp32_precision.
        matmul_precision=_answer(torch.get_float32_matmul_precision),
        memory_format=_answer(_memory_format, model),
        forwards_per_step=round(forwards.count / forwards.steps, 2) if forwards.steps else None,
    )


def _answer(ask: Callable[..., T], *arguments: Any) -> T | None:
    """What objects of others say, None where they raise."""
    try:
        return ask(*arguments)
    except Exception:  # a property of a subclass, an object that is half made, torch's own checks
        return None


def _distinct(found: Iterable[T | None]) -> list[T]:
    """Those that differ, the first of many."""
    distinct: list[T] = []
    for one in found:
        if one is not None and one not in distinct and len(distinct) < MOST_LISTED:
            distinct.append(one)
    return distinct


def _loaders(objects: list[Any]) -> list[LoaderSettings]:
    """What DataLoaders keep; where a script kept none, what their iterators do, of themselves with an underscore."""
    kept = [*map(_attributes, _of_kind(objects, DataLoader))]
    if not kept:
        iterators = map(_attributes, _of_kind(objects, _BaseDataLoaderIter))
        kept = [{name[1:]: value for name, value in own.items()} for own in iterators]
    return _distinct(map(_loader, kept))


def _attributes(found: Any) -> dict[str, Any]:
    """What an object itself keeps: a subclass may answer for more by doing things."""
    return _answer(lambda: {str(name): value for name, value in vars(found).items()}) or {}


def _of_kind(objects: list[Any], kind: type[Any]) -> list[Any]:
    """Those of a class or a subclass: the type alone decides, since proxies load things to answer for `__class__`."""
    kinds = {found for found in set(map(type, objects)) if issubclass(found, kind)}
    return [found for found in objects if type(found) in kinds]


def _loader(kept: Mapping[str, Any]) -> LoaderSettings:
    return LoaderSettings(
        batch_size=_known(kept.get("batch_size"), int),
        workers=_known(kept.get("num_workers"), int),
        pin_memory=_known(kept.get("pin_memory"), bool),
        prefetch_factor=_known(kept.get("prefetch_factor"), int),
        persistent_workers=_known(kept.get("persistent_workers"), bool),
    )


def _optimizer(optimizer: torch.optim.Optimizer) -> OptimizerSettings:
    defaults = _answer(lambda: dict(optimizer.defaults)) or {}
    foreach, fused = (_known(defaults.get(name), bool) for name in ("foreach", "fused"))
    return OptimizerSettings(encodable(type(optimizer).__name__), foreach, fused)


def _known(value: Any, kind: type[T]) -> T | None:
    """A value of just that type, which a document can hold: True is no number."""
    return value if type(value) is kind else None


def _memory_format(model: nn.Module) -> str | None:
    """How convolutions' weights lie in memory; None of a model without any."""
    weights = [layer.weight for layer in inner(model).modules() if isinstance(layer, nn.Conv2d)]
    # Of one channel or one pixel both orders are the same.
    last = {weight.is_contiguous(memory_format=torch.channels_last) for weight in weights if min(weight.shape[1:3]) > 1}
    if len(last) > 1:
        return "mixed"
    return {(): None, (True,): "channels_last", (False,): "contiguous"}[(*last,)]
