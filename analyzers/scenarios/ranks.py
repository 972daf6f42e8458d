"""A rank or stage as the others: kernels, host, input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from analyzers.causes import Charge, Lags
from analyzers.ranks import RankNumber
from analyzers.run import find_held_up, find_slowed, hosts
from analyzers.scenarios.host_time import input_ns
from analyzers.scenarios.removal import relieved, waiting_for
from analyzers.scenarios.scenario import LEAST_SHARE, UNTOLD, Kind, Scenario, Subject, Told
from analyzers.scenarios.time_slices import TimeSlices
from analyzers.units import ms, percent

NAME = "straggler"
# So many ranks of a stage are named.
MOST_NAMED = 4


def find(subject: Subject) -> Iterator[Scenario]:
    """Yield each rank that has its like, and each stage of a pipeline, as the others.

    One that only shortens what a rank does brings no more than what the critical path has of that.
    """
    lags, stages, slices = subject.lags, subject.model.stages, subject.time_slices
    for place, rank in enumerate(lags.graph.ranks):
        for what, (change, causes) in RANKS.items() if lags.common.like_ranks(place) else ():
            if subject.on_path(causes, (place,)) >= LEAST_SHARE:
                yield _of_rank(rank, place, what, change, _tell(subject, place, what, slices.get(place)))
    for stage, places in stages.items() if len(stages) > 1 else ():
        if subject.on_path(COMPUTES, tuple(places)) >= LEAST_SHARE:
            change = partial(stage_as_others, stages=stages, stage=stage)
            words = f"the compute of stage {stage} as the others'"
            ranks = ", ".join(str(lags.graph.ranks[place]) for place in sorted(places)[:MOST_NAMED])
            told = Told(
                f"stage {stage} computes longer than the other stages",
                f"move layers away from stage {stage} (rank {ranks})",
            )
            yield Scenario(NAME, f"stage {stage}: compute", change, words, "compute", told)


def of_rank(subject: Subject, rank: RankNumber) -> list[Scenario]:
    """Return a rank as the others in all, and in each of what it has; none where it has not its like."""
    lags = subject.lags
    place = lags.graph.ranks.index(rank)
    if not lags.common.like_ranks(place):
        return []
    parts = {what: change for what, (change, _) in RANKS.items()}
    return [_of_rank(rank, place, what, change) for what, change in {"all": as_others, **parts}.items()]


def _of_rank(rank: RankNumber, place: int, what: str, change: Callable[..., Lags], told: Told = UNTOLD) -> Scenario:
    words = f"rank {rank} as the others" if what == "all" else f"the {what} of rank {rank} as the others'"
    of_idle = what in ("host", "input")
    change = partial(_relieved, change=change, place=place)
    return Scenario(NAME, f"rank {rank}: {what}", change, words, what, told, of_idle=of_idle)


def _tell(subject: Subject, place: int, what: str, slices: TimeSlices | None) -> Told:
    """Say in which of its parts a rank is late, and what is known of why."""
    rank, manifest = subject.lags.graph.ranks[place], subject.manifest
    summary = subject.exchanged.run
    host = hosts(summary.manifest, summary.ranks).get(rank)
    at = f" on host {host}" if host else ""
    if what == "compute":
        remedy = f"give rank {rank} as much work as the others, or find out what slows its device{at}"
        if slices is not None:
            remedy = f"stop the process that shares rank {rank}'s GPU{at} (nvidia-smi names it)"
        shared = "" if slices is None else f"its GPU {slices}"
        because = [_longer(subject, place), shared, find_slowed(manifest.device_states).get(rank, "")]
        return Told(f"rank {rank} computes longer than the others", remedy, "; ".join(filter(None, because)))
    if what == "input":
        remedy = f"give rank {rank}'s DataLoader{at} more workers, or find out what it reads that the others do not"
        return Told(f"rank {rank} waits longer for its DataLoader than the others", remedy)
    remedy = f"find out what delays rank {rank}'s CPU{at}: Python between operators, other processes, its NUMA node"
    because = [_longest_place(subject, place), find_held_up(manifest.host_states).get(rank, "")]
    return Told(f"rank {rank}'s CPU launches late", remedy, "; ".join(filter(None, because)))


def _longer(subject: Subject, place: int) -> str:
    """Say how much longer a rank's kernels take than the others'."""
    likes, lags = subject.lags.common.kernels, subject.lags
    sums = np.bincount(likes.rank, lags.ns[likes.edge, 0], len(lags.graph.ranks))
    others = float(np.median(sums[lags.common.like_ranks(place)]))
    return f"its kernels take {percent(sums[place] / others - 1)} longer" if sums[place] > others > 0 else ""


def _longest_place(subject: Subject, place: int) -> str:
    """Name the operator or range in which a rank's CPU spends most beyond the others."""
    lags, facts = subject.lags, subject.lags.facts
    hosts_only = lags.calibrated.hosts.is_host & lags.common.in_course
    stretches = facts.stretches
    rank = lags.graph.edge_rank
    used = hosts_only[stretches.edge]
    names, of_rank = stretches.place[used] + 1, rank[stretches.edge[used]]
    width = len(facts.names) + 1
    ranks = len(lags.graph.ranks)
    by_place = np.bincount(of_rank * width + names, stretches.ns[used], ranks * width).reshape(ranks, width)
    more = by_place[place] - np.median(by_place[lags.common.like_ranks(place)], axis=0)
    longest = int(more.argmax())
    ns = more[longest] / len(lags.calibrated.course.steps)
    if ns <= 0:
        return ""
    where = f"{facts.names[longest - 1]!r}" if longest else "Python, outside of any operator,"
    return f"its CPU is in {where} for {ms(ns)} longer than the others' in a profiled {subject.step_word}"


