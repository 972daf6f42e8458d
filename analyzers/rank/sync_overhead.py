"""Overhead of gradient synchronization: packing, idle time, contention.

    compute     aaa p bbbbbb  cccc       p: a copy into a bucket, and the gap before it
    all_reduce          ####             b beside it takes longer than without: contention

Where the run holds a window without synchronization, its k-th launch is compared with the k-th of the step. Else the
same kernel (name, grid, block, parameters of its layer) with and without communication beside it: an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask, distinct, find, medians
from analyzers.intervals import Intervals, union_of
from analyzers.rank.columns import CPU_DEVICE, Activity, Attribution, Breakdown, OtherLine, breakdown
from analyzers.rank.ddp_reductions import Gradients
from analyzers.run import NOSYNC, Joined, Mismatch, RankTrace, retime
from analyzers.trace import Events, Kind

# Contention may be negative.
NOT_KNOWN = np.iinfo(np.int64).min
# What a device needs from one kernel to the next, where the host is ahead, is a few microseconds.
SHORT_GAP_NS = 20_000
# A kernel's length without communication beside it is known from so many of its like.
FEWEST_ALIKE = 3
# Of the compute beside communication so much must have been compared before it speaks for all.
FEWEST_COMPARED = 0.5


@dataclass(frozen=True, eq=False)
class Cost:
    """A value for each window of a rank, ns.

    `packing_alone_ns` is packing that runs beside no other compute, `packing_copies_ns` its memcpys beside nothing, and
    `packing_idle_ns` short gaps right before packing or communication. Of the memcpys there are `buffer_copies` in the
    forward and `gradient_copies` in the backward, which take, gaps included, `buffer_copies_ns` and
    `gradient_copies_ns`. `contention_ns` is how much longer kernels beside communication took, `beside_ns` how long
    they took, `compared_ns` those of them that were compared; NOT_KNOWN where those are too few. `idle_change_ns` and
    `span_change_ns` are how much longer idle time and the whole are than in the window without synchronization;
    `is_estimate`: there is none.
    """

    packing_alone_ns: Int64
    packing_copies_ns: Int64
    packing_idle_ns: Int64
    buffer_copies: Int64
    buffer_copies_ns: Int64
    gradient_copies: Int64
    gradient_copies_ns: Int64
    contention_ns: Int64
    beside_ns: Int64
    compared_ns: Int64
    idle_change_ns: Int64
    span_change_ns: Int64
    has_change: Mask
    is_estimate: bool
    mismatch: str | None = None


def cost(
    trace: RankTrace, devices: Sequence[Activity], attribution: Attribution, rows: Breakdown, gradients: Gradients
) -> Cost:
    """Return the cost of synchronization in every window of a rank."""
    packs = np.zeros(len(trace.timed), dtype=bool)
    packs[attribution.rows[attribution.line == OtherLine.PACKING]] = True
    backward = np.zeros(len(trace.timed), dtype=bool)
    backward[attribution.rows] = attribution.backward
    columns = {name: np.full(len(rows), 0, dtype=np.int64) for name in _LENGTHS}
    columns["contention_ns"][:] = NOT_KNOWN
    quiet = _retime_quiet(trace, packs)
    alone = quiet if isinstance(quiet, Joined) else None
    for activity in devices:
        if activity.device == CPU_DEVICE:
            continue  # the host is the device: what runs beside gloo's threads is not told by kernels
        tiles = np.flatnonzero(rows.device == activity.device)
        begin, stop = rows.start_ns[tiles], rows.start_ns[tiles] + rows.span_ns[tiles]
        for name, time in _find_packing(trace.timed, activity, packs, backward).items():
            columns[name][tiles] = time.length_within(begin, stop)
        for name, rows_of in (("buffer_copies", packs & ~backward), ("gradient_copies", packs & backward)):
            columns[name][tiles] = _count_copies(trace.timed, activity.device, rows_of, (begin, stop))
        kernels = _find_compute(trace.timed, activity.device, ~packs)
        usual_ns = _quiet_lengths(trace, packs, kernels, alone.light) if alone is not None else None
        if usual_ns is None:
            usual_ns = _usual_lengths(trace, activity, attribution, gradients, kernels)
        for name, values in _compare_kernels(trace.timed, activity, kernels, usual_ns, (begin, stop)).items():
            columns[name][tiles] = values
    idle_change_ns, span_change_ns, has_change = _measure_changes(trace, rows, alone)
    return Cost(
        **columns,
        idle_change_ns=idle_change_ns,
        span_change_ns=span_change_ns,
        has_change=has_change,
        is_estimate=alone is None,
        mismatch=quiet.reason if isinstance(quiet, Mismatch) else None,
    )


_LENGTHS = (
    *("packing_alone_ns", "packing_copies_ns", "packing_idle_ns"),
    *("buffer_copies", "buffer_copies_ns", "gradient_copies", "gradient_copies_ns"),
    *("contention_ns", "beside_ns", "compared_ns"),
)


def _find_packing(events: Events, activity: Activity, packs: Mask, backward: Mask) -> dict[str, Intervals]:
    ran = np.flatnonzero(events.on_device & ((events.device == activity.device) | (events.peer == activity.device)))
    start_ns, end_ns, kind = events.start_ns[ran], events.end_ns[ran], events.kind[ran]
    packs, backward = packs[ran], backward[ran]

    def covered(rows: Mask) -> Intervals:
        return union_of(start_ns[rows], end_ns[rows])

    compute, copy = kind == Kind.COMPUTE, kind == Kind.COPY
    busy = activity.busy

    def idle_before(rows: Mask) -> Intervals:
        """Return the short gaps that rows end; a longer one is the host's."""
        ended = find(np.sort(start_ns[rows]), busy.start[1:]) >= 0
        ended &= busy.start[1:] - busy.end[:-1] < SHORT_GAP_NS
        return union_of(busy.end[:-1][ended], busy.start[1:][ended])

    def copies(rows: Mask) -> Intervals:
        return covered(copy & rows) - (activity.compute | activity.comm)

    return {
        "packing_alone_ns": covered(compute & packs) - covered(compute & ~packs),
        "packing_copies_ns": copies(packs),
        "packing_idle_ns": idle_before(packs | (kind == Kind.COMM)),
        "buffer_copies_ns": copies(packs & ~backward) | idle_before(copy & packs & ~backward),
        "gradient_copies_ns": copies(packs & backward) | idle_before(copy & packs & backward),
    }


