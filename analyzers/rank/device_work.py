"""`DeviceWork`: how far a device's work has come, waits left out.

device   kkkk.....kkk.kk......kk
comm     aaaa     aaaa
work     kkkk-----kkk-kk------kk      -: gaps that belong to the work, or waits, which do not
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import Int64
from analyzers.intervals import Intervals
from analyzers.rank.device_waits import LONGEST_LATENCY_NS, NEVER


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
