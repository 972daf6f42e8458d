"""Topological order of points, by time and edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Int64, sorted_set
from analyzers.errors import NotReplayable


class NoOrder(NotReplayable):
    """Edges run in a circle: recorded times are too wrong to say what waited for what."""


def in_order(time_ns: Int64, source: Int64, target: Int64) -> Int64:
    """Return the points in an order in which sources precede targets: Kahn's over (time, edge).

    Recorded times give the order but where edges run back in them, by the clocks' error, and where several points share
    an instant. Raises NoOrder where edges run in a circle.
    """
    reached = _reached(time_ns, _Edges.of(len(time_ns), source, target))
    tied = reached[source] == reached[target]
    return np.lexsort((_depth(_Edges.of(len(time_ns), source[tied], target[tied])), reached))


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges of points by their source: those out of point p are first[p]:first[p + 1]."""

    source: Int64
    target: Int64
    first: Int64

    @classmethod
    def of(cls, points: int, source: Int64, target: Int64) -> _Edges:
        """Sort edges of so many points."""
        order = np.argsort(source, kind="stable")
        return cls(source[order], target[order], np.searchsorted(source[order], np.arange(points + 1)))

    def out_of(self, points: Int64) -> Int64:
        """Return the edges out of some points, by index."""
        counts = self.first[points + 1] - self.first[points]
        return np.repeat(self.first[points] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))


def _reached(time_ns: Int64, of: _Edges) -> Int64:
    """Return when each point is at the earliest: not before any that precedes it.

    Each round looks only at edges out of what the round before put off.
    """
    reached, edges = time_ns.copy(), np.arange(len(of.source))
    while True:
        edges = edges[reached[of.source[edges]] > reached[of.target[edges]]]
        if not len(edges):
            return reached
        np.maximum.at(reached, of.target[edges], reached[of.source[edges]])
        edges = of.out_of(sorted_set(of.target[edges]))


def _depth(of: _Edges) -> Int64:
    """Return how many edges the longest way to each point has, by Kahn's levels: each edge is looked at once.

    Raises NoOrder where edges run in a circle.
    """
    depth, level, left = np.zeros(len(of.first) - 1, dtype=np.int64), 0, len(of.source)
    awaited = np.bincount(of.target, minlength=len(depth))
    points = np.flatnonzero(awaited == 0)
    while len(points):
        depth[points] = level
        reached = of.target[of.out_of(points)]
        np.subtract.at(awaited, reached, 1)
        points = sorted_set(reached[awaited[reached] == 0])
        level, left = level + 1, left - len(reached)
    if left:
        raise NoOrder("what waits for what runs in a circle")
    return depth