def _count_copies(events: Events, device: int, packs: Mask, tiles: tuple[Int64, Int64]) -> Int64:
    """Return the packing memcpys that began in each window."""
    start = np.sort(events.start_ns[packs & (events.kind == Kind.COPY) & (events.device == device)])
    counted: Int64 = np.searchsorted(start, tiles[1]) - np.searchsorted(start, tiles[0])
    return counted


def _find_compute(events: Events, device: int, chosen: Mask) -> Int64:
    return np.flatnonzero((events.kind == Kind.COMPUTE) & (events.device == device) & chosen)


def _retime_quiet(trace: RankTrace, packs: Mask) -> Joined | Mismatch | None:
    """Return rows without communication and packing, at the times of the window without synchronization."""
    if trace.nosync is None or trace.is_cpu_run:
        return None
    retimed = retime(trace.events.take(_is_kept(trace.events, packs)), trace.nosync, NOSYNC)
    if isinstance(retimed, Mismatch):
        return Mismatch(f"{retimed.reason}, packing and communication left out")
    return retimed


def _is_kept(events: Events, packs: Mask) -> Mask:
    kept: Mask = ~(packs | (events.kind == Kind.COMM))
    return kept


def _quiet_lengths(trace: RankTrace, packs: Mask, kernels: Int64, quiet: Events) -> NDArray[np.float64]:
    """Return how long each kernel takes without synchronization, NaN for those that are not in that window."""
    position = (np.cumsum(_is_kept(trace.events, packs)) - 1)[kernels]
    return np.where(quiet.on_device[position], quiet.dur_ns[position], np.nan)


