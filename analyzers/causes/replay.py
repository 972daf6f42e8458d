"""Replay a graph at changed lags, all scenarios side by side.

track      a --- b --- c --- d --- e        a batch: points of tracks between two waits for others
                 ^           ^
others           x           y              b and d wait for what is known by then

Points with one edge in and one edge out are contracted: their edges' lags add up to a chain's. Every other point
follows the one before it on its own track (a rank's host, a stream) and may wait for others. What waits for nothing
that is not known yet is one batch, whatever its track: along a track a point comes at

    A + max over the points before it (arrival - A there),       A: the track's chains, added up

so that a batch is a running maximum over an array, with a column for each scenario. Points are numbered as they are
replayed, by step, batch and track, and chains by their targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Mask, begins, first_of, firsts, places_since, sorted_set
from analyzers.causes.order import in_order

# What no lag reaches: an edge that is dropped.
DROPPED = -(2.0**52)


@dataclass(frozen=True, eq=False)
class Batch:
    """Points from `first` up to `past`, of which the `waits`-th ones wait for others.

    `source` is what they wait for and `chain` how long after, those of one point side by side from `begin` on.
    """

    first: int
    past: int
    waits: Int64
    begin: Int64
    source: Int64
    chain: Int64

    def advance(self, at: Replaying) -> None:
        """Set the times of the batch's points."""
        # Of rows `take` costs a third of what an index does.
        arrivals = at.times.take(self.source, axis=0)
        arrivals += at.chains.take(self.chain, axis=0)
        if len(self.begin) < len(arrivals):
            arrivals = np.maximum.reduceat(arrivals, self.begin, axis=0)
        np.maximum(arrivals, at.earliest, out=arrivals)
        here, along = at.times[self.first : self.past], at.along[self.first : self.past]
        here[:] = at.floor[self.first : self.past]
        arrivals -= along.take(self.waits, axis=0)
        here[self.waits] = arrivals
        np.maximum.accumulate(here, axis=0, out=here)
        here += along


