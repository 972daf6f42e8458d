"""Calls that launch or wait, and the order of host threads.

main      |launch|~~~~~|launch|......................|launch|      ~ an edge of its own
autograd                  ~~~~~|launch|~~~|launch|~~~              a burst: between the main thread's call before and
                                                                   after it, which waits for it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, rows_by, values_at
from analyzers.rank.dependencies.points import Calls, EdgeKind, Edges, Stretches
from analyzers.rank.host import Host
from analyzers.rank.idle import HostRows, divide_host_time
from analyzers.trace import NODE, Category, Events


@dataclass(frozen=True, eq=False)
class Found:
    """The calls of a rank, and for each device row asked for the place of its launch among them (-1: none)."""

    calls: Calls
    launched_by: Int64


def find_calls(ran: HostRows, device_rows: Int64) -> Found:
    """Return the outermost calls that launched something or wait for the device."""
    host, events = ran.host, ran.host.events
    launch = host.launches(device_rows)
    launch = np.where(values_at(events.category, launch) == Category.LAUNCH, launch, UNKNOWN)
    chosen = ran.states.is_synchronizing.copy()
    chosen[launch[launch >= 0]] = True
    rows = np.flatnonzero(chosen)
    outer = rows[host.spans(rows).outermost(host.places(rows))] if len(rows) else rows
    # A call without length lies in no span, and is its own.
    outer = np.where(events.dur_ns[rows] > 0, outer, rows)
    is_outer = outer == rows
    kept = rows[is_outer]
    kept = kept[np.lexsort((kept, events.start_ns[kept]))]
    place = np.full(len(events), UNKNOWN, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    place[rows] = place[outer]
    waits = np.zeros(len(kept), dtype=bool)
    waits[place[np.flatnonzero(ran.states.is_synchronizing)]] = True
    name = events.name[kept].astype(np.int64)
    begin_ns, end_ns = events.start_ns[kept], events.end_ns[kept]
    around = ran.states.around(kept)
    calls = Calls(kept, name, events.thread[kept], begin_ns, end_ns, waits, around, ran.phases.at(begin_ns))
    return Found(calls, values_at(place, launch))


def host_edges(ran: HostRows, calls: Calls) -> Edges:
    """Return the edges from each call to the next one on its thread, or on the thread that takes over."""
    main = ran.states.main_thread()
    by_thread = rows_by(calls.thread)
    own = by_thread.pop(main, np.zeros(0, dtype=np.int64))
    source, target = [], []
    handed_over = np.zeros(len(own) + 1, dtype=bool)
    for thread, others in by_thread.items():
        burst = np.searchsorted(calls.begin_ns[own], calls.begin_ns[others], side="right") - 1
        begins = np.r_[True, np.diff(burst) != 0]
        source.append(others[:-1][~begins[1:]])
        target.append(others[1:][~begins[1:]])
        for edges in _bursts(ran.host, calls, own, (thread, others, burst, begins)):
            before, after, joined = edges
            source.append(before)
            target.append(after)
            handed_over[joined] = True
    # The main thread goes on by itself where it has not handed over.
    goes_on = ~handed_over[: max(len(own) - 1, 0)]
    source.append(own[:-1][goes_on])
    target.append(own[1:][goes_on])
    return stretch_edges(calls, np.concatenate(source), np.concatenate(target))


def _bursts(
    host: Host, calls: Calls, own: Int64, of_thread: tuple[int, Int64, Int64, Mask]
) -> Iterator[tuple[Int64, Int64, Int64]]:
    """Yield edges into bursts, and out of them where the main thread waits: which of its calls are before these."""
    thread, others, burst, begins = of_thread
    first, last = others[begins], others[np.r_[begins[1:], True]]
    anchor = burst[begins]
    has_before = anchor >= 0
    yield own[anchor[has_before]], first[has_before], anchor[:0]
    has_after = anchor + 1 < len(own)
    waits = has_before & has_after
    waits[has_after] &= calls.end_ns[last[has_after]] <= calls.begin_ns[own[anchor[has_after] + 1]]
    waits &= _main_rests(host.events, calls, own, (thread, first, last))
    yield last[waits], own[anchor[waits] + 1], anchor[waits]


def _main_rests(events: Events, calls: Calls, own: Int64, burst: tuple[int, Int64, Int64]) -> Mask:
    """Whether the main thread does nothing of its own while a burst lasts: autograd's engine has taken over."""
    thread, first, last = burst
    nodes = events.rows_named(NODE)
    if np.any(events.thread[nodes] == thread):
        return np.ones(len(first), dtype=bool)
    main = calls.thread[own[:1]]
    rows = np.flatnonzero(np.isin(events.thread, main) & (events.category == Category.OPERATOR))
    starts = np.sort(events.start_ns[rows])
    begun = np.searchsorted(starts, calls.end_ns[last]) - np.searchsorted(starts, calls.begin_ns[first])
    rests: Mask = begun == 0
    return rests


def stretch_edges(calls: Calls, source: Int64, target: Int64) -> Edges:
    """Return edges from ends of calls to beginnings: from the beginning of one that has not returned by then."""
    still_open = calls.end_ns[source] > calls.begin_ns[target]
    since_ns = np.where(still_open, calls.begin_ns[source], calls.end_ns[source])
    return Edges.of(
        2 * source + 1 - still_open, 2 * target, np.maximum(calls.begin_ns[target] - since_ns, 0), EdgeKind.STRETCH
    )


def stretches_of(ran: HostRows, calls: Calls, edges: Edges) -> tuple[Stretches, Int64]:
    """Return what the thread that makes the next call was in, and how many recorded rows began, on each edge."""
    events = ran.host.events
    rows = np.flatnonzero(edges.kind == EdgeKind.STRETCH)
    call = edges.target[rows] // 2
    end_ns = calls.begin_ns[call]
    start_ns = end_ns - edges.lag_ns[rows]
    pieces = divide_host_time(rows, start_ns, end_ns, calls.thread[call], ran.states, ran.phases)
    counted = np.zeros(len(edges), dtype=np.int64)
    counted[rows] = _rows_begun(events, calls.thread[call], start_ns, end_ns) + 1
    return Stretches(pieces.gap, pieces.cause, pieces.phase, pieces.name, pieces.ns), counted


_HOST_ROWS = (Category.LAUNCH, Category.OPERATOR, Category.ANNOTATION, Category.PYTHON)


def _rows_begun(events: Events, thread: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    begun = np.zeros(len(thread), dtype=np.int64)
    host_rows = np.flatnonzero(np.isin(events.category, _HOST_ROWS))
    by_thread = rows_by(events.thread[host_rows])
    for number, asked in rows_by(thread).items():
        starts = np.sort(events.start_ns[host_rows[by_thread.get(number, host_rows[:0])]])
        begun[asked] = np.searchsorted(starts, end_ns[asked]) - np.searchsorted(starts, start_ns[asked])
    return begun
