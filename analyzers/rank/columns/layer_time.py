"""Compute time of each layer per window, alone and concurrent with communication.

kernels      aaaabbbb..ccc        an instant covered by two belongs to the earlier-started,
pieces       aaaabbbb..ccc        so that the lines of a window add up to its compute
all_reduce   ......####....       2 of its 4 under b, 1 under c, 1 exposed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzers.arrays import (
    UNKNOWN,
    Columns,
    Int64,
    Mask,
    begins,
    distinct,
    places_since,
    rows_by,
    sorted_set,
    values_at,
)
from analyzers.intervals import Intervals, crossings, owned, union_of
from analyzers.rank.columns.activity import CPU_DEVICE, Activity, activities
from analyzers.rank.columns.attribution import Attribution, OtherLine, attribution
from analyzers.rank.columns.communication import Communication
from analyzers.rank.columns.time_breakdown import Breakdown, breakdown, extents
from analyzers.rank.host import LayerSource, Places, innermost
from analyzers.rank.kernels import CountedOperators, Launched, Ranked, kernel_ranking, operator_ranking, with_count
from analyzers.rank.strategies import ATTENTION, COMPILED_CODE, GRAPH_LAUNCH, PackingPart, Purpose, packed_launches
from analyzers.run import RankTrace
from analyzers.trace import Category, Events, Kind, Module


@dataclass(frozen=True, eq=False)
class Parts(Columns):
    """Lengths of time by line: `of` is what they are parts of (a window, a kernel), `backward` which pass; ns."""

    of: Int64
    line: Int64
    backward: Mask
    ns: Int64


@dataclass(frozen=True, eq=False)
class LayerPieces:
    """A device's activity of one kind in disjoint pieces, by start, with the line and the pass of each."""

    start: Int64
    end: Int64
    line: Int64
    backward: Mask

    def merged(self) -> LayerPieces:
        """Return the same time in fewer pieces: those that touch and share line and pass become one."""
        touches = (self.start[1:] == self.end[:-1]) & (self.line[1:] == self.line[:-1])
        opens = np.r_[True, ~(touches & (self.backward[1:] == self.backward[:-1]))][: len(self.start)]
        closes = np.r_[opens[1:], True][: len(self.start)]
        return LayerPieces(self.start[opens], self.end[closes], self.line[opens], self.backward[opens])


@dataclass(frozen=True, eq=False)
class PackedModules(Columns):
    """FSDP's packing on a rank's devices: `of` a window, for a module (indexes `modules`, -1), by PackingPart; ns.

    An instant that two kernels cover is the earlier-started's, so that a window's parts add up to their union.
    """

    of: Int64
    module: Int64
    part: Int64
    ns: Int64
    modules: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Work:
    """One rank's compute by line.

    `windows` parts each window (a row of the breakdown), `copies` its memcpys and memsets, `attention` what attention's
    operators launched, where a sequence is spread over ranks; `beside` each row of communication: the compute that ran
    beside it, on its own device. `packing_ns`, a value each window, is the union of what exists only for communication;
    `packed` is what of it FSDP does for its modules.
    """

    lines: tuple[Module, ...]
    source: LayerSource
    windows: Parts
    copies: Parts
    attention: Parts
    beside: Parts
    packing_ns: Int64
    packed: PackedModules


def work(
    trace: RankTrace, devices: Sequence[Activity], attribution: Attribution, rows: Breakdown, comm: Communication
) -> Work:
    """Return the compute on a rank's devices by line."""
    parts: list[Parts] = []
    copies: list[Parts] = []
    attention: list[Parts] = []
    attends = _is_attention(trace, attribution, comm)
    beside: list[Parts] = []
    packing_ns = np.zeros(len(rows), dtype=np.int64)
    for activity in devices:
        parted = pieces(trace, activity, attribution)
        tiles = np.flatnonzero(rows.device == activity.device)
        begin, stop = rows.start_ns[tiles], rows.start_ns[tiles] + rows.span_ns[tiles]
        parts.append(_in_windows(parted, tiles, begin, stop))
        copies.append(_in_windows(_find_copies(trace, activity, attribution), tiles, begin, stop))
        attending = attends & (trace.timed.device[attribution.rows] == activity.device)
        attention.append(_in_windows(_list_owned(trace.timed, attribution, attending), tiles, begin, stop))
        kernels = np.flatnonzero(comm.device == activity.device)
        met = crossings(comm.start_ns[kernels], comm.end_ns[kernels], parted.start, parted.end)
        line, backward = parted.line[met.theirs], parted.backward[met.theirs]
        beside.append(_sum_parts(kernels[met.mine], line, backward, met.end - met.start))
        packing_ns[tiles] = _find_packing(trace, activity, attribution, parted).length_within(begin, stop)
    return Work(
        lines=attribution.lines,
        source=attribution.source,
        windows=_join_parts(parts),
        copies=_join_parts(copies),
        attention=_join_parts(attention),
        beside=_join_parts(beside),
        packing_ns=packing_ns,
        packed=_packed_modules(trace, devices, attribution, rows),
    )


