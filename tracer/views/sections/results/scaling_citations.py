"""Sentences to cite from a scaling study, and its tables' words."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.comparison import CellRow, Ratio, Scaling, StrongRow, WeakRow
from analyzers.step_parts import COMPUTE
from analyzers.units import percent
from tracer.views import gbps, milliseconds, seconds

# What a table's heads mean, below it.
_WORDS = {
    "time": "step: median without the profiler, of {launches}; 95 %: its steps' interval, or the range of launches' "
    "medians where these differ by more; distortion: profiled step / unprofiled step, the median over "
    "pairs of blocks; epoch, derived: steps x step; measured: whole epochs of one launch, but the first",
    "weak": "weak: each device keeps its batch, so that N devices do N times the work; efficiency: T_1 / T_N",
    "strong": "strong: all devices share one global batch; efficiency: speedup / N",
    "shares": "window: one profiled step on one device; exposed: hidden by no compute; waiting: for ranks that come "
    "later; transfer: bytes on their way; overlap: the share of communication that compute hides; an epoch: the "
    "window's part x the epoch's steps, as long as the profiler makes them",
    "bandwidth": "busbw: bytes x the ring's factor / transfer, as nccl-tests counts; utilization: of the GB/s that "
    "the links gave when they were calibrated",
}


def words(study: Scaling, table: str) -> str | None:
    """Return what a table's heads mean."""
    return _WORDS[table].format(launches=_launches(study.cells)) if table in _WORDS else None


def _launches(cells: Sequence[CellRow]) -> str:
    numbers = sorted({cell.launches for cell in cells if cell.launches}) or [1]
    return (
        "one launch"
        if numbers[-1] == 1
        else f"{' to '.join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))} launches"
    )


def epoch_ns(cell: CellRow, part: str) -> float | None:
    """Return how long a part of the window takes in all steps of an epoch, ns; None where either is not known."""
    length = cell.measured[part].median if part in cell.measured else None
    return cell.epoch.steps * length if cell.epoch is not None and length is not None else None


def citation(study: Scaling, table: str) -> str | None:
    """Return what a report may cite from a table, on the most devices; None where it has nothing that is told."""
    says = {"time": _time, "weak": _weak, "strong": _strong, "shares": _shares, "bandwidth": _bandwidth}.get(table)
    sentence = says(study) if says is not None else None
    return None if sentence is None else f"For your report: {sentence}"


def _time(study: Scaling) -> str | None:
    timed = [cell for cell in study.cells if cell.gpus == 1 and not cell.has_few_launches and cell.epoch_limits_ns]
    timed = sorted((cell for cell in timed if cell.epoch and cell.epoch.measured_ns), key=lambda cell: cell.batch)
    if len(timed) < 2:
        return None
    shown = (timed[0], timed[-1])
    devices = dict.fromkeys(name for cell in timed for name in cell.devices)
    said = f"on one {' or '.join(devices)} whole epochs, timed in one launch, took {' and '.join(map(_epoch, shown))}."
    outside = [f"{cell.batch:,}" for cell in shown if cell.contradicts_epoch]
    return (
        f"{said} At batch {' and '.join(outside)} that lies outside of what steps say: cite both." if outside else said
    )


def _epoch(cell: CellRow) -> str:
    """Write an epoch that was measured, which has no interval, and what its step's interval makes of it."""
    assert cell.epoch is not None
    assert cell.epoch_limits_ns is not None
    low, high = map(seconds, cell.epoch_limits_ns)
    measured = f"{seconds(cell.epoch.measured_ns)} s at batch {cell.batch:,}"
    return f"{measured} (by the steps of {_launches([cell])} {low} to {high} s)"


def _weak(study: Scaling) -> str | None:
    return _speedup(study, "weak", study.weak, "the work of one in the same time")


def _strong(study: Scaling) -> str | None:
    return _speedup(study, "strong", study.strong, "as fast as one")


def _speedup(study: Scaling, kind: str, rows: Sequence[WeakRow | StrongRow], than: str) -> str | None:
    """Cite the best of the speedups that are told on the most devices."""
    told = [(row, row.speedup) for row in rows if row.gpus > 1 and row.speedup is not None and row.speedup.is_told]
    if not told:
        return None
    row, speedup = max(told, key=lambda each: (each[0].gpus, each[1].value))
    whole = f" (global batch {row.global_batch:,})" if isinstance(row, StrongRow) else ""
    return f"{kind} scaling, {_where(row, study)}{whole}: {_times(speedup)} {than}."


def _shares(study: Scaling) -> str | None:
    several = [cell for cell in study.cells if cell.gpus > 1 and cell.measured]
    cell = max(several, key=lambda cell: (cell.gpus, cell.batch), default=None)
    if cell is None:
        return None
    texts = [
        f"{milliseconds(spread.median)} ms of a profiled step" + (f" ({seconds(whole)} s an epoch)" if whole else "")
        for part in (COMPUTE.field, "exposed_comm_ns")
        if (spread := cell.measured.get(part)) is not None
        for whole in [epoch_ns(cell, part)]
    ]
    return f"{_where(cell, study)}: compute takes {', exposed communication '.join(texts)}."


def _bandwidth(study: Scaling) -> str | None:
    known = [cell for cell in study.cells if cell.gradients.busbw_gbps.median and not cell.gradients.bound]
    cell = max(known, key=lambda cell: (cell.gpus, cell.batch), default=None)
    if cell is None:
        return None
    used = cell.gradients.utilization.median
    limit = gbps(cell.gradients.calibrated_gbps)
    against = "" if used is None else f", {percent(used)} of the {limit} GB/s that the links gave when calibrated"
    return (
        f"{_where(cell, study)}: gradients are reduced at {gbps(cell.gradients.busbw_gbps.median)} GB/s busbw{against}."
    )


def _where(row: CellRow | WeakRow | StrongRow, study: Scaling) -> str:
    return f"{row.strategy} on {row.gpus} {study.device_noun}s, batch {row.batch:,} each"


def _times(ratio: Ratio) -> str:
    between = "" if ratio.low is None or ratio.high is None else f" (95 %: {ratio.low:.2f} to {ratio.high:.2f})"
    return f"{ratio.value:.2f} times{between}"
