"""`DeviceWork`: how far a device's work has come, without its waits.

device   kkkk.....kkk.kk......kk
launch     ^    ^            ^         the second kernel was launched late: but for a usual gap the host had it wait
comm     aaa          aaaa             the last one was not: it waited until communication had ended

device   kkkk.....kkk.kk......kk
comm     aaaa     aaaa
work     kkkk-----kkk-kk------kk      -: gaps that belong to the work, or waits, which do not
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.intervals import Intervals, union_of

# Before any launch.
NEVER = np.iinfo(np.int64).min // 4
# From a launch to the start of what it launches, where nothing else is in the way, it takes some microseconds: what a
# trace shows, and no more than this.
LONGEST_LATENCY_NS = 10_000


@dataclass(frozen=True, eq=False)
class _Gaps:
    """Gaps between stretches of a device's work: the first row behind each, when what communicated last had ended."""

    begin_ns: Int64
    end_ns: Int64
    row: Int64
    comm_ended_ns: Int64

    @property
    def without_comm(self) -> Mask:
        """Whether no communication ended in them."""
        apart: Mask = self.comm_ended_ns <= self.begin_ns
        return apart


def _find_gaps(busy: Intervals, start_ns: Int64, ends_ns: Int64) -> _Gaps:
    begin_ns, end_ns = busy.end[:-1], busy.start[1:]
    row = np.searchsorted(start_ns, end_ns).clip(max=max(len(start_ns) - 1, 0))
    last = np.searchsorted(ends_ns, end_ns, side="right") - 1
    return _Gaps(begin_ns, end_ns, row, np.r_[ends_ns, NEVER][last])


def able_to_start(busy: Intervals, start_ns: Int64, launched_ns: Int64, ends_ns: Int64) -> Int64:
    """Return when each row, by start, could have started as far as its launch goes.

    What a launch takes to start something differs from one to the next. A row that was launched too late for a usual
    gap before it could start such a gap before it did. `launched_ns` is NEVER where no launch is known, `ends_ns` when
    communication ended, sorted.
    """
    known = launched_ns != NEVER
    lag_ns = start_ns - launched_ns
    least_ns = lag_ns[known & (lag_ns >= 0)].min(initial=LONGEST_LATENCY_NS)
    able_ns = np.where(known, launched_ns + least_ns, NEVER)
    gaps = _find_gaps(busy, start_ns, ends_ns)
    if not len(gaps.row):
        return able_ns
    was_idle = gaps.without_comm & (launched_ns[gaps.row] >= gaps.begin_ns)
    usual_lag_ns = min(_median(lag_ns[gaps.row[was_idle]], least_ns), LONGEST_LATENCY_NS)
    late = gaps.without_comm & (launched_ns[gaps.row] + usual_lag_ns > gaps.begin_ns)
    usual_gap_ns = _median((gaps.end_ns - gaps.begin_ns)[gaps.without_comm & ~late], 0)
    rows = gaps.row[late]
    able_ns[rows] = np.maximum(able_ns[rows], start_ns[rows] - usual_gap_ns)
    return able_ns


def _median(times_ns: Int64, otherwise_ns: int) -> int:
    return int(np.median(times_ns)) if len(times_ns) else otherwise_ns