def _is_attention(trace: RankTrace, attribution: Attribution, comm: Communication) -> Mask:
    """Whether attention's operators launched each of a rank's kernels; of none where nothing communicates for them."""
    if trace.is_cpu_run or not (comm.purpose == Purpose.ATTENTION).any():
        return np.zeros(len(attribution.rows), dtype=bool)
    computes: Mask = trace.timed.kind[attribution.rows] == Kind.COMPUTE
    return computes & attribution.host.inside_any(attribution.places, ATTENTION)


def launched(
    trace: RankTrace, devices: Sequence[Activity], attribution: Attribution
) -> tuple[CountedOperators, Launched]:
    """Return the operators whose FLOPs are counted, and what all operators launched; on a CPU run the operators."""
    events, host = trace.events, attribution.host
    counted = with_count(events)
    if trace.is_cpu_run:
        return counted, _ran_itself(trace, devices[0], attribution, counted)
    ran = trace.timed.on_device[attribution.rows]
    counted_call = host.around(attribution.places, counted.row)
    # An operator of which these times lack a kernel did not take as long as its FLOPs did.
    counted_call[np.isin(counted_call, counted_call[~ran])] = UNKNOWN
    rows, launches = attribution.rows[ran], attribution.launches[ran]
    operators, places = np.flatnonzero(events.category == Category.OPERATOR), host.places(launches)
    return counted, Launched(
        device=trace.timed.device[rows].astype(np.int64),
        start_ns=trace.timed.start_ns[rows],
        end_ns=trace.timed.end_ns[rows],
        kind=trace.timed.kind[rows].astype(np.int64),
        name=events.name[rows].astype(np.int64),
        launch=launches,
        operator=host.around(places, operators),
        counted=counted_call[ran],
        line=attribution.line[ran],
        **_find_regions(trace, attribution, rows, (launches, places), attribution.line[ran]),
    )


def _find_regions(
    trace: RankTrace, attribution: Attribution, rows: Int64, launched: tuple[Int64, Places], line: Int64
) -> dict[str, Int64]:
    """Return which rows compiled code or CUDA graphs launched, by line, and each one's place in its graph.

    A replay's kernels carry nothing of their own but their order: the k-th of a graph is the k-th of its next replay.
    """
    events, (launches, places) = attribution.host.events, launched
    named = np.array([name.startswith(GRAPH_LAUNCH) for name in events.names], dtype=bool)
    in_graph = (launches >= 0) & named[events.name[launches]]
    compiled = attribution.host.inside(places, *COMPILED_CODE)
    graph = np.flatnonzero(in_graph)
    order = graph[np.lexsort((rows[graph], trace.timed.start_ns[rows[graph]], launches[graph]))]
    place = np.full(len(rows), UNKNOWN, dtype=np.int64)
    place[order] = places_since(begins(launches[order]))
    return {"region": np.where(in_graph | compiled, line, UNKNOWN), "place": place}


def kernel_times(trace: RankTrace, of: Literal["kernels", "operators"] = "kernels") -> list[Ranked]:
    """Return every kernel of a rank, or every operator by what it launched, by the layer that it belongs to.

    All of them, the longest first; their shares are of all of the rank's device time, durations added up.
    """
    attributed, windows = attribution(trace), breakdown(trace)
    counted, rows = launched(trace, activities(trace), attributed)
    ranking = kernel_ranking if of == "kernels" else operator_ranking
    return ranking(counted.events, rows.within(extents(windows)), [line.name for line in attributed.lines])


def _ran_itself(trace: RankTrace, activity: Activity, attribution: Attribution, counted: CountedOperators) -> Launched:
    """Return when each operator of a CPU run itself computed: where several threads do, the earlier-started counts."""
    start, end, row = _innermost_operators(trace.timed, attribution.rows)
    piece = crossings(start, end, activity.compute.start, activity.compute.end)
    row = row[piece.mine]
    around = attribution.host.spans(counted.row).around(Places(trace.events.thread[row], piece.start))
    return Launched(
        device=np.full(len(row), CPU_DEVICE),
        start_ns=piece.start,
        end_ns=piece.end,
        kind=np.full(len(row), int(Kind.COMPUTE)),
        name=np.full(len(row), UNKNOWN),
        launch=row,
        operator=row,
        counted=values_at(counted.row, around),
        line=attribution.line[np.searchsorted(attribution.rows, row)],
        region=np.full(len(row), UNKNOWN),
        place=np.full(len(row), UNKNOWN),
    )


