"""Copies that carry out a collective: those inside its host call.

    host     |c10d::_allgather_base_ ...|    |c10d::allgather_ ........|
    launch       ^     ^     ^                    ^          ^
    device       copy  copy  copy                 kernel     copy         the first three communicate, the last packs

NCCL's copy engines (2.28 and later) and symmetric memory move data without a kernel, and CUPTI may call such copies
those of one device, where the other's memory is mapped. A call that launches a kernel of communication has its
copies for packing, and so has a batch, whose kernel is launched when it ends, and one whose kernel's record is lost.
Barriers around the copies, as symmetric memory has them, move nothing and are no such kernel.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, is_in, rows_by
from analyzers.trace.collective_calls import kind_of_call
from analyzers.trace.events import Events
from analyzers.trace.kernel_names import Category, Kind, path_of
from analyzers.trace.libraries import COALESCED, Collective, only_signals
from analyzers.trace.range_names import COLLECTIVE_CALLS, KERNEL_LAUNCH

# Between host and device no collective copies: it stages, as gloo does.
_MOVES = re.compile("Memcpy(?!.*(?:HtoD|DtoH|HtoH))", re.DOTALL)


def with_copy_collectives(events: Events) -> Events:
    """Return the same rows with copies of kind COMM that are all there is of the collective that launched them."""
    copies = events.called(Category.MEMCPY, _MOVES.match)
    calls = _host_calls(events)
    if not len(copies) or not len(calls):
        return events
    kernels = _moving_kernels(events)
    launches = events.launched_by(events.correlation[np.r_[copies, kernels]])
    around = find_outermost(events, calls, launches)
    of_copies, of_kernels = around[: len(copies)], around[len(copies) :]
    alone = (of_copies >= 0) & ~is_in(of_copies, of_kernels) & ~_of_batches(events, launches, len(copies))
    alone &= ~is_in(of_copies, np.r_[_of_one(events, calls), _of_lost(events, calls)])
    kind = events.kind.copy()
    kind[copies[alone]] = Kind.COMM
    return replace(events, kind=kind)


def _moving_kernels(events: Events) -> Int64:
    """Return the kernels of communication but those that only signal."""
    rows = np.flatnonzero((events.category == Category.KERNEL) & (events.kind == Kind.COMM))
    signals = events.called(Category.KERNEL, lambda name: only_signals(path_of(name)))
    return rows[~is_in(rows, signals)]


def _host_calls(events: Events) -> Int64:
    """Return the host's rows that call a collective: those that tell of one, and those named after one."""
    named = np.array([_calls_a_collective(name) for name in events.names], dtype=bool)[events.name]
    on_host = (events.category == Category.OPERATOR) | (events.category == Category.ANNOTATION)
    return np.flatnonzero(on_host & (named | (events.call >= 0)))


def _calls_a_collective(name: str) -> bool:
    if not name.startswith(COLLECTIVE_CALLS):
        return False
    prefix = next(filter(name.startswith, COLLECTIVE_CALLS))
    return kind_of_call(name.removeprefix(prefix)) not in (None, Collective.OTHER)


def find_outermost(events: Events, calls: Int64, launches: Int64) -> Int64:
    """Return for each launch the outermost call that holds its start on its thread, UNKNOWN for none."""
    around = np.full(len(launches), UNKNOWN, dtype=np.int64)
    known, by_thread = np.flatnonzero(launches >= 0), rows_by(events.thread[calls])
    for thread, places in rows_by(events.thread[launches[known]]).items():
        if thread not in by_thread:
            continue
        asked, own = known[places], calls[by_thread[thread]]
        own = own[np.lexsort((-events.end_ns[own], events.start_ns[own]))]
        reach = np.maximum.accumulate(events.end_ns[own])
        top = own[np.r_[True, events.start_ns[own][1:] >= reach[:-1]]]
        instant = events.start_ns[launches[asked]]
        at = np.searchsorted(events.start_ns[top], instant, side="right") - 1
        around[asked] = np.where((at >= 0) & (instant < events.end_ns[top][at]), top[at], UNKNOWN)
    return around


def _of_batches(events: Events, launches: Int64, copies: int) -> Mask:
    """Whether the next kernel of communication that a copy's thread launches is a batch's."""
    batches = np.flatnonzero((events.category == Category.ANNOTATION) & events.named(COALESCED))
    of_batch = np.zeros(copies, dtype=bool)
    kernels = launches[copies:][launches[copies:] >= 0]
    kernels = kernels[np.lexsort((events.start_ns[kernels], events.thread[kernels]))]
    batched = find_outermost(events, batches, kernels) >= 0
    known = np.flatnonzero(launches[:copies] >= 0)
    copying = rows_by(events.thread[launches[known]])
    for thread, own in rows_by(events.thread[kernels]).items():
        asked = known[copying.get(thread, known[:0])]
        following = np.searchsorted(events.start_ns[kernels[own]], events.start_ns[launches[asked]], side="right")
        of_batch[asked] = np.r_[batched[own], False][following]
    return of_batch


def _of_lost(events: Events, calls: Int64) -> Int64:
    """Return the outermost calls that launch a kernel of which the profile has no event: it may have communicated."""
    rows = events.called(Category.LAUNCH, KERNEL_LAUNCH.match)
    rows = rows[events.correlation[rows] != UNKNOWN]
    lost = rows[~is_in(events.correlation[rows], events.correlation[events.on_device])]
    return find_outermost(events, calls, lost)


def _of_one(events: Events, calls: Int64) -> Int64:
    """Return the outermost calls whose group is one rank alone: what it copies reaches nobody."""
    telling = calls[events.call[calls] >= 0]
    alone = np.array([one.group is not None and one.group.size == 1 for one in events.calls], dtype=bool)
    telling = telling[alone[events.call[telling]]] if len(telling) else telling
    return find_outermost(events, calls, telling)