def _usual_lengths(
    trace: RankTrace, activity: Activity, attribution: Attribution, gradients: Gradients, kernels: Int64
) -> NDArray[np.float64]:
    """Return each kernel's usual length: the median of its like without communication; NaN for too few."""
    events = trace.timed
    line = np.full(len(events), UNKNOWN, dtype=np.int64)
    line[attribution.rows] = 2 * _encode_alike(attribution, gradients)[attribution.line] + attribution.backward
    usual = np.full(len(kernels), np.nan)
    if not len(kernels):
        return usual
    key = distinct(events.name[kernels], events.grid[kernels], line[kernels]).index
    free = activity.comm.length_within(events.start_ns[kernels], events.end_ns[kernels]) == 0
    free &= events.grid[kernels] != UNKNOWN  # where no grids were recorded, names alone do not make kernels alike
    median = medians(events.dur_ns[kernels][free], key[free], int(key.max()) + 1)
    median[np.bincount(key[free], minlength=len(median)) < FEWEST_ALIKE] = np.nan
    return median[key]


def _encode_alike(attribution: Attribution, gradients: Gradients) -> Int64:
    """Return a code for each line, equal for layers whose parameters have equal shapes; without any, by type."""
    shapes: dict[int, set[int]] = {}
    for line, shape in set(zip(gradients.line.tolist(), gradients.shape.tolist(), strict=True)):
        shapes.setdefault(line, set()).add(shape)
    codes: dict[tuple[str, frozenset[int]], int] = {}
    keys = [(module.type, frozenset(shapes.get(code, ()))) for code, module in enumerate(attribution.lines)]
    return np.array([codes.setdefault(key, len(codes)) for key in keys], dtype=np.int64)


def _compare_kernels(
    events: Events, activity: Activity, kernels: Int64, usual_ns: NDArray[np.float64], tiles: tuple[Int64, Int64]
) -> dict[str, Int64]:
    """Compare, in each window, the kernels that began in it and ran beside communication with their usual lengths."""
    begin, stop = tiles
    start, end = events.start_ns[kernels], events.end_ns[kernels]
    window = np.searchsorted(begin, start, side="right") - 1
    inside = (window >= 0) & (start < stop[window])
    inside &= activity.comm.length_within(start, end) > 0
    comparable = inside & ~np.isnan(usual_ns)
    dur_ns = events.dur_ns[kernels]
    longer = np.where(comparable, dur_ns - np.nan_to_num(usual_ns), 0)

    def summed(chosen: Mask, values: NDArray[np.float64] | Int64) -> Int64:
        total = np.bincount(window[chosen], weights=values[chosen], minlength=len(begin))
        return np.rint(total).astype(np.int64)

    beside_ns, compared_ns = summed(inside, dur_ns), summed(comparable, dur_ns)
    contention_ns = np.where(compared_ns < FEWEST_COMPARED * beside_ns, NOT_KNOWN, summed(comparable, longer))
    return {"contention_ns": contention_ns, "beside_ns": beside_ns, "compared_ns": compared_ns}


def _measure_changes(trace: RankTrace, rows: Breakdown, quiet: Joined | None) -> tuple[Int64, Int64, Mask]:
    """Return how windows' idle time and span differ from the same step without synchronization, and where known."""
    idle_ns, span_ns = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    has_change = np.zeros(len(rows), dtype=bool)
    if quiet is None:
        return idle_ns, span_ns, has_change
    without = breakdown(replace(trace, events=quiet.full, timed=quiet.light, nosync=None))
    same = dict(zip(_list_windows(without), range(len(without)), strict=True))
    for window, key in enumerate(_list_windows(rows)):
        if key in same:
            idle_ns[window] = rows.idle_ns[window] - without.idle_ns[same[key]]
            span_ns[window] = rows.span_ns[window] - without.span_ns[same[key]]
            has_change[window] = True
    return idle_ns, span_ns, has_change


def _list_windows(rows: Breakdown) -> list[tuple[int, int]]:
    return list(zip(rows.device.tolist(), rows.step.tolist(), strict=True))
