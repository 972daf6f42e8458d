"""Topological order of points, by time and edges."""

from __future__ import annotations

import numpy as np

from analyzers.arrays import Int64
from analyzers.errors import AnalysisError


def in_order(time_ns: Int64, source: Int64, target: Int64) -> Int64:
    """Return the points in an order in which sources precede targets: Kahn's over (time, edge).

    Recorded times give the order but where edges run back in them, by the clocks' error, and where several points share
    an instant. Raises AnalysisError where edges run in a circle.
    """
    reached = _relaxed(time_ns, source, target, 0)
    tied = reached[source] == reached[target]
    depth = _relaxed(np.zeros(len(time_ns), dtype=np.int64), source[tied], target[tied], 1)
    return np.lexsort((depth, reached))


def _relaxed(value: Int64, source: Int64, target: Int64, lag: int) -> Int64:
    """Return values, raised until each is at least its sources' plus a lag."""
    value = value.copy()
    for _ in range(len(value) + 1):
        behind = value[source] + lag > value[target]
        if not behind.any():
            return value
        np.maximum.at(value, target[behind], value[source[behind]] + lag)
    raise AnalysisError("what waits for what runs in a circle")
