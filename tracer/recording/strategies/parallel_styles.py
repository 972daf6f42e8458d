"""Parallel styles of modules, found in their hooks and parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import nn

from analyzers.run import StyledModules
from tracer.recording.strategies.fsdp import fsdp_dims
from tracer.recording.strategies.meshes import dims_of
from tracer.recording.strategies.program import MESH, Program
from tracer.recording.strategies.tracked_objects import imported

# A hook leads to its style in two or three steps: a lambda, a partial, a method.
_DEPTH = 4


def styled_modules(program: Program) -> list[StyledModules]:
    """Return how each module is parallelized for which something tells that, FSDP's dimensions left aside."""
    if not program.styled:
        without = fsdp_dims(program)
        rows = (_styled(name, module, without) for name, module in program.modules())
        program.styled.extend(row for row in rows if row is not None)
    return program.styled


def _styled(name: str, module: nn.Module, without: Collection[str]) -> StyledModules | None:
    style = imported("torch.distributed.tensor.parallel.style", "ParallelStyle")
    styles: dict[str, None] = {}
    dims: dict[str, None] = {}
    for value in _behind_hooks(module):
        if style is not None and isinstance(value, style):
            styles[type(value).__name__] = None
        elif isinstance(value, FunctionType) and style is not None and (owner := _owner(value, style)) is not None:
            styles[owner] = None
        elif type(value).__name__ == MESH and hasattr(value, "mesh_dim_names"):
            dims |= dict.fromkeys(dims_of(value))
    placements = {key: placed for key, parameter in _parameters(module) if (placed := _placed(parameter, without))}
    shards = any(placement != "R" for placed in placements.values() for placement in placed.values())
    if not (styles or shards):
        return None
    for placed in placements.values():
        dims |= dict.fromkeys(placed)
    return StyledModules(
        modules=name,
        count=1,
        styles=list(styles),
        dims=[dim for dim in dims if dim not in without],
        placements={key: list(placed.values()) for key, placed in placements.items()},
    )


def _behind_hooks(module: nn.Module) -> Iterator[Any]:
    """All that the hooks around a module's forward lead to."""
    reached: set[int] = set()
    ahead: list[Any] = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    for _ in range(_DEPTH):
        new = [value for value in ahead if id(value) not in reached]
        reached |= set(map(id, new))
        yield from new
        ahead = [following for value in new for following in _following(value)]


def _following(value: Any) -> list[Any]:
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    cells = []
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # a cell that is empty yet
                cells.append(cell.cell_contents)
    return cells


def _owner(function: FunctionType, style: type) -> str | None:
    """The style that a function is a method of, by its qualified name: static ones lead to no object of it."""
    name = function.__qualname__.split(".")[0]
    owner = function.__globals__.get(name)
    return name if isinstance(owner, type) and issubclass(owner, style) else None


def _parameters(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """A module's own parameters that are DTensors."""
    kind = imported("torch.distributed.tensor", "DTensor")
    for name, parameter in module._parameters.items():
        if kind is not None and isinstance(parameter, kind):
            yield name, parameter


def _placed(parameter: Any, without: Collection[str]) -> dict[str, str]:
    """How a DTensor lies along each dimension of its mesh, in DTensor's words (`S(0)`, `R`), but for some."""
    placed = zip(dims_of(parameter.device_mesh), parameter.placements, strict=True)
    return {dim: str(placement) for dim, placement in placed if dim not in without}