@dataclass(frozen=True, eq=False)
class Replaying:
    """Times of points so far, lags of chains, and what each point's track takes up to it, ns, by scenario.

    In a batch the tracks stand behind one another, each so much higher that the running maximum begins anew at it:
    `along` has that taken off, `floor` is what a point without a wait begins with, `earliest` less than any time.
    """

    times: Float64
    chains: Float64
    along: Float64
    floor: Float64
    earliest: float


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

    `point` is each kept point's number in the graph, and `place` the other way round, UNKNOWN for those that are not
    kept. `chain_of` is the chain that each edge is part of, `position` each of the graph's points' place in an order of
    all. `carried` are the points whose times the step behind needs, in the order of their numbers there, and those of
    `carried_in` are needed in each step. Of each point `along` is the chain from the one before it in its batch, `part`
    counts tracks within a batch, and `begin` is the first point of its track.
    """

    point: Int64
    place: Int64
    chain_of: Int64
    chains: Chains
    position: Int64
    carried: Int64
    carried_in: list[Int64]
    batches: list[list[Batch]]
    along: Int64
    part: Int64
    begin: Int64

    @property
    def size(self) -> int:
        """Return how many points are kept."""
        return len(self.point)

    def of_step(self, step: int) -> slice:
        """Return the chains that end in a step."""
        first, past = np.searchsorted(self.chains.step, (step, step + 1)).tolist()
        return slice(first, past)

    def sums(self, lags: Float64) -> Float64:
        """Return each chain's lag, a column for each scenario; `lags` are those of all edges."""
        sums = np.empty((len(self.chains), lags.shape[1]))
        for place, column in enumerate(lags.T):
            sums[:, place] = np.bincount(self.chain_of, column, len(self.chains))
        # However many of its edges are dropped, a chain is dropped once.
        sums[sums < DROPPED / 2] = DROPPED
        return sums

    def replay(self, begun_ns: Float64, chains: Float64, steps: Iterable[int]) -> Iterator[Float64]:
        """Replay some steps, one after the other, and yield all points' times after each, as they were last.

        Before the first all are `begun_ns`, by point of the graph; `chains` are the lags of all chains, a column for
        each scenario.
        """
        steps = [*steps]
        times = np.zeros((self.size + len(self.carried), chains.shape[1]))
        times[: self.size] = begun_ns[self.point][:, None]
        rounds = -(-len(steps) // len(self.batches))
        return self._replayed(self._begun(times, chains, rounds, float(np.abs(begun_ns).max(initial=0))), steps)

    def _replayed(self, at: Replaying, steps: list[int]) -> Iterator[Float64]:
        for step in steps:
            here = self.carried_in[step]
            at.times[self.size + here] = at.times[self.carried[here]]
            for batch in self.batches[step]:
                batch.advance(at)
            yield at.times

    def _begun(self, times: Float64, chains: Float64, rounds: int, begun_ns: float) -> Replaying:
        """Return what a replay begins with: chains that are dropped have bounded lags."""
        most, least = (_over_columns(of, chains) for of in (np.maximum, np.minimum))
        changed = np.flatnonzero(least <= DROPPED)
        dropped = chains[changed] <= DROPPED
        least[changed] = np.where(dropped, 0, chains[changed]).min(axis=1, initial=0)
        # No time comes to more than all chains together, as often as they are replayed.
        reach = float(np.maximum(most, -least).sum()) * rounds + begun_ns + 1
        if len(changed):
            chains = chains.copy()
            chains[changed] = np.maximum(chains[changed], -2 * reach)
        apart = (4 + 2 * int(dropped.sum(axis=0).max(initial=0))) * reach
        along = chains.take(np.minimum(self.along, len(chains) - 1), axis=0)
        begins_track = self.begin == np.arange(self.size)
        along[begins_track] = 0
        np.cumsum(along, axis=0, out=along)
        track = np.cumsum(begins_track) - 1
        above = self.part.astype(np.float64) * apart
        along -= (along[begins_track] + above[begins_track, None]).take(track, axis=0)
        return Replaying(times, chains, along, (above - apart / 2)[:, None], -apart / 4)


def _over_columns(reduce: np.ufunc, values: Float64) -> Float64:
    """Return the largest or least of 0 and each row's few values: column by column, which costs a fifth."""
    found = np.zeros(len(values))
    for column in values.T:
        reduce(found, column, out=found)
    return found


@dataclass(frozen=True, eq=False)
class Edged(Columns):
    """Edges of a course: `earlier` ones come out of the step before; `step` is the target's."""

    source: Int64
    target: Int64
    earlier: Mask
    step: Int64


def contract(size: int, edges: Edged, kept: Mask, time_ns: Int64, track: Int64) -> Contracted:
    """Contract a graph of `size` points, of which those of `kept` stay whatever their edges.

    `time_ns` are recorded times, which order points, and `track` is the track that each point is on, -1 for none.
    """
    inside = edges.take(~edges.earlier)
    position = np.empty(size, dtype=np.int64)
    position[in_order(time_ns, inside.source, inside.target)] = np.arange(size)
    chain_of, chains = _chained(size, edges, kept)
    order = np.argsort(position[chains.target], kind="stable")
    chains, number = chains.take(order), np.argsort(order)
    along = _along_tracks(chains, track, position)
    laid = _laid_out(size, chains, along, position)
    others = kept.copy()
    others[chains.source] = True
    others[laid.point] = False
    point = np.r_[laid.point, np.flatnonzero(others)]
    place = np.full(size, UNKNOWN)
    place[point] = np.arange(len(point))
    order = np.lexsort((time_ns[chains.source], place[chains.target]))
    chains, follows = chains.take(order), laid.follows[order]
    carried, of_carried = np.unique(place[chains.source[chains.earlier]], return_inverse=True)
    source = place[chains.source]
    source[chains.earlier] = len(point) + of_carried
    placed = Chains(source, place[chains.target], chains.step)
    steps = int(edges.step.max(initial=-1)) + 1
    carried_in = [sorted_set(source[chains.earlier & (chains.step == step)]) - len(point) for step in range(steps)]
    into = np.full(len(point), len(chains))
    into[placed.target[follows]] = np.flatnonzero(follows)
    more = np.arange(len(laid.point), len(point))
    return Contracted(
        point,
        place,
        np.argsort(order)[number[chain_of]],
        placed,
        position,
        carried,
        carried_in,
        _batches(placed, follows, laid, steps),
        into,
        np.r_[laid.part, np.zeros(len(more), dtype=np.int64)],
        np.r_[laid.begin, more],
    )


def _chained(size: int, edges: Edged, kept: Mask) -> tuple[Int64, Edged]:
    """Return the chain that each edge is part of, and chains as edges between points that stay."""
    into = np.bincount(edges.target, minlength=size)
    out = np.bincount(edges.source[~edges.earlier], minlength=size)
    stays = kept | (into != 1) | (out != 1)
    stays[edges.source[edges.earlier]] = True
    # Of each edge the last one of its chain: the edge out of each contracted point, and so on to a point that stays.
    out_edge = np.full(size, UNKNOWN)
    within = np.flatnonzero(~edges.earlier)
    out_edge[edges.source[within]] = within
    last = np.where(stays[edges.target], np.arange(len(edges)), out_edge[edges.target])
    last = _farthest(last)
    ends, chain_of = np.unique(last, return_inverse=True)
    heads = np.flatnonzero(stays[edges.source] | edges.earlier)
    source, earlier = np.full(len(ends), UNKNOWN), np.zeros(len(ends), dtype=bool)
    source[chain_of[heads]], earlier[chain_of[heads]] = edges.source[heads], edges.earlier[heads]
    return chain_of, Edged(source, edges.target[ends], earlier, edges.step[ends])


def _farthest(onward: Int64) -> Int64:
    """Return where each place leads in the end, given where it leads next; the last of all leads to itself."""
    while True:
        further = onward[onward]
        if (further == onward).all():
            return onward
        onward = further


def _along_tracks(chains: Edged, track: Int64, position: Int64) -> Mask:
    """Return the chains along tracks: into each point the latest on its track, out of each point the first one.

    Chains come in the order of their targets.
    """
    along = np.zeros(len(chains), dtype=bool)
    on_track = (track[chains.source] == track[chains.target]) & (track[chains.target] >= 0)
    rows = np.flatnonzero(on_track & ~chains.earlier)
    if not len(rows):
        return along
    order = rows[np.lexsort((position[chains.source[rows]], chains.target[rows]))]
    latest = np.sort(order[np.r_[np.diff(chains.target[order]) != 0, True]])
    _, first = np.unique(chains.source[latest], return_index=True)
    along[latest[first]] = True
    return along


@dataclass(frozen=True, eq=False)
class _LaidOut:
    """Points that something leads to, in the order in which they are replayed.

    `batch` counts batches, `part` the tracks within one, `begin` is where each one's track begins in it. Chains that
    `follows` go along a track within a batch.
    """

    point: Int64
    batch: Int64
    part: Int64
    begin: Int64
    follows: Mask


def _laid_out(size: int, chains: Edged, along: Mask, position: Int64) -> _LaidOut:
    """Return points by step, by how many waits lie before them, by track, and by their order."""
    epoch = _epochs(size, chains, along)
    step = np.full(size, UNKNOWN)
    step[chains.target] = chains.step
    follows = along & (epoch[chains.source] == epoch[chains.target]) & (step[chains.source] >= 0)
    before = np.arange(size)
    before[chains.target[follows]] = chains.source[follows]
    head = _farthest(before)
    point = np.flatnonzero(step >= 0)
    point = point[np.lexsort((position[point], position[head[point]], epoch[point], step[point]))]
    new_batch = begins(step[point]) | begins(epoch[point])
    new_track = begins(head[point]) | new_batch
    batch, track = np.cumsum(new_batch) - 1, np.cumsum(new_track) - 1
    begin = np.arange(len(point)) - places_since(new_track)
    return _LaidOut(point, batch, track - first_of(track, new_batch), begin, follows)


def _epochs(size: int, chains: Edged, along: Mask) -> Int64:
    """Return for each point how many waits for others lie before it at most; chains come by their targets' order."""
    epoch = [0] * size
    rows = ~chains.earlier
    columns = (chains.source[rows].tolist(), chains.target[rows].tolist(), along[rows].tolist())
    for begin, end, follows in zip(*columns, strict=True):
        least = epoch[begin] + (not follows)
        if least > epoch[end]:
            epoch[end] = least
    return np.array(epoch, dtype=np.int64)


def _batches(chains: Chains, follows: Mask, laid: _LaidOut, steps: int) -> list[list[Batch]]:
    """Return the batches of each step."""
    count = int(laid.batch.max(initial=-1)) + 1
    waits = np.flatnonzero(~follows)
    target = chains.target[waits]
    first, first_wait = firsts(laid.batch, count).tolist(), firsts(laid.batch[target], count).tolist()
    new_point = begins(target)
    batches: list[list[Batch]] = [[] for _ in range(steps)]
    for place, (begin, end) in enumerate(pairwise(first_wait)):
        new = np.flatnonzero(new_point[begin:end])
        batch = Batch(
            first[place],
            first[place + 1],
            target[begin:end][new] - first[place],
            new,
            chains.source[waits[begin:end]],
            waits[begin:end],
        )
        batches[int(chains.step[waits[begin]])].append(batch)
    return batches
