"""Panels of a sweep: steps, epochs, speedups over devices and batches.

Every number is the study's; `plots` and `html` draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from analyzers.comparison import CellRow, Ratio, Scaling, StrongRow, Subtraction, WeakRow
from analyzers.run import SINGLE
from analyzers.units import NS_PER_MS, NS_PER_S, count
from tracer.views import Panel, PlotLine, PlotPoint, labels_of, places, told_apart
from tracer.views.sections.results.scaling import grouped

MOST_STRATEGIES = 3
# More rows than a picture is looked through for.
MOST_CELLS = 60

Row = TypeVar("Row", WeakRow, StrongRow)


def study_panels(
    study: Scaling, builders: Sequence[Callable[[Scaling, str], Panel]]
) -> tuple[list[list[Panel]], list[str]]:
    """Build rows of panels, a column for each strategy, of what was swept; and say what is left out of them."""
    strategies = list(dict.fromkeys(cell.strategy for cell in study.cells if cell.gpus > 1)) or [SINGLE]
    rows = [[build(study, strategy) for strategy in strategies[:MOST_STRATEGIES]] for build in builders]
    # What was swept at one value is no curve.
    rows = [row for row in rows if len({point.x for panel in row for line in panel.lines for point in line.points}) > 1]
    drawn = [told_apart(row) for row in rows]
    lines, kept = (max((len(labels_of(row)) for row in each), default=0) for each in (rows, drawn))
    undrawn = strategies[MOST_STRATEGIES:]
    return drawn, [*([f"Not drawn: {', '.join(undrawn)}."] if undrawn else []), *left_out(lines, kept, "lines")]


def left_out(whole: int, drawn: int, what: str) -> list[str]:
    """Say that not all lines or cells are drawn, where some are not."""
    return [f"Of {whole:,} {what} {drawn} are drawn, evenly spread; the tables have all."] if drawn < whole else []


@dataclass(frozen=True)
class _LinePoint:
    """A point of the line that a number of devices, or a batch, names; and what would be ideal there."""

    line: int
    point: PlotPoint
    ideal: float | None = None


def _lines(points: Iterable[_LinePoint], values: Iterable[int], label: Callable[[int], str]) -> list[PlotLine]:
    """Join points to lines, a color for each of all values; those without a point have none."""
    found: dict[int, list[_LinePoint]] = {}
    for each in points:
        found.setdefault(each.line, []).append(each)
    return [
        PlotLine(
            label(value),
            place,
            [each.point for each in found[value]],
            [(each.point.x, each.ideal) for each in found[value] if each.ideal is not None],
        )
        for value, place in places(values).items()
        if value in found
    ]


def step_over_batch(study: Scaling, strategy: str) -> Panel:
    """Draw steps over the batch; one device's line is what the others should be."""
    noun = study.device_noun
    points = [_LinePoint(cell.gpus, _step(cell)) for cell in _timed(study, strategy)]
    lines = _lines(
        points, (cell.gpus for cell in study.cells), lambda gpus: count(gpus, noun) + " (ideal)" * (gpus == 1)
    )
    return Panel(f"{strategy}: time of a step", f"batch per {noun}", "step, ms", lines)


def _timed(study: Scaling, strategy: str) -> list[CellRow]:
    """Return a strategy's cells that were timed, with the baselines that all share."""
    return [cell for cell in study.cells if cell.strategy in (strategy, SINGLE) and cell.step.median_ns]


def _step(cell: CellRow) -> PlotPoint:
    step = cell.step
    return _point(cell.batch, step.median_ns or 0, (step.low_ns, step.high_ns), NS_PER_MS, step.uncertain)


def _point(
    x: float, ns: float, limits_ns: tuple[float | None, float | None], unit_ns: int, uncertain: bool = False
) -> PlotPoint:
    low, high = (None if ns is None else ns / unit_ns for ns in limits_ns)
    return PlotPoint(x, ns / unit_ns, low, high, uncertain)


def epoch_over_batch(study: Scaling, strategy: str) -> Panel:
    """Draw epochs over the batch, a line for each number of devices."""
    noun = study.device_noun
    points = [
        _LinePoint(row.gpus, _epoch(cell, row, row.batch), (row.ideal_epoch_ns or 0) / NS_PER_S or None)
        for cell, row in _epochs(study, strategy)
    ]
    lines = _lines(points, (cell.gpus for cell in study.cells), lambda gpus: count(gpus, noun))
    return Panel(f"{strategy}: {EPOCH} over the batch", f"batch per {noun}", "epoch, s", lines)


def epoch_over_gpus(study: Scaling, strategy: str) -> Panel:
    """Draw epochs over devices, a line for each batch."""
    noun = study.device_noun
    points = [
        _LinePoint(row.batch, _epoch(cell, row, row.gpus), (row.ideal_epoch_ns or 0) / NS_PER_S or None)
        for cell, row in _epochs(study, strategy)
    ]
    lines = _lines(points, (row.batch for row in study.weak), lambda batch: f"batch {batch:,} a {noun}")
    return Panel(f"{strategy}: {EPOCH} over {noun}s", f"{noun}s", "epoch, s", lines)


EPOCH = "time of an epoch (derived)"


def _epochs(study: Scaling, strategy: str) -> list[tuple[CellRow, WeakRow]]:
    timed = {cell.name: cell for cell in _timed(study, strategy)}
    return [(timed[row.cell], row) for row in study.weak if row.cell in timed and row.epoch_ns]


def _epoch(cell: CellRow, row: WeakRow, x: float) -> PlotPoint:
    return _point(x, row.epoch_ns or 0, cell.epoch_limits_ns or (None, None), NS_PER_S, cell.step.uncertain)


