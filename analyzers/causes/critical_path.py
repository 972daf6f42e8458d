"""The critical path: the walk back over what binds.

rank 0   |host|launch|kernels######|........waits|M=transfer=|        from the end back, over to the last member where
rank 1   |host|..late...|launch|kernels##########|M=transfer=|        a member waited: M is bound by rank 1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Columns, Float64, Int64, Mask
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
    """One replay: times of all points after each visit of a step, and lengths of chains.

    The walk goes from the point `node`, at `end_ns`, back to `begin_ns`. `ends` are the points of all ranks that it
    could begin at, and `lengths` how far each is from where it was one round before; `node` is the one that takes
    longest. `step_lengths` are those of all columns, as `Course` has them.
    """

    course: Course
    history: list[Float64]
    chains: Float64
    node: int
    begin_ns: float
    end_ns: float
    ends: Int64
    lengths: Float64
    step_lengths: Float64

    def arrivals(self, visit: int) -> tuple[Int64, Float64]:
        """Return the chains of a visit's step, and when each one lets its target come."""
        contracted = self.course.contracted
        rows = np.flatnonzero(contracted.chains.step == visit % len(self.course.steps))
        return rows, self.history[visit][contracted.chains.source[rows]] + self.chains[rows]

    def binding(self, visit: int) -> Int64:
        """Return for each point of a visit's step the chain that lets it come last, -1 for all others."""
        contracted = self.course.contracted
        rows, arrival_ns = self.arrivals(visit)
        # Of those that come together the one that came last in the recorded times binds, whatever ranks are called.
        source = contracted.chains.source[rows]
        carried = source >= contracted.size
        source[carried] = contracted.carried[source[carried] - contracted.size]
        time_ns = self.course.graph.points.time_ns[source]
        rows = rows[np.lexsort((time_ns, np.rint(arrival_ns)))]
        bound = np.full(contracted.size, -1)
        bound[contracted.chains.target[rows]] = rows
        return bound


def replay(course: Course, lags: Float64) -> Replayed:
    """Replay the course at lags of its edges, and keep all times of the first column's."""
    history: list[Float64] = []
    step_lengths = course.step_lengths(lags, history)
    chains = course.contracted.sums(lags[:, :1])[:, 0]
    last, before = history[-1], history[-1 - len(course.steps)] if len(course.marks) else course.begun_ns
    ends = course.marks[0] if len(course.marks) else np.array([int(last.argmax())])
    begun_ns = before[ends] if len(course.marks) else before.min(keepdims=True)
    lengths = last[ends] - begun_ns
    latest = course.latest if len(course.marks) else np.zeros(1, dtype=np.int64)
    longest = int(latest[np.rint(lengths)[latest].argmax()])
    begin_ns, end_ns = float(begun_ns[longest]), float(last[ends[longest]])
    return Replayed(course, history, chains, int(ends[longest]), begin_ns, end_ns, ends, lengths, step_lengths)


def walk(replayed: Replayed, lags: Float64) -> Path:
    """Return the critical path of one round of the typical steps."""
    return _expand(replayed, lags, list(_walk(replayed)))


def _walk(replayed: Replayed) -> Iterator[tuple[int, float]]:
    """Yield the chains that bind, from the end back, and when each one's target is."""
    contracted, node = replayed.course.contracted, replayed.node
    for visit in range(len(replayed.history) - 1, -1, -1):
        times, bound = replayed.history[visit], replayed.binding(visit).tolist()
        sources = contracted.chains.source
        while node < contracted.size and times[node] > replayed.begin_ns:
            chain = bound[node]
            if chain < 0:
                return
            yield chain, float(times[node])
            node = int(sources[chain])
        if node < contracted.size:
            return
        node = int(contracted.carried[node - contracted.size])


def _expand(replayed: Replayed, lags: Float64, walked: list[tuple[int, float]]) -> Path:
    """Return the edges of walked chains, the latest first, cut at the beginning."""
    course = replayed.course
    contracted = course.contracted
    # Along a chain each edge's target is the next one's source.
    order = np.lexsort((-contracted.position[course.edges.target], contracted.chain_of))
    first = np.searchsorted(contracted.chain_of[order], np.arange(len(contracted.chains) + 1))
    chains = np.array([chain for chain, _ in walked], dtype=np.int64)
    ends = np.array([end for _, end in walked])
    counts = first[chains + 1] - first[chains]
    begins_at = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(begins_at, counts)
    edges = order[np.repeat(first[chains], counts) + within]
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
    weights = np.zeros(len(contracted.chains) + 1)
    at_end = replayed.ends[replayed.lengths >= replayed.lengths.max() - near_ns * steps]
    waiting = np.zeros(contracted.size + len(contracted.carried))
    waiting[at_end] = 1 / len(at_end)
    last = len(replayed.history) - 1
    for visit in range(last, max(last - steps, -1), -1):
        here = waiting.tolist()
        for target, source, chain, share in _shared(replayed, visit, near_ns):
            weight = here[target] * share
            if weight:
                weights[chain] += weight
                here[source] += weight
        waiting = np.zeros(len(waiting))
        waiting[contracted.carried] = here[contracted.size :]
    return weights


def _shared(replayed: Replayed, visit: int, near_ns: float) -> Iterator[tuple[int, int, int, float]]:
    """Return target, source and chain of what binds, the last points first, and which part of the target's weight.

    A meeting is bound by all that come near its last member, in equal parts.
    """
    contracted = replayed.course.contracted
    bound = replayed.binding(visit)
    rows, arrival_ns = replayed.arrivals(visit)
    target = contracted.chains.target[rows]
    latest_ns = np.full(contracted.size, -np.inf)
    np.maximum.at(latest_ns, target, arrival_ns)
    is_meeting: Mask = replayed.course.graph.points.kind[target] == PointKind.MEETING
    shares = np.where(is_meeting, arrival_ns >= latest_ns[target] - near_ns, bound[target] == rows)
    rows, target = rows[shares], target[shares]
    part = 1 / np.bincount(target, minlength=contracted.size)[target]
    order = np.argsort(-contracted.position[target], kind="stable")
    columns = (target[order], contracted.chains.source[rows[order]], rows[order], part[order])
    return zip(*(column.tolist() for column in columns), strict=True)
