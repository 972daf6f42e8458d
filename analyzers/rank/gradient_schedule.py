"""Gradient schedule: when each gradient becomes ready, waits for communication left out.

    compute      fffff ggg1 ggg2 gg3 ......... oo     1, 2, 3: gradients that become ready
    all_reduce                   aaaaaaa bbbbb
    work         fffff ggg1 ggg2 gg3 oo               the same without the wait, which a replay puts in anew

Gaps between kernels that no communication explains belong to the work. Where the host is the limit, a launch gives the
earliest time of what it launched, whatever communication does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, begins
from analyzers.intervals import Intervals, union_of
from analyzers.rank.columns import (
    CPU_DEVICE,
    Activity,
    Attribution,
    Breakdown,
    Communication,
    OtherLine,
    profiler_steps,
)
from analyzers.rank.ddp_reductions import Gradients, Reductions, ready_at
from analyzers.rank.device_work import NEVER, DeviceWork, able_to_start, waits
from analyzers.rank.sync_overhead import Cost, extrapolate
from analyzers.run import RankTrace
from analyzers.trace import Category, Events, Kind

# What keeps running statistics, which DDP broadcasts.
BATCH_NORM = "aten::batch_norm"


@dataclass(frozen=True, eq=False)
class Synchronized:
    """What is known of the synchronization of one rank's gradients."""

    communication: Communication
    reductions: Reductions
    gradients: Gradients
    cost: Cost


@dataclass(frozen=True)
class Delays:
    """What a device's reductions take beside their transfer, in ns: 0 where it has none.

    `begin_ns` is the median from ready and launched to the start where it stood behind no other, `call_ns` of what a
    call for one takes the host.
    """

    begin_ns: int
    call_ns: int


@dataclass(frozen=True, eq=False)
class GradientSchedule:
    """The steps of one device that take gradients: a row each, and `first[i]:first[i + 1]` its gradients, in order."""

    # A row for each gradient.
    elements: Int64
    work_ns: Int64  # from the step's begin until it is ready
    beside_ns: Int64  # of that, beside communication
    gaps_ns: Int64  # of that, between kernels
    long_gaps_ns: Int64  # of those, what is longer than any latency
    # The latest launch since the gradient before, with what starting takes, less the work done when it started.
    host_ns: Int64
    copy_ns: Int64  # to copy it out of its bucket
    reduction: Int64  # which of its step it went with, -1 for none
    # A row for each step.
    first: Int64
    step: Int64
    start_ns: Int64  # on the epoch
    span_ns: Int64
    total_ns: Int64  # work until the next step begins
    total_beside_ns: Int64
    total_gaps_ns: Int64
    total_long_gaps_ns: Int64
    tail_host_ns: Int64  # as host_ns, of what follows the last gradient
    buffers_ns: Int64  # waits before the first gradient, for the broadcast of buffers
    host_gap_ns: Int64  # waits for launches
    packing_ns: Int64  # what it does only because gradients are synchronized
    contention_ns: Int64  # how much longer compute is beside communication, NOT_KNOWN where nothing tells
    longer_gaps_ns: Int64  # how much longer gaps between kernels are there
    overlapped_ns: Int64  # communication beside kernels that compute
    norms: Int64  # batch norms that it runs
    passes: Int64  # backward passes, of which the last one's gradients are synchronized
    delays: Delays

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, eq=False)
class _DeviceReductions(DeviceWork):
    """One device's work; `packs`: rows that copy gradients into or out of buckets."""

    packs: Mask


