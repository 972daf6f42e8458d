"""Cost of gradient synchronization: measured parts beside the control.

control      unprofiled step - the same step without gradient synchronization, with its 95 % interval
accounted    exposed waiting, transfer and unresolved + packing, its copies + contention + idle time
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.collectives import ExposedParts
from analyzers.notices import Code, Notice
from analyzers.rank import CPU_DEVICE, NOT_KNOWN, Breakdown, Measured, RunSummary
from analyzers.run import Controls
from analyzers.statistics import Limits, is_told_apart
from analyzers.units import percent


class IdleFrom(StrEnum):
    """Where the idle time of synchronization is from; the values are what documents hold."""

    QUIET = "the window without synchronization"
    BESIDE = "idle time right before packing and communication"


class SyncCost(msgspec.Struct, frozen=True):
    """What gradient synchronization costs a step, means over typical windows, beside the control.

    `profiled_ns`: of profiled windows. `contention_is_estimate`: from like kernels. `contention_compared`: its share of
    compute beside communication.
    """

    control_ns: int | None
    profiled_ns: int | None
    exposed_wait_ns: int
    exposed_transfer_ns: int
    exposed_unresolved_ns: int
    packing_ns: int
    packing_copies_ns: int
    contention_ns: int | None
    contention_is_estimate: bool
    contention_compared: float | None
    idle_ns: int
    idle_from: IdleFrom
    accounted_ns: int
    remainder_ns: int | None
    accounted: float | None
    accounted_of_profiled: float | None
    control_interval_ns: list[float] | None = None

    @property
    def control_limits_ns(self) -> Limits | None:
        """Return what the control lies between; None where that is not known."""
        limits = self.control_interval_ns
        return (limits[0], limits[1]) if limits is not None else None


# From here on the sum of what was measured is not the control's.
OVERSHOT = 1.2
# The share of windows that have to know their contention for its mean to stand for all of them.
ENOUGH = 0.5


def sync_cost(
    run: RunSummary, rows: Breakdown, typical: Mask, exposed: ExposedParts, controls: Controls
) -> SyncCost | None:
    """Average over typical windows, which add up; contention over those that know it, if at least half do.

    None where nothing communicates. `rows` are all ranks' windows in order, of which some are `typical`.
    """
    if not rows.comm_ns.any():
        return None
    control_ns, interval = controls.sync_cost_ns(), controls.sync_cost_interval_ns()
    costs = [measured.cost for measured in run.measured]
    is_estimate = any(cost.is_estimate for cost in costs)
    changed = not is_estimate and all(cost.has_change.all() for cost in costs)
    idle = _column(run.measured, typical, "idle_change_ns" if changed else "packing_idle_ns")
    contention = _column(run.measured, typical, "contention_ns")
    is_known = contention != NOT_KNOWN
    beside_ns, compared_ns = (_column(run.measured, typical, name).sum() for name in ("beside_ns", "compared_ns"))
    contention_ns = _mean(contention[is_known]) if is_known.any() and is_known.mean() >= ENOUGH else None
    parts = {
        "exposed_wait_ns": _mean(exposed.exposed_wait_ns[typical]),
        "exposed_transfer_ns": _mean(exposed.exposed_transfer_ns[typical]),
        "exposed_unresolved_ns": _mean(exposed.exposed_unresolved_ns[typical]),
        "packing_ns": _mean(_column(run.measured, typical, "packing_alone_ns")),
        "packing_copies_ns": _mean(_column(run.measured, typical, "packing_copies_ns")),
        "idle_ns": _mean(idle),
    }
    profiled_ns = _mean(_column(run.measured, typical, "span_change_ns")) if changed else None
    accounted_ns = sum(parts.values()) + (contention_ns or 0)
    return SyncCost(
        control_ns=control_ns,
        profiled_ns=profiled_ns,
        **parts,
        contention_ns=contention_ns,
        contention_is_estimate=is_estimate,
        contention_compared=float(compared_ns / beside_ns) if beside_ns else None,
        idle_from=IdleFrom.QUIET if changed else IdleFrom.BESIDE,
        accounted_ns=accounted_ns,
        remainder_ns=control_ns - accounted_ns if control_ns is not None else None,
        accounted=_ratio(accounted_ns, control_ns) if is_told_apart(interval) else None,
        accounted_of_profiled=_ratio(accounted_ns, profiled_ns),
        control_interval_ns=list(interval) if interval is not None else None,
    )


def _column(measured: Sequence[Measured], typical: Mask, name: str) -> Int64:
    return np.concatenate([getattr(rank_measured.cost, name) for rank_measured in measured])[typical]


def _ratio(part_ns: int, whole_ns: int | None) -> float | None:
    return part_ns / whole_ns if whole_ns is not None and whole_ns > 0 else None


def _mean(values: Int64) -> int:
    return round(float(np.mean(values)))


def cost_warnings(run: RunSummary) -> list[Notice]:
    """Say why contention is null, or but an estimate where the run holds a window that should have told it."""
    notices = []
    unknown = sum(int((measured.cost.contention_ns == NOT_KNOWN).sum()) for measured in run.measured)
    windows = sum(len(measured.windows) for measured in run.measured)
    on_cpu = all(bool((measured.windows.device == CPU_DEVICE).all()) for measured in run.measured)
    if unknown and on_cpu:
        text = "contention is not known: on a CPU run no kernels show what compute loses to communication"
        notices.append(Notice(Code.CONTENTION_IS_NULL, text))
    elif unknown:
        text = (
            f"contention is not known in {unknown} of {windows} windows: too little of the compute during communication"
        )
        notices.append(Notice(Code.CONTENTION_IS_NULL, f"{text} also runs without communication"))
    failed = [(summary.rank, measured.cost.mismatch) for summary, measured in zip(run.ranks, run.measured, strict=True)]
    reasons = [f"rank {rank}: {why}" for rank, why in failed if why]
    if reasons:
        text = f"contention is estimated: the window without synchronization does not fit ({'; '.join(reasons[:3])})"
        notices.append(Notice(Code.CONTENTION_IS_ESTIMATED, text))
    return notices


def distortion_warnings(cost: SyncCost | None) -> list[Notice]:
    """Warn where profiled steps lose much more to synchronization than unprofiled ones do."""
    if cost is None or cost.accounted is None or cost.accounted <= OVERSHOT:
        return []
    if cost.control_limits_ns is not None and cost.accounted_ns <= OVERSHOT * cost.control_limits_ns[1]:
        return []
    parts = f"the parts in the traces add up to {percent(cost.accounted)} of its cost without"
    text = f"synchronization costs more under the profiler than without: {parts}"
    return [Notice(Code.SYNC_COST_OVERSHOT, text)]
