"""FSDP of both versions: its units and their settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analyzers.run import ShardedModules
from tracer.recording.strategies.meshes import dims_of
from tracer.recording.strategies.module_names import grouped
from tracer.recording.strategies.program import Program
from tracer.recording.strategies.protocol import RecordedStrategy
from tracer.recording.strategies.tracked_objects import imported

_ROOM = "torch.distributed.fsdp"


class Fsdp(RecordedStrategy):
    """Parameters sharded over ranks, gathered unit by unit.

    It has no `no_sync`: gradients that were not reduced cannot be taken back, and parameters are gathered anyway.
    """

    name = "fsdp"

    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return a row for the units that are alike."""
        units = [*_units(program)]
        return {"fsdp": grouped(units)} if units else None


def fsdp_dims(program: Program) -> set[str]:
    """Return the dimensions of meshes over which FSDP shards or replicates."""
    return {dim for unit in _units(program) for dim in (*unit.shard_dims, *unit.replicate_dims)}


def _units(program: Program) -> Iterator[ShardedModules]:
    """Every unit, by itself; several modules that were given to `fully_shard` at once are one."""
    first_version = imported(_ROOM, "FullyShardedDataParallel")
    second_version = imported(_ROOM, "FSDPModule")
    states: dict[int, tuple[Any, list[str]]] = {}
    for name, module in program.modules():
        if first_version is not None and isinstance(module, first_version):
            yield _of_first_version(name, module)
        elif second_version is not None and isinstance(module, second_version):
            state = module._get_fsdp_state()
            states.setdefault(id(state), (state, []))[1].append(name)
    for state, names in states.values():
        for group in _groups(state):
            yield _of_second_version(", ".join(names), state, group)


def _groups(state: Any) -> list[Any]:
    """A unit's groups of parameters: torch 2.11 has one at most, 2.15 one for each mesh."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []


def _of_second_version(name: str, state: Any, group: Any) -> ShardedModules:
    info = group.mesh_info
    dims, sizes = dims_of(info.mesh), list(info.mesh.shape)
    shard, replicate = info.shard_mesh_dim, info.replicate_mesh_dim
    policy = getattr(group, "mp_policy", None) or state._mp_policy
    return ShardedModules(
        modules=name,
        count=1,
        version=2,
        reshard_after_forward=_resharded(group),
        shard_dims=[] if shard is None else [dims[shard]],
        replicate_dims=[] if replicate is None else [dims[replicate]],
        shard_ranks=None if shard is None else int(sizes[shard]),
        replicate_ranks=None if replicate is None else int(sizes[replicate]),
        param_dtype=_dtype(policy.param_dtype),
        reduce_dtype=_dtype(policy.reduce_dtype),
        offload=type(group.offload_policy).__name__ == "CPUOffloadPolicy",
        forward_prefetch=len(state._states_to_forward_prefetch),
        backward_prefetch=len(state._states_to_backward_prefetch),
        # torch 2.15's set_separate_reduce_scatter_group; 2.11 has none.
        reduce_scatter_group=info.reduce_scatter_process_group is not None
        if hasattr(info, "reduce_scatter_process_group")
        else None,
    )


def _resharded(group: Any) -> bool | int:
    """Whether parameters are freed after the forward, or the number of ranks over which they are kept."""
    after = group.post_forward_mesh_info
    if after is None:
        return False
    return True if after == group.mesh_info else int(after.shard_mesh_size)


def _of_first_version(name: str, module: Any) -> ShardedModules:
    policy, sharding = module.mixed_precision, module.sharding_strategy.name
    replicas = getattr(module, "_inter_node_pg", None)
    return ShardedModules(
        modules=name,
        count=1,
        version=1,
        sharding=sharding,
        # What the strategies say of parameters: https://docs.pytorch.org/docs/stable/fsdp.html, ShardingStrategy.
        reshard_after_forward=sharding in ("FULL_SHARD", "HYBRID_SHARD"),
        shard_ranks=int(module.process_group.size()),
        replicate_ranks=None if replicas is None else int(replicas.size()),
        param_dtype=_dtype(policy.param_dtype),
        reduce_dtype=_dtype(policy.reduce_dtype),
        offload=bool(module.cpu_offload.offload_params),
    )


def _dtype(dtype: Any) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")
