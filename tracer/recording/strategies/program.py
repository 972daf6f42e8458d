"""Program of one process: model, meshes, pipeline schedules, split sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from analyzers.trace import own_name
from tracer.recording.strategies.tracked_objects import objects_of

MESH, SCHEDULE = "DeviceMesh", "_PipelineSchedule"
_KINDS = {MESH: "torch.distributed.device_mesh", SCHEDULE: "torch.distributed.pipelining.schedules"}


@dataclass(frozen=True, eq=False)
class Program:
    """One process of a program that trains; `parts` are its pipeline's other stages, each with a model of its own.

    `splits` gets what was seen of sequences that are split for context parallelism, once a step has been watched.
    """

    model: nn.Module
    rank: int = 0
    parts: tuple[nn.Module, ...] = ()
    meshes: tuple[Any, ...] = ()
    schedules: tuple[Any, ...] = ()
    splits: list[Any] = field(default_factory=list)
    # Of `parallel_styles`, which three strategies ask: found once.
    styled: list[Any] = field(default_factory=list)

    @property
    def models(self) -> tuple[nn.Module, ...]:
        """Return the model and the pipeline's other stages."""
        return self.model, *self.parts

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Give every module with its name, without what wrappers add to it."""
        for model in self.models:
            for name, module in inner(model).named_modules():
                yield own_name(name), module


def program_of(model: nn.Module, rank: int, size: int) -> Program:
    """Return what this process, one of `size`, trains with; it looks through all objects once."""
    if size == 1:
        return Program(model, rank)
    found = objects_of(_KINDS)
    inside = {id(module) for module in model.modules()}
    # Others are of another model, or left over.
    schedules = tuple(schedule for schedule in found[SCHEDULE] if _trains(schedule, model, inside))
    stages = {id(stage.submod): stage.submod for schedule in schedules for stage in stages_of(schedule)}
    parts = tuple(part for part in stages.values() if not _is_inside(part, model, inside))
    return Program(model, rank, parts, tuple(found[MESH]), schedules)


def stages_of(schedule: Any) -> list[Any]:
    """Return the stages that this process has of a schedule; none of one that was not set up."""
    stage = getattr(schedule, "_stage", None)
    return [stage] if stage is not None else list(getattr(schedule, "_stages", None) or [])


def _trains(schedule: Any, model: nn.Module, inside: set[int]) -> bool:
    return any(_is_inside(stage.submod, model, inside) for stage in stages_of(schedule))


def _is_inside(part: nn.Module, model: nn.Module, inside: set[int]) -> bool:
    """Whether a stage is in a model, or the model in it: either may be wrapped."""
    return id(part) in inside or any(module is model for module in part.modules())


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
