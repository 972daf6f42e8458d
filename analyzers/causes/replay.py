"""Replay a graph at changed lags, all scenarios side by side.

track      a --- b --- c --- d --- e        a batch: points of tracks between two waits for others
                 ^           ^
others           x           y              b and d wait for what is known by then

Points with one edge in and one edge out are contracted: their edges' lags add up to a chain's. Every other point
follows the one before it on its own track (a rank's host, a stream) and may wait for others. What waits for nothing
that is not known yet is one batch, whatever its track: along a track a point comes at

    A + max over the points before it (arrival - A there),       A: the track's chains, added up

so that a batch is a running sum and a running maximum over an array, with a column for each scenario.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Mask, begins, places_since, rows_by, sorted_set
from analyzers.causes.order import in_order

# What no lag reaches: an edge that is dropped.
DROPPED = -(2.0**52)


@dataclass(frozen=True, eq=False)
class Batch:
    """Points by track and order: each one's chain from the point before it (for a track's first one that takes none).

    `begin` is where each point's track begins in the batch, `part` counts tracks. Points `waits` (indices, in order)
    wait for others: their `source` and `by`, the chain, those of one point side by side from `first` on.
    """

    node: Int64
    chain: Int64
    begin: Int64
    part: Float64
    waits: Int64
    first: Int64
    source: Int64
    by: Int64

    def advance(self, times: Float64, chains: Float64, apart: float) -> None:
        """Set the times of the batch's points; no two times lie further from one another than `apart` / 4."""
        along = np.cumsum(chains[self.chain], axis=0)
        along -= along[self.begin]
        arrivals = times[self.source] + chains[self.by]
        if len(self.first) < len(arrivals):
            arrivals = np.maximum.reduceat(arrivals, self.first, axis=0)
        # Tracks stand behind one another, each so much higher that the running maximum begins anew.
        offset = (self.part * apart)[:, None]
        latest = np.full(along.shape, -apart / 2)
        latest[self.waits] = np.maximum(arrivals, -apart / 4) - along[self.waits]
        latest += offset
        np.maximum.accumulate(latest, axis=0, out=latest)
        latest -= offset
        latest += along
        times[self.node] = latest


@dataclass(frozen=True, eq=False)
class Chains(Columns):
    """Chains of contracted edges between kept points; `step` is the step of the course that each ends in.

    Sources from the number of points on stand for points of the step before: see `Contracted.carried`.
    """

    source: Int64
    target: Int64
    step: Int64