def weak_over_gpus(study: Scaling, strategy: str) -> Panel:
    """Draw scaled speedups over devices, a line for each batch per device."""
    noun = study.device_noun
    points = [_speedup(row.batch, row.gpus, row.scaled_speedup) for row in _own(study.weak, strategy)]
    batches = {row.batch for row in study.weak if row.gpus > 1 and row.scaled_speedup}
    lines = _compared(_lines(filter(None, points), batches, lambda batch: f"batch {batch:,} a {noun}"))
    title = f"{strategy}: weak scaling, batch per {noun} fixed"
    return Panel(title, f"{noun}s", "scaled speedup", lines, _ideal(lines), doublings=True)


def weak_over_batch(study: Scaling, strategy: str) -> Panel:
    """Draw scaled speedups over the batch per device, a line for each number of devices."""
    noun = study.device_noun
    parallel = [row for row in _own(study.weak, strategy) if row.gpus > 1]
    points = [_speedup(row.gpus, row.batch, row.scaled_speedup, row.gpus) for row in parallel]
    lines = _lines(filter(None, points), (row.gpus for row in study.weak), lambda gpus: f"{gpus} {noun}s")
    batch = f"batch per {noun}"
    return Panel(f"{strategy}: the same over the {batch}", batch, "scaled speedup", lines, doublings=True)


def strong_over_gpus(study: Scaling, strategy: str) -> Panel:
    """Draw speedups over devices, a line for each global batch."""
    noun = study.device_noun
    points = [_speedup(row.global_batch, row.gpus, row.speedup) for row in _own(study.strong, strategy)]
    batches = {row.global_batch for row in study.strong if row.gpus > 1 and row.speedup}
    lines = _compared(_lines(filter(None, points), batches, lambda batch: f"global batch {batch:,}"))
    title = f"{strategy}: strong scaling, global batch fixed"
    x, empty = f"{noun}s", NO_COUNTERPART.format(noun=noun)
    return Panel(title, x, "speedup", lines, _ideal(lines), doublings=True, empty=empty)


def strong_over_batch(study: Scaling, strategy: str) -> Panel:
    """Draw speedups over the global batch, a line for each number of devices."""
    noun = study.device_noun
    parallel = [row for row in _own(study.strong, strategy) if row.gpus > 1]
    points = [_speedup(row.gpus, row.global_batch, row.speedup, row.gpus) for row in parallel]
    numbers = (row.gpus for row in study.strong)
    lines = _lines(filter(None, points), numbers, lambda gpus: f"{gpus} {noun}s")
    title = f"{strategy}: the same over the global batch"
    empty = NO_COUNTERPART.format(noun=noun)
    return Panel(title, "global batch", "speedup", lines, doublings=True, empty=empty)


NO_COUNTERPART = "no 1-{noun} cell has the global batch of any other"
# The panels beside each table, by its name.
PANELS = {
    "time": (step_over_batch, epoch_over_batch, epoch_over_gpus),
    "weak": (weak_over_gpus, weak_over_batch),
    "strong": (strong_over_gpus, strong_over_batch),
}


def _own(rows: Sequence[Row], strategy: str) -> list[Row]:
    """Return a strategy's rows, with the baselines that all share."""
    return [row for row in rows if row.strategy in (strategy, SINGLE)]


def _speedup(line: int, x: int, ratio: Ratio | None, ideal: float | None = None) -> _LinePoint | None:
    if ratio is None:
        return None
    return _LinePoint(line, PlotPoint(x, ratio.value, ratio.low, ratio.high, not ratio.is_told), ideal)


def _compared(lines: Sequence[PlotLine]) -> list[PlotLine]:
    """Return the lines that have more than a baseline."""
    return [line for line in lines if any(point.x > 1 for point in line.points)]


def _ideal(lines: Sequence[PlotLine]) -> list[tuple[float, float]]:
    """Return N on N devices."""
    return [(gpus, gpus) for gpus in sorted({point.x for line in lines for point in line.points})]


@dataclass(frozen=True)
class RowMarks:
    """Marks that look alike, each in the row of a cell, in ms; None where the cell has no such figure."""

    label: str
    points: Sequence[PlotPoint | None]


def subtraction_rows(study: Scaling) -> tuple[list[CellRow], list[RowMarks]]:
    """Return the cells that subtraction says something of; exposed communication as measured, and as subtracted."""
    rows = [(cell, weak, strong) for cell, weak, strong in grouped(study) if weak.subtraction or strong.subtraction]
    per_device = f"T_N - T_1, batch per {study.device_noun} fixed"
    return [cell for cell, _, _ in rows], [
        RowMarks("exposed communication, measured", [_measured(cell) for cell, _, _ in rows]),
        RowMarks(per_device, [_estimated(weak.subtraction) for _, weak, _ in rows]),
        RowMarks("T_N - T_1 / N, global batch fixed", [_estimated(strong.subtraction) for _, _, strong in rows]),
    ]


def _measured(cell: CellRow) -> PlotPoint | None:
    ns = cell.exposed_mean_ns
    return None if ns is None else PlotPoint(ns / NS_PER_MS, 0)


def _estimated(subtraction: Subtraction | None) -> PlotPoint | None:
    if subtraction is None:
        return None
    low, high = (None if ns is None else ns / NS_PER_MS for ns in (subtraction.low_ns, subtraction.high_ns))
    return PlotPoint(subtraction.estimate_ns / NS_PER_MS, 0, low, high)


def cell_words(cell: CellRow, noun: str) -> str:
    """Name a cell in a picture."""
    return f"{cell.strategy}, {count(cell.gpus, noun)}, batch {cell.batch:,}"
