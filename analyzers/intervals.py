"""Sets of half-open intervals [start, end), in integer nanoseconds.

    a        ####..####..
    b        ..####......
    a | b    ##########..
    a & b    ..##........
    a - b    ##....####..

Nothing here knows what the intervals mean. Every operation is n log n in the number of intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from analyzers.arrays import Int64


@dataclass(frozen=True, eq=False)
class Intervals:
    """Sorted and disjoint; never empty or touching. Build one with `union_of`."""

    start: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.start)

    def __or__(self, other: Intervals) -> Intervals:
        return union_of(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def __and__(self, other: Intervals) -> Intervals:
        met = crossings(self.start, self.end, other.start, other.end)
        return Intervals(met.start, met.end)

    def __sub__(self, other: Intervals) -> Intervals:
        # What is cut out closes one piece and opens the next.
        cut = self & other
        start = np.sort(np.concatenate((self.start, cut.end)))
        end = np.sort(np.concatenate((self.end, cut.start)))
        left = end > start
        return Intervals(start[left], end[left])

    def moved(self, by: int) -> Intervals:
        """Return the same set, later by so much."""
        return Intervals(self.start + by, self.end + by)

    def length_ns(self) -> int:
        """Return |X|: the length of the union."""
        return int((self.end - self.start).sum())

    def length_within(self, start: Int64, end: Int64) -> Int64:
        """Return the set's length inside each [start[i], end[i]): int64 array of their shape, in ns."""
        return self._length_before(end) - self._length_before(start)

    @cached_property
    def _before(self) -> tuple[Int64, Int64]:
        """Return the first k intervals' length, and where the last ends: kept for callers that go step by step."""
        total, end = np.zeros((2, len(self) + 1), dtype=np.int64)
        np.cumsum(self.end - self.start, out=total[1:])
        end[0], end[1:] = np.iinfo(np.int64).min // 2, self.end
        return total, end

    def _length_before(self, instant: Int64) -> Int64:
        """Return the set's length before each instant."""
        total, end = self._before
        index = np.searchsorted(self.start, instant, side="right")
        # All that started before the instant, less what of the last one lies after it.
        length: Int64 = total[index] - np.maximum(end[index] - instant, 0)
        return length


@dataclass(frozen=True, eq=False)
class Crossings:
    """Where intervals meet others: which (`mine`, `theirs`, indices) and when; never empty."""

    mine: Int64
    theirs: Int64
    start: Int64
    end: Int64


def crossings(start: Int64, end: Int64, other_start: Int64, other_end: Int64) -> Crossings:
    """Return every crossing of any intervals with others that are sorted and disjoint."""
    # Each interval meets a contiguous run of the others; expand the pairs and clip them.
    first = np.searchsorted(other_end, start, side="right")
    past = np.searchsorted(other_start, end, side="left")
    count = np.maximum(past - first, 0)
    mine = np.repeat(np.arange(len(start)), count)
    theirs = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    begin, stop = np.maximum(start[mine], other_start[theirs]), np.minimum(end[mine], other_end[theirs])
    real = stop > begin
    return Crossings(mine[real], theirs[real], begin[real], stop[real])


def owned(start: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the union in disjoint pieces by start, and the index of each piece's owner: the earliest-started.

    a    ####....      aaaa....
    b    ..####..  ->  ....bb..
    """
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order]) if len(order) else order
    begin = np.maximum(start[order], np.r_[np.iinfo(np.int64).min, reach[:-1]]) if len(order) else order
    real = end[order] > begin
    return begin[real], end[order][real], order[real]


def union_of(start: ArrayLike, end: ArrayLike) -> Intervals:
    """Return the union of any intervals, overlapping, touching, empty or unsorted.

    [0,2) [1,4) [4,5) [7,7)  ->  [0,5)
    """
    starts, ends = np.asarray(start, dtype=np.int64), np.asarray(end, dtype=np.int64)
    real = ends > starts
    order = np.argsort(starts[real], kind="stable")
    starts, ends = starts[real][order], ends[real][order]
    if not len(starts):
        return Intervals(starts, ends)
    reach = np.maximum.accumulate(ends)
    # One more than there are: what opens an interval closes the one before.
    opens = np.ones(len(starts) + 1, dtype=bool)
    np.greater(starts[1:], reach[:-1], out=opens[1:-1])
    return Intervals(starts[opens[:-1]], reach[opens[1:]])


EMPTY = union_of([], [])
