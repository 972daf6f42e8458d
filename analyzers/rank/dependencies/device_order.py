r"""Edges of devices: launches, streams, blocking calls, a full queue.

call       |launch|     |launch|        |sync............|
                  \           \                       /
stream 7           ####        |  ######--#######------
stream 17                      ######
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, begins, values_at
from analyzers.rank.columns import Attribution, OtherLine
from analyzers.rank.dependencies.points import CLOCK_ERROR_NS, Activities, Calls, EdgeKind, Edges
from analyzers.rank.idle import Phase
from analyzers.run import RankTrace
from analyzers.trace import Events

# What a launch takes at most to start something that nothing else holds.
LONGEST_LATENCY_NS = 20_000
# A device's own pause between two kernels is at most so long (the longest seen is 31 us).
LONGEST_PAUSE_NS = 50_000
# What a call that waits takes itself.
OWN_PART_NS = 5_000
# An event's synchronization returns so soon after what it waited for.
NEARBY_NS = 40_000
# With so many launches pending the queue is full (1,031 to 1,035 at most were seen), and a launch that waits for room
# takes so many times the median.
FULL_QUEUE = 1_000
LONG_LAUNCH = 3


def activities_of(
    trace: RankTrace, attributed: Attribution, rows: Int64, launched_by: Int64, calls: Calls
) -> Activities:
    """Return what ran on devices, by start; `launched_by` is the place of each row's call, -1 for none."""
    events, timed = trace.events, trace.timed
    order = np.lexsort((rows, events.start_ns[rows]))
    rows, launched_by = rows[order], launched_by[order]
    line_of = np.full(len(events), UNKNOWN)
    line_of[attributed.rows] = attributed.line
    line = line_of[rows]
    has_light = trace.is_light & timed.on_device[rows]
    return Activities(
        row=rows,
        device=events.device[rows].astype(np.int64),
        stream=events.stream[rows],
        correlation=events.correlation[rows],
        start_ns=events.start_ns[rows],
        stop_ns=events.end_ns[rows],
        light_start_ns=np.where(has_light, timed.start_ns[rows], UNKNOWN),
        light_ns=np.where(has_light, timed.dur_ns[rows], UNKNOWN),
        kind=events.kind[rows],
        category=events.category[rows].astype(np.int64),
        name=events.name[rows].astype(np.int64),
        grid=events.grid[rows],
        nbytes=events.nbytes[rows],
        call=launched_by,
        place=values_at(calls.place, launched_by),
        phase=values_at(calls.phase, launched_by, Phase.NOT_KNOWN),
        line=line,
        packing=line == OtherLine.PACKING,
    )


