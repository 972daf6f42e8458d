"""Assembly of `Events` from the columns that were taken of a file.

Each column is let go of once it stands in the events. Where several host processes wrote the file, each has its own:

row          step  launch  step  launch  kernel  kernel        each process has its ProfilerStep#1
pid          1000  1000    1001  1001    0       0
correlation        7             7       7       7             a correlation's first row is of its first launch
process      0     0       1     1       0       1
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask, begins, distinct, places_since
from analyzers.notices import Notice
from analyzers.trace.columns import Decoded, EventPart, joined_by_id
from analyzers.trace.decoding import NEVER, int64_column, spread
from analyzers.trace.events import NO_SAMPLES, NONE, SYNC_FIELDS, Events, Samples, Syncs, launch_times
from analyzers.trace.kernel_names import LAST_DEVICE_CATEGORY, Category, is_waiting, kinds
from analyzers.trace.range_names import STEP, is_of_module, own_name

# Of torch before 1.9, whose steps are such rows too.
_OLD_OPERATOR = "Operator"
_LAST_DEVICE = np.iinfo(np.int32).max
_OF_HOST = (Category.OPERATOR, Category.LAUNCH, Category.ANNOTATION, Category.PYTHON)
# Who merges ranks into one file writes whose a row is before its process: `[TP00] 4242`.
_LABELLED = re.compile(r"(\[[^\]]*\])\s*(.*)", re.DOTALL)


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """One host process: its id as rows write it, empty where none has one, its rows, and what is lost of these."""

    pid: str
    events: Events
    lost: tuple[Notice, ...] = ()


@dataclass(frozen=True, eq=False)
class Assembled:
    """The rows of each process in a file, where another's follow, how many events had no time, or no duration.

    `turns` are the places of rows of the host, each with that of the next one, which another process wrote; `pids` are
    all that such rows name. `unplaced` device rows have a stream that is no number.
    """

    processes: tuple[ProcessRows, ...]
    turns: tuple[Int64, Int64]
    pids: tuple[str, ...]
    untimed: int
    endless: int
    unplaced: int


def assemble(columns: Decoded, base_time_ns: int) -> Assembled:
    """Return all rows, in the file's order, without those that have no time or only tell of waiting."""
    part = columns.part
    category = _assign_category(part, columns, columns.names)
    names, name = _own_names(columns.names, part.column("name"))
    start_ns, dur_ns, timed = _read_times(part, base_time_ns)
    endless = int((timed & (dur_ns < 0) & ~np.isin(category, (Category.FLOW, Category.SAMPLE))).sum())
    np.maximum(dur_ns, 0, out=dur_ns)
    on_device = category <= LAST_DEVICE_CATEGORY
    process = part.column("process")
    external = spread(part.column("external"), joined_by_id(category))
    places = _numbers(process[on_device], columns.processes)
    device, peer, crosses = _find_places(part, category, name, names, places)
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
        graph=spread(part.column("graph"), on_device),
        launched_ns=launch_times(category, correlation, start_ns),
        position=part.column("position"),
        health=np.zeros(part.rows, dtype=np.int8),
    )
    active, kept = _of_activity(events, part, timed)
    host = np.flatnonzero(np.isin(active.category, _OF_HOST))
    code, processes = _codes(process if kept.all() else process[kept], columns.processes, host)
    counts = np.bincount(code[host], minlength=len(processes))
    of_each, turns = _by_process(active, code, processes, counts), _turns(active, code, host)
    pids = tuple(str(processes[index]) for index in np.flatnonzero(counts).tolist())
    unplaced = int((events.stream < UNKNOWN).sum())
    return Assembled(of_each, turns, pids, int((~timed).sum()), endless, unplaced)


def _read_times(part: EventPart, base_time_ns: int) -> tuple[Int64, Int64, Mask]:
    """Starts since the epoch, durations as they are written, and which rows have a time."""
    start_ns, dur_ns = part.column("start_ns"), part.column("dur_ns")
    timed: Mask = start_ns != NEVER
    return np.where(timed, start_ns + base_time_ns, UNKNOWN), dur_ns, timed