def pieces(trace: RankTrace, activity: Activity, attribution: Attribution) -> LayerPieces:
    """Return a device's compute; its pieces cover all of it."""
    if activity.device != CPU_DEVICE:
        mine = trace.timed.device[attribution.rows] == activity.device
        return _list_owned(trace.timed, attribution, mine & (trace.timed.kind[attribution.rows] == Kind.COMPUTE))
    start, end, row = _innermost_operators(trace.timed, attribution.rows)
    piece = crossings(start, end, activity.compute.start, activity.compute.end)
    owner = np.searchsorted(attribution.rows, row[piece.mine])
    return LayerPieces(piece.start, piece.end, attribution.line[owner], attribution.backward[owner])


def _find_copies(trace: RankTrace, activity: Activity, attribution: Attribution) -> LayerPieces:
    """Return a device's copies, for a CPU none."""
    events, rows = trace.timed, attribution.rows
    on_device = (events.device[rows] == activity.device) | (events.peer[rows] == activity.device)
    return _list_owned(events, attribution, on_device & (events.kind[rows] == Kind.COPY))


def _list_owned(events: Events, attribution: Attribution, chosen: Mask) -> LayerPieces:
    rows = np.flatnonzero(chosen)
    start, end, index = owned(events.start_ns[attribution.rows[rows]], events.end_ns[attribution.rows[rows]])
    return LayerPieces(start, end, attribution.line[rows[index]], attribution.backward[rows[index]])


def _innermost_operators(events: Events, rows: Int64) -> tuple[Int64, Int64, Int64]:
    """Return when each operator itself ran, without those inside it: pieces by start, and their rows."""
    parts = []
    for places in rows_by(events.thread[rows]).values():
        on_thread = rows[places]
        edges = sorted_set(np.r_[events.start_ns[on_thread], events.end_ns[on_thread]])
        running = innermost(events.start_ns[on_thread], events.end_ns[on_thread], edges[:-1], on_thread)
        parts.append(np.stack([edges[:-1], edges[1:], running])[:, running != UNKNOWN])
    start, end, row = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), dtype=np.int64)
    begin, stop, index = owned(start, end)
    return begin, stop, row[index]


def _find_packing(trace: RankTrace, activity: Activity, attribution: Attribution, parted: LayerPieces) -> Intervals:
    events = trace.timed
    if activity.device == CPU_DEVICE:
        packs = parted.line == OtherLine.PACKING
        return union_of(parted.start[packs], parted.end[packs])
    rows = attribution.rows[attribution.line == OtherLine.PACKING]
    rows = rows[(events.kind[rows] == Kind.COMPUTE) & (events.device[rows] == activity.device)]
    return union_of(events.start_ns[rows], events.end_ns[rows])


def _packed_modules(
    trace: RankTrace, devices: Sequence[Activity], attribution: Attribution, rows: Breakdown
) -> PackedModules:
    """Return FSDP's packing by module, in windows; on a CPU run, whose kernels are operators, none."""
    events, launched_by = trace.timed, packed_launches(attribution.host, attribution.launches)
    packs = (attribution.line == OtherLine.PACKING) & (launched_by.part >= 0) & (not trace.is_cpu_run)
    parts = []
    for activity in devices:
        chosen = packs & (events.kind[attribution.rows] == Kind.COMPUTE)
        chosen &= events.device[attribution.rows] == activity.device
        kernels = np.flatnonzero(chosen)
        start, end, index = owned(events.start_ns[attribution.rows[kernels]], events.end_ns[attribution.rows[kernels]])
        key = launched_by.module[kernels[index]] * len(PackingPart) + launched_by.part[kernels[index]]
        tiles = np.flatnonzero(rows.device == activity.device)
        pieces_of = LayerPieces(start, end, key, np.zeros(len(key), dtype=bool))
        parts.append(_in_windows(pieces_of, tiles, rows.start_ns[tiles], rows.start_ns[tiles] + rows.span_ns[tiles]))
    total = _join_parts(parts)
    module, part = total.line // len(PackingPart), total.line % len(PackingPart)
    return PackedModules(total.of, module, part, total.ns, launched_by.modules)


def _in_windows(parted: LayerPieces, tiles: Int64, begin: Int64, stop: Int64) -> Parts:
    """Return the parts that lie in windows, rows `tiles` of the breakdown, which run from `begin` to `stop`."""
    met = crossings(parted.start, parted.end, begin, stop)
    line, backward = parted.line[met.mine], parted.backward[met.mine]
    return _sum_parts(tiles[met.theirs], line, backward, met.end - met.start)


def _sum_parts(whole: Int64, line: Int64, backward: Mask, ns: Int64) -> Parts:
    """Return one row for each distinct part, lengths added."""
    parts = distinct(whole, line, backward.astype(np.int64))
    whole, line, is_backward = parts.columns
    return Parts(whole, line, is_backward.astype(bool), parts.summed(ns))


def _join_parts(parts: Sequence[Parts]) -> Parts:
    none = np.zeros(0, dtype=np.int64)
    return Parts.joined([Parts(none, none, none.astype(bool), none), *parts])