def waits(busy: Intervals, start_ns: Int64, able_ns: Int64, ends_ns: Int64) -> tuple[Intervals, Intervals]:
    """Return waits for communication and waits for launches: the part of each gap until either had come.

    A device that goes on right after a collective has waited for it, unless what it goes on with came later still.
    """
    gaps = _find_gaps(busy, start_ns, ends_ns)
    if not len(gaps.row):
        return union_of([], []), union_of([], [])
    launched_ns = np.clip(able_ns[gaps.row], gaps.begin_ns, gaps.end_ns)
    ended_ns = np.clip(gaps.comm_ended_ns, launched_ns, gaps.end_ns)
    # What comes before the launch is the host's; communication counts from there on.
    stalled = ended_ns > launched_ns
    return union_of(launched_ns[stalled], ended_ns[stalled]), union_of(gaps.begin_ns, launched_ns)


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """What one device does: start of each row that is no communication, by start, and when it could at the earliest.

    `stalls` are waits for communication, `host_gaps` those for launches; together with natural gaps they are all that
    lies between stretches of `busy`.
    """

    start_ns: Int64
    launched_ns: Int64
    busy: Intervals
    comm: Intervals
    stalls: Intervals
    host_gaps: Intervals

    # Sets of the whole trace, made once: each step looks at its own part of them.
    @cached_property
    def waits(self) -> Intervals:
        """Return waits for communication and for launches."""
        return self.stalls | self.host_gaps

    @cached_property
    def worked_beside(self) -> Intervals:
        """Return communication that work went on beside."""
        return self.comm - self.waits

    @cached_property
    def gaps(self) -> Intervals:
        """Return what lies between stretches of `busy` and is no wait."""
        return Intervals(self.busy.end[:-1], self.busy.start[1:]) - self.waits

    @cached_property
    def long_gaps(self) -> Intervals:
        """Return those that are longer than any latency: where launches are estimated, nothing tells what they are."""
        gaps = self.gaps
        long = gaps.end - gaps.start > LONGEST_LATENCY_NS
        return Intervals(gaps.start[long], gaps.end[long])

    def work_ns(self, begin_ns: int, instants_ns: Int64) -> Int64:
        """Return how far the work that began at `begin_ns` has come at each instant."""
        return instants_ns - begin_ns - self.waits.length_within(np.full_like(instants_ns, begin_ns), instants_ns)

    def beside_ns(self, begin_ns: int, instants_ns: Int64) -> Int64:
        """Return how much of that work was beside communication."""
        return self.worked_beside.length_within(np.full_like(instants_ns, begin_ns), instants_ns)

    def gaps_ns(self, begin_ns: int, instants_ns: Int64) -> Int64:
        """Return how much of that work was gaps between kernels."""
        return self.gaps.length_within(np.full_like(instants_ns, begin_ns), instants_ns)

    def long_gaps_ns(self, begin_ns: int, instants_ns: Int64) -> Int64:
        """Return how much of that work was gaps that are longer than any latency."""
        return self.long_gaps.length_within(np.full_like(instants_ns, begin_ns), instants_ns)

    def longer_gaps_ns(self, begin_ns: int, end_ns: int) -> int:
        """Return how much gaps beside communication, added up, exceed the median gap without."""
        first, past = np.searchsorted(self.gaps.start, begin_ns), np.searchsorted(self.gaps.end, end_ns, side="right")
        begin, end = self.gaps.start[first:past], self.gaps.end[first:past]
        beside = self.comm.length_within(begin, end) > 0
        if not beside.any() or beside.all():
            return 0
        return int((end - begin)[beside].sum() - beside.sum() * np.median((end - begin)[~beside]))

    def late_ns(self, begin_ns: int, end_ns: int, stretch_ends_ns: Int64) -> Int64:
        """Return for each stretch of the work from begin to end how late its launches were.

        That is the latest launch, after the begin, less the work done when it started. A stretch ends at each instant,
        the last one at the end; what starts the next window counts as part of it.
        """
        inside = slice(*np.searchsorted(self.start_ns, [begin_ns, end_ns]).tolist())
        start_ns = np.r_[self.start_ns[inside], end_ns]
        following = self.launched_ns[inside.stop : inside.stop + 1] if inside.stop < len(self.launched_ns) else [NEVER]
        launched_ns = np.r_[self.launched_ns[inside], following]
        late_ns = np.full(len(stretch_ends_ns) + 1, NEVER)
        # What starts before an instant is part of the stretch that ends there.
        stretch = np.searchsorted(stretch_ends_ns, start_ns, side="right")
        done_ns = self.work_ns(begin_ns, start_ns)
        np.maximum.at(late_ns, stretch, np.maximum(launched_ns - begin_ns - done_ns, NEVER))
        return late_ns
