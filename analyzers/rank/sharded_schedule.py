"""Sharded schedule: what FSDP2 asks of a device, in its host's order.

    ops              G0 O0 .. G1 O1 ..   G1 O1 G0 .. I1 R1 O0 .. I0 R0 E
    compute             oo fff   oo fff     oo    bbb ii   oo bbb ii      ooo
    all_gather       aa       aa         aa    aa
    reduce_scatter                                      rrr          rrr

G: an all-gather is asked for; O: what it gathered is copied out; I: gradients are copied in; R: their reduce-scatter is
asked for; E: compute waits for the last of them. Waits for communication are left out of the work; a replay puts them
in anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, begins, values_at
from analyzers.intervals import Intervals, union_of
from analyzers.rank.columns import (
    Activity,
    Attribution,
    Breakdown,
    Communication,
    profiler_steps,
    rows_of_communication,
)
from analyzers.rank.device_work import NEVER, DeviceWork, able_to_start, waits
from analyzers.rank.strategies import FSDP, STRATEGIES, PackedLaunches, PackingPart, host_spans, packed_launches
from analyzers.run import RankTrace
from analyzers.trace import Collective, Kind


class Op(IntEnum):
    """What FSDP2 does at one point of its step."""

    GATHER = 0
    COPY_OUT = 1
    COPIED_OUT = 2
    COPY_IN = 3
    REDUCE = 4
    END = 5


@dataclass(frozen=True, eq=False)
class ShardedSchedule:
    """The steps of one device that FSDP2 communicates in: a row each, and `first[i]:first[i + 1]` its ops, in order."""

    # A row for each op, in the order of the host.
    op: Int64
    module: Int64  # indexes `modules`, -1 for none
    backward: Int64  # 1 for those of the backward
    row: Int64  # of a GATHER or REDUCE: which of the rank's communication it is; else -1
    work_ns: Int64  # compute's work from the step's begin until the op
    beside_ns: Int64  # of that, beside communication
    long_gaps_ns: Int64  # of that, gaps between kernels that are longer than any latency
    # The latest launch since the op before, with what starting takes, less the work done when it started.
    host_ns: Int64
    launched_ns: Int64  # when it, or the first or last of its copies, was launched, from the step's begin
    own_ns: Int64  # of a GATHER: what is copied before it beside compute; of a REDUCE: what its stream does after it
    spent_ns: Int64  # of a GATHER or COPY_OUT: what it takes the host, in the window whose host is known
    # A row for each step.
    first: Int64
    step: Int64
    start_ns: Int64  # on the epoch
    span_ns: Int64
    total_ns: Int64  # work until the next step begins
    total_beside_ns: Int64
    total_long_gaps_ns: Int64
    tail_host_ns: Int64  # as host_ns, of what follows the last op
    modules: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, eq=False)
class _ShardedKernels(Columns):
    """What FSDP2 and the model run on one device, in the order of the host: rows of the trace, and whose they are.

    `asked_ns` is when the host launched each, on the clock of the window whose host is known, and `step` the profiler's
    that holds that; `launched_ns` is the same on the clock of the kernels. `part` is a PackingPart, -1 for other work,
    `module` for whom; `computes`: on the stream that most of the model's work is on.
    """

    asked_ns: Int64
    launched_ns: Int64
    start_ns: Int64
    end_ns: Int64
    step: Int64
    part: Int64
    module: Int64
    computes: Mask


@dataclass(frozen=True, eq=False)
class _Calls(Columns):
    """FSDP2's collectives, in the order of the host: which of the rank's communication each is, and for which module.

    `launched_ns` is on the clock of the kernels, `asked_ns` on that of the window whose host is known.
    """

    row: Int64
    kind: Int64
    module: Int64
    backward: Int64
    asked_ns: Int64
    launched_ns: Int64
    step: Int64

    def of(self, kind: Collective) -> _Calls:
        """Return those of one kind."""
        return self.take(self.kind == kind)


def sharded_schedule_of(
    trace: RankTrace,
    activity: Activity,
    attribution: Attribution,
    rows: Breakdown,
    comm: Communication,
) -> ShardedSchedule:
    """Build one device's schedule.

    It has no steps where FSDP2's ranges do not name what it gathers and reduces, or where it reduces otherwise (HSDP).
    """
    packed = packed_launches(attribution.host, attribution.launches)
    kernels = _kernels(trace, activity, attribution, packed)
    calls = _find_calls(trace, activity, comm, packed.modules)
    spans = host_spans(attribution.host)
    device = _follow_device(activity, kernels, comm.end_ns[calls.row])
    parts = []
    for tile in np.flatnonzero(rows.device == activity.device).tolist():
        step = int(rows.step[tile])
        ops = _build_ops(kernels.take(kernels.step == step), calls.take(calls.step == step), spans)
        if ops is not None:
            extent = int(rows.start_ns[tile]), int(rows.start_ns[tile] + rows.span_ns[tile])
            window = {name: getattr(rows, name)[tile : tile + 1] for name in ("step", "start_ns", "span_ns")}
            parts.append(_of_step(device, ops, extent) | window)
    columns = {
        field.name: np.concatenate([np.zeros(0, dtype=np.int64), *(part[field.name] for part in parts)])
        for field in fields(ShardedSchedule)
        if field.name not in ("first", "modules")
    }
    first = np.cumsum([0, *(len(part["op"]) for part in parts)])
    return ShardedSchedule(**columns, first=first, modules=packed.modules)


def _kernels(trace: RankTrace, activity: Activity, attribution: Attribution, packed: PackedLaunches) -> _ShardedKernels:
    events, rows = trace.timed, attribution.rows
    asked_ns = trace.events.launched_ns[rows]
    mine = (events.device[rows] == activity.device) & (events.kind[rows] != Kind.COMM) & (asked_ns != UNKNOWN)
    order = np.flatnonzero(mine)[np.argsort(asked_ns[mine], kind="stable")]
    chosen = rows[order]
    streams, stream = np.unique(events.stream[chosen], return_inverse=True)
    of_model_ns = np.bincount(stream, np.where(packed.part[order] < 0, events.dur_ns[chosen], 0), max(len(streams), 1))
    return _ShardedKernels(
        asked_ns=asked_ns[order],
        launched_ns=np.where(events.launched_ns[chosen] != UNKNOWN, events.launched_ns[chosen], NEVER),
        start_ns=events.start_ns[chosen],
        end_ns=events.end_ns[chosen],
        step=_steps_at(trace, asked_ns[order]),
        part=packed.part[order],
        module=packed.module[order],
        computes=stream == of_model_ns.argmax(),
    )


def _find_calls(trace: RankTrace, activity: Activity, comm: Communication, modules: tuple[str, ...]) -> _Calls:
    asked_ns = trace.events.launched_ns[rows_of_communication(trace)]
    called = (comm.strategy == STRATEGIES.index(FSDP)) & (comm.device == activity.device) & (asked_ns != UNKNOWN)
    row = np.flatnonzero(called)[np.argsort(asked_ns[called], kind="stable")]
    code_of = {name: code for code, name in enumerate(modules)}
    codes = np.array([code_of.get(name, UNKNOWN) for name in comm.owners.modules], dtype=np.int64)
    return _Calls(
        row=row,
        kind=comm.kind[row].astype(np.int64),
        module=values_at(codes, comm.owners.module[row]),
        backward=comm.owners.backward[row].astype(np.int64),
        asked_ns=asked_ns[row],
        launched_ns=comm.launched_ns[row],
        step=_steps_at(trace, asked_ns[row]),
    )


def _steps_at(trace: RankTrace, asked_ns: Int64) -> Int64:
    return profiler_steps(trace.events).number_at(asked_ns)


def _follow_device(activity: Activity, kernels: _ShardedKernels, ends_ns: Int64) -> DeviceWork:
    """Return how far the work of the stream that computes has come."""
    on_stream = kernels.take(kernels.computes)
    order = np.argsort(on_stream.start_ns, kind="stable")
    start_ns, ends_ns = on_stream.start_ns[order], np.sort(ends_ns)
    busy = union_of(start_ns, on_stream.end_ns[order])
    launched_ns = able_to_start(busy, start_ns, on_stream.launched_ns[order], ends_ns)
    stalls, host_gaps = waits(busy, start_ns, launched_ns, ends_ns)
    return DeviceWork(start_ns, launched_ns, busy, activity.comm, stalls, host_gaps)


@dataclass(frozen=True, eq=False)
class _Ops:
    """Ops of one step, in the order of the host; `at_ns` is where compute stands then, on the clock of the kernels."""

    op: Int64
    module: Int64
    backward: Int64
    row: Int64
    at_ns: Int64
    launched_ns: Int64
    own_ns: Int64
    spent_ns: Int64


@dataclass(frozen=True, eq=False)
class _Runs:
    """Copies that follow one another for one module: where each run begins and ends among the kernels, and for whom."""

    first: Int64
    last: Int64
    module: Int64


def _build_ops(kernels: _ShardedKernels, calls: _Calls, spans: dict[PackingPart, Intervals]) -> _Ops | None:
    """Return the ops of one step; None where its collectives are not those that FSDP2's ranges copy for."""
    gathers, reduces = calls.of(Collective.ALL_GATHER), calls.of(Collective.REDUCE_SCATTER)
    computing = kernels.take(kernels.computes)
    outs, ins = _find_runs(computing, PackingPart.COPY_OUT), _find_runs(computing, PackingPart.REDUCE)
    of_out = _find_partners(outs, gathers)
    if of_out is None or _find_partners(ins, reduces) is None or len(outs.module) + len(ins.module) != len(calls.row):
        return None
    done_ns = np.r_[computing.start_ns[:1], computing.end_ns]

    def stands_ns(asked_ns: Int64) -> Int64:
        """Return where compute stands when what was launched before has ended."""
        at_ns: Int64 = done_ns[np.searchsorted(computing.asked_ns, asked_ns)]
        return at_ns

    last_ns = reduces.asked_ns[-1:]
    copied = [
        (Op.COPIED_OUT, outs.module, gathers.backward[of_out], outs.last, computing.end_ns),
        (Op.COPY_IN, ins.module, np.ones_like(ins.module), ins.first, computing.start_ns),
    ]
    parts = [
        _part(op, computing.asked_ns[at], when_ns[at], computing.launched_ns[at], module=whose, backward=backward)
        for op, whose, backward, at, when_ns in copied
    ]
    out = {"module": outs.module, "backward": gathers.backward[of_out]}
    out["spent_ns"] = _spent_ns(spans[PackingPart.COPY_OUT], computing.asked_ns[outs.first])
    at = outs.first
    parts.append(_part(Op.COPY_OUT, computing.asked_ns[at], computing.start_ns[at], computing.launched_ns[at], **out))
    for op, each, own_ns in (
        (Op.GATHER, gathers, _copied_in_ns(kernels, gathers)),
        (Op.REDUCE, reduces, _following_ns(kernels, reduces)),
    ):
        called = {"module": each.module, "backward": each.backward, "row": each.row, "own_ns": own_ns}
        if op == Op.GATHER:
            called["spent_ns"] = _spent_ns(spans[PackingPart.COPY_IN], each.asked_ns)
        parts.append(_part(op, each.asked_ns, stands_ns(each.asked_ns), each.launched_ns, **called))
    parts.append(_part(Op.END, last_ns, stands_ns(last_ns), reduces.launched_ns[-1:], backward=reduces.backward[-1:]))
    return _in_order(parts)