@dataclass(frozen=True, eq=False)
class Device:
    """A rank's calls and activities, with the numbers of their points."""

    events: Events
    calls: Calls
    ran: Activities

    @property
    def start(self) -> Int64:
        """Return each activity's point of start."""
        return 2 * len(self.calls) + 2 * np.arange(len(self.ran))

    @property
    def stop(self) -> Int64:
        """Return each activity's point of stop."""
        return self.start + 1

    def runs(self) -> Edges:
        """Return how long each activity takes."""
        edges = Edges.of(self.start, self.stop, self.ran.stop_ns - self.ran.start_ns, EdgeKind.RUN)
        return replace(edges, light_ns=self.ran.light_ns)

    def launches(self) -> Edges:
        """Return edges from calls to what they launched, at their beginning where they block."""
        rows = np.flatnonzero(self.ran.call >= 0)
        call = self.ran.call[rows]
        from_begin = self.is_blocking_copy[call] | (self.calls.end_ns[call] > self.ran.start_ns[rows])
        since_ns = np.where(from_begin, self.calls.begin_ns[call], self.calls.end_ns[call])
        # What starts before its call by more than the clocks' error contradicts the edge, which is dropped then.
        lag_ns = np.clip(self.ran.start_ns[rows] - since_ns, -CLOCK_ERROR_NS, self._usual_latency_ns)
        return Edges.of(2 * call + 1 - from_begin, self.start[rows], lag_ns, EdgeKind.LAUNCH)

    @property
    def _usual_latency_ns(self) -> int:
        """Return the median from a call's end to a start before which its stream had nothing to run."""
        previous = self.previous
        idle = (previous < 0) | (values_at(self.ran.stop_ns, previous) < self._launched_ns)
        lag_ns = (self.ran.start_ns - self._launched_ns)[idle & (self.ran.call >= 0)]
        lag_ns = lag_ns[(lag_ns >= 0) & (lag_ns <= LONGEST_LATENCY_NS)]
        return int(np.median(lag_ns)) if len(lag_ns) else LONGEST_LATENCY_NS

    @property
    def _launched_ns(self) -> Int64:
        return values_at(self.calls.end_ns, self.ran.call)

    @property
    def previous(self) -> Int64:
        """Return the activity before each one on its stream, -1 for none."""
        order = np.lexsort((self.ran.start_ns, self.ran.stream, self.ran.device))
        is_first = begins(self.ran.stream[order]) | begins(self.ran.device[order])
        previous = np.full(len(self.ran), UNKNOWN)
        previous[order] = np.where(is_first, UNKNOWN, np.r_[UNKNOWN, order[:-1]][: len(order)])
        return previous

    def streams(self) -> Edges:
        """Return the order of each stream: start after stop, or after start where kernels overlap."""
        rows = np.flatnonzero(self.previous >= 0)
        before = self.previous[rows]
        gap_ns = self.ran.start_ns[rows] - self.ran.stop_ns[before]
        overlaps = gap_ns < 0
        queued = ~overlaps & (gap_ns <= LONGEST_PAUSE_NS) & (self._launched_ns[rows] < self.ran.stop_ns[before])
        pause_ns = int(np.median(gap_ns[queued])) if queued.any() else 0
        lag_ns = np.where(overlaps, self.ran.start_ns[rows] - self.ran.start_ns[before], np.minimum(gap_ns, pause_ns))
        return Edges.of(
            np.where(overlaps, self.start[before], self.stop[before]), self.start[rows], lag_ns, EdgeKind.STREAM
        )

    # Calls

    @property
    def _is_copy_call(self) -> Mask:
        names = np.array(["Memcpy" in name for name in self.events.names], dtype=bool)
        copies: Mask = names[self.calls.name]
        return copies

    @property
    def is_blocking_copy(self) -> Mask:
        """Whether calls copy and return when the copy has ended: from or to pageable memory, or not Async."""
        names = self.events.names
        pageable = np.array(["Pageable" in name for name in names], dtype=bool)[self.ran.name]
        of_pageable = np.zeros(len(self.calls), dtype=bool)
        of_pageable[self.ran.call[pageable & (self.ran.call >= 0)]] = True
        is_async = np.array(["Async" in name for name in names], dtype=bool)[self.calls.name]
        blocking: Mask = self._is_copy_call & (of_pageable | ~is_async)
        return blocking

    def calls_edges(self) -> Edges:
        """Return each call's own part, and what it waits for."""
        calls = self.calls
        waited, lag_ns, own_ns = self._waits()
        rows = np.arange(len(calls))
        own = Edges.of(2 * rows, 2 * rows + 1, own_ns, EdgeKind.CALL)
        blocked = np.flatnonzero(waited >= 0)
        blocks = Edges.of(self.stop[waited[blocked]], 2 * blocked + 1, lag_ns[blocked], EdgeKind.BLOCK)
        return Edges.joined([own, blocks])

    def _waits(self) -> tuple[Int64, Int64, Int64]:
        """Return what each call waits for (an activity, -1: none), how long after it returns, and its own part."""
        calls, ran = self.calls, self.ran
        dur_ns = calls.end_ns - calls.begin_ns
        waited = np.full(len(calls), UNKNOWN)
        copies = self.is_blocking_copy
        last = np.full(len(calls), UNKNOWN)
        with_call = np.flatnonzero(ran.call >= 0)
        last[ran.call[with_call]] = with_call
        waited[copies] = last[copies]
        synchronizes = calls.blocks & ~self._is_copy_call
        waited[synchronizes] = self._awaited(np.flatnonzero(synchronizes))
        full = self._finds_queue_full()
        waited[full] = self._last_ended(calls.end_ns[full])
        # What ends after the call has returned was not what it waited for: that had ended by then.
        too_late = (waited >= 0) & (values_at(ran.stop_ns, waited) > calls.end_ns + CLOCK_ERROR_NS)
        waited[too_late] = self._last_ended(calls.end_ns[too_late])
        stop_ns = values_at(ran.stop_ns, waited)
        is_held = (waited >= 0) & (stop_ns > calls.begin_ns)
        waited = np.where(is_held, waited, UNKNOWN)
        usual_ns = int(np.median(dur_ns[~calls.blocks])) if (~calls.blocks).any() else OWN_PART_NS
        own_ns = np.where(is_held, np.minimum(dur_ns, np.where(full, usual_ns, OWN_PART_NS)), dur_ns)
        lag_ns = calls.end_ns - stop_ns
        lag_ns = np.where(synchronizes, np.minimum(lag_ns, OWN_PART_NS), lag_ns)
        return waited, lag_ns, own_ns

    def _awaited(self, rows: Int64) -> Int64:
        """Return what synchronizing calls wait for, by their name."""
        names = [self.events.names[code] for code in self.events.name[self.calls.row[rows]].tolist()]
        of_event = np.array(["Event" in name for name in names], dtype=bool)
        of_stream = np.array(["Stream" in name for name in names], dtype=bool)
        waited = self._last_to_end(rows)
        waited[of_stream] = self._last_on_thread(rows[of_stream])
        near = self._last_ended(self.calls.end_ns[rows] + OWN_PART_NS)
        is_near = self.calls.end_ns[rows] - values_at(self.ran.stop_ns, near) <= NEARBY_NS
        waited[of_event] = np.where(is_near, near, UNKNOWN)[of_event]
        return waited

    def _by_launch(self) -> Int64:
        """Return activities with a call, in the order of their launches."""
        rows = np.flatnonzero(self.ran.call >= 0)
        return rows[np.lexsort((rows, self.ran.call[rows]))]

    def _last_to_end(self, rows: Int64) -> Int64:
        """Return of all that was launched before each call what ended last."""
        order = self._by_launch()
        stop_ns = self.ran.stop_ns[order]
        latest = np.maximum.accumulate(stop_ns)
        last = np.maximum.accumulate(np.where(stop_ns == latest, np.arange(len(order)), 0))
        at = np.searchsorted(self.ran.call[order], rows) - 1
        return np.where(at >= 0, values_at(order[last], at), UNKNOWN)

    def _last_on_thread(self, rows: Int64) -> Int64:
        """Return what the thread of each call launched last before it."""
        order = self._by_launch()
        thread = self.calls.thread[self.ran.call[order]]
        waited = np.full(len(rows), UNKNOWN)
        for number in np.unique(self.calls.thread[rows]).tolist():
            asked = self.calls.thread[rows] == number
            own = order[thread == number]
            at = np.searchsorted(self.ran.call[own], rows[asked]) - 1
            waited[asked] = values_at(own, at)
        return waited

    def _last_ended(self, instant_ns: Int64) -> Int64:
        """Return what ended last before each instant."""
        order = np.argsort(self.ran.stop_ns, kind="stable")
        at = np.searchsorted(self.ran.stop_ns[order], instant_ns, side="right") - 1
        return values_at(order, at)

    def _finds_queue_full(self) -> Mask:
        """Whether calls launch while the queue is full, and wait for room."""
        calls = self.calls
        dur_ns = calls.end_ns - calls.begin_ns
        launched = np.searchsorted(np.sort(self.ran.call[self.ran.call >= 0]), np.arange(len(calls)))
        done = np.searchsorted(np.sort(self.ran.stop_ns), calls.begin_ns)
        usual_ns = np.median(dur_ns) if len(dur_ns) else 0
        full: Mask = ~calls.blocks & (launched - done >= FULL_QUEUE) & (dur_ns >= LONG_LAUNCH * usual_ns)
        return full
