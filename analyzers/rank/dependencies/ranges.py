"""Ranges of the host's time that a change would take away.

forward   |copies, broadcast, copies|model ..|       BUFFERS: DDP's forward until it has broadcast its buffers
backward     |mul_out|  |allreduce_|                 EARLY: before a step's last forward, of accumulated batches
end                     |copy_bucket_to_grad|        COPIES_OUT: gradients copied out of their buckets
optimizer                            |step|          OPTIMIZER
FSDP2     |all_gather|all_gather_copy_out|           GATHERS, GATHERED; in the backward GATHERED_AGAIN
          |post_backward_reduce|                     REDUCES
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from analyzers.arrays import Int64
from analyzers.intervals import union_of
from analyzers.rank.columns import profiler_steps
from analyzers.rank.dependencies.points import Activities, Calls, Ranges, Section
from analyzers.trace import C10D, COPIES_IN, DDP_FORWARD, Events, Kind

_COPIES_OUT = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
_SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
_OPTIMIZER_STEP = "Optimizer.step#"
_REDUCES = (COPIES_IN, _COPIES_OUT, C10D + "allreduce_", "torch.distributed.ddp.reducer::prepare_for_backward")


def ranges_of(events: Events, calls: Calls, ran: Activities) -> Ranges:
    """Return the ranges of a rank's host."""
    forwards = _rows(events, lambda name: name == DDP_FORWARD)
    parts = {
        Section.BUFFERS: _buffers(events, forwards, calls, ran),
        Section.EARLY: _early(events, forwards),
        Section.COPIES_OUT: _extents(events, _rows(events, lambda name: name == _COPIES_OUT)),
        Section.OPTIMIZER: _extents(events, _rows(events, lambda name: name.startswith(_OPTIMIZER_STEP))),
        Section.SEARCH: _search(events, forwards),
        **_sharded(events),
    }
    section = np.repeat(np.array([*parts], dtype=np.int64), [len(start) for start, _ in parts.values()])
    start, end = (np.concatenate([part[at] for part in parts.values()]) for at in (0, 1))
    return Ranges(section, start, end)


Extents = tuple[Int64, Int64]
_GATHERS, _GATHERED, _SCATTERS = "FSDP::all_gather", "FSDP::all_gather_copy_out", "FSDP::post_backward_reduce"
_BACKWARD = ("FSDP::pre_backward", "FSDP::post_backward", "FSDP::backward_prefetch")


def _sharded(events: Events) -> dict[Section, Extents]:
    """Return FSDP2's ranges, which may have a module's name behind them."""
    rows = {each: _rows(events, partial(_is_range, each)) for each in (_GATHERS, _GATHERED, _SCATTERS)}
    gathers = np.concatenate([rows[_GATHERS], rows[_GATHERED]])
    backward = _rows(events, lambda name: name.startswith(_BACKWARD))
    within = np.zeros(len(gathers), dtype=bool)
    for thread in np.unique(events.thread[gathers]).tolist():
        own, around = events.thread[gathers] == thread, backward[events.thread[backward] == thread]
        start_ns = events.start_ns[gathers[own]]
        within[own] = union_of(*_extents(events, around)).length_within(start_ns, start_ns + 1) > 0
    module = np.array([events.names[code].partition(" ")[2] for code in events.name[gathers].tolist()], dtype=object)
    again = within & np.isin(module, sorted(set(module[~within].tolist())))
    return {
        Section.GATHERS: _extents(events, rows[_GATHERS]),
        Section.GATHERED: _extents(events, rows[_GATHERED]),
        Section.GATHERED_AGAIN: _extents(events, gathers[again]),
        Section.REDUCES: _extents(events, rows[_SCATTERS]),
    }


def _is_range(range_name: str, name: str) -> bool:
    return name == range_name or name.startswith(range_name + " (")


def _rows(events: Events, is_named: Callable[[str], bool]) -> Int64:
    named = np.array([is_named(name) for name in events.names], dtype=bool)
    return np.flatnonzero(named[events.name] & ~events.on_device) if len(named) else np.zeros(0, dtype=np.int64)


def _extents(events: Events, rows: Int64) -> Extents:
    return events.start_ns[rows], events.end_ns[rows]


def _buffers(events: Events, forwards: Int64, calls: Calls, ran: Activities) -> Extents:
    """Return from DDP's forwards' begins until the last call for buffers in each, where one broadcasts there."""
    for_buffers = (ran.call >= 0) & (ran.packing | (ran.kind == Kind.COMM))
    begin, end = calls.begin_ns[ran.call[for_buffers]], calls.end_ns[ran.call[for_buffers]]
    broadcasts = _rows(events, lambda name: name == C10D + "broadcast_")
    starts, ends = [], []
    for start_ns, end_ns in zip(*(column.tolist() for column in _extents(events, forwards)), strict=True):
        inside = (begin >= start_ns) & (begin < end_ns)
        broadcast = events.start_ns[broadcasts]
        if inside.any() and ((broadcast >= start_ns) & (broadcast < end_ns)).any():
            starts.append(start_ns)
            ends.append(int(end[inside].max()))
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def _early(events: Events, forwards: Int64) -> Extents:
    """Return what synchronizes gradients before the last forward of each step that has several."""
    rows = _rows(events, lambda name: name in _REDUCES)
    steps = profiler_steps(events)
    step = steps.index_at(events.start_ns[forwards])
    last = np.full(len(steps.number) + 1, np.iinfo(np.int64).min)
    np.maximum.at(last, step, events.start_ns[forwards])
    last[-1] = np.iinfo(np.int64).min
    return _extents(events, rows[events.start_ns[rows] < last[steps.index_at(events.start_ns[rows])]])


def _search(events: Events, forwards: Int64) -> Extents:
    """Return from the model's last operator in a forward that searches until its end."""
    searches = _rows(events, lambda name: name == _SEARCH)
    operators = np.sort(events.end_ns[_rows(events, lambda name: name.startswith("aten::"))])
    starts, ends = [], []
    for start_ns, end_ns in zip(*(column.tolist() for column in _extents(events, searches)), strict=True):
        around = forwards[(events.start_ns[forwards] <= start_ns) & (events.end_ns[forwards] >= end_ns)]
        before = int(np.searchsorted(operators, start_ns, side="right"))
        starts.append(int(operators[before - 1]) if before and len(around) else start_ns)
        ends.append(int(events.end_ns[around].max(initial=end_ns)))
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)
