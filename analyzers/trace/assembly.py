"""Assembly of `Events` from the columns that were taken of a file.

Each column is let go of once it stands in the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.trace.columns import LAST_DEVICE_CATEGORY, EventColumns, EventPart, joined_by_id
from analyzers.trace.decoding import NEVER, spread
from analyzers.trace.events import SYNC_FIELDS, Events, Syncs, launch_times
from analyzers.trace.kernel_names import Category, is_waiting, kinds
from analyzers.trace.range_names import STEP

# Of torch before 1.9, whose steps are such rows too.
_OLD_OPERATOR = "Operator"
_LAST_DEVICE = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Assembled:
    """The rows of a file, and how many of its events had no time, or no duration."""

    events: Events
    untimed: int
    endless: int


def assemble(columns: EventColumns, base_time_ns: int) -> Assembled:
    """Return all rows, in the file's order, without those that have no time or only tell of waiting."""
    names, part = columns.names, columns.whole()
    category, name = _assign_category(part, columns, names), part.column("name")
    start_ns, dur_ns, timed = _read_times(part, base_time_ns)
    endless = int((timed & (dur_ns < 0) & (category != Category.FLOW)).sum())
    np.maximum(dur_ns, 0, out=dur_ns)
    on_device = category <= LAST_DEVICE_CATEGORY
    external = spread(part.column("external"), joined_by_id(category))
    device, peer, crosses = _find_places(part, category, name, names)
    call_row = part.column("call_row")
    call, calls = columns.calls.resolved(_fill_sparse(part, "call", call_row))
    forward_row = part.column("forward_row")
    correlation = part.column("correlation")
    events = Events(
        category=category,
        kind=kinds(category, name, names, crosses | (on_device & (call >= 0))),
        name=name,
        names=names,
        start_ns=start_ns,
        dur_ns=dur_ns,
        thread=part.column("thread"),
        device=device,
        peer=peer,
        stream=spread(part.column("stream"), on_device),
        correlation=correlation,
        nbytes=spread(part.column("bytes"), on_device),
        external=_find_externals(part, external, call_row),
        sequence=_fill_sparse(part, "sequence", call_row),
        call=call,
        calls=calls,
        inputs=_fill_sparse(part, "inputs", part.column("inputs_row")).astype(np.int32),
        shapes=columns.calls.shapes,
        forward=_fill_sparse(part, "forward", forward_row),
        forward_thread=_fill_sparse(part, "forward_thread", forward_row),
        grid=spread(columns.calls.same_grids(part.column("grid")), on_device),
        launched_ns=launch_times(category, correlation, start_ns),
        position=part.column("position"),
        health=np.zeros(part.rows, dtype=np.int8),
    )
    return Assembled(_of_activity(events, part, timed), int((~timed).sum()), endless)


def _read_times(part: EventPart, base_time_ns: int) -> tuple[Int64, Int64, Mask]:
    """Starts since the epoch, durations as they are written, and which rows have a time."""
    start_ns, dur_ns = part.column("start_ns"), part.column("dur_ns")
    timed: Mask = start_ns != NEVER
    return np.where(timed, start_ns + base_time_ns, UNKNOWN), dur_ns, timed


def _of_activity(events: Events, part: EventPart, timed: Mask) -> Events:
    """The rows that have a time and do something; synchronizations that have a time stand apart."""
    syncs = _build_syncs(events, part, timed)
    kept = timed
    waiting = np.array([is_waiting(name) for name in events.names], dtype=bool)
    if waiting.any():
        kept = kept & ~waiting[events.name]
    if len(syncs):
        kept = kept & (events.category != Category.SYNC)
    return events.with_syncs(syncs) if kept.all() else events.take(kept).with_syncs(syncs)


def _build_syncs(events: Events, part: EventPart, timed: Mask) -> Syncs:
    rows = part.column("sync_row")
    has_time = timed[rows]
    rows = rows[has_time]
    shared = {
        name: getattr(events, name)[rows]
        for name in ("position", "name", "start_ns", "dur_ns", "thread", "correlation")
    }
    return Syncs(**shared, **{name: part.column(f"sync_{name}")[has_time] for name in SYNC_FIELDS})


def _assign_category(part: EventPart, columns: EventColumns, names: Sequence[str]) -> NDArray[np.int8]:
    """The category of every row; steps, which torch before 1.9 writes as operators, are annotations."""
    category = part.column("category")
    if _OLD_OPERATOR not in columns.marks.categories:
        return category
    is_step = np.array([name.startswith(STEP) for name in names], dtype=bool)[part.columns["name"]]
    return np.where(is_step & (category == Category.OPERATOR), Category.ANNOTATION, category).astype(np.int8)


def _find_places(
    part: EventPart, category: NDArray[np.int8], name: NDArray[np.int32], names: Sequence[str]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """The device of every row, the other device of a copy between two, and which rows are such copies."""
    on_device = category <= LAST_DEVICE_CATEGORY
    device = part.column("device")
    # What a row says, else where it ran, else its process, which Kineto numbers by device.
    for fallback in ("in_device", "process"):
        device = np.where(device < 0, part.column(fallback), device)
    source, target = part.column("from_device"), part.column("to_device")
    copies = category[on_device] == Category.MEMCPY
    between = copies & (source >= 0) & (target >= 0) & (source != target)
    unsaid = copies & ((source < 0) | (target < 0))
    peer_to_peer = np.array([name.startswith("Memcpy PtoP") for name in names], dtype=bool)
    crosses = np.zeros(len(category), dtype=bool)
    crosses[on_device] = between | (unsaid & peer_to_peer[name[on_device]])
    device = np.where(between, source, np.maximum(device, 0)).clip(max=_LAST_DEVICE)
    peer = np.where(between, target, UNKNOWN).clip(max=_LAST_DEVICE)
    return spread(device, on_device).astype(np.int32), spread(peer, on_device).astype(np.int32), crosses


def _find_externals(part: EventPart, column: Int64, call_row: Int64) -> Int64:
    """What joins kernels and the operators that tell of their collectives."""
    column[call_row] = part.column("call_external")
    return column


def _fill_sparse(part: EventPart, name: str, rows: Int64) -> Int64:
    """A column of all rows from the values that few have."""
    column = np.full(part.rows, UNKNOWN, dtype=np.int64)
    column[rows] = part.column(name)
    return column
