"""Make the graph of one rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, values_at
from analyzers.rank.columns import Attribution, profiler_steps
from analyzers.rank.dependencies.cpu_run import cpu_calls, cpu_edges
from analyzers.rank.dependencies.device_order import Device, activities_of
from analyzers.rank.dependencies.host_calls import find_calls, host_edges, stretches_of
from analyzers.rank.dependencies.points import (
    OTHER_SCATTER_NS,
    Activities,
    Calls,
    CutSteps,
    Edges,
    PointKind,
    Points,
    Ranges,
    RankGraph,
    Stretches,
    bound,
    unexplained,
)
from analyzers.rank.dependencies.ranges import ranges_of
from analyzers.rank.dependencies.stream_waits import soon_after, stream_waits
from analyzers.rank.idle import HostRows
from analyzers.run import RankTrace
from analyzers.trace import Health

# Of a row that says it lasts longer than it can, nothing follows.
_DOUBTED = Health.ENDLESS


def rank_graph(trace: RankTrace, attributed: Attribution, ran: HostRows) -> RankGraph | None:
    """Return one rank's graph at the full window's times; None where no launch is recorded."""
    if trace.is_cpu_run:
        return _of_cpu_run(trace, ran)
    events = trace.events
    rows = np.flatnonzero(events.on_device & ((events.health & _DOUBTED) == 0))
    found = find_calls(ran, rows)
    if not (found.launched_by >= 0).any():
        return None
    calls = found.calls
    activities = activities_of(trace, attributed, rows, found.launched_by, calls)
    device = Device(events, calls, activities)
    steps = _cut_steps(trace, activities, calls)
    # A device runs behind its host, also when the last step's mark has ended.
    started_in = np.searchsorted(steps.first_start_ns, activities.start_ns, side="right") - 1
    points = _points(calls, activities, steps, started_in)
    edges = Edges.joined(
        [
            host_edges(ran, calls),
            device.calls_edges(),
            device.launches(),
            device.runs(),
            device.streams(),
            stream_waits(device, ran.host),
        ]
    )
    late = unexplained(points, edges)[device.start] > OTHER_SCATTER_NS
    edges = Edges.joined([edges, soon_after(device, np.flatnonzero(late))])
    return _graph(ran, (points, edges), calls, activities, steps, ranges_of(events, calls, activities))


def _of_cpu_run(trace: RankTrace, ran: HostRows) -> RankGraph:
    """Return the graph of a rank that computes on its host: the main thread's time, and gloo's spans beside it."""
    calls, spans = cpu_calls(trace, ran)
    marked = profiler_steps(trace.events)
    steps = CutSteps(marked.number, marked.start_ns, marked.start_ns, marked.cycle, marked.end_ns)
    ranges = ranges_of(trace.events, calls, spans)
    points = _points(calls, spans, steps, steps.at(spans.start_ns))
    return _graph(ran, (points, cpu_edges(calls, spans)), calls, spans, steps, ranges, on_host=True)


def _graph(
    ran: HostRows,
    graph: tuple[Points, Edges],
    calls: Calls,
    activities: Activities,
    steps: CutSteps,
    ranges: Ranges,
    *,
    on_host: bool = False,
) -> RankGraph:
    points, edges = graph
    edges, dropped = bound(points, edges)
    stretches, counted = stretches_of(ran, calls, edges)
    names, (calls, activities, stretches) = _with_own_names(ran.host.events.names, calls, activities, stretches)
    main = ran.states.main_thread()
    return RankGraph(
        points,
        edges,
        stretches,
        calls,
        activities,
        names,
        counted,
        steps,
        ranges,
        main,
        dropped=dropped,
        on_host=on_host,
    )


def _with_own_names(
    names: tuple[str, ...], calls: Calls, ran: Activities, stretches: Stretches
) -> tuple[tuple[str, ...], tuple[Calls, Activities, Stretches]]:
    """Return the names that the graph uses, of all of a rank's, and its columns by their new numbers."""
    used = np.zeros(len(names), dtype=bool)
    for column in (calls.name, calls.place, ran.name, ran.place, stretches.place):
        used[column[column >= 0]] = True
    number = np.where(used, np.cumsum(used) - 1, UNKNOWN)
    named = (
        replace(calls, name=number[calls.name], place=values_at(number, calls.place)),
        replace(ran, name=number[ran.name], place=values_at(number, ran.place)),
        replace(stretches, place=values_at(number, stretches.place)),
    )
    return tuple(name for name, is_used in zip(names, used.tolist(), strict=True) if is_used), named


def _cut_steps(trace: RankTrace, ran: Activities, calls: Calls) -> CutSteps:
    """Return the steps that have device events, cut where the host launches the first one of each."""
    steps = profiler_steps(trace.events)
    launched = np.flatnonzero(ran.call >= 0)
    index = steps.index_at(calls.begin_ns[ran.call[launched]])
    launched, index = launched[index >= 0], index[index >= 0]
    # Activities come by start: the first of each step is its earliest.
    present, first = np.unique(index, return_index=True)
    cut_ns = calls.begin_ns[ran.call[launched[first]]]
    order = np.argsort(cut_ns, kind="stable")
    present, first, cut_ns = present[order], first[order], cut_ns[order]
    first_start_ns, end_ns = ran.start_ns[launched[first]], steps.end_ns[present]
    return CutSteps(steps.number[present], cut_ns, first_start_ns, steps.cycle[present], end_ns)


def _points(calls: Calls, ran: Activities, steps: CutSteps, started_in: Int64) -> Points:
    """Return points of calls, begin and end by turns, then those of activities, start and stop by turns.

    An activity whose call is not known is of the step that it `started_in`.
    """
    call_step = steps.at(calls.begin_ns)
    run_step = np.where(ran.call >= 0, values_at(call_step, ran.call), started_in)
    lane = ran.device * (int(ran.stream.max(initial=0)) + 1) + ran.stream
    return Points(
        time_ns=np.r_[_pairs(calls.begin_ns, calls.end_ns), _pairs(ran.start_ns, ran.stop_ns)],
        kind=np.r_[
            np.tile(np.array([PointKind.BEGIN, PointKind.END], dtype=np.int8), len(calls)),
            np.tile(np.array([PointKind.START, PointKind.STOP], dtype=np.int8), len(ran)),
        ],
        row=np.r_[_pairs(calls.row, calls.row), _pairs(ran.row, ran.row)],
        step=np.r_[_pairs(call_step, call_step), _pairs(run_step, run_step)],
        lane=np.r_[_pairs(calls.thread, calls.thread), _pairs(lane, lane)],
    )


def _pairs(first: Int64, second: Int64) -> Int64:
    return np.stack([first, second], axis=1).ravel()
