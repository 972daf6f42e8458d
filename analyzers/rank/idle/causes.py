"""Causes of idle time: gaps divided by what their launching threads did.

    host        |op|synchronize|  python  |op|[launch]
    device    aaa                                   bbb
    gap          |op|synchronize             |latency|      until the next launch nothing is queued: the call drained it

A light window has no host rows. Its launches are its own; what lies before them is divided as before the same event in
the full window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, find, rows_by, values_at
from analyzers.intervals import Intervals, crossings, union_of
from analyzers.rank.idle.gaps import Gaps, LaunchCalls, ended_before
from analyzers.rank.idle.host_states import Cause, HostStates, ThreadStates
from analyzers.rank.idle.phases import Phase, Phases
from analyzers.trace import Category, Events

# A device's own pause between two kernels takes about a microsecond; the longest seen is 31.
LONGEST_KERNEL_GAP_NS = 50_000
# What starts later after its launch was queued behind something.
LONGEST_LATENCY_NS = 20_000
# What a thread does for itself: after a call that drained the queue, it is that call's price.
_OWN_WORK = (Cause.GC, Cause.OPERATOR, Cause.PYTHON)


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


def with_overhead(pieces: Pieces, thread: Int64, events: Events) -> Pieces:
    """Return the pieces, what the profiler's own work covers of them as such; `thread` launched each gap's ender.

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
    parts = [untouched]
    for number, chosen in rows_by(thread[pieces.gap]).items():
        held = _within_calls(events, rows[flushes], number)
        at_work = anywhere | union_of(events.start_ns[held], events.end_ns[held])
        cut, is_covered = _cut(pieces.take(chosen), at_work)
        cause, call = np.where(is_covered, Cause.PROFILER, cut.cause), np.where(is_covered, UNKNOWN, cut.call)
        parts.append(replace(cut, cause=cause, call=call))
    return Pieces.joined(parts)


def _within_calls(events: Events, rows: Int64, thread: int) -> Int64:
    """Return those of some rows that lie within a call of the runtime on a thread."""
    calls = np.flatnonzero((events.category == Category.LAUNCH) & (events.thread == thread))
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    reach = np.maximum.accumulate(np.r_[np.iinfo(np.int64).min, events.end_ns[calls]])
    return rows[events.end_ns[rows] <= reach[np.searchsorted(events.start_ns[calls], events.start_ns[rows], "right")]]


