"""Scenarios: what a change would bring.

T    |host|....|kernels|..wait..|        pace of the lags as they are
T'   |host|....|kernels|..|              pace of the lags that a scenario changes; T - T' is its gain
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Float64, Int64, Mask, values_at
from analyzers.causes.changes import Lags, is_memcpy
from analyzers.causes.charges import Charge, Walked
from analyzers.rank import Cause, EdgeKind

# Of less than this share of the step nothing is found.
LEAST_SHARE = 0.01
# What pinned copies reach where the run has none of a megabyte or more (52 to 55 measured over PCIe 5).
PINNED_GBPS = 50.0
LARGE_COPY = 1_000_000
# The call of a copy that does not block.
COPY_CALL_NS = 10_000


@dataclass(frozen=True)
class Scenario:
    """A change of a run: its kind, the place it is at, and what it makes of the lags."""

    kind: str
    at: str
    change: Callable[[Lags], Lags]


def scenarios(lags: Lags, walked: Walked, stages: Mapping[int, Collection[int]]) -> Iterator[Scenario]:
    """Yield the scenarios of a run that can bring something; `stages` has the places of each stage's ranks.

    One that only shortens what a rank does brings no more than what the critical path has of that.
    """
    ranks = lags.graph.ranks
    for place, rank in enumerate(ranks):
        for what, (change, causes) in RANKS.items() if lags.like_ranks(place) else ():
            if _on_path(walked, (place,), causes) >= LEAST_SHARE:
                yield Scenario("straggler", f"rank {rank}: {what}", _at_rank(change, place))
    for stage, places in stages.items() if len(stages) > 1 else ():
        if _on_path(walked, places, COMPUTES) >= LEAST_SHARE:
            yield Scenario("straggler", f"stage {stage}: compute", _at_stage(stages, stage))
    if len(ranks) > 1:
        yield Scenario("alike", "all ranks", all_alike)
    yield Scenario("input", "DataLoader", without_input)
    yield Scenario("synchronize", "synchronizing calls", without_synchronizing)
    yield Scenario("copies", "pageable copies", copies_pinned)
    yield Scenario("links", "transfers at twice the bandwidth", links_twice_as_fast)


def _on_path(walked: Walked, places: Collection[int], causes: Collection[Charge]) -> float:
    """Return what share of the critical path some ranks have for some causes."""
    charges = walked.charges
    chosen = np.isin(charges.rank, list(places)) & np.isin(charges.cause, list(causes))
    return float(charges.ns[chosen].sum() / max(charges.ns.sum(), 1))


def _at_rank(change: Callable[[Lags, int], Lags], place: int) -> Callable[[Lags], Lags]:
    return lambda lags: change(lags, place)


def _at_stage(stages: Mapping[int, Collection[int]], stage: int) -> Callable[[Lags], Lags]:
    return lambda lags: stage_as_others(lags, stages, stage)


def compute_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's kernels as long as the others', its unknown remainders as long in sum."""
    graph = lags.graph
    changed = lags.likened(lags.kernels, lags.ns, (place,), lags.like_ranks(place)).ns
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
    return lags.likened(lags.host_time, lags.ns - _input_ns(lags), (place,), lags.like_ranks(place))


def input_as_others(lags: Lags, place: int) -> Lags:
    """Return the lags with a rank's input as fast as the others': covered time by others' over own sum."""
    inputs, rank = _input_ns(lags), lags.graph.edge_rank
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


