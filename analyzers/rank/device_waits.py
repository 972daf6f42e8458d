"""What a device waits for between kernels: launches and communication.

device   kkkk.....kkk.kk......kk
launch     ^    ^            ^         the second kernel was launched late: but for a usual gap the host had it wait
comm     aaa          aaaa             the last one was not: it waited until communication had ended

"""

from __future__ import annotations

from dataclasses import dataclass

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