def _relieved(lags: Lags, change: Callable[..., Lags], place: int) -> Lags:
    """Return the lags with a rank as the others, and without the strain of the others' waiting for it."""
    return change(relieved(lags, waiting_for(lags.facts, place)), place=place)


def compute_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's kernels as long as the others', its unknown remainders as long in sum.

    What no other rank runs goes.
    """
    graph = lags.graph
    changed = lags.likened(lags.common.kernels, lags.ns, (place,), lags.common.like_ranks(place)).ns
    changed[lags.common.kernels.of_one_alone(place, lags.common.like_ranks(place))] = 0
    unknown = np.flatnonzero((graph.edges.unknown_ns > 0) & lags.common.in_course)
    sums = np.bincount(graph.edge_rank[unknown], graph.edges.unknown_ns[unknown], len(graph.ranks))
    others = float(np.median(sums[lags.common.like_ranks(place)]))
    share = min(others / sums[place], 1.0) if sums[place] else 1.0
    own = unknown[graph.edge_rank[unknown] == place]
    less_ns = graph.edges.unknown_ns[own] * (1 - share)
    changed[own] -= less_ns[:, None] * lags.kept
    return replace(lags, ns=changed)


def host_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's host as fast as the others'; what it fetches of input stays."""
    return lags.likened(lags.common.host_time, lags.ns - input_ns(lags), (place,), lags.common.like_ranks(place))


def input_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's input as fast as the others': covered time by others' over own sum."""
    inputs, rank = input_ns(lags), lags.graph.edge_rank
    used = lags.common.in_course
    sums = np.stack([inputs[used & (rank == other)].sum(axis=0) for other in range(len(lags.graph.ranks))])
    # A rank that fetches nothing, as a later stage, says not how long fetching takes.
    fetching = [other for other in lags.common.like_ranks(place) if sums[other, 0] > 0]
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
    changed, likes = lags.ns.copy(), lags.common.kernels
    ranks = len(lags.graph.ranks)
    for variant in range(lags.ns.shape[1]):
        of_rank = np.bincount(likes.rank, lags.ns[likes.edge, variant], ranks)
        of_stage = {number: float(np.mean(of_rank[list(places)])) for number, places in stages.items()}
        others = float(np.median([ns for number, ns in of_stage.items() if number != stage]))
        own = likes.edge[np.isin(likes.rank, list(stages[stage]))]
        changed[own, variant] *= min(others / of_stage[stage], 1.0) if of_stage[stage] else 1.0
    return replace(lags, ns=changed)


STRAGGLER = Kind(NAME, find)
