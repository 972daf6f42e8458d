"""Windows: one profiled step on one device, tiling the device's time.

host      |ProfilerStep#3     |ProfilerStep#4     |
launches    a  b  c             d  e
device          aaa bb   cccc         dd   eeee
windows         |3                    |4       |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Int64, Mask, values_at
from analyzers.rank.columns.activity import CPU_DEVICE, Activity
from analyzers.trace import STEP, Events, Health

_LONGEST_NUMBER = 19  # digits that an int64 holds in any case, plus one


@dataclass(frozen=True, eq=False)
class Steps:
    """The profiler's steps on the host, by start: numbers, half-open times, and in which cycle of it each is."""

    number: Int64
    start_ns: Int64
    end_ns: Int64
    cycle: Int64

    def none(self) -> Steps:
        """Return no steps: of when they are nothing is known."""
        nothing = self.number[:0]
        return Steps(nothing, nothing, nothing, nothing)

    def index_at(self, instant_ns: Int64) -> Int64:
        """Return the index of the step that holds each instant, -1 where none does."""
        if not len(self.number):
            return np.full(len(instant_ns), -1, dtype=np.int64)
        index = np.searchsorted(self.start_ns, instant_ns, side="right") - 1
        inside = (index >= 0) & (instant_ns < self.end_ns[index])
        return np.where(inside, index, -1)

    def number_at(self, instant_ns: Int64) -> Int64:
        """Return the number of the step that holds each instant, -1 where none does."""
        return values_at(self.number, self.index_at(instant_ns))


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of one device: step numbers, half-open times, and lengths of the steps' marks on the host, in order.

    `outside_ns` is the length of device activity that lies outside of all windows.
    """

    step: Int64
    start_ns: Int64
    end_ns: Int64
    mark_ns: Int64  # 0 where no step is marked
    ends_cycle: Mask
    outside_ns: int
    unmarked: bool = False  # no step is marked: the one window is all there is


def profiler_steps(events: Events) -> Steps:
    """Return the host's `ProfilerStep#k` annotations. A number that occurs twice counts where it occurs first."""
    rows = events.steps
    numbers = [events.names[code].removeprefix(STEP) for code in events.name[rows]]
    numbered = np.array([_is_step(number) for number in numbers], dtype=bool)
    rows = rows[numbered] if len(rows) else rows
    number = np.array([int(number) for number in numbers if _is_step(number)], dtype=np.int64)
    _, first = np.unique(number, return_index=True)
    kept = np.sort(first)
    cycle = np.cumsum((events.health[rows][kept] & Health.CYCLE) > 0)
    return Steps(number[kept], events.start_ns[rows][kept], events.end_ns[rows][kept], cycle)


def _is_step(number: str) -> bool:
    return number.isdecimal() and len(number) < _LONGEST_NUMBER


def windows(activity: Activity, steps: Steps) -> Windows:
    """Return one device's windows, as docs/measuring.md defines them: see the drawing above.

    A device none of whose events was launched inside a step has one window, step 0, over all of its activity. A window
    in which a row begins without a known end is left out, unless that is all there are.
    """
    index = steps.index_at(activity.launched_ns)
    inside = index >= 0
    if not inside.any():
        start, end = activity.start_ns.min(keepdims=True), activity.end_ns.max(keepdims=True)
        return Windows(np.array([0]), start, end, np.array([0]), np.array([True]), 0, True)
    present, first = np.unique(index[inside], return_inverse=True)
    begin, stop = np.full(len(present), np.iinfo(np.int64).max), np.full(len(present), np.iinfo(np.int64).min)
    np.minimum.at(begin, first, activity.start_ns[inside])
    np.maximum.at(stop, first, activity.end_ns[inside])
    if activity.device == CPU_DEVICE:
        begin = steps.start_ns[present]
    by_number = np.lexsort((steps.number[present], steps.cycle[present]))
    # Where a later step's first event runs before an earlier step's, the earlier window is empty rather than negative.
    start = np.maximum.accumulate(begin[by_number])
    following = np.r_[start[1:], np.iinfo(np.int64).max]
    # The last of a cycle ends with its own last event.
    marks = present[by_number]
    is_last = np.r_[np.diff(steps.cycle[marks]) != 0, True]
    end = np.where(is_last, np.clip(stop[by_number], start, following), following)
    kept = ~activity.is_endless(start, end)
    kept |= not kept.any()
    outside_ns = activity.busy.length_ns() - int(activity.busy.length_within(start[kept], end[kept]).sum())
    mark_ns = (steps.end_ns - steps.start_ns)[marks]
    return Windows(steps.number[marks][kept], start[kept], end[kept], mark_ns[kept], is_last[kept], outside_ns)


def is_unmarked(activity: Activity, steps: Steps) -> bool:
    """Whether no step holds any launch of a device, so that it has one window, step 0."""
    return not bool((steps.index_at(activity.launched_ns) >= 0).any())
