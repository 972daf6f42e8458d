"""Representative steps of two runs in cells of equal length.

    A  rank 0  ####..##....    the same cells in both, from each step's own beginning
    B  rank 0  ####.##..

From lanes all devices are known, in every part; a saved report has one device's compute and communication.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.intervals import Intervals, union_of
from analyzers.reporting import Lane, Lanes, Report
from analyzers.step_parts import COMPUTE, COPY, IDLE_PARTS, TRANSFER, UNRESOLVED, WAITING

CELLS = 360
# How many devices of each run are drawn.
MOST_DEVICES = 8
# Idle time is drawn by its causes, which come after these.
_DRAWN = (COMPUTE, TRANSFER, WAITING, UNRESOLVED, COPY)


@dataclass(frozen=True, eq=False)
class StepStrip:
    """One device's step: which share of each cell each part takes, by the part's name, and what parts take in all.

    `communication` is the share of each cell in which anything communicates, hidden or not.
    """

    rank: int
    device: int | str
    shares: Mapping[str, Float64]
    totals_ns: Mapping[str, float]
    communication: Float64


@dataclass(frozen=True, eq=False)
class AlignedStep:
    """A run's representative step, its devices in order; `span_ns` is from its first window's start to its last's end.

    `cell_ns` is the length of a cell. `has_causes`: all parts are known, else compute and communication alone.
    """

    step: int
    span_ns: int
    cell_ns: float
    strips: Sequence[StepStrip]
    devices: int
    has_causes: bool


def aligned_steps(
    a: Report, b: Report, lanes: tuple[Sequence[Lanes], Sequence[Lanes]]
) -> tuple[AlignedStep, AlignedStep] | None:
    """Set the representative steps of two runs side by side; None where either has no windows.

    `lanes` are both runs', empty for one that was read from its report.
    """
    extents = [_extent(report) for report in (a, b)]
    if any(extent is None for extent in extents):
        return None
    known = [extent for extent in extents if extent is not None]
    cell_ns = max(end - start for start, end in known) / CELLS or 1.0
    one, other = (
        _from_lanes(report, of_run, extent, cell_ns) if of_run else _from_report(report, extent, cell_ns)
        for report, of_run, extent in zip((a, b), lanes, known, strict=True)
    )
    return one, other


def _extent(report: Report) -> tuple[int, int] | None:
    step = report.summary.representative.step
    rows = [row for row in report.windows if row.step == step]
    return (min(row.start_ns for row in rows), max(row.start_ns + row.span_ns for row in rows)) if rows else None


def _from_lanes(report: Report, lanes: Sequence[Lanes], extent: tuple[int, int], cell_ns: float) -> AlignedStep:
    step = report.summary.representative.step
    edges = (extent[0] + cell_ns * np.arange(CELLS + 1)).astype(np.int64)
    strips = [_strip(lane, step, edges) for lane in _chosen(report, lanes)]
    return AlignedStep(step, extent[1] - extent[0], cell_ns, strips, len(report.summary.by_device), has_causes=True)


def _chosen(report: Report, lanes: Sequence[Lanes]) -> list[Lanes]:
    """Choose the representative device, those that made others wait longest, then the first, in order of ranks."""
    caused: dict[int, int] = {}
    for row in report.waiting:
        caused[row.rank] = caused.get(row.rank, 0) + row.caused_ns
    first = report.summary.representative.rank
    ordered = sorted(range(len(lanes)), key=lambda at: (lanes[at].rank != first, -caused.get(lanes[at].rank, 0), at))
    return [lanes[at] for at in sorted(ordered[:MOST_DEVICES])]


def _strip(lane: Lanes, step: int, edges: Int64) -> StepStrip:
    of_step = lane.steps.step == step
    window = union_of(lane.steps.start_ns[of_step], lane.steps.end_ns[of_step])
    idle = lane.idle_causes
    parts = {part.field: getattr(lane, part.lane) for part in _DRAWN}
    parts |= {
        part.field: union_of(idle.start_ns[idle.cause == code], idle.end_ns[idle.cause == code])
        for code, part in enumerate(IDLE_PARTS)
    }
    inside = {name: part & window for name, part in parts.items()}
    return StepStrip(
        lane.rank,
        lane.device,
        {name: _covered(part, edges) for name, part in inside.items() if len(part)},
        {name: float(part.length_ns()) for name, part in inside.items() if len(part)},
        _covered(lane.communication & window, edges),
    )


def _covered(part: Intervals, edges: Int64) -> Float64:
    """Return which share of each cell is covered."""
    return part.length_within(edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)


def _from_report(report: Report, extent: tuple[int, int], cell_ns: float) -> AlignedStep:
    drawn = report.timeline
    chosen = report.summary.representative
    by_kind: dict[str, list[Lane]] = {}
    for lane in drawn.lanes:
        by_kind.setdefault(lane.kind, []).append(lane)
    strip = StepStrip(
        chosen.rank,
        chosen.device,
        {"compute_ns": _resampled(by_kind.get("compute", ()), drawn.span_ns, cell_ns)},
        {"compute_ns": float(report.representative_window.compute_ns)},
        _resampled(by_kind.get("comm", ()), drawn.span_ns, cell_ns),
    )
    devices = len(report.summary.by_device)
    return AlignedStep(chosen.step, extent[1] - extent[0], cell_ns, [strip], devices, has_causes=False)


def _resampled(lanes: Sequence[Lane], span_ns: int, cell_ns: float) -> Float64:
    """Return how full cells are, from a timeline's own cells; several lanes of one kind together."""
    edges = cell_ns * np.arange(CELLS + 1)
    covered = np.zeros(CELLS)
    for lane in lanes:
        own = span_ns * np.arange(len(lane.busy) + 1) / max(len(lane.busy), 1)
        before = np.r_[0.0, np.cumsum(np.array(lane.busy) * span_ns / max(len(lane.busy), 1))]
        covered += np.diff(np.interp(edges, own, before)) / cell_ns
    return np.minimum(covered, 1.0)