def _of_activity(events: Events, part: EventPart, timed: Mask) -> tuple[Events, Mask]:
    """The rows that have a time and do something, and which these are; what else has a time stands apart."""
    syncs, samples = _build_syncs(events, part, timed), _build_samples(events, part, timed)
    kept = timed
    waiting = np.array([is_waiting(name) for name in events.names], dtype=bool)
    if waiting.any():
        kept = kept & ~waiting[events.name]
    if len(syncs):
        kept = kept & (events.category != Category.SYNC)
    if len(samples):
        kept = kept & (events.category != Category.SAMPLE)
    return replace(events if kept.all() else events.take(kept), syncs=syncs, samples=samples), kept


def _build_syncs(events: Events, part: EventPart, timed: Mask) -> Syncs:
    rows = part.column("sync_row")
    has_time = timed[rows]
    rows = rows[has_time]
    shared = {
        name: getattr(events, name)[rows]
        for name in ("position", "name", "start_ns", "dur_ns", "thread", "correlation")
    }
    return Syncs(**shared, **{name: part.column(f"sync_{name}")[has_time] for name in SYNC_FIELDS})


def _build_samples(events: Events, part: EventPart, timed: Mask) -> Samples:
    rows, held_ns = part.column("sample_row"), np.maximum(part.column("sample_held_ns"), 0)
    order = np.argsort(events.start_ns[rows], kind="stable")
    order = order[timed[rows[order]]]
    noted_ns = events.start_ns[rows[order]]
    return Samples(events.name[rows[order]], events.thread[rows[order]], noted_ns - held_ns[order], noted_ns)


def _assign_category(part: EventPart, columns: Decoded, names: Sequence[str]) -> NDArray[np.int8]:
    """The category of every row; steps, which torch before 1.9 writes as operators, are annotations."""
    category = part.column("category")
    if _OLD_OPERATOR not in columns.marks.categories:
        return category
    is_step = np.array([name.startswith(STEP) for name in names], dtype=bool)[part.columns["name"]]
    return np.where(is_step & (category == Category.OPERATOR), Category.ANNOTATION, category).astype(np.int8)


