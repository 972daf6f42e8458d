"""Transfers over other links: at another bandwidth, of fewer bytes, or hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from analyzers.arrays import Float64, Int64, distinct, firsts, medians, values_at
from analyzers.causes import Lags
from analyzers.collectives import purposes
from analyzers.rank import EdgeKind, Purpose
from analyzers.ranks import RankNumber
from analyzers.scenarios.scenario import Kind, Scenario, Subject, Told
from analyzers.texts import AND_MORE, listed
from analyzers.trace import Collective
from analyzers.trace import Kind as Work
from analyzers.units import size, times

FASTER = 2.0
# Links of a group are slow where its transfers take so many times as long as the same in like groups.
SLOWER = 1.25
# So many of them are named, and so many ranks of each.
MOST_GROUPS, MOST_RANKS = 2, 8
FP32 = ("Float", "float", "float32")


def of_fewer_bytes(lags: Lags, rows: Int64, part_ns: Float64, share: float) -> Lags:
    """Return the lags with some transfers' part that grows with bytes at a share."""
    less_ns = (1 - share) * part_ns
    return lags.at(rows, np.maximum(lags.ns[rows] - less_ns[:, None], 0))


def moving_ns(subject: Subject) -> tuple[Int64, Float64]:
    """Return the edges of transfers, and what of each grows with its bytes: by the fit over its kind and group.

    Where all are of one size nothing tells latency: all of it is taken to grow.
    """
    lags, exchanged = subject.lags, subject.exchanged
    rows, _ = lags.common.transfers
    instance = lags.graph.instance[rows]
    nbytes, taken_ns = subject.nbytes(instance).astype(np.float64), lags.ns[rows, 0]
    kind, size = exchanged.matching.instances.kind[instance].astype(np.int64), exchanged.transfers.group_size[instance]
    moving = np.zeros(len(rows))
    for of in np.unique(np.stack([kind, size]), axis=1).T:
        own = np.flatnonzero((kind == of[0]) & (size == of[1]) & (nbytes > 0) & (taken_ns > 0))
        if len(own):
            latency_ns = _latency_ns(nbytes[own], taken_ns[own])
            moving[own] = np.maximum(taken_ns[own] - latency_ns, 0)
    return rows, moving


def _latency_ns(nbytes: Float64, taken_ns: Float64) -> float:
    """Return the time of a transfer without bytes, by least squares of relative errors; not below 0."""
    if len(np.unique(nbytes)) < 2:
        return 0.0
    weighted = np.stack([1 / taken_ns, nbytes / taken_ns], axis=1)
    latency_ns, ns_per_byte = (float(x) for x in np.linalg.lstsq(weighted, np.ones(len(nbytes)), rcond=None)[0])
    return float(np.clip(latency_ns, 0, taken_ns.min())) if ns_per_byte > 0 else 0.0


def hidden(lags: Lags) -> Lags:
    """Return the lags with nothing on devices that waits for communication, but communication itself."""
    facts, graph = lags.facts, lags.graph
    of_point = facts.activity_of_point
    is_comm = facts.of_activities("kind") == Work.COMM
    source, target = of_point[graph.edges.source], of_point[graph.edges.target]
    waits = (graph.edges.kind == EdgeKind.WAIT) & values_at(is_comm, source, False) & ~values_at(is_comm, target, False)
    return lags.without(waits)


def _faster(subject: Subject) -> Iterator[Scenario]:
    rows, _ = subject.lags.common.transfers
    if len(rows):
        change = partial(of_fewer_bytes, rows=rows, part_ns=subject.lags.ns[rows, 0], share=1 / FASTER)
        words = "links of twice the bandwidth"
        yield Scenario("links", "all transfers", change, words, FASTER, of_degree=True)


def _hidden(subject: Subject) -> Iterator[Scenario]:
    if len(subject.lags.common.transfers[0]):
        yield Scenario("hidden", "all transfers", hidden, "transfers behind compute", of_degree=True)


def _hook(subject: Subject) -> Iterator[Scenario]:
    """Yield FP32 all-reduces of gradients in half of their bytes; the hook's casts are not counted."""
    rows, part_ns = moving_ns(subject)
    matching = subject.exchanged.matching
    instance = subject.lags.graph.instance[rows]
    reduces = (matching.instances.kind == Collective.ALL_REDUCE) & (purposes(matching) == Purpose.GRADIENTS)
    is_fp32 = np.array([dtype.removeprefix("torch.") in FP32 for dtype in subject.dtypes(instance)], dtype=bool)
    chosen = reduces[instance] & is_fp32
    if chosen.any():
        change = partial(of_fewer_bytes, rows=rows[chosen], part_ns=part_ns[chosen], share=0.5)
        words = "the communication hook bf16_compress_hook"
        yield Scenario("hook", "FP32 gradients", change, words, "bf16", _tell_hook(subject, instance[chosen]), True)


