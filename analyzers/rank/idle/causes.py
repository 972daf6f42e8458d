"""Causes of idle time: gaps divided by what their launching threads did.

    host        |aten::item......|  python  |op|[launch]
    device    aaa                                   bbb
    gap          |synchronize,op | python  |op|latency|

A light window has no host rows. Its gaps have their lengths from there, and their division from the gap before the same
event in the full window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, find, rows_by
from analyzers.intervals import Intervals, crossings, union_of
from analyzers.rank.idle.gaps import Gaps, LaunchCalls, ended_before
from analyzers.rank.idle.host_states import Cause, HostStates, ThreadStates
from analyzers.rank.idle.phases import Phase, Phases
from analyzers.trace import Category, Events

# A device's own pause between two kernels takes about a microsecond; the longest seen is 31.
LONGEST_KERNEL_GAP_NS = 50_000


@dataclass(frozen=True, eq=False)
class Pieces(Columns):
    """Parts of gaps: which gap, why, in which phase; `name` is where the host was, `call` its row; UNKNOWN for none.

    `start_ns` tells pieces of one gap and cause apart. The lengths of a gap's pieces add up to its own.
    """

    gap: Int64
    cause: Int64
    phase: Int64
    name: Int64
    call: Int64
    start_ns: Int64
    ns: Int64

    def in_order(self) -> Pieces:
        """Return the pieces by gap, cause and time."""
        return self.take(np.lexsort((self.start_ns, self.cause, self.gap)))


def unknown_pieces(gaps: Gaps, chosen: Mask) -> Pieces:
    """Return whole gaps of which nothing is known."""
    rows = np.flatnonzero(chosen)
    nothing = np.full(len(rows), UNKNOWN, dtype=np.int64)
    cause, phase = np.full_like(rows, Cause.UNKNOWN), np.full_like(rows, Phase.NOT_KNOWN)
    return Pieces(rows, cause, phase, nothing, nothing, gaps.start_ns[rows], gaps.length_ns[rows])


def with_overhead(pieces: Pieces, calls: LaunchCalls, events: Events) -> Pieces:
    """Return the pieces, what the profiler's own work covers of them as such.

    It flushes buffers on a thread of its own, which holds up nobody but within a call of the launching thread.
    """
    rows = np.flatnonzero(events.category == Category.OVERHEAD)
    at_work = union_of(events.start_ns[rows], events.end_ns[rows])
    meets = at_work.length_within(pieces.start_ns, pieces.start_ns + pieces.ns) > 0
    if not meets.any():
        return pieces
    untouched, pieces = pieces.take(~meets), pieces.take(meets)
    flushes = np.array(["flush" in name.lower() for name in events.names], dtype=bool)[events.name[rows]]
    anywhere = union_of(events.start_ns[rows[~flushes]], events.end_ns[rows[~flushes]])
    parts = []
    for thread, chosen in rows_by(calls.thread[pieces.gap]).items():
        held = _within_calls(events, rows[flushes], thread)
        parts.append(_covered(pieces.take(chosen), anywhere | union_of(events.start_ns[held], events.end_ns[held])))
    return Pieces.joined([untouched, *parts])


def _within_calls(events: Events, rows: Int64, thread: int) -> Int64:
    """Return those of some rows that lie within a call of the runtime on a thread."""
    calls = np.flatnonzero((events.category == Category.LAUNCH) & (events.thread == thread))
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    reach = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, events.end_ns[calls]])
    return rows[events.end_ns[rows] <= reach[np.searchsorted(events.start_ns[calls], events.start_ns[rows], "right")]]


def _covered(pieces: Pieces, covering: Intervals) -> Pieces:
    """Return pieces, the parts of them that some time covers as the profiler's."""
    edges = np.r_[np.iinfo(np.int64).min // 2, np.stack([covering.start, covering.end], axis=1).ravel()]
    met = crossings(pieces.start_ns, pieces.start_ns + pieces.ns, edges, np.r_[edges[1:], np.iinfo(np.int64).max // 2])
    parts, is_covered = pieces.take(met.mine), met.theirs % 2 == 1
    cause = np.where(is_covered, Cause.PROFILER, parts.cause)
    call = np.where(is_covered, UNKNOWN, parts.call)
    return replace(parts, cause=cause, call=call, start_ns=met.start, ns=met.end - met.start)


def not_known(pieces: Pieces, lacking: Mask) -> Pieces:
    """Return the pieces, those of some gaps (by index) as unknown: kernels that are lost would have run in them."""
    chosen = lacking[pieces.gap]
    name, call = (np.where(chosen, UNKNOWN, column) for column in (pieces.name, pieces.call))
    return replace(pieces, cause=np.where(chosen, Cause.UNKNOWN, pieces.cause), name=name, call=call)


def divided(gaps: Gaps, states: HostStates, phases: Phases, calls: LaunchCalls, events: Events) -> Pieces:
    """Return the pieces of gaps on accelerators, of which host and device rows are on one clock."""
    known = calls.row != UNKNOWN
    queued_ns = np.where(known, np.clip(calls.start_ns, gaps.start_ns, gaps.end_ns), gaps.start_ns)
    hosts = _hosts_part(gaps, np.where(known, queued_ns, gaps.start_ns), calls.thread, states, phases)
    latency_end_ns = _latency_end(gaps, calls, queued_ns)
    follows = ended_before(events, gaps.ender) == gaps.start_ns
    pauses = follows & (gaps.length_ns <= LONGEST_KERNEL_GAP_NS)
    rest = np.where(pauses, Cause.KERNEL_GAP, Cause.DEPENDENCY)
    latency = np.full(len(gaps), Cause.LAUNCH_LATENCY)
    name, phase = states.around(calls.row), phases.at(calls.start_ns)
    parts = [hosts, unknown_pieces(gaps, ~known)]
    for cause, start, end in ((latency, queued_ns, latency_end_ns), (rest, latency_end_ns, gaps.end_ns)):
        rows = np.flatnonzero(known & (end > start))
        nothing = np.full(len(rows), UNKNOWN, dtype=np.int64)
        lengths = (end - start)[rows]
        parts.append(Pieces(rows, cause[rows], phase[rows], name[rows], nothing, start[rows], lengths))
    return with_overhead(Pieces.joined(parts), calls, events)


def _latency_end(gaps: Gaps, calls: LaunchCalls, queued_ns: Int64) -> Int64:
    """Return until when each gap is the launch's: to its end where the launch lies in it, else for the usual delay.

    Of the events that one call launches only the first waits for it.
    """
    launched_inside = (calls.start_ns >= gaps.start_ns) & (calls.start_ns < gaps.end_ns) & (calls.row != UNKNOWN)
    event = distinct(gaps.ender[launched_inside]).first
    delays_ns = (gaps.end_ns - calls.end_ns)[launched_inside][event]
    # Rounded down to whole nanoseconds; where no launch tells the delay, the call alone counts.
    delay_ns = int(np.floor(np.median(delays_ns))) if len(delays_ns) else 0
    usual_ns = np.clip(calls.end_ns + delay_ns, queued_ns, gaps.end_ns)
    end_ns: Int64 = np.where(calls.is_first, np.where(launched_inside, gaps.end_ns, usual_ns), queued_ns)
    return end_ns


def _hosts_part(gaps: Gaps, until_ns: Int64, thread: Int64, states: HostStates, phases: Phases) -> Pieces:
    """Return what of each gap lies before an instant, by what a thread was in."""
    rows = np.flatnonzero(until_ns > gaps.start_ns)
    return divide_host_time(rows, gaps.start_ns[rows], until_ns[rows], thread[rows], states, phases)


def divide_host_time(
    label: Int64, start_ns: Int64, end_ns: Int64, thread: Int64, states: HostStates, phases: Phases
) -> Pieces:
    """Return times [start, end) on threads in pieces of one state and one phase each; `gap` is the time's label."""
    nothing = np.zeros(0, dtype=np.int64)
    parts = [Pieces(*(nothing,) * 7)]
    for number, of_thread in rows_by(thread).items():
        of_states = states.of_thread(number)
        parts.append(_parted(label[of_thread], start_ns[of_thread], end_ns[of_thread], of_states, phases))
    return Pieces.joined(parts)


def _parted(gap: Int64, start_ns: Int64, end_ns: Int64, states: ThreadStates, phases: Phases) -> Pieces:
    """Return times on one thread in pieces of one state and one phase each."""
    state = crossings(start_ns, end_ns, states.start_ns, states.end_ns)
    phase = crossings(state.start, state.end, phases.start_ns, phases.end_ns)
    of, tile = state.mine[phase.mine], state.theirs[phase.mine]
    return Pieces(
        gap[of],
        states.cause[tile],
        phases.phase[phase.theirs],
        states.name[tile],
        states.call[tile],
        phase.start,
        phase.end - phase.start,
    )


def divided_on_host(gaps: Gaps, states: HostStates, phases: Phases) -> Pieces:
    """Return the pieces of a CPU run's gaps, in which the main thread fetches input or is in Python."""
    thread = np.full(len(gaps), states.main_thread())
    none = unknown_pieces(gaps, np.zeros(len(gaps), dtype=bool))
    pieces = Pieces.joined([none, _hosts_part(gaps, gaps.end_ns, thread, states, phases)])
    is_input = pieces.cause == Cause.INPUT
    no_call = np.full(len(pieces.gap), UNKNOWN, dtype=np.int64)
    return replace(pieces, cause=np.where(is_input, Cause.INPUT, Cause.PYTHON), call=no_call)


def as_long_as(timed: Gaps, full: Gaps, pieces: Pieces) -> Pieces:
    """Return the full window's division at the lengths that gaps have in the light window.

    Gaps before the same event on the same device are alike; one without its like is unknown. With C the length of a
    gap's pieces up to and with one of them, in order, F and L the gap's full and light length, that piece ends at
    C * L // F: whole nanoseconds that add up to L.
    """
    width = int(max(timed.ender.max(initial=0), full.ender.max(initial=0))) + 2
    key = timed.device * width + timed.ender
    order = np.argsort(key, kind="stable")
    like = find(key[order], np.where(full.ender >= 0, full.device * width + full.ender, UNKNOWN - width))
    timed_of = np.where(like >= 0, order[like] if len(order) else UNKNOWN, UNKNOWN)
    matched = np.zeros(len(timed), dtype=bool)
    matched[timed_of[timed_of >= 0]] = True
    kept = pieces.take(timed_of[pieces.gap] >= 0).in_order()
    gap = timed_of[kept.gap]
    ns = _scaled(kept.gap, kept.ns, full.length_ns[kept.gap], timed.length_ns[gap])
    scaled = Pieces(gap, kept.cause, kept.phase, kept.name, kept.call, kept.start_ns, ns)
    return Pieces.joined([scaled, unknown_pieces(timed, ~matched)]).in_order()


def _scaled(gap: Int64, ns: Int64, full_ns: Int64, light_ns: Int64) -> Int64:
    """Return lengths, those of each gap side by side, in proportion; see `as_long_as`."""
    total = np.cumsum(ns)
    begins = np.flatnonzero(np.r_[True, np.diff(gap) != 0][: len(gap)])
    base = np.repeat((total - ns)[begins], np.diff(np.r_[begins, len(gap)]))
    until = _proportion(total - base, light_ns, full_ns)
    return until - _proportion(total - base - ns, light_ns, full_ns)


# Products of lengths below it fit 64 bits.
_LONG_NS = 2**31


def _proportion(part_ns: Int64, light_ns: Int64, full_ns: Int64) -> Int64:
    """Return part * light // full, exactly: the few gaps of seconds are reckoned with Python's own integers."""
    is_long = (full_ns >= _LONG_NS) | (light_ns >= _LONG_NS)
    result = np.where(is_long, 0, part_ns) * np.where(is_long, 0, light_ns) // full_ns
    columns = (part_ns[is_long].astype(object), light_ns[is_long].astype(object), full_ns[is_long].astype(object))
    result[is_long] = (columns[0] * columns[1] // columns[2]).astype(np.int64)
    return result
