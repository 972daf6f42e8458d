"""Idle gaps of windows, and the device event that ends each.

window    |3               |4
device     aaa...bb..cc.....dd       gaps before b, c and d; the last lies in window 3, and d, of window 4, ends it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, find, values_at
from analyzers.intervals import Intervals, crossings, union_of
from analyzers.rank.host import Host
from analyzers.run import RankTrace
from analyzers.trace import Category, Events


@dataclass(frozen=True, eq=False)
class DeviceTime:
    """One device's windows, half-open times in order, `row` of each among the rank's; and when it was not idle."""

    device: int
    row: Int64
    start_ns: Int64
    end_ns: Int64
    busy: Intervals


@dataclass(frozen=True, eq=False)
class Gaps(Columns):
    """Longest intervals of windows in which nothing runs on a device.

    `window` is the row of each one's window, `ender` the row of the event that starts where it ends, UNKNOWN for none.
    """

    window: Int64
    device: Int64
    start_ns: Int64
    end_ns: Int64
    ender: Int64

    @property
    def length_ns(self) -> Int64:
        """Return how long each is."""
        return self.end_ns - self.start_ns

    def or_whole(self, gaps: Gaps, chosen: Mask) -> Gaps:
        """Return these beginnings of gaps, some of them as long as the gap is."""
        return replace(self, end_ns=np.where(chosen, gaps.end_ns, self.end_ns))


def gaps(events: Events, launched_ns: Int64, devices: Sequence[DeviceTime]) -> Gaps:
    """Return the gaps in the windows of a rank's devices; of events that end one, the one launched first counts.

    `launched_ns` is when each row's launch call began, UNKNOWN where there is none: such rows come last.
    """
    found = [_of_device(events, launched_ns, device) for device in devices]
    none = np.zeros(0, dtype=np.int64)
    parts = [(none,) * 5, *found]
    return Gaps(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _of_device(events: Events, launched_ns: Int64, device: DeviceTime) -> tuple[Int64, ...]:
    idle = union_of(device.start_ns, device.end_ns) - device.busy
    met = crossings(idle.start, idle.end, device.start_ns, device.end_ns)
    rows = np.flatnonzero(events.on_device & ((events.device == device.device) | (events.peer == device.device)))
    launched = launched_ns[rows]
    rows = rows[np.lexsort((launched, launched == UNKNOWN, events.start_ns[rows]))]
    at = find(events.start_ns[rows], met.end)
    ender = np.r_[rows, UNKNOWN][at]
    return device.row[met.theirs], np.full(len(at), device.device), met.start, met.end, ender


@dataclass(frozen=True, eq=False)
class LaunchCalls:
    """The launch call [start, end) behind each gap's ender, in its window's times; UNKNOWN where the trace has none.

    `row`, `thread`, and the instant `in_full_ns` are the full window's. `is_first` marks enders that began before all
    other events of their call: a graph's call launches many.
    """

    row: Int64
    thread: Int64
    in_full_ns: Int64
    start_ns: Int64
    end_ns: Int64
    is_first: Mask

    @property
    def is_known(self) -> Mask:
        """Whether each ender has a launch."""
        known: Mask = (self.start_ns != UNKNOWN) & (self.end_ns != UNKNOWN)
        return known

    def in_light_window(self, trace: RankTrace, rows: Int64) -> LaunchCalls:
        """Return the calls of the same device rows at the times of a rank's light window."""
        start_ns, end_ns = (values_at(column, rows) for column in (trace.timed.launched_ns, trace.launch_ends_ns))
        return replace(self, start_ns=start_ns, end_ns=end_ns)


def launch_calls(host: Host, rows: Int64) -> LaunchCalls:
    """Return the launch call of each device row (UNKNOWN has none)."""
    events = host.events
    every = np.flatnonzero(events.on_device)
    every_call = _calls(host, every)
    first = np.full(len(events) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, every_call, events.start_ns[every])
    call_of = np.full(len(events) + 1, UNKNOWN, dtype=np.int64)
    call_of[every] = every_call
    call = call_of[rows]
    thread, start_ns, end_ns = (values_at(column, call) for column in (events.thread, events.start_ns, events.end_ns))
    is_first = (call == UNKNOWN) | (values_at(events.start_ns, rows) == first[call])
    return LaunchCalls(call, thread, start_ns, start_ns, end_ns, is_first)


def _calls(host: Host, rows: Int64) -> Int64:
    call = host.launches(rows)
    is_launch = (call >= 0) & (host.events.category[call] == Category.LAUNCH)
    return np.where(is_launch, call, UNKNOWN)


def ended_before(events: Events, rows: Int64) -> Int64:
    """Return for each device row when the event before it on its own stream ended; UNKNOWN where none is."""
    order = np.flatnonzero(events.on_device)
    order = order[np.lexsort((events.start_ns[order], events.stream[order], events.device[order]))]
    same = (np.diff(events.stream[order]) == 0) & (np.diff(events.device[order]) == 0)
    ended = np.full(len(events) + 1, UNKNOWN, dtype=np.int64)
    ended[order[1:]] = np.where(same, events.end_ns[order[:-1]], UNKNOWN)
    return ended[rows]
