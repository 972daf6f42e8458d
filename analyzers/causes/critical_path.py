"""The critical path: the walk back over what binds.

rank 0   |host|launch|kernels######|........waits|M=transfer=|        from the end back, over to the last member where
rank 1   |host|..late...|launch|kernels##########|M=transfer=|        a member waited: M is bound by rank 1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, begins
from analyzers.causes.pace import Course
from analyzers.rank import EdgeKind, PointKind

# Who came within this part of a step of the last shares the walk with it.
NEAR = 0.01


@dataclass(frozen=True, eq=False)
class Path(Columns):
    """The walk, from its end back: edges of the course, and when each one's source and target are."""

    edge: Int64
    since_ns: Float64
    until_ns: Float64


@dataclass(frozen=True, eq=False)
class Replayed:
    """One replay: times of all points after the last three rounds' ends, and lengths of chains.

    The walk goes from the point `node`, at `end_ns`, back to `begin_ns`. `ends` are the points of all ranks that it
    could begin at, and `lengths` how far each is from where it was one round before; `node` is the one that takes
    longest. `step_lengths` are those of all columns, as `Course` has them.
    """

    course: Course
    kept: dict[int, Float64]
    chains: Float64
    node: int
    begin_ns: float
    end_ns: float
    ends: Int64
    lengths: Float64
    step_lengths: Float64

    def times(self, visit: int) -> Float64:
        """Return all points' times, those of a visit's step as that visit left them: the next to be kept has them."""
        return self.kept[min(number for number in self.kept if number >= visit)]

    def arrivals(self, visit: int) -> tuple[slice, Float64]:
        """Return the chains of a visit's step, and when each one lets its target come."""
        contracted = self.course.contracted
        rows = contracted.of_step(visit % len(self.course.steps))
        return rows, self.times(visit)[contracted.chains.source[rows]] + self.chains[rows]

    def binding(self, visit: int) -> Int64:
        """Return for each point the chain that lets it come last in a visit's step, UNKNOWN for those of other steps.

        Of those that come together the one that came last in the recorded times binds, whatever ranks are called:
        chains of one target come in this order.
        """
        rows, arrival_ns = self.arrivals(visit)
        target = self.course.contracted.chains.target[rows]
        first = np.flatnonzero(begins(target))
        last_ns = np.rint(arrival_ns)
        is_last = last_ns == np.repeat(np.maximum.reduceat(last_ns, first), np.diff(np.r_[first, len(target)]))
        number = np.where(is_last, np.arange(rows.start, rows.stop), UNKNOWN)
        bound = np.full(self.course.contracted.size, UNKNOWN)
        bound[target[first]] = np.maximum.reduceat(number, first)
        return bound


def replay(course: Course, chains: Float64) -> Replayed:
    """Replay the course at lags of its chains, and keep times of the first column's: of the last two rounds."""
    last, steps = course.visits - 1, len(course.steps)
    kept = {number: np.zeros(0) for number in (last, last - 1, last - 1 - steps) if number >= 0}
    step_lengths = course.step_lengths(chains, kept)
    if len(course.marks):
        ends = course.contracted.place[course.marks[0]]
        begun_ns = kept[last - 1][ends]
    else:
        ends = np.array([int(kept[last].argmax())])
        begun_ns = course.begun_ns.min(keepdims=True)
    lengths = kept[last][ends] - begun_ns
    latest = course.latest if len(course.marks) else np.zeros(1, dtype=np.int64)
    longest = int(latest[np.rint(lengths)[latest].argmax()])
    begin_ns, end_ns = float(begun_ns[longest]), float(kept[last][ends[longest]])
    return Replayed(course, kept, chains[:, 0], int(ends[longest]), begin_ns, end_ns, ends, lengths, step_lengths)


def walk(replayed: Replayed, lags: Float64) -> Path:
    """Return the critical path of one round of the typical steps."""
    return _expand(replayed, lags, list(_walk(replayed)))


def _walk(replayed: Replayed) -> Iterator[tuple[int, float]]:
    """Yield the chains that bind, from the end back, and when each one's target is."""
    contracted, node = replayed.course.contracted, replayed.node
    size, source = contracted.size, contracted.chains.source.item
    for visit in range(max(replayed.kept), max(replayed.kept) - 2 * len(replayed.course.steps) - 1, -1):
        if visit < 0:
            return
        # Of single items `item` costs a third of what an index does.
        time, bound = replayed.times(visit).item, replayed.binding(visit).item
        while node < size and time(node) > replayed.begin_ns:
            chain = bound(node)
            if chain < 0:
                return
            yield chain, time(node)
            node = source(chain)
        if node < size:
            return
        node = contracted.carried.item(node - size)


