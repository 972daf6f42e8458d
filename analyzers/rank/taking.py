"""From when on each gradient may be reduced.

autograd   |conv backward launch|AccumulateGrad: copy in|c10d::allreduce_||    taken when its node ends, or calls
stream 7              ####        ##                                                 ready when ## stops
stream 17                                                          ########
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, find, keys_by_part, rows_by, sorted_set, values_at
from analyzers.rank.columns import Communication
from analyzers.rank.ddp_reductions import Gradients, Reductions
from analyzers.rank.dependencies import PointKind, Ranges, RankGraph, Section, TakenGradients
from analyzers.trace import Category, Events, Kind


def with_taken(
    graph: RankGraph, events: Events, comm: Communication, reduced: Reductions, gradients: Gradients
) -> RankGraph:
    """Return the graph with the gradients that each step's last backward pass takes, in order, where sizes are known.

    `events` are the full window's, as all the rest.
    """
    known = (gradients.elements > 0) & _is_last_pass(gradients)
    rows = np.flatnonzero(known)
    went = gradients.reduction[rows]
    called = comm.called[reduced.kernel[sorted_set(went[went >= 0])]]
    thread, taken_ns = events.thread[gradients.row[rows]], _taken_ns(events, gradients.row[rows], called)
    calls, ran = graph.calls, graph.activities
    # A CPU run's calls are the main thread's, whichever thread takes a gradient.
    thread = np.full(len(rows), graph.main_thread) if graph.on_host else thread
    # Gloo's begin where they reduce, and end where that is waited for.
    call = _last_before(np.arange(len(calls)), calls.thread, calls.end_ns, thread, taken_ns + 1)
    computes = np.flatnonzero((ran.kind == Kind.COMPUTE) & (ran.category == Category.KERNEL) & (ran.call >= 0))
    by = ran.call[computes]
    activity = _last_before(computes, calls.thread[by], calls.begin_ns[by], thread, taken_ns)
    reduction = _activities_of(graph, comm, reduced)
    found = (call >= 0) & ((activity >= 0) | graph.on_host)
    taken = TakenGradients(
        call=call,
        after_ns=taken_ns - values_at(calls.end_ns, call),
        activity=activity,
        elements=gradients.elements[rows],
        reduction=values_at(reduction, gradients.reduction[rows]),
        copied=_copies_out(graph, call, gradients.step[rows]),
    ).take(found)
    section = np.full(len(called), int(Section.REDUCTIONS))
    ranges = Ranges.joined([graph.ranges, Ranges(section, events.start_ns[called], events.end_ns[called])])
    return replace(graph, taken=taken, ranges=ranges)


def _taken_ns(events: Events, nodes: Int64, called: Int64) -> Int64:
    """Return when each gradient is taken: when its node ends, or calls for a reduction."""
    start_ns, end_ns = events.start_ns[nodes], events.end_ns[nodes]
    call_ns = np.r_[np.sort(events.start_ns[called]), np.iinfo(np.int64).max]
    taken_ns: Int64 = np.minimum(end_ns, call_ns[np.searchsorted(call_ns, start_ns, side="left")])
    return taken_ns


def _is_last_pass(gradients: Gradients) -> Mask:
    """Whether gradients are of their step's last backward pass: accumulated ones are what that synchronizes."""
    last: Mask = np.ones(len(gradients), dtype=bool)
    for rows in rows_by(gradients.step).values():
        last[rows] = gradients.pass_[rows] == gradients.pass_[rows].max()
    return last


def _last_before(rows: Int64, row_thread: Int64, row_ns: Int64, thread: Int64, instant_ns: Int64) -> Int64:
    """Return for each instant the last of some rows of a thread before it, UNKNOWN where there is none."""
    order = np.lexsort((row_ns, row_thread))
    by_thread = rows_by(row_thread[order])
    last = np.full(len(thread), UNKNOWN)
    for number, asked in rows_by(thread).items():
        own = order[by_thread.get(number, order[:0])]
        last[asked] = values_at(rows[own], np.searchsorted(row_ns[own], instant_ns[asked], side="left") - 1)
    return last


def _activities_of(graph: RankGraph, comm: Communication, reduced: Reductions) -> Int64:
    """Return the activity of each reduction, UNKNOWN where the graph has none."""
    ran = graph.activities
    asked = (comm.correlation[reduced.kernel], comm.start_ns[reduced.kernel])
    key, wanted = keys_by_part((ran.correlation, ran.start_ns), asked)
    order = np.argsort(key, kind="stable")
    return values_at(order, find(key[order], wanted))


def _copies_out(graph: RankGraph, call: Int64, step: Int64) -> Int64:
    """Return what copies each gradient out of its bucket: by order in steps with one copy each, else UNKNOWN."""
    copied = np.full(len(step), UNKNOWN)
    ran, inside = graph.activities, graph.ranges.of(Section.COPIES_OUT)
    rows = np.flatnonzero(ran.call >= 0)
    begin_ns = graph.calls.begin_ns[ran.call[rows]]
    chosen = inside.length_within(begin_ns, begin_ns + 1) > 0
    rows, begin_ns = rows[chosen], begin_ns[chosen]
    rows = rows[np.argsort(begin_ns, kind="stable")]
    step_of_call = graph.points.step[np.flatnonzero(graph.points.kind == PointKind.BEGIN)]
    of_step = rows_by(values_at(step_of_call, ran.call[rows]))
    for own in rows_by(step).values():
        copies = rows[of_step.get(int(values_at(step_of_call, call[own[:1]])[0]), rows[:0])]
        if len(copies) == len(own):
            copied[own] = copies
    return copied
