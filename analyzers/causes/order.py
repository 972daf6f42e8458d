"""Topological order of points, by time and edges."""

from __future__ import annotations

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
    size = len(time_ns)
    reached = _relaxed(time_ns, source, target, 0, size)
    tied = reached[source] == reached[target]
    # No point lies deeper than all that share its instant.
    most = int(np.unique(reached, return_counts=True)[1].max(initial=0))
    depth = _relaxed(np.zeros(size, dtype=np.int64), source[tied], target[tied], 1, most)
    return np.lexsort((depth, reached))


def _relaxed(value: Int64, source: Int64, target: Int64, lag: int, most: int) -> Int64:
    """Return values, raised until each is at least its sources' plus a lag, in so many rounds at most.

    Each round looks only at edges out of what the round before raised.
    """
    value = value.copy()
    order = np.argsort(source, kind="stable")
    source, target = source[order], target[order]
    first = np.searchsorted(source, np.arange(len(value) + 1))
    edges = np.arange(len(source))
    for _ in range(most + 1):
        edges = edges[value[source[edges]] + lag > value[target[edges]]]
        if not len(edges):
            return value
        np.maximum.at(value, target[edges], value[source[edges]] + lag)
        raised = sorted_set(target[edges])
        counts = first[raised + 1] - first[raised]
        edges = np.repeat(first[raised] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    raise NoOrder("what waits for what runs in a circle")
