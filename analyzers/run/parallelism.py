"""Parallelism of a run: meshes, strategies and their settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

# A mesh of more ranks is written without them, and of more dimensions not at all.
MOST_MESH_RANKS = 65536
MOST_DIMS = 16
# So many sizes of an odd mesh are named.
_LISTED = 4


class RecordedMesh(msgspec.Struct, frozen=True, kw_only=True):
    """One DeviceMesh.

    `groups`: by rank, along `dims`.
    """

    dims: list[str | None]
    shape: list[int]
    ranks: list[int] | None = None
    device_type: str | None = None
    groups: dict[str, list[str | None]] = {}


class ShardedModules(msgspec.Struct, frozen=True, kw_only=True):
    """Units that FSDP wraps alike.

    `modules`: `*` is a number. `count`: on the rank with most. `version`: 1 is FullyShardedDataParallel, 2
    `fully_shard`. `reshard_after_forward`: or a number of ranks. `forward_prefetch`, `backward_prefetch`: units
    gathered ahead. `reduce_scatter_group`: has its own.
    """

    modules: str
    count: int
    version: int
    sharding: str | None = None
    reshard_after_forward: bool | int | None = None
    shard_dims: list[str] = []
    replicate_dims: list[str] = []
    shard_ranks: int | None = None
    replicate_ranks: int | None = None
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    offload: bool = False
    forward_prefetch: int | None = None
    backward_prefetch: int | None = None
    reduce_scatter_group: bool | None = None


class StyledModules(msgspec.Struct, frozen=True, kw_only=True):
    """Modules that are split alike.

    `styles`: classes of ParallelStyle. `placements`: as `S(0)`, by parameter, along `dims`.
    """

    modules: str
    count: int
    styles: list[str] = []
    dims: list[str] = []
    placements: dict[str, list[str]] = {}


class RecordedPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline's schedule.

    `schedule`: its class. `group_of_rank`: carries its messages.
    """

    schedule: str
    microbatches: int | None = None
    stages: int | None = None
    stages_of_rank: dict[str, list[int]] = {}
    group_of_rank: dict[str, str] = {}


class SequenceBuffer(msgspec.Struct, frozen=True):
    """A tensor of whole `shape` that is split along dimension `dim`."""

    shape: list[int]
    dim: int


class RecordedContext(msgspec.Struct, frozen=True, kw_only=True):
    """Context parallelism.

    `balanced`: under a causal mask.
    """

    dims: list[str] = []
    ranks: int | None = None
    buffers: list[SequenceBuffer] = []
    balanced: bool | None = None
    load_balancer: str | None = None
    rotate_method: str | None = None


class CompiledModules(msgspec.Struct, frozen=True, kw_only=True):
    """What torch.compile compiled.

    `modules`: `*` is a number.
    """

    modules: list[str] = []
    frames: int | None = None
    micro_pipeline_tp: bool | None = None


