"""`Idle`: idle time by window, cause and phase, with its longest lines.

gaps of windows -> pieces (cause, phase, where the host was) -> sums over windows, and the longest lines
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask, distinct, values_at
from analyzers.intervals import union_of
from analyzers.rank.host import Autograd, Host, Spans
from analyzers.rank.idle.causes import (
    Pieces,
    as_long_as,
    before_launch,
    divided_on_host,
    launched_within,
    not_known,
    since_launch,
    until_launch,
    with_overhead,
)
from analyzers.rank.idle.gaps import DeviceTime, Gaps, gaps, launch_calls
from analyzers.rank.idle.host_states import Cause, HostStates
from analyzers.rank.idle.idle_track import Divided, shown_names
from analyzers.rank.idle.launch_facts import Launching, launching, step_rows
from analyzers.rank.idle.phases import Phase, Phases, phases
from analyzers.run import RankTrace
from analyzers.trace import Events, Health

# Of each cause so many lines are kept; what else there is makes one more a phase.
MOST_LINES = 20
OTHERS = "(others)"


@dataclass(frozen=True, eq=False)
class IdleLines:
    """Idle time over all windows of a rank by cause, phase, and where the host was; `count` is in how many gaps.

    `name` is an operator; where none ran the function of Python that a sample found, else a module or range; empty for
    none. `call` is the synchronizing call, of which `count` says how many. The lines of a cause add up to it.
    """

    cause: Int64
    phase: Int64
    name: tuple[str, ...]
    call: tuple[str, ...]
    ns: Int64
    count: Int64


@dataclass(frozen=True, eq=False)
class Synchronizations:
    """Calls that wait for the device, by who makes them (empty: nobody known): how many, and their time on the host."""

    name: tuple[str, ...]
    call: tuple[str, ...]
    count: Int64
    ns: Int64


@dataclass(frozen=True, eq=False)
class Idle:
    """One rank's idle time: `ns` by window, cause and phase, integers that add up to each window's `idle_ns`."""

    ns: NDArray[np.int64]
    lines: IdleLines
    synchronizations: Synchronizations
    launching: Launching

    @cached_property
    def by_cause(self) -> dict[Cause, Int64]:
        """Return each cause's ns in every window."""
        total = self.ns.sum(axis=2)
        return {cause: total[:, cause] for cause in Cause}


@dataclass(frozen=True, eq=False)
class HostRows:
    """What a rank's host ran: its rows, autograd's nodes, and its modules' forwards; both windows share it."""

    host: Host
    nodes: Autograd
    modules: Spans

    @cached_property
    def states(self) -> HostStates:
        """Return what its threads were in."""
        return HostStates(self.host)

    @cached_property
    def phases(self) -> Phases:
        """Return the phases of its time."""
        return phases(self.host, self.nodes, self.modules)


def idle_of(
    trace: RankTrace, ran: HostRows, step: Int64, timed: Sequence[DeviceTime], full: Sequence[DeviceTime]
) -> tuple[Idle, Divided]:
    """Return why the devices of a rank were idle, window by window, and what it was added up from.

    `step` is the step of each window. `timed` are the windows to be told of, `full` those at the full window's times:
    the same where there is no light window.
    """
    host, events, states = ran.host, trace.events, ran.states
    found = gaps(trace.timed, events.launched_ns, timed)
    if trace.is_cpu_run:
        pieces = divided_on_host(found, states, ran.phases)
    else:
        pieces = _divided(trace, ran, found, gaps(events, events.launched_ns, full) if trace.is_light else found)
        pieces = not_known(pieces, _lacking(events, step_rows(host), step)[found.window])
    divided_gaps = Divided(found, pieces, events, by_proportion=trace.is_light and not trace.is_cpu_run)
    ns = np.zeros((len(step), len(Cause), len(Phase)), dtype=np.int64)
    np.add.at(ns, (found.window[pieces.gap], pieces.cause, pieces.phase), pieces.ns)
    steps = step_rows(host)
    idle = Idle(
        ns,
        _lines(events, pieces),
        _synchronizations(events, states, list(steps.values())),
        launching(trace.timed, host, states, timed, step, steps),
    )
    return idle, divided_gaps