def _part(op: Op, asked_ns: Int64, at_ns: Int64, launched_ns: Int64, **known: Int64) -> dict[str, Int64]:
    """Return columns of ops of one kind; what is not known is -1, and 0 of `own_ns` and `spent_ns`."""
    unknown = np.full(len(asked_ns), UNKNOWN, dtype=np.int64)
    columns = {"op": unknown * 0 + op, "module": unknown, "backward": unknown, "row": unknown}
    columns |= {"own_ns": unknown * 0, "spent_ns": unknown * 0}
    return columns | known | {"asked_ns": asked_ns, "at_ns": at_ns, "launched_ns": launched_ns}


def _in_order(parts: Sequence[dict[str, Int64]]) -> _Ops:
    """Return ops in the order of the host."""
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.lexsort((columns["op"], columns.pop("asked_ns")))
    return _Ops(**{name: column[order] for name, column in columns.items()})


def _find_runs(kernels: _ShardedKernels, part: PackingPart) -> _Runs:
    is_part = kernels.part == part
    label = np.where(is_part, kernels.module, -2)
    first = np.flatnonzero(begins(label) & is_part)
    last = np.flatnonzero(begins(label[::-1])[::-1] & is_part)
    return _Runs(first, last, kernels.module[first])


def _find_partners(runs: _Runs, calls: _Calls) -> Int64 | None:
    """Return the call of each run: a module's first run is of its first call, and so on. None where they do not fit."""
    of_run, of_call = (np.argsort(each.module, kind="stable") for each in (runs, calls))
    if (calls.module < 0).any() or not np.array_equal(runs.module[of_run], calls.module[of_call]):
        return None
    partners = np.empty(len(of_run), dtype=np.int64)
    partners[of_run] = of_call
    return partners