class Parallelism(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is parallelized, as found in its processes; more may be in use.

    `unknown`: why a strategy's settings are not known. `left_out`: rows beyond 64 of a list.
    """

    strategies: list[str] = []
    unknown: dict[str, str] = {}
    mesh: list[RecordedMesh] = []
    fsdp: list[ShardedModules] = []
    tensor: list[StyledModules] = []
    expert: list[StyledModules] = []
    pipeline: RecordedPipeline | None = None
    context: RecordedContext | None = None
    compiled: CompiledModules | None = None
    left_out: int = 0


Row = TypeVar("Row", ShardedModules, StyledModules)
Value = TypeVar("Value")


def joined_parallelism(parts: Iterable[Parallelism | None]) -> Parallelism | None:
    """Put together what ranks (or hosts) say: equal rows once, stages and groups by rank; None where none says any."""
    told = [part for part in parts if part is not None]
    if not told:
        return None
    first = told[0]
    return msgspec.structs.replace(
        first,
        strategies=list(dict.fromkeys(name for part in told for name in part.strategies)),
        unknown={name: why for part in told for name, why in part.unknown.items()},
        mesh=_joined_meshes([mesh for part in told for mesh in part.mesh]),
        fsdp=_joined_rows([row for part in told for row in part.fsdp]),
        tensor=_joined_rows([row for part in told for row in part.tensor]),
        expert=_joined_rows([row for part in told for row in part.expert]),
        pipeline=_joined_pipeline([part.pipeline for part in told if part.pipeline is not None]),
        context=next((part.context for part in told if part.context is not None), None),
        compiled=next((part.compiled for part in told if part.compiled is not None), None),
        left_out=max(part.left_out for part in told),
    )


def _joined_meshes(meshes: Sequence[RecordedMesh]) -> list[RecordedMesh]:
    joined: dict[tuple[object, ...], RecordedMesh] = {}
    for mesh in meshes:
        key = (tuple(mesh.dims), tuple(mesh.shape), tuple(mesh.ranks or ()), mesh.device_type)
        before = joined.get(key)
        joined[key] = mesh if before is None else msgspec.structs.replace(before, groups=before.groups | mesh.groups)
    return list(joined.values())


def _joined_rows(rows: Sequence[Row]) -> list[Row]:
    """Equal rows once, each with the greatest of its counts: pipelines have other numbers of layers on each rank."""
    joined: dict[bytes, Row] = {}
    for row in rows:
        key = msgspec.json.encode(msgspec.structs.replace(row, count=0))
        if key not in joined or joined[key].count < row.count:
            joined[key] = row
    return list(joined.values())


def _joined_pipeline(parts: Sequence[RecordedPipeline]) -> RecordedPipeline | None:
    if not parts:
        return None
    return msgspec.structs.replace(
        parts[0],
        stages_of_rank={rank: stages for part in parts for rank, stages in part.stages_of_rank.items()},
        group_of_rank={rank: name for part in parts for rank, name in part.group_of_rank.items()},
    )


def find_contradictions(parallelism: Parallelism) -> list[str]:
    """Say which meshes contradict themselves: their ranks are not as many as their shape has room for."""
    return [
        f"mesh {number} has {len(mesh.dims)} dimensions, shape {mesh.shape[:_LISTED]} and {len(mesh.ranks or ())} ranks"
        for number, mesh in enumerate(parallelism.mesh)
        if not _is_possible(mesh)
    ]


def _is_possible(mesh: RecordedMesh) -> bool:
    sizes_agree = len(mesh.dims) == len(mesh.shape) <= MOST_DIMS and all(size > 0 for size in mesh.shape)
    if mesh.ranks is None or not sizes_agree:
        return sizes_agree
    are_ranks = all(rank >= 0 for rank in mesh.ranks) and len(set(mesh.ranks)) == len(mesh.ranks)
    return are_ranks and math.prod(mesh.shape) == len(mesh.ranks)


def without_impossible(parallelism: Parallelism) -> Parallelism:
    """Leave out the meshes that contradict themselves."""
    return msgspec.structs.replace(parallelism, mesh=[mesh for mesh in parallelism.mesh if _is_possible(mesh)])


class KeptRanks(Protocol):
    """Takes the entries off that are of no rank."""

    def __call__(self, by_rank: dict[str, Value], /) -> dict[str, Value]:
        """Return what is left."""


def of_known_ranks(parallelism: Parallelism, kept: KeptRanks) -> Parallelism:
    """Return what is said of ranks that can be ranks, as `kept` decides."""
    pipeline = parallelism.pipeline
    return msgspec.structs.replace(
        parallelism,
        mesh=[msgspec.structs.replace(mesh, groups=kept(mesh.groups)) for mesh in parallelism.mesh],
        pipeline=pipeline
        and msgspec.structs.replace(
            pipeline, stages_of_rank=kept(pipeline.stages_of_rank), group_of_rank=kept(pipeline.group_of_rank)
        ),
    )