def _expand(replayed: Replayed, lags: Float64, walked: list[tuple[int, float]]) -> Path:
    """Return the edges of walked chains, the latest first, cut at the beginning."""
    course = replayed.course
    contracted = course.contracted
    chains = np.array([chain for chain, _ in walked], dtype=np.int64)
    ends = np.array([end for _, end in walked])
    is_walked = np.zeros(len(contracted.chains), dtype=bool)
    is_walked[chains] = True
    # Along a chain each edge's target is the next one's source.
    order = np.flatnonzero(is_walked[contracted.chain_of])
    order = order[np.lexsort((-contracted.position[course.edges.target[order]], contracted.chain_of[order]))]
    chain_of = contracted.chain_of[order]
    first = np.searchsorted(chain_of, chains)
    counts = np.searchsorted(chain_of, chains, side="right") - first
    begins_at = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(begins_at, counts)
    edges = order[np.repeat(first, counts) + within]
    total = np.cumsum(lags[edges])
    base = np.repeat((total - lags[edges])[begins_at], counts)
    since_ns = np.repeat(ends, counts) - (total - base)
    # Edges may run back in time, by the clocks' error: the path itself never does.
    since_ns = np.clip(np.minimum.accumulate(since_ns), replayed.begin_ns, replayed.end_ns)
    return Path(edges, since_ns, np.r_[replayed.end_ns, since_ns[:-1]][: len(since_ns)])


def shares_by_rank(replayed: Replayed, lags: Float64) -> Float64:
    """Return each rank's share of the critical paths of all that were about last: weights run back over the graph.

    They go in equal parts over arrivals within a hundredth of the step of the last, at the end likewise, and else over
    what binds. Transfers have no rank.
    """
    course = replayed.course
    weights, graph = _chain_weights(replayed), course.graph
    edge, chain_of = course.edges.edge, course.contracted.chain_of
    rank = graph.edge_rank[edge]
    own = (graph.edges.kind[edge] != EdgeKind.TRANSFER) & (rank >= 0)
    ns = np.bincount(rank[own], (weights[chain_of] * lags)[own], len(graph.ranks))
    total = ns.sum()
    return ns / total if total > 0 else np.full(len(ns), 1 / max(len(ns), 1))


def _chain_weights(replayed: Replayed) -> Float64:
    """Return how much of the critical paths runs over each chain, in the last round."""
    course = replayed.course
    contracted, steps = course.contracted, len(course.steps)
    near_ns = NEAR * (replayed.end_ns - replayed.begin_ns) / steps
    weights = np.zeros(len(contracted.chains))
    at_end = replayed.ends[replayed.lengths >= replayed.lengths.max() - near_ns * steps]
    # By point, and behind those by what is carried over from the step before.
    waiting = np.zeros(contracted.size + len(contracted.carried))
    waiting[at_end] = 1 / len(at_end)
    last = max(replayed.kept)
    for visit in range(last, max(last - steps, -1), -1):
        _share_out(replayed, visit, near_ns, waiting, weights)
        carried = waiting[contracted.size :].copy()
        waiting[:] = 0
        np.add.at(waiting, contracted.carried, carried)
    return weights


def _share_out(replayed: Replayed, visit: int, near_ns: float, waiting: Float64, weights: Float64) -> None:
    """Give the weights of a visit's points, the last ones first, to what binds them and to where that comes from.

    A meeting is bound by all that come near its last member, in equal parts.
    """
    contracted = replayed.course.contracted
    rows, arrival_ns = replayed.arrivals(visit)
    target, source = contracted.chains.target[rows], contracted.chains.source.item
    bound, waits = replayed.binding(visit).item, waiting.item
    kind = replayed.course.graph.points.kind[contracted.point[target[0] : target[-1] + 1]]
    is_meeting = (kind == PointKind.MEETING)[::-1].tolist()
    for node, meets in zip(range(int(target[-1]), int(target[0]) - 1, -1), is_meeting, strict=True):
        if not (weight := waits(node)):
            continue
        chains = [bound(node)]
        if meets:
            first, past = np.searchsorted(target, (node, node + 1))
            near = np.flatnonzero(arrival_ns[first:past] >= arrival_ns[first:past].max() - near_ns)
            chains = (rows.start + first + near).tolist()
        for chain in chains:
            weights[chain] += weight / len(chains)
            waiting[source(chain)] += weight / len(chains)