def schedule_of(
    trace: RankTrace, activity: Activity, attribution: Attribution, rows: Breakdown, measured: Synchronized
) -> GradientSchedule:
    """Build one device's schedule; it has no steps where no gradients are taken or their kernels are not known."""
    gradients = measured.gradients
    node = gradients.row
    ready_ns = ready_at(trace, attribution, trace.events.thread[node], trace.events.end_ns[node])
    device = _gather_device(trace, activity, attribution, measured.communication, _find_backwards(gradients, ready_ns))
    norm_steps = np.sort(_steps_of(trace.events, BATCH_NORM))
    by_step = np.argsort(gradients.step, kind="stable")
    parts = []
    for tile in np.flatnonzero(rows.device == activity.device).tolist():
        in_step = by_step[_find_equal(gradients.step[by_step], rows.step[tile])]
        passes = gradients.pass_[in_step]
        # With accumulated gradients those of the last backward pass are what is synchronized.
        in_step = in_step[passes == passes.max(initial=0)]
        if len(in_step) and (ready_ns[in_step] != UNKNOWN).all() and (gradients.elements[in_step] > 0).all():
            extent = int(rows.start_ns[tile]), int(rows.start_ns[tile] + rows.span_ns[tile])
            taken = _StepGradients(
                np.maximum.accumulate(ready_ns[in_step]), gradients.elements[in_step], gradients.reduction[in_step]
            )
            parts.append(
                _of_step(device, extent, taken)
                | _of_window(rows, measured.cost, tile)
                | {"norms": np.array([len(norm_steps[_find_equal(norm_steps, rows.step[tile])])])}
                | {"passes": np.array([len(np.unique(passes))])}
            )
    count = [len(part["elements"]) for part in parts]
    columns = {
        field.name: np.concatenate([np.zeros(0, dtype=np.int64), *(part[field.name] for part in parts)])
        for field in fields(GradientSchedule)
        if field.name not in ("first", "delays")
    }
    return GradientSchedule(**columns, first=np.cumsum([0, *count]), delays=_find_delays(trace, attribution, measured))


def _find_equal(ordered: Int64, value: int) -> slice:
    """Return where a value stands in a sorted column."""
    return slice(*np.searchsorted(ordered, [value, value + 1]).tolist())


def _find_backwards(gradients: Gradients, ready_ns: Int64) -> Intervals:
    """Return the time from each step's first gradient to its last: there DDP's compute waits for no communication."""
    timed = np.flatnonzero(ready_ns != UNKNOWN)
    order = timed[np.lexsort((ready_ns[timed], gradients.step[timed]))]
    first = begins(gradients.step[order])
    return union_of(ready_ns[order][first], ready_ns[order][np.r_[first[1:], True][: len(order)]])


def _gather_device(
    trace: RankTrace, activity: Activity, attribution: Attribution, comm: Communication, backwards: Intervals
) -> _DeviceReductions:
    events, rows = trace.timed, attribution.rows
    ends_ns = np.sort(comm.end_ns[comm.device == activity.device])
    if activity.device == CPU_DEVICE:
        # What runs on the host waits for no launch.
        busy = activity.compute
        start_ns, launched_ns = busy.start, np.full(len(busy), NEVER)
        packs = np.zeros(len(busy), dtype=bool)
    else:
        mine = (events.device[rows] == activity.device) & (events.kind[rows] != Kind.COMM)
        order = np.argsort(events.start_ns[rows[mine]], kind="stable")
        chosen = rows[mine][order]
        busy = activity.compute | activity.copy
        start_ns = events.start_ns[chosen]
        launched_ns = np.where(events.launched_ns[chosen] != UNKNOWN, events.launched_ns[chosen], NEVER)
        launched_ns = able_to_start(busy, start_ns, launched_ns, ends_ns)
        packs = ((attribution.line == OtherLine.PACKING) & attribution.backward)[mine][order]
    stalls, host_gaps = waits(busy, start_ns, launched_ns, ends_ns)
    return _DeviceReductions(start_ns, launched_ns, busy, activity.comm, stalls - backwards, host_gaps, packs)


def _steps_of(events: Events, operator: str) -> Int64:
    """Return the step for each run of an operator."""
    rows = np.flatnonzero((events.category == Category.OPERATOR) & (events.named(operator)))
    return profiler_steps(events).number_at(events.start_ns[rows])


@dataclass(frozen=True, eq=False)
class _StepGradients:
    """The gradients of one step: when ready, how large, and with which reduction each went."""

    ready_ns: Int64
    elements: Int64
    reduction: Int64


def _of_step(device: _DeviceReductions, extent: tuple[int, int], taken: _StepGradients) -> dict[str, Int64]:
    """Return the columns for one step, by name."""
    begin_ns, end_ns = extent
    inside = slice(*np.searchsorted(device.start_ns, [begin_ns, end_ns]).tolist())
    host_ns = device.late_ns(begin_ns, end_ns, taken.ready_ns)
    ready_ns, whole = np.minimum(taken.ready_ns, end_ns), np.array([end_ns])
    none = np.array([begin_ns])
    forward_end = ready_ns[:1]
    return {
        "elements": taken.elements,
        "work_ns": device.work_ns(begin_ns, ready_ns),
        "beside_ns": device.beside_ns(begin_ns, ready_ns),
        "gaps_ns": device.gaps_ns(begin_ns, ready_ns),
        "long_gaps_ns": device.long_gaps_ns(begin_ns, ready_ns),
        "host_ns": host_ns[:-1],
        "copy_ns": _copies_out(device, inside, extent, taken),
        "reduction": _number_reductions(taken.reduction),
        "total_ns": device.work_ns(begin_ns, whole),
        "total_beside_ns": device.beside_ns(begin_ns, whole),
        "total_gaps_ns": device.gaps_ns(begin_ns, whole),
        "total_long_gaps_ns": device.long_gaps_ns(begin_ns, whole),
        "longer_gaps_ns": np.array([device.longer_gaps_ns(begin_ns, end_ns)]),
        "tail_host_ns": host_ns[-1:],
        "buffers_ns": device.stalls.length_within(none, forward_end),
        "host_gap_ns": device.host_gaps.length_within(none, whole),
    }


