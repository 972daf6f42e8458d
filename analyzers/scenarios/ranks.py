"""A rank or stage as the others: kernels, host, input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import numpy as np

from analyzers.causes import Charge, Lags
from analyzers.ranks import RankNumber
from analyzers.scenarios.host_time import input_ns
from analyzers.scenarios.removal import relieved, waiting_for
from analyzers.scenarios.scenario import LEAST_SHARE, Kind, Scenario, Subject

NAME = "straggler"


def find(subject: Subject) -> Iterator[Scenario]:
    """Yield each rank that has its like, and each stage of a pipeline, as the others.

    One that only shortens what a rank does brings no more than what the critical path has of that.
    """
    lags, stages = subject.lags, subject.model.stages
    for place, rank in enumerate(lags.graph.ranks):
        for what, (change, causes) in RANKS.items() if lags.like_ranks(place) else ():
            if subject.on_path(causes, (place,)) >= LEAST_SHARE:
                yield _of_rank(rank, place, what, change)
    for stage, places in stages.items() if len(stages) > 1 else ():
        if subject.on_path(COMPUTES, tuple(places)) >= LEAST_SHARE:
            change = partial(stage_as_others, stages=stages, stage=stage)
            words = f"the compute of stage {stage} as the others'"
            yield Scenario(NAME, f"stage {stage}: compute", change, words, "compute")


def of_rank(subject: Subject, rank: RankNumber) -> list[Scenario]:
    """Return a rank as the others in all, and in each of what it has; none where it has not its like."""
    lags = subject.lags
    place = lags.graph.ranks.index(rank)
    if not lags.like_ranks(place):
        return []
    parts = {what: change for what, (change, _) in RANKS.items()}
    return [_of_rank(rank, place, what, change) for what, change in {"all": as_others, **parts}.items()]


def _of_rank(rank: RankNumber, place: int, what: str, change: Callable[..., Lags]) -> Scenario:
    words = f"rank {rank} as the others" if what == "all" else f"the {what} of rank {rank} as the others'"
    return Scenario(NAME, f"rank {rank}: {what}", partial(_relieved, change=change, place=place), words, what)


def _relieved(lags: Lags, change: Callable[..., Lags], place: int) -> Lags:
    """Return the lags with a rank as the others, and without the strain of the others' waiting for it."""
    return change(relieved(lags, waiting_for(lags.facts, place)), place=place)


def compute_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's kernels as long as the others', its unknown remainders as long in sum.

    What no other rank runs goes.
    """
    graph = lags.graph
    changed = lags.likened(lags.kernels, lags.ns, (place,), lags.like_ranks(place)).ns
    changed[lags.kernels.of_one_alone(place, lags.like_ranks(place))] = 0
    unknown = np.flatnonzero((graph.edges.unknown_ns > 0) & lags.in_course)
    sums = np.bincount(graph.edge_rank[unknown], graph.edges.unknown_ns[unknown], len(graph.ranks))
    others = float(np.median(sums[lags.like_ranks(place)]))
    share = min(others / sums[place], 1.0) if sums[place] else 1.0
    own = unknown[graph.edge_rank[unknown] == place]
    less_ns = graph.edges.unknown_ns[own] * (1 - share)
    changed[own] -= less_ns[:, None] * lags.kept
    return Lags(lags.calibrated, lags.facts, changed)


def host_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's host as fast as the others'; what it fetches of input stays."""
    return lags.likened(lags.host_time, lags.ns - input_ns(lags), (place,), lags.like_ranks(place))


def input_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's input as fast as the others': covered time by others' over own sum."""
    inputs, rank = input_ns(lags), lags.graph.edge_rank
    used = lags.in_course
    sums = np.stack([inputs[used & (rank == other)].sum(axis=0) for other in range(len(lags.graph.ranks))])
    # A rank that fetches nothing, as a later stage, says not how long fetching takes.
    fetching = [other for other in lags.like_ranks(place) if sums[other, 0] > 0]
    if not fetching:
        return lags
    others = np.median(sums[fetching], axis=0)
    share = np.minimum(np.divide(others, sums[place], out=np.ones(len(others)), where=sums[place] > 0), 1)
    own = np.flatnonzero((rank == place) & (inputs[:, 0] > 0))
    return lags.at(own, lags.ns[own] - inputs[own] * (1 - share))


def as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's input, host and kernels as the others'."""
    return compute_as_others(host_as_others(input_as_others(lags, place), place), place)


COMPUTES = (Charge.COMPUTE, Charge.PACKING, Charge.UNKNOWN)
HOSTS = (Charge.OPERATOR, Charge.PYTHON, Charge.LAUNCH, Charge.GC, Charge.ALLOCATOR)
# What a rank has of its own, with what it is charged for on the critical path.
RANKS: dict[str, tuple[Callable[..., Lags], tuple[Charge, ...]]] = {
    "compute": (compute_as_others, COMPUTES),
    "host": (host_as_others, HOSTS),
    "input": (input_as_others, (Charge.INPUT,)),
}


def stage_as_others(lags: Lags, stages: Mapping[int, Collection[int]], stage: int) -> Lags:
    """Return the lags with a stage's kernels shorter by one factor, so that their sum is the other stages' median."""
    changed, likes = lags.ns.copy(), lags.kernels
    ranks = len(lags.graph.ranks)
    for variant in range(lags.ns.shape[1]):
        of_rank = np.bincount(likes.rank, lags.ns[likes.edge, variant], ranks)
        of_stage = {number: float(np.mean(of_rank[list(places)])) for number, places in stages.items()}
        others = float(np.median([ns for number, ns in of_stage.items() if number != stage]))
        own = likes.edge[np.isin(likes.rank, list(stages[stage]))]
        changed[own, variant] *= min(others / of_stage[stage], 1.0) if of_stage[stage] else 1.0
    return Lags(lags.calibrated, lags.facts, changed)


STRAGGLER = Kind(NAME, "as the others", find)