def _spent_ns(spans: Intervals, asked_ns: Int64) -> Int64:
    """Return how long each span that a launch lies in is; 0 where it lies in none."""
    at = np.searchsorted(spans.start, asked_ns, side="right") - 1
    inside = (at >= 0) & (asked_ns < values_at(spans.end, at, 0))
    return np.where(inside, values_at(spans.end - spans.start, at, 0), 0)


def _copied_in_ns(kernels: _ShardedKernels, gathers: _Calls) -> Int64:
    """Return how long copies into each all-gather take, beside compute."""
    copies = kernels.take((kernels.part == PackingPart.COPY_IN) & ~kernels.computes)
    gather = np.searchsorted(gathers.asked_ns, copies.asked_ns)
    return _add_up(copies, gather, len(gathers.row))


def _following_ns(kernels: _ShardedKernels, reduces: _Calls) -> Int64:
    """Return how long what follows each reduction on its stream takes."""
    following = kernels.take((kernels.part == PackingPart.REDUCE) & ~kernels.computes)
    return _add_up(following, np.searchsorted(reduces.asked_ns, following.asked_ns, side="right") - 1, len(reduces.row))


def _add_up(kernels: _ShardedKernels, call: Int64, calls: int) -> Int64:
    inside = (call >= 0) & (call < calls)
    dur_ns = kernels.end_ns - kernels.start_ns
    return np.bincount(call[inside], dur_ns[inside], calls).astype(np.int64)


def _of_step(device: DeviceWork, ops: _Ops, extent: tuple[int, int]) -> dict[str, Int64]:
    """Return the columns for one step, by name."""
    begin_ns, end_ns = extent
    at_ns = np.maximum.accumulate(np.clip(ops.at_ns, begin_ns, end_ns))
    host_ns = device.late_ns(begin_ns, end_ns, at_ns)
    whole = np.array([end_ns])
    return {
        "op": ops.op,
        "module": ops.module,
        "backward": ops.backward,
        "row": ops.row,
        "work_ns": device.work_ns(begin_ns, at_ns),
        "beside_ns": device.beside_ns(begin_ns, at_ns),
        "long_gaps_ns": device.long_gaps_ns(begin_ns, at_ns),
        "host_ns": host_ns[:-1],
        "launched_ns": ops.launched_ns - begin_ns,
        "own_ns": ops.own_ns,
        "spent_ns": ops.spent_ns,
        "total_ns": device.work_ns(begin_ns, whole),
        "total_beside_ns": device.beside_ns(begin_ns, whole),
        "total_long_gaps_ns": device.long_gaps_ns(begin_ns, whole),
        "tail_host_ns": host_ns[-1:],
    }
