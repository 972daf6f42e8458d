"""Calls of a CPU run, and gloo's spans.

main      |ProfilerStep ..|all_reduce||conv|..........silent.........|sgd|     silent from before a span's end until
worker                       |gloo:all_reduce###################|             just after it: the thread waits for it
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, values_at
from analyzers.rank.columns import profiler_steps
from analyzers.rank.dependencies.host_calls import stretch_edges
from analyzers.rank.dependencies.points import Activities, Calls, EdgeKind, Edges
from analyzers.rank.idle import HostRows, Phase
from analyzers.run import RankTrace
from analyzers.trace import Category, Events, Kind

# A thread that waits is silent for so long at least.
SHORTEST_WAIT_NS = 100_000
# A worker takes up what it is given in so much at most, where nothing else holds it.
LONGEST_HAND_OVER_NS = 100_000
_HOST_ROWS = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON)


def cpu_calls(trace: RankTrace, ran: HostRows) -> tuple[Calls, Activities]:
    """Return the main thread's calls of collectives, its waits and its steps' marks as calls, and gloo's spans."""
    events = trace.events
    main, spans = ran.states.main_thread(), np.flatnonzero(trace.gloo)
    spans = spans[np.argsort(events.start_ns[spans], kind="stable")]
    issued = ran.host.launches(spans)
    wait_begin, wait_end = _waits(events, main, spans)
    waited = np.flatnonzero(wait_end != UNKNOWN)
    steps = profiler_steps(events)
    called = np.unique(issued[issued >= 0])
    # A mark has no row of its own here: it is an instant.
    row = np.r_[called, spans[waited], np.full(len(steps.number), UNKNOWN)]
    begin_ns = np.r_[events.start_ns[called], wait_begin[waited], steps.start_ns]
    end_ns = np.r_[events.end_ns[called], wait_end[waited], steps.start_ns]
    blocks = np.r_[
        np.zeros(len(called), dtype=bool), np.ones(len(waited), dtype=bool), np.zeros(len(steps.number), bool)
    ]
    order = np.lexsort((end_ns, begin_ns))
    row, begin_ns, end_ns, blocks = row[order], begin_ns[order], end_ns[order], blocks[order]
    name = values_at(events.name.astype(np.int64), row, 0)
    thread = np.full(len(row), main)
    calls = Calls(row, name, thread, begin_ns, end_ns, blocks, np.full(len(row), UNKNOWN), ran.phases.at(begin_ns))
    place = np.full(len(events), UNKNOWN)
    place[row[~blocks & (row >= 0)]] = np.flatnonzero(~blocks & (row >= 0))
    return calls, _spans(events, spans, values_at(place, issued), calls)


def _waits(events: Events, main: int, spans: Int64) -> tuple[Int64, Int64]:
    """Return when the main thread begins to wait for each span, and goes on; UNKNOWN where it does not wait."""
    rows = np.flatnonzero((events.thread == main) & np.isin(events.category, _HOST_ROWS))
    edges = np.sort(np.r_[events.start_ns[rows], events.end_ns[rows]])
    ended_ns = events.end_ns[spans]
    at = np.searchsorted(edges, ended_ns, side="right")
    inside = (at > 0) & (at < len(edges))
    begin_ns, end_ns = edges[np.maximum(at - 1, 0)], edges[np.minimum(at, len(edges) - 1)]
    silent = inside & (end_ns - begin_ns >= SHORTEST_WAIT_NS)
    # One silence is one wait: for the span that ends last in it.
    order = np.lexsort((-ended_ns, begin_ns))
    is_last = np.zeros(len(spans), dtype=bool)
    is_last[order[np.r_[True, np.diff(begin_ns[order]) != 0][: len(order)]]] = True
    waits = silent & is_last
    return np.where(waits, begin_ns, UNKNOWN), np.where(waits, end_ns, UNKNOWN)


def _spans(events: Events, spans: Int64, call: Int64, calls: Calls) -> Activities:
    nothing = np.full(len(spans), UNKNOWN)
    return Activities(
        row=spans,
        device=np.full(len(spans), UNKNOWN),
        stream=events.thread[spans],
        correlation=events.correlation[spans],
        start_ns=events.start_ns[spans],
        stop_ns=events.end_ns[spans],
        light_start_ns=nothing,
        light_ns=nothing,
        kind=np.full(len(spans), Kind.COMM, dtype=np.int8),
        category=events.category[spans].astype(np.int64),
        name=events.name[spans].astype(np.int64),
        grid=nothing,
        nbytes=nothing,
        call=call,
        place=nothing,
        phase=values_at(calls.phase, call, Phase.NOT_KNOWN),
        line=nothing,
        packing=np.zeros(len(spans), dtype=bool),
    )


def cpu_edges(calls: Calls, spans: Activities) -> Edges:
    """Return what calls and spans wait for: the thread's own order, spans for their calls, waits for spans."""
    call, span = np.arange(len(calls)), np.arange(len(spans))
    start = 2 * len(calls) + 2 * span
    own_ns = np.where(calls.blocks, 0, calls.end_ns - calls.begin_ns)
    place = np.full(int(max(calls.row.max(initial=0), spans.row.max(initial=0))) + 1, UNKNOWN)
    place[spans.row] = span
    waits = np.flatnonzero(calls.blocks)
    waited = place[calls.row[waits]]
    issued = np.flatnonzero(spans.call >= 0)
    lag_ns = np.minimum(spans.start_ns[issued] - calls.begin_ns[spans.call[issued]], LONGEST_HAND_OVER_NS)
    order = np.lexsort((spans.start_ns, spans.stream))
    follows = np.diff(spans.stream[order]) == 0
    before, after = order[:-1][follows], order[1:][follows]
    no_time = np.zeros(len(before), dtype=np.int64)
    return Edges.joined(
        [
            stretch_edges(calls, call[:-1], call[1:]),
            Edges.of(2 * call, 2 * call + 1, own_ns, EdgeKind.CALL),
            Edges.of(start[waited] + 1, 2 * waits + 1, calls.end_ns[waits] - spans.stop_ns[waited], EdgeKind.BLOCK),
            Edges.of(2 * spans.call[issued], start[issued], lag_ns, EdgeKind.LAUNCH),
            Edges.of(start, start + 1, spans.stop_ns - spans.start_ns, EdgeKind.RUN),
            Edges.of(start[before] + 1, start[after], no_time, EdgeKind.STREAM),
        ]
    )