def _own_names(names: tuple[str, ...], name: NDArray[np.int32]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return names, and each row's among them, those of modules without what wrappers add to them."""
    own = [own_name(each) if is_of_module(each) else each for each in names]
    if own == [*names]:
        return names, name
    places = {each: place for place, each in enumerate(dict.fromkeys(own))}
    return tuple(places), np.array([places[each] for each in own], dtype=name.dtype)[name]


def _find_places(
    part: EventPart, category: NDArray[np.int8], name: NDArray[np.int32], names: Sequence[str], process: Int64
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """The device of every row, the other device of a copy between two, and which rows are such copies."""
    on_device = category <= LAST_DEVICE_CATEGORY
    device = part.column("device")
    # What a row says, else where it ran, else its process, which Kineto numbers by device.
    for fallback in (part.column("in_device"), process):
        device = np.where(device < 0, fallback, device)
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


def _numbers(process: Int64, texts: Mapping[int, str]) -> Int64:
    """Return processes as numbers, by which Kineto names devices: what stands behind a label counts."""
    if not texts:
        return process
    numbers, code = np.unique(process, return_inverse=True)
    return _process_numbers([texts.get(number, number) for number in numbers.tolist()])[code]


def _codes(process: Int64, texts: Mapping[int, str], host: Int64) -> tuple[Int64, list[int | str]]:
    """Return each row's process as an index, and the processes, where the host's rows name several; else one index."""
    said = process[host]
    if len(said) and (said == said[0]).all():
        return np.zeros(len(process), dtype=np.int8), [texts.get(int(said[0]), int(said[0]))]
    numbers, code = np.unique(process, return_inverse=True)
    return code, [texts.get(number, number) for number in numbers.tolist()]


def _process_numbers(processes: Sequence[int | str]) -> Int64:
    """Return processes as numbers, without their labels."""
    return int64_column([_parted(process)[1] for process in processes])


def _by_process(events: Events, code: Int64, processes: Sequence[int | str], counts: Int64) -> tuple[ProcessRows, ...]:
    """Return the rows of each host process that is a rank of its own; `code` says which of `processes` rows name.

    These are processes with labels, or such as mark steps of equal numbers; all other files are one process's.
    """
    codes = np.flatnonzero(counts)
    owner_of = _owners(events, code, processes, codes) if len(codes) > 1 else None
    if owner_of is None:
        return (ProcessRows(str(processes[int(counts.argmax())]) if len(codes) else "", events),)
    owner = owner_of[code]
    unsaid = events.on_device & (owner == UNKNOWN)
    owner[unsaid] = _launchers(events, owner, np.flatnonzero(unsaid))
    parts = []
    for index in range(int(owner_of.max()) + 1):
        # What nobody's process says stays with the first.
        part = events.take((owner == index) | ((owner == UNKNOWN) & (index == 0)))
        launched_ns = launch_times(part.category, part.correlation, part.start_ns)
        pid = processes[int(np.where(owner_of == index, counts, -1).argmax())]
        parts.append(ProcessRows(str(pid), replace(part, launched_ns=launched_ns, syncs=NONE, samples=NO_SAMPLES)))
    return tuple(parts)


def _turns(events: Events, code: Int64, host: Int64) -> tuple[Int64, Int64]:
    """Return the places of rows of the host before another process's, and of these."""
    turn = np.flatnonzero(np.diff(code[host]))
    return events.position[host[turn]], events.position[host[turn + 1]]


def _parted(process: int | str) -> tuple[str, int | str]:
    """Return the label of a process, empty for none, and what stands behind it."""
    labelled = _LABELLED.fullmatch(process) if isinstance(process, str) else None
    return (labelled[1], labelled[2]) if labelled else ("", process)


def _owners(events: Events, code: Int64, processes: Sequence[int | str], codes: Int64) -> Int64 | None:
    """Return the rank's index for each process, -1 for none; None where all rows are one rank's."""
    labels = [_parted(process)[0] for process in processes]
    listed = sorted({labels[index] for index in codes.tolist() if labels[index]})
    if len(listed) > 1:
        return np.array([listed.index(label) if label in listed else UNKNOWN for label in labels], dtype=np.int64)
    number, owner = distinct(events.name[events.steps], code[events.steps]).columns
    numbers, shared = np.unique(number, return_counts=True)
    alike = np.unique(owner[np.isin(number, numbers[shared > 1])])
    if not len(alike):
        return None
    order = sorted(alike.tolist(), key=lambda index: (int(_process_numbers(processes)[index]), str(processes[index])))
    owners = np.full(len(processes), UNKNOWN, dtype=np.int64)
    owners[order] = np.arange(len(order))
    return owners


def _launchers(events: Events, owner: Int64, rows: Int64) -> Int64:
    """Return whose each device row is: of who launched its correlation; where several did, in their order.

    Where a correlation has not as many rows as launches, its device says it, as far as other rows tell whose that is.
    """
    calls = np.flatnonzero((events.category == Category.LAUNCH) & (events.correlation != UNKNOWN) & (owner != UNKNOWN))
    calls = calls[np.lexsort((calls, owner[calls], events.correlation[calls]))]
    calls = calls[begins(events.correlation[calls]) | begins(owner[calls])]
    calls = calls[np.lexsort((calls, events.correlation[calls]))]
    order = np.lexsort((rows, events.correlation[rows]))
    correlation = events.correlation[rows[order]]
    first, past = (np.searchsorted(events.correlation[calls], correlation, side) for side in ("left", "right"))
    launches, place = past - first, places_since(begins(correlation))
    alike = np.searchsorted(correlation, correlation, "right") - np.searchsorted(correlation, correlation)
    place = np.where(alike > launches, place * launches // alike, np.minimum(place, launches - 1))
    launcher = np.where(launches > 0, owner[calls[np.minimum(first + place, len(calls) - 1)]], 0) if len(calls) else 0
    is_certain = (launches == 1) | ((launches > 0) & (launches == alike))
    devices, device = np.unique(events.device[rows[order]], return_inverse=True)
    votes = np.zeros((len(devices), int(owner.max()) + 1), dtype=np.int64)
    np.add.at(votes, (device[is_certain], np.broadcast_to(launcher, len(rows))[is_certain]), 1)
    owners = np.zeros(len(rows), dtype=np.int64)
    owners[order] = np.where(is_certain | (votes.sum(axis=1) == 0)[device], launcher, votes.argmax(axis=1)[device])
    return owners