COMPUTES = (Charge.COMPUTE, Charge.PACKING, Charge.UNKNOWN)
HOSTS = (Charge.OPERATOR, Charge.PYTHON, Charge.LAUNCH, Charge.GC, Charge.ALLOCATOR)
# What a rank has of its own, with what it is charged for on the critical path.
RANKS: dict[str, tuple[Callable[[Lags, int], Lags], tuple[Charge, ...]]] = {
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


def _input_ns(lags: Lags) -> Float64:
    """Return what of each edge is fetching input, at the lags' own scale."""
    recorded = lags.graph.edges.lag_ns
    covered = lags.facts.covered_ns(Cause.INPUT)
    share = np.divide(covered, recorded, out=np.zeros(len(recorded)), where=recorded > 0)
    inputs: Float64 = lags.ns * np.clip(share, 0, 1)[:, None]
    return inputs


def without_input(lags: Lags) -> Lags:
    """Return the lags without what the DataLoader takes; the rest of its stretch is scaled as a shorter one."""
    covered = lags.facts.covered_ns(Cause.INPUT)
    rows = np.flatnonzero(covered > 0)
    rest = np.maximum(lags.graph.edges.lag_ns[rows] - covered[rows], 0)
    excess = np.minimum(np.maximum(lags.calibrated.hosts.excess_ns[rows] - covered[rows], 0), rest)
    return lags.at(rows, (rest - excess)[:, None] * lags.host_shares[rows] + excess[:, None])


def all_alike(lags: Lags) -> Lags:
    """Return the lags with kernels at the mean of ranks and steps, and transfers at the median of their like."""
    changed = lags.ns.copy()
    likes = lags.kernels
    # Of all steps: the key without the step.
    key = likes.in_any_step
    count = np.maximum(np.bincount(key), 1)
    for variant in range(lags.ns.shape[1]):
        changed[likes.edge, variant] = (np.bincount(key, lags.ns[likes.edge, variant]) / count)[key]
    return _transfers_at_median(Lags(lags.calibrated, lags.facts, changed))


def _transfers_at_median(lags: Lags) -> Lags:
    rows, key = lags.transfers
    changed = lags.ns.copy()
    for variant in range(lags.ns.shape[1]):
        order = np.lexsort((lags.ns[rows, variant], key))
        ordered = rows[order]
        first = np.searchsorted(key[order], key)
        past = np.searchsorted(key[order], key, side="right")
        values = lags.ns[ordered, variant]
        changed[rows, variant] = (values[(first + past - 1) // 2] + values[(first + past) // 2]) / 2
    return Lags(lags.calibrated, lags.facts, changed)


def links_twice_as_fast(lags: Lags) -> Lags:
    """Return the lags with transfers in half of their time."""
    rows, _ = lags.transfers
    return lags.at(rows, lags.ns[rows] / 2)


def without_synchronizing(lags: Lags) -> Lags:
    """Return the lags without waits of stream and event synchronizations, and of pageable copies to the host.

    A synchronization of the whole device stays, as does one behind a copy to the device.
    """
    names = lags.facts.call_name
    call = lags.facts.call
    waits = np.array(["Stream" in name or "Event" in name for name in names], dtype=bool)
    to_host = _copies(lags, "DtoH")
    after_copy = _behind_copies(lags, _copies(lags, "HtoD"))
    chosen = (waits & ~after_copy) | to_host
    blocks = (lags.graph.edges.kind == EdgeKind.BLOCK) & (call >= 0) & chosen[call]
    return lags.without(blocks)


def copies_pinned(lags: Lags) -> Lags:
    """Return the lags with pageable copies as pinned ones: no waiting, launched as any other, at the pinned rate."""
    copies = _copies(lags, "Pageable")
    behind = _behind_copies(lags, copies)
    facts, graph = lags.facts, lags.graph
    call = facts.call
    blocks = (graph.edges.kind == EdgeKind.BLOCK) & (call >= 0) & (copies | behind)[call]
    changed = lags.without(blocks)
    calls = (graph.edges.kind == EdgeKind.CALL) & (call >= 0) & copies[call]
    changed = changed.at(calls, np.minimum(COPY_CALL_NS * lags.host_shares[calls], lags.ns[calls]))
    runs = is_memcpy(lags) & _named(lags, "Pageable")
    nbytes = values_at(facts.of_activities("nbytes"), facts.activity)
    pinned = nbytes[runs] / _pinned_gbps(lags, nbytes)
    return changed.at(runs, np.minimum(pinned[:, None], lags.ns[runs]))


def _pinned_gbps(lags: Lags, nbytes: Int64) -> float:
    large = is_memcpy(lags) & _named(lags, "Pinned") & (nbytes >= LARGE_COPY)
    ns = lags.ns[large].sum()
    return float(nbytes[large].sum() * lags.ns.shape[1] / ns) if ns > 0 else PINNED_GBPS


def _named(lags: Lags, part: str) -> Mask:
    """Whether names of what runs on edges hold a text."""
    has = np.array([part in name for name in lags.facts.names], dtype=bool)
    named: Mask = (lags.facts.activity >= 0) & has[lags.facts.name]
    return named


def _copies(lags: Lags, part: str) -> Mask:
    """Return which calls launched a pageable copy in whose name a text is."""
    graph = lags.graph
    first_call = np.cumsum([0, *(len(rank.calls) for rank in graph.parts)])
    chosen = np.zeros(int(first_call[-1]), dtype=bool)
    for place, rank in enumerate(graph.parts):
        has = np.array([part in name and "Pageable" in name for name in rank.names], dtype=bool)
        calls = rank.activities.call[has[rank.activities.name] & (rank.activities.call >= 0)]
        chosen[calls + first_call[place]] = True
    return chosen


def _behind_copies(lags: Lags, copies: Mask) -> Mask:
    """Return which synchronizing calls stand right behind such a copy on its thread."""
    thread = lags.facts.of_calls("thread")
    synchronizes = np.array(["StreamSynchronize" in name for name in lags.facts.call_name], dtype=bool)
    before = np.r_[False, copies[:-1] & (thread[:-1] == thread[1:])]
    behind: Mask = synchronizes & before
    return behind