@dataclass(frozen=True, eq=False)
class Contracted:
    """Kept points and the chains between them.

    `chain_of` is the chain that each edge is part of, `position` each point's place in an order of all. `carried` are
    the points whose times the step behind needs, in the order of their numbers there; `of_step` are each step's chains.
    """

    size: int
    chain_of: Int64
    chains: Chains
    position: Int64
    carried: Int64
    of_step: list[Int64]
    batches: list[list[Batch]]
    carried_in: list[Int64]

    def sums(self, lags: Float64) -> Float64:
        """Return each chain's lag, a column for each scenario; last the one that takes no time."""
        count = len(self.chains) + 1
        sums = np.stack([np.bincount(self.chain_of, column, count) for column in lags.T], axis=1)
        # However many of its edges are dropped, a chain is dropped once.
        return np.where(sums < DROPPED / 2, DROPPED, sums)

    def replay(self, begun_ns: Float64, lags: Float64, steps: Iterable[int]) -> Iterator[Float64]:
        """Replay some steps, one after the other, and yield all points' times after each, as they were last.

        Before the first all are `begun_ns`; `lags` are those of all edges, a column for each scenario.
        """
        steps = [*steps]
        chains = self.sums(lags)
        times = np.zeros((self.size + len(self.carried), lags.shape[1]))
        times[: self.size] = begun_ns[:, None]
        dropped = chains == DROPPED
        most_dropped = int(dropped.sum(axis=0).max(initial=0))
        # No time comes to more than all chains together, as often as they are replayed.
        reach = float(np.where(dropped, 0, np.abs(chains)).sum(axis=0).max(initial=0))
        reach = reach * -(-len(steps) // len(self.batches)) + float(np.abs(begun_ns).max(initial=0)) + 1
        chains = np.maximum(chains, -2 * reach)
        for step in steps:
            here = self.carried_in[step]
            times[self.size + here] = times[self.carried[here]]
            for batch in self.batches[step]:
                batch.advance(times, chains, (4 + 2 * most_dropped) * reach)
            yield times


def contract(size: int, edges: Edged, kept: Mask, time_ns: Int64, track: Int64) -> Contracted:
    """Contract a graph of `size` points, of which those of `kept` stay whatever their edges.

    `time_ns` are recorded times, which order points, and `track` is the track that each point is on, -1 for none.
    """
    into = np.bincount(edges.target, minlength=size)
    out = np.bincount(edges.source[~edges.earlier], minlength=size)
    stays = kept | (into != 1) | (out != 1)
    stays[edges.source[edges.earlier]] = True
    # Of each edge the last one of its chain: the edge out of each contracted point, and so on to a point that stays.
    out_edge = np.full(size, UNKNOWN)
    within = np.flatnonzero(~edges.earlier)
    out_edge[edges.source[within]] = within
    last = np.where(stays[edges.target], np.arange(len(edges)), out_edge[edges.target])
    while True:
        further = last[last]
        if (further == last).all():
            break
        last = further
    ends, chain_of = np.unique(last, return_inverse=True)
    heads = np.flatnonzero(stays[edges.source] | edges.earlier)
    source, earlier = np.full(len(ends), UNKNOWN), np.zeros(len(ends), dtype=bool)
    source[chain_of[heads]], earlier[chain_of[heads]] = edges.source[heads], edges.earlier[heads]
    carried, place = np.unique(source[earlier], return_inverse=True)
    source[earlier] = size + place
    inside = edges.take(~edges.earlier)
    order = in_order(time_ns, inside.source, inside.target)
    position = np.empty(size, dtype=np.int64)
    position[order] = np.arange(size)
    chains = Chains(source, edges.target[ends], edges.step[ends])
    of_step = rows_by(chains.step)
    own = [of_step.get(step, chain_of[:0]) for step in range(int(edges.step.max(initial=-1)) + 1)]
    batches = [_batches(chains, rows, position, track) for rows in own]
    carried_in = [sorted_set(source[rows][source[rows] >= size]) - size for rows in own]
    return Contracted(size, chain_of, chains, position, carried, own, batches, carried_in)


@dataclass(frozen=True, eq=False)
class Edged(Columns):
    """Edges of a course: `earlier` ones come out of the step before; `step` is the target's."""

    source: Int64
    target: Int64
    earlier: Mask
    step: Int64


def _batches(chains: Chains, own: Int64, position: Int64, track: Int64) -> list[Batch]:
    """Return the batches of one step, of which `own` are the chains."""
    size = len(position)
    own = own[np.lexsort((chains.source[own], position[chains.target[own]]))]
    source, target = chains.source[own], chains.target[own]
    inside = source < size
    same_track = np.zeros(len(own), dtype=bool)
    known = np.where(inside, source, 0)
    same_track[inside] = (track[known] == track[target])[inside] & (track[target] >= 0)[inside]
    along = _along_tracks(same_track, position[known], target, source)
    points = sorted_set(np.concatenate([target, source[inside]]))
    begin, end = np.where(inside, np.searchsorted(points, known), UNKNOWN), np.searchsorted(points, target)
    epoch = _epochs(begin.tolist(), end.tolist(), along.tolist(), len(points))
    return [
        _batch(_Entering(own[rows], source[rows], target[rows], along[rows]), position, len(chains))
        for _, rows in sorted(rows_by(epoch[end]).items())
    ]


def _along_tracks(same_track: Mask, position: Int64, target: Int64, source: Int64) -> Mask:
    """Return the chains along tracks: into each point the latest on its track, out of each point the first one."""
    along = np.zeros(len(target), dtype=bool)
    rows = np.flatnonzero(same_track)
    if not len(rows):
        return along
    order = rows[np.lexsort((position[rows], target[rows]))]
    latest = order[np.r_[np.diff(target[order]) != 0, True]]
    # Chains come by their targets' position: of those out of one point the first stands first.
    latest = np.sort(latest)
    _, first = np.unique(source[latest], return_index=True)
    along[latest[first]] = True
    return along


def _epochs(source: list[int], target: list[int], along: list[bool], size: int) -> Int64:
    """Return for each point how many waits for others lie before it at most; chains come by their targets' order.

    What comes from the step before has source -1.
    """
    epoch = [0] * size
    for begin, end, follows in zip(source, target, along, strict=True):
        if begin >= 0:
            least = epoch[begin] + (not follows)
            if least > epoch[end]:
                epoch[end] = least
    return np.array(epoch, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Entering(Columns):
    """Chains into the points of a batch."""

    chain: Int64
    source: Int64
    target: Int64
    along: Mask


def _batch(into: _Entering, position: Int64, empty_chain: int) -> Batch:
    """Return the batch of the points that some chains lead to."""
    nodes = np.unique(into.target)
    before = np.full(len(nodes), UNKNOWN)
    chain = np.full(len(nodes), empty_chain)
    follows = into.along & np.isin(into.source, nodes)
    at = np.searchsorted(nodes, into.target[follows])
    before[at] = np.searchsorted(nodes, into.source[follows])
    chain[at] = into.chain[follows]
    head = _heads(before)
    order = np.lexsort((position[nodes], position[nodes[head]]))
    place = np.empty(len(nodes), dtype=np.int64)
    place[order] = np.arange(len(nodes))
    waits = into.take(~follows)
    of_node = place[np.searchsorted(nodes, waits.target)]
    waits, of_node = waits.take(np.argsort(of_node, kind="stable")), np.sort(of_node)
    is_first = begins(of_node)
    starts = begins(head[order])
    return Batch(
        nodes[order],
        chain[order],
        np.arange(len(nodes)) - places_since(starts),
        (np.cumsum(starts) - 1).astype(np.float64),
        of_node[is_first],
        np.flatnonzero(is_first),
        waits.source,
        waits.chain,
    )


def _heads(before: Int64) -> Int64:
    """Return for each place the first one of its track, given the one before each (-1: none)."""
    head = np.where(before >= 0, before, np.arange(len(before)))
    while True:
        further = head[head]
        if (further == head).all():
            return head
        head = further