def _tell_hook(subject: Subject, instance: Int64) -> Told:
    """Say how many bytes the gradients of a step are."""
    graph = subject.lags.graph
    steps = len(subject.model.calibrated.course.steps)
    nbytes = int(np.maximum(subject.nbytes(np.unique(instance)), 0).sum()) // steps
    return Told(
        "the links are too slow for the gradients",
        "send fewer bytes: DDP's bf16_compress_hook, or gradient accumulation under no_sync()",
        f"{size(nbytes)} of FP32 gradients per {subject.step_word} among {len(graph.ranks)} ranks",
    )


def _slow_groups(subject: Subject) -> Iterator[Scenario]:
    """Yield process groups, all together, whose transfers take longer than the same ones among other ranks."""
    rows, share = _beyond_likes(subject)
    keys = subject.exchanged.matching.table.groups
    group = subject.exchanged.matching.instances.group[subject.lags.graph.instance[rows]]
    taken_ns = subject.lags.ns[rows, 0]
    total_ns, likes_ns = (np.bincount(group, ns, len(keys)) for ns in (taken_ns, taken_ns * share))
    slow = np.flatnonzero(total_ns > SLOWER * likes_ns)
    if not len(slow):
        return
    places = _places([keys[number].ranks for number in slow[np.argsort(likes_ns[slow] - total_ns[slow])].tolist()])
    own = np.isin(group, slow)
    told = Told(
        f"{places} are slower than those of like groups",
        f"find out what slows {places} (nvidia-smi topo -m, nvidia-smi nvlink -s, the network's counters)",
        f"transfers there take {times(total_ns[slow].sum() / likes_ns[slow].sum())} as long as the same elsewhere",
    )
    yield Scenario(
        "links", places, partial(_as_likes, rows=rows[own], share=share[own]), f"{places} as others'", told=told
    )


def _places(slow: Sequence[tuple[RankNumber, ...]]) -> str:
    """Name the links that are slow: of the rank that all of several slow groups share, else of the slowest groups."""
    (*shared,) = sorted(set(slow[0]).intersection(*slow[1:]))
    if len(slow) > 1 and len(shared) == 1:
        return f"links of rank {shared[0]}"
    groups = [f"ranks {listed(ranks, MOST_RANKS)}" for ranks in dict.fromkeys(slow)]
    return f"links among {listed(groups, MOST_GROUPS, AND_MORE, ' and among ')}"


def _as_likes(lags: Lags, rows: Int64, share: Float64) -> Lags:
    return lags.at(rows, lags.ns[rows] * share[:, None])


def _beyond_likes(subject: Subject) -> tuple[Int64, Float64]:
    """Return the edges of transfers that other ranks make too, and what share of its time each takes there.

    Like are those of one kind and size among as many ranks, in groups that are described alike.
    """
    rows, _ = subject.lags.common.transfers
    matching = subject.exchanged.matching
    instance = subject.lags.graph.instance[rows]
    keys = matching.table.groups
    roles = _numbered((key.communicator.description, key.size) for key in keys)
    ranks = _numbered(key.ranks for key in keys)
    group = matching.instances.group[instance]
    what = distinct(matching.instances.kind[instance].astype(np.int64), subject.nbytes(instance), roles[group]).index
    cells = distinct(what, ranks[group])
    median_ns = medians(subject.lags.ns[rows, 0], cells.index, len(cells))
    share = np.minimum(_others(median_ns, cells.columns[0]) / np.maximum(median_ns, 1), 1.0)[cells.index]
    known = ~np.isnan(share)
    return rows[known], share[known]


def _numbered(values: Iterable[object]) -> Int64:
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def _others(values: Float64, part: Int64) -> Float64:
    """Return for each value the median of the others in its part, NaN where it is alone."""
    order = np.lexsort((values, part))
    ordered, first = values[order], firsts(part[order], int(part.max(initial=-1)) + 1)
    begin, count = first[part[order]], np.diff(first)[part[order]]
    place, others = np.arange(len(order)) - begin, count - 1
    low, high = (others - 1) // 2, others // 2
    # Without the value itself those behind it move up by one.
    at = [begin + middle + (middle >= place) for middle in (low, high)]
    found = np.full(len(values), np.nan)
    known = others > 0
    found[order[known]] = (ordered[at[0][known]] + ordered[at[1][known]]) / 2
    return found


def _links(subject: Subject) -> Iterator[Scenario]:
    yield from _slow_groups(subject)
    yield from _faster(subject)


LINKS = Kind("links", _links)
HIDDEN = Kind("hidden", _hidden)
HOOK = Kind("hook", _hook)
