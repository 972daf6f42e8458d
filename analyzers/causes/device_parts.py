"""Parts of the replayed step, by the function of windows.

replayed    |####cc..#####wwtt...|####cc..#####wwtt...|     what runs past the end of a round is folded to its beginning
folded      |####cc..#####wwtt...|
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, rows_by
from analyzers.causes.model import Model
from analyzers.intervals import Intervals, union_of
from analyzers.rank import EdgeKind
from analyzers.step_parts import COMPUTE, COPY, IDLE, TRANSFER, UNRESOLVED, WAITING
from analyzers.trace import Kind


def replayed_parts(model: Model) -> dict[str, float] | None:
    """Return the parts of the typical step in its likeliest variant, ns: the mean over devices; they add up to it.

    None for a CPU run, whose device is its host.
    """
    if any(part.on_host for part in model.graph.parts):
        return None
    ran = _replayed(model)
    steps = len(model.calibrated.course.steps)
    round_ns = round(float(model.step_lengths[:, 0].sum()))
    devices = distinct(ran.rank, ran.device)
    if not len(ran.start_ns) or round_ns <= 0:
        return None
    by_device = [_parts(ran.take(rows), round_ns) for _, rows in sorted(rows_by(devices.index).items())]
    return {name: float(np.mean([parts[name] for parts in by_device])) / steps for name in by_device[0]}


@dataclass(frozen=True, eq=False)
class _Ran(Columns):
    """Activities of typical steps as replayed, ns; `met_ns` is when the last member of a collective has come."""

    rank: Int64
    device: Int64
    kind: Int64
    start_ns: Int64
    met_ns: Int64
    stop_ns: Int64
    is_unresolved: Mask


def _replayed(model: Model) -> _Ran:
    """Return when everything runs in the last measured round."""
    graph, facts, course = model.graph, model.facts, model.calibrated.course
    start = facts.start_of_activity
    used = np.zeros(len(graph.points), dtype=bool)
    used[course.edges.target] = True
    activity = np.flatnonzero(used[start] & used[start + 1] & np.isin(graph.points.step[start], course.steps))
    start = start[activity]
    transfers = np.flatnonzero((graph.edges.kind == EdgeKind.TRANSFER) & model.lags.common.in_course)
    meeting = np.full(len(graph.points), UNKNOWN)
    meeting[graph.edges.target[transfers]] = graph.edges.source[transfers]
    met = meeting[start + 1]
    met = np.where((met >= 0) & used[met], met, start)
    lags = model.lags.ns[course.edges.edge][:, :1]
    times = np.rint(course.times(lags, np.concatenate([start, met, start + 1]))[:, 0]).astype(np.int64)
    start_ns, met_ns, stop_ns = times.reshape(3, -1)
    runs = np.flatnonzero((graph.edges.kind == EdgeKind.RUN) & graph.unresolved)
    alone = np.zeros(len(graph.points), dtype=bool)
    alone[graph.edges.source[runs]] = True
    kind = facts.of_activities("kind")[activity]
    rank, device = facts.rank_of_activity[activity], facts.of_activities("device")[activity]
    return _Ran(rank, device, kind, start_ns, np.clip(met_ns, start_ns, stop_ns), stop_ns, alone[start])


def _parts(ran: _Ran, round_ns: int) -> dict[str, int]:
    """Return the parts of one device's round: docs/measuring.md, Where a window's time went."""
    first_ns = int(ran.start_ns.min())

    def folded(rows: Mask, start_ns: Int64) -> Intervals:
        return union_of(*_folded(start_ns[rows] - first_ns, ran.stop_ns[rows] - first_ns, round_ns))

    is_comm = ran.kind == Kind.COMM
    compute = folded(ran.kind == Kind.COMPUTE, ran.start_ns)
    transfer = folded(is_comm & ~ran.is_unresolved, ran.met_ns)
    unresolved = folded(is_comm & ran.is_unresolved, ran.start_ns)
    comm = folded(is_comm, ran.start_ns)
    busy = compute | comm
    copies = folded(ran.kind == Kind.COPY, ran.start_ns)
    exposed = {TRANSFER: transfer - compute, UNRESOLVED: unresolved - transfer - compute, COPY: copies - busy}
    lengths = {part.field: int(of.length_ns()) for part, of in exposed.items()} | {
        COMPUTE.field: int(compute.length_ns())
    }
    told = lengths[TRANSFER.field] + lengths[UNRESOLVED.field]
    waiting = int((comm - compute).length_ns()) - told
    return lengths | {WAITING.field: waiting, IDLE.field: round_ns - int((busy | copies).length_ns())}


def _folded(start_ns: Int64, stop_ns: Int64, round_ns: int) -> tuple[Int64, Int64]:
    """Return intervals on a circle: what ends past it begins anew."""
    begun = start_ns % round_ns
    ended = begun + np.minimum(stop_ns - start_ns, round_ns)
    past = ended > round_ns
    return (
        np.concatenate([begun, np.zeros(int(past.sum()), dtype=np.int64)]),
        np.concatenate([np.minimum(ended, round_ns), ended[past] - round_ns]),
    )