def _divided(trace: RankTrace, ran: HostRows, found: Gaps, in_full: Gaps) -> Pieces:
    """Return the pieces of an accelerator's gaps, `in_full` those of the full window, which has the host's rows."""
    events, states, in_phases = trace.events, ran.states, ran.phases
    calls = launch_calls(ran.host, in_full.ender)
    before = before_launch(in_full, calls, states, in_phases)
    after = since_launch(in_full, calls, states, in_phases, events)
    pieces = with_overhead(Pieces.joined([before, after]), calls.thread, events)
    if not trace.is_light:
        return pieces
    own = launch_calls(ran.host, found.ender).in_light_window(trace, found.ender)
    told, told_in_full = until_launch(found, own), until_launch(in_full, calls)
    # Without launches of its own the window's calls are shorter, too: a gap that was the host's is so as a whole.
    if trace.joining is not None and trace.joining.launches_are_estimated:
        is_hosts = launched_within(in_full, calls)
        told_in_full = told_in_full.or_whole(in_full, is_hosts)
        told = told.or_whole(found, np.isin(found.ender, in_full.ender[is_hosts]))
    pieces = pieces.take(pieces.start_ns < told_in_full.end_ns[pieces.gap])
    after = since_launch(found, own, states, in_phases, trace.timed)
    return Pieces.joined([as_long_as(told, told_in_full, pieces), after.take(told.end_ns[after.gap] <= after.start_ns)])


def _lacking(events: Events, steps: Mapping[int, int], step: Int64) -> Mask:
    """Return which windows lack kernels of graphs, by each one's step; `steps` has the row of each step's mark."""
    lost_ns = np.sort(events.start_ns[(events.health & Health.LOST) > 0])
    if not len(lost_ns):
        return np.zeros(len(step), dtype=bool)
    marks = np.array([steps.get(number, UNKNOWN) for number in step.tolist()], dtype=np.int64)
    start, end = (values_at(column, marks, 0) for column in (events.start_ns, events.end_ns))
    holds = np.searchsorted(lost_ns, end) > np.searchsorted(lost_ns, start)
    lacking: Mask = np.where(marks == UNKNOWN, True, holds)
    return lacking


def _lines(events: Events, pieces: Pieces) -> IdleLines:
    """Return the longest lines of each cause, and what is left of it as one a phase."""
    lines = distinct(pieces.cause, pieces.phase, pieces.name, np.r_[events.name, UNKNOWN][pieces.call])
    cause, phase, name, call = lines.columns
    ns = lines.summed(pieces.ns)
    # A call counts once, however many gaps it reaches into.
    counted = distinct(lines.index, np.where(pieces.call != UNKNOWN, pieces.call, pieces.gap))
    count = np.bincount(counted.columns[0], minlength=len(lines))
    order = np.lexsort((-ns, cause))
    rank = np.arange(len(order)) - np.searchsorted(cause[order], cause[order])
    kept, others = order[rank < MOST_LINES], order[rank >= MOST_LINES]
    left = distinct(cause[others], phase[others])
    return IdleLines(
        cause=np.r_[cause[kept], left.columns[0]],
        phase=np.r_[phase[kept], left.columns[1]],
        name=(*shown_names(events, name[kept]), *(OTHERS for _ in left.first)),
        call=(*shown_names(events, call[kept]), *("" for _ in left.first)),
        ns=np.r_[ns[kept], left.summed(ns[others])],
        count=np.r_[count[kept], left.summed(count[others])],
    )


def _synchronizations(events: Events, states: HostStates, steps: Sequence[int]) -> Synchronizations:
    """Return the calls that wait for the device inside the profiler's steps; all of them where none is marked."""
    calls = np.flatnonzero(states.is_synchronizing)
    if len(steps):
        inside = union_of(events.start_ns[list(steps)], events.end_ns[list(steps)])
        started = events.start_ns[calls]
        calls = calls[inside.length_within(started, started + 1) > 0]
    lines = distinct(states.around(calls), events.name[calls])
    ns = lines.summed(events.dur_ns[calls])
    order = np.argsort(-ns, kind="stable")[:MOST_LINES]
    names, call_names = (tuple(shown_names(events, column[order])) for column in lines.columns)
    return Synchronizations(names, call_names, lines.count[order], ns[order])