def _cut(pieces: Pieces, covering: Intervals) -> tuple[Pieces, Mask]:
    """Return pieces cut where some time begins and ends, and which of them it covers."""
    edges = np.r_[np.iinfo(np.int64).min // 2, np.stack([covering.start, covering.end], axis=1).ravel()]
    met = crossings(pieces.start_ns, pieces.start_ns + pieces.ns, edges, np.r_[edges[1:], np.iinfo(np.int64).max // 2])
    return replace(pieces.take(met.mine), start_ns=met.start, ns=met.end - met.start), met.theirs % 2 == 1


def _with_refilling(pieces: Pieces, thread: Int64, states: HostStates) -> Pieces:
    """Return the hosts' pieces, each thread's own work between a call that waits and the next launch as that call's."""
    parts = [pieces.take(slice(0))]
    for number, chosen in rows_by(thread[pieces.gap]).items():
        calls, drained_ns, refilled_ns = states.refills(number)
        cut, is_covered = _cut(pieces.take(chosen), union_of(drained_ns, refilled_ns))
        is_price = is_covered & np.isin(cut.cause, _OWN_WORK)
        call = values_at(calls, np.searchsorted(drained_ns, cut.start_ns, side="right") - 1)
        cause = np.where(is_price, Cause.SYNCHRONIZE, cut.cause)
        name = np.where(is_price, states.around(call), cut.name)
        parts.append(replace(cut, cause=cause, name=name, call=np.where(is_price, call, cut.call)))
    return Pieces.joined(parts)


def not_known(pieces: Pieces, lacking: Mask) -> Pieces:
    """Return the pieces, those of some gaps (by index) as unknown: kernels that are lost would have run in them."""
    chosen = lacking[pieces.gap]
    name, call = (np.where(chosen, UNKNOWN, column) for column in (pieces.name, pieces.call))
    return replace(pieces, cause=np.where(chosen, Cause.UNKNOWN, pieces.cause), name=name, call=call)


def before_launch(gaps: Gaps, calls: LaunchCalls, states: HostStates, phases: Phases) -> Pieces:
    """Return what of gaps lies before the launches of their enders, by what the launching threads were in."""
    return _with_refilling(_hosts_part(until_launch(gaps, calls), calls.thread, states, phases), calls.thread, states)


def until_launch(gaps: Gaps, calls: LaunchCalls) -> Gaps:
    """Return of each gap what lies before the launch of its ender: nothing where no launch is known."""
    queued_ns = np.clip(calls.start_ns, gaps.start_ns, gaps.end_ns)
    return replace(gaps, end_ns=np.where(calls.is_known, queued_ns, gaps.start_ns))


def _begins_within(gaps: Gaps, calls: LaunchCalls) -> Mask:
    """Return which gaps hold the beginning of the launch of their enders."""
    begins: Mask = calls.is_known & (calls.start_ns >= gaps.start_ns) & (calls.start_ns < gaps.end_ns)
    return begins


def launched_within(gaps: Gaps, calls: LaunchCalls) -> Mask:
    """Return which gaps hold the whole launch of their enders, which start as soon after it as launches do."""
    soon: Mask = _begins_within(gaps, calls) & calls.is_first & (gaps.end_ns <= calls.end_ns + LONGEST_LATENCY_NS)
    return soon


def since_launch(gaps: Gaps, calls: LaunchCalls, states: HostStates, phases: Phases, events: Events) -> Pieces:
    """Return the other pieces: the launch under way, and what held an event that was queued; whole gaps as unknown.

    `events` are at the times of the gaps' window.
    """
    queued_ns = until_launch(gaps, calls).end_ns
    is_inside = _begins_within(gaps, calls)
    latency_end_ns = _latency_end(gaps, calls, queued_ns, is_inside)
    follows = ended_before(events, gaps.ender) == gaps.start_ns
    pauses = follows & ~is_inside & (gaps.length_ns <= LONGEST_KERNEL_GAP_NS)
    rest = np.where(pauses, Cause.KERNEL_GAP, Cause.DEPENDENCY)
    latency = np.full(len(gaps), Cause.LAUNCH_LATENCY)
    name = states.around(calls.row)
    phase = np.where(calls.row == UNKNOWN, Phase.NOT_KNOWN, phases.at(calls.in_full_ns))
    parts = [unknown_pieces(gaps, ~calls.is_known)]
    for cause, start, end in ((latency, queued_ns, latency_end_ns), (rest, latency_end_ns, gaps.end_ns)):
        rows = np.flatnonzero(calls.is_known & (end > start))
        nothing = np.full(len(rows), UNKNOWN, dtype=np.int64)
        lengths = (end - start)[rows]
        parts.append(Pieces(rows, cause[rows], phase[rows], name[rows], nothing, start[rows], lengths))
    return Pieces.joined(parts)


def _latency_end(gaps: Gaps, calls: LaunchCalls, queued_ns: Int64, is_inside: Mask) -> Int64:
    """Return until when each gap is the launch's: to its end where that lies in it, else for the usual delay.

    Neither is longer than a launch takes; and of the events that one call launches only the first waits for it.
    """
    event = distinct(gaps.ender[is_inside]).first
    delays_ns = (gaps.end_ns - calls.end_ns)[is_inside][event]
    # Rounded down to whole nanoseconds; where no launch tells the delay, the call alone counts.
    usual_ns = min(int(np.floor(np.median(delays_ns))), LONGEST_LATENCY_NS) if len(delays_ns) else 0
    delay_ns = np.where(is_inside, LONGEST_LATENCY_NS, usual_ns)
    end_ns: Int64 = np.clip(calls.end_ns + delay_ns, queued_ns, gaps.end_ns)
    return np.where(calls.is_first, end_ns, queued_ns)


def _hosts_part(gaps: Gaps, thread: Int64, states: HostStates, phases: Phases) -> Pieces:
    """Return gaps by what a thread was in."""
    rows = np.flatnonzero(gaps.end_ns > gaps.start_ns)
    return divide_host_time(rows, gaps.start_ns[rows], gaps.end_ns[rows], thread[rows], states, phases)


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
    pieces = Pieces.joined([none, _hosts_part(gaps, thread, states, phases)])
    is_input = pieces.cause == Cause.INPUT
    no_call = np.full(len(pieces.gap), UNKNOWN, dtype=np.int64)
    return replace(pieces, cause=np.where(is_input, Cause.INPUT, Cause.PYTHON), call=no_call)


def as_long_as(timed: Gaps, full: Gaps, pieces: Pieces) -> Pieces:
    """Return the full window's division at the lengths that gaps have in the light window, side by side in its order.

    Gaps before the same event on the same device are alike; one without its like is unknown. With C the length of a
    gap's pieces up to and with one of them, in order, F and L the gap's full and light length, that piece ends at
    C * L // F: whole nanoseconds that add up to L.
    """
    width = int(max(timed.ender.max(initial=0), full.ender.max(initial=0))) + 2
    key = timed.device * width + timed.ender
    order = np.argsort(key, kind="stable")
    has_pieces = (full.ender >= 0) & (full.length_ns > 0)
    like = find(key[order], np.where(has_pieces, full.device * width + full.ender, UNKNOWN - width))
    timed_of = np.where(like >= 0, order[like] if len(order) else UNKNOWN, UNKNOWN)
    matched = timed.length_ns <= 0
    matched[timed_of[timed_of >= 0]] = True
    kept = pieces.take(timed_of[pieces.gap] >= 0).in_order()
    gap = timed_of[kept.gap]
    begin_ns, end_ns = _scaled(kept.gap, kept.ns, full.length_ns[kept.gap], timed.length_ns[gap])
    start_ns = timed.start_ns[gap] + begin_ns
    scaled = Pieces(gap, kept.cause, kept.phase, kept.name, kept.call, start_ns, end_ns - begin_ns)
    return Pieces.joined([scaled, unknown_pieces(timed, ~matched)]).in_order()


def _scaled(gap: Int64, ns: Int64, full_ns: Int64, light_ns: Int64) -> tuple[Int64, Int64]:
    """Return where lengths, those of each gap side by side, begin and end in proportion; see `as_long_as`."""
    total = np.cumsum(ns)
    begins = np.flatnonzero(np.r_[True, np.diff(gap) != 0][: len(gap)])
    base = np.repeat((total - ns)[begins], np.diff(np.r_[begins, len(gap)]))
    return _proportion(total - base - ns, light_ns, full_ns), _proportion(total - base, light_ns, full_ns)


# Products of lengths below it fit 64 bits.
_LONG_NS = 2**31


def _proportion(part_ns: Int64, light_ns: Int64, full_ns: Int64) -> Int64:
    """Return part * light // full, exactly: the few gaps of seconds are reckoned with Python's own integers."""
    is_long = (full_ns >= _LONG_NS) | (light_ns >= _LONG_NS)
    result = np.where(is_long, 0, part_ns) * np.where(is_long, 0, light_ns) // full_ns
    columns = (part_ns[is_long].astype(object), light_ns[is_long].astype(object), full_ns[is_long].astype(object))
    result[is_long] = (columns[0] * columns[1] // columns[2]).astype(np.int64)
    return result