def _number_reductions(reduction: Int64) -> Int64:
    """Return reductions counted from the step's first."""
    reduced = reduction >= 0
    return np.where(reduced, reduction - reduction[reduced].min(initial=np.iinfo(np.int64).max), UNKNOWN)


def _copies_out(device: _DeviceReductions, inside: slice, extent: tuple[int, int], taken: _StepGradients) -> Int64:
    """Return the time to copy each gradient out of its bucket: gaps included, by order, else by size."""
    begin_ns, end_ns = extent
    start_ns = np.r_[device.start_ns[inside], end_ns]
    copies = np.flatnonzero(device.packs[inside] & (start_ns[:-1] >= taken.ready_ns[-1]))
    each_ns: Int64 = device.work_ns(begin_ns, start_ns[copies + 1]) - device.work_ns(begin_ns, start_ns[copies])
    if len(copies) == len(taken.elements):
        return each_ns
    share = np.cumsum(taken.elements) / taken.elements.sum()
    by_size: Int64 = np.diff(np.rint(share * each_ns.sum()).astype(np.int64), prepend=0)
    return by_size


def _of_window(rows: Breakdown, cost: Cost, tile: int) -> dict[str, Int64]:
    one = slice(tile, tile + 1)
    packing_ns = cost.packing_alone_ns[one] + cost.packing_copies_ns[one] + cost.packing_idle_ns[one]
    return {
        "step": rows.step[one],
        "start_ns": rows.start_ns[one],
        "span_ns": rows.span_ns[one],
        "overlapped_ns": rows.overlapped_comm_ns[one],
        "packing_ns": packing_ns,
        "contention_ns": extrapolate(cost, one),
    }


def _find_delays(trace: RankTrace, attribution: Attribution, measured: Synchronized) -> Delays:
    reduced, comm = measured.reductions, measured.communication
    begin_ns = comm.start_ns[reduced.kernel] - np.maximum(reduced.ready_ns, reduced.launched_ns)
    free = (reduced.ready_ns != UNKNOWN) & (begin_ns >= 0) & ~queued(comm, reduced)
    return Delays(begin_ns=_median(begin_ns[free]), call_ns=_call_ns(trace, attribution, measured))


def queued(comm: Communication, reduced: Reductions) -> Mask:
    """Whether reductions were ready and launched before the previous one on the device had ended."""
    end_ns = comm.end_ns[reduced.kernel]
    before_ns = np.r_[NEVER, end_ns[:-1]][: len(end_ns)]
    behind: Mask = (reduced.ready_ns != UNKNOWN) & (before_ns > np.maximum(reduced.ready_ns, reduced.launched_ns))
    return behind


def _call_ns(trace: RankTrace, attribution: Attribution, measured: Synchronized) -> int:
    """Return how much longer the host takes from launch to launch where a reduction is called for."""
    ran = (attribution.launches >= 0) & trace.timed.on_device[attribution.rows]
    rows, launches = attribution.rows[ran], attribution.launches[ran]
    # Estimates lie near the starts of kernels: how long the host takes is the full window's, where it alone tells.
    launched = trace.events.launched_ns if trace.has_estimated_launches else trace.timed.launched_ns
    thread, launched_ns = trace.events.thread[launches], launched[rows]
    order = np.lexsort((launched_ns, thread))
    gaps = np.diff(launched_ns[order])
    gaps[np.diff(thread[order]) != 0] = 0
    is_call = np.isin(
        trace.timed.correlation[rows[order]], measured.communication.correlation[measured.reductions.kernel]
    )
    calls = np.flatnonzero(is_call[1:-1]) + 1
    if not len(calls):
        return 0
    return max(_median(gaps[calls - 1] + gaps[calls]) - 2 * _median(gaps[gaps > 0]), 0)


def _median(values: Int64) -> int:
    return int(np.median(values)) if len(values) else 0
