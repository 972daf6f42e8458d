"""Faults of simulated runs, the scenarios that undo them, and what these bring."""

from __future__ import annotations

from analyzers.causes.model import Model
from tests.support import causal
from tests.support.simulation import PIPELINE, Fault, World, price
from tests.support.simulation.cases import Case

# The scenario that undoes a fault: its kind, and what it is at.
UNDONE = {
    "late host": ("straggler", "rank {}: host"),
    "slow host": ("straggler", "rank {}: host"),
    "slow gpu": ("straggler", "rank {}: compute"),
    "slow input": ("straggler", "rank {}: input"),
    "unequal stage": ("straggler", "stage {}: compute"),
    "uneven work": ("alike", "all ranks"),
    "starved input": ("input", "DataLoader"),
    "blocking items": ("synchronize", "synchronizing calls"),
    "event waits": ("synchronize", "synchronizing calls"),
    "pageable input": ("copies", "pageable copies"),
    "pageable output": ("copies", "pageable copies"),
    "broadcast buffers": ("buffers", "DistributedDataParallel.forward"),
    "synchronized batches": ("accumulation", "all but the last of accumulated batches"),
    "many launches": ("optimizer", "Optimizer.step"),
    "unused parameters": ("unused", "DistributedDataParallel"),
    "small reductions": ("coalesce", "small all-reduces"),
    "allocations": ("allocator", "cudaMalloc and cudaFree"),
    "moved layers": ("stages", "layers of stages"),
    "slow link": ("links", "all transfers"),
}


def scenario_of(world: World, fault: Fault) -> tuple[str, str]:
    """The kind and the place of the scenario that undoes a fault."""
    if fault.kind == "slow input" and fault.rank is None:
        return "input", "DataLoader"
    if fault.kind == "slow gpu" and world.strategy == PIPELINE:
        return "straggler", f"stage {fault.rank}: compute"
    if fault.kind == "slow link" and fault.rank is not None:
        return "links", f"links of rank {fault.rank}"
    kind, at = UNDONE[fault.kind]
    return kind, at.format(fault.rank)


def gain_ms(model: Model, world: World, fault: Fault) -> float:
    """What undoing a fault brings, as the model says."""
    return causal.gain_of(model, *scenario_of(world, fault)) / 1e6


def price_ms(case: Case, fault: Fault) -> float:
    """What a fault truly costs, on top of the others."""
    return price(case.world, fault) / 1e6


def is_within(gain: float, true: float, share: float) -> bool:
    """Whether a gain is its price to so much; where that is about nothing, to a fiftieth of a millisecond."""
    return abs(gain - true) <= max(share * true, 0.02)
