"""Plots of the scaling study as PNG files.

Columns of panels are strategies; every number comes from `analyzers.comparison.scaling`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from analyzers.comparison import CellRow, Ratio, Scaling, StrongRow, Subtraction, WeakRow
from analyzers.run import SINGLE
from analyzers.units import NS_PER_MS, NS_PER_S, count, ms
from tracer.views import COMM, COMPUTE, LIGHT, SPLIT_PARTS, TRANSFER, StepPart, Theme
from tracer.views.plots.axes import WIDTH_IN, Panel, PlotLine, PlotPoint, blank, grid, places, png, style
from tracer.views.plots.layout import hatch
from tracer.views.sections.results import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_STRATEGIES = 3
# A picture over a page's whole width.
PAGE_IN = 7.2
# Of a strategy's name, what a title of such a picture holds.
SHORT = 10
# From this share of a step, %, on, a part of its bar has room for its number.
LABELLED = 5.0
BAR_HEIGHT_IN, MARGINS_IN = 0.34, 1.2
# Parts whose color wants white numbers on it.
DARK_PARTS = (COMPUTE, TRANSFER)

Row = TypeVar("Row", WeakRow, StrongRow)


def plots(study: Scaling, theme: Theme = LIGHT) -> dict[str, bytes]:
    """Draw the study's pictures, PNG by file name."""
    with style(theme):
        figures: dict[str, Figure | None] = {name: _grid(study, rows, theme) for name, rows in GRIDS.items()}
        figures |= {"shares.png": _shares(study, theme), "subtraction.png": _subtraction(study, theme)}
        return {name: png(figure) for name, figure in figures.items() if figure is not None}


def speedups(study: Scaling, theme: Theme) -> Figure | None:
    """Draw weak and strong scaling over GPUs in one picture, with short titles; None where nothing compares."""
    if not any(row.gpus > 1 and row.scaled_speedup for row in study.weak):
        return None

    def weak(study: Scaling, strategy: str) -> Panel:
        panel = _weak_over_gpus(study, strategy)
        return replace(
            panel, title=f"{strategy[:SHORT]}: weak scaling", y=f"speedup, batch per {study.device_noun} fixed"
        )

    def strong(study: Scaling, strategy: str) -> Panel:
        panel = _strong_over_gpus(study, strategy)
        return replace(panel, title=f"{strategy[:SHORT]}: strong scaling", y="speedup, global batch fixed")

    return _grid(study, (weak, strong), theme, PAGE_IN)


def _grid(
    study: Scaling, rows: Sequence[Callable[[Scaling, str], Panel]], theme: Theme, width_in: float = WIDTH_IN
) -> Figure | None:
    """Draw rows of panels, a column per strategy; None where nothing would be drawn."""
    strategies = list(dict.fromkeys(cell.strategy for cell in study.cells if cell.gpus > 1)) or [SINGLE]
    panels = [[panel(study, strategy) for strategy in strategies[:MOST_STRATEGIES]] for panel in rows]
    # What was swept at one value is no curve.
    shown = [
        row for row in panels if len({point.x for panel in row for line in panel.lines for point in line.points}) > 1
    ]
    return grid(shown, theme, width_in) if shown else None


def _timed(study: Scaling, strategy: str) -> list[CellRow]:
    """Return a strategy's cells that were timed, with the baselines that all share."""
    return [cell for cell in study.cells if cell.strategy in (strategy, SINGLE) and cell.step.median_ns]


def _step_over_batch(study: Scaling, strategy: str) -> Panel:
    """Draw steps over the batch; one device's line is what the others should be."""
    cells, colors = _timed(study, strategy), places(cell.gpus for cell in study.cells)
    lines = [
        PlotLine(
            count(gpus, study.device_noun) + " (ideal)" * (gpus == 1),
            colors[gpus],
            [_step(cell) for cell in cells if cell.gpus == gpus],
        )
        for gpus in colors
    ]
    return Panel(f"{strategy}: time of a step", f"batch per {study.device_noun}", "step, ms", _drawn(lines))


def _step(cell: CellRow) -> PlotPoint:
    step = cell.step
    low, high = (None if ns is None else ns / NS_PER_MS for ns in (step.low_ns, step.high_ns))
    return PlotPoint(cell.batch, (step.median_ns or 0) / NS_PER_MS, low, high, step.uncertain)


def _epoch_over_gpus(study: Scaling, strategy: str) -> Panel:
    timed = {cell.name: cell for cell in _timed(study, strategy)}
    rows = [row for row in study.weak if row.cell in timed and row.epoch_ns and row.ideal_epoch_ns]
    colors = places(row.batch for row in study.weak)
    lines = [
        PlotLine(
            f"batch {batch:,} a {study.device_noun}",
            color,
            [
                PlotPoint(row.gpus, (row.epoch_ns or 0) / NS_PER_S, uncertain=timed[row.cell].step.uncertain)
                for row in rows
                if row.batch == batch
            ],
            [(row.gpus, (row.ideal_epoch_ns or 0) / NS_PER_S) for row in rows if row.batch == batch],
        )
        for batch, color in colors.items()
    ]
    return Panel(f"{strategy}: time of an epoch (derived)", f"{study.device_noun}s", "epoch, s", _drawn(lines))


def _weak_over_gpus(study: Scaling, strategy: str) -> Panel:
    rows = [_Speedup(row.batch, row.gpus, row.gpus, row.scaled_speedup) for row in _own(study.weak, strategy)]
    batches = {row.batch for row in study.weak if row.gpus > 1 and row.scaled_speedup}
    lines = _compared(_speedups(rows, places(batches), f"batch {{:,}} a {study.device_noun}"))
    title = f"{strategy}: weak scaling, batch per {study.device_noun} fixed"
    return Panel(title, f"{study.device_noun}s", "scaled speedup", lines, _ideal(lines), doublings=True)


def _weak_over_batch(study: Scaling, strategy: str) -> Panel:
    parallel = [row for row in _own(study.weak, strategy) if row.gpus > 1]
    rows = [_Speedup(row.gpus, row.batch, row.gpus, row.scaled_speedup) for row in parallel]
    lines = _speedups(rows, places(row.gpus for row in study.weak), f"{{}} {study.device_noun}s", flat=True)
    batch = f"batch per {study.device_noun}"
    return Panel(f"{strategy}: the same over the {batch}", batch, "scaled speedup", lines, doublings=True)


def _strong_over_gpus(study: Scaling, strategy: str) -> Panel:
    rows = [_Speedup(row.global_batch, row.gpus, row.gpus, row.speedup) for row in _own(study.strong, strategy)]
    batches = {row.global_batch for row in study.strong if row.gpus > 1 and row.speedup}
    lines = _compared(_speedups(rows, places(batches), "global batch {:,}"))
    title = f"{strategy}: strong scaling, global batch fixed"
    x, empty = f"{study.device_noun}s", NO_COUNTERPART.format(noun=study.device_noun)
    return Panel(title, x, "speedup", lines, _ideal(lines), doublings=True, empty=empty)


def _strong_over_batch(study: Scaling, strategy: str) -> Panel:
    parallel = [row for row in _own(study.strong, strategy) if row.gpus > 1]
    rows = [_Speedup(row.gpus, row.global_batch, row.gpus, row.speedup) for row in parallel]
    lines = _speedups(rows, places(row.gpus for row in study.strong), f"{{}} {study.device_noun}s", flat=True)
    title = f"{strategy}: the same over the global batch"
    empty = NO_COUNTERPART.format(noun=study.device_noun)
    return Panel(title, "global batch", "speedup", lines, doublings=True, empty=empty)


NO_COUNTERPART = "no 1-{noun} cell has the global batch of any other"
GRIDS = {
    "time.png": (_step_over_batch, _epoch_over_gpus),
    "weak.png": (_weak_over_gpus, _weak_over_batch),
    "strong.png": (_strong_over_gpus, _strong_over_batch),
}


# Every picture that there may be.
PICTURES = (*GRIDS, "shares.png", "subtraction.png")


@dataclass(frozen=True)
class PointStyle:
    """How a point is drawn, and how far below the middle of its line."""

    shape: str
    ink: str
    face: str
    below: float


@dataclass(frozen=True)
class _Speedup:
    """One point of a line, which `line` names."""

    line: int
    x: int
    gpus: int
    ratio: Ratio | None


def _own(rows: Sequence[Row], strategy: str) -> list[Row]:
    """Return a strategy's rows, with the baselines that all share."""
    return [row for row in rows if row.strategy in (strategy, SINGLE)]


def _speedups(rows: Sequence[_Speedup], colors: Mapping[int, float], label: str, flat: bool = False) -> list[PlotLine]:
    """Build lines of speedup; with `flat` each has its own ideal, the devices that all its points have."""
    lines = []
    for name, color in colors.items():
        line_rows = [(row, row.ratio) for row in rows if row.line == name and row.ratio is not None]
        points = [PlotPoint(row.x, ratio.value, ratio.low, ratio.high, not ratio.is_told) for row, ratio in line_rows]
        lines.append(
            PlotLine(label.format(name), color, points, [(row.x, row.gpus) for row, _ in line_rows] if flat else [])
        )
    return _drawn(lines)


def _compared(lines: Sequence[PlotLine]) -> list[PlotLine]:
    """Return the lines that have more than a baseline."""
    return [line for line in lines if any(point.x > 1 for point in line.points)]


def _drawn(lines: Sequence[PlotLine]) -> list[PlotLine]:
    return [line for line in lines if line.points]


def _ideal(lines: Sequence[PlotLine]) -> list[tuple[float, float]]:
    """Return N on N devices."""
    return [(gpus, gpus) for gpus in sorted({point.x for line in lines for point in line.points})]


def _shares(study: Scaling, theme: Theme) -> Figure | None:
    """Draw what steps are made of, as measured: a bar per cell, whose parts add up to its windows' time."""
    fields = [part.field for part in SPLIT_PARTS]
    cells = [cell for cell, _, _ in grouped(study) if all(cell.shares.get(name) is not None for name in fields)]
    if not cells:
        return None
    figure, axis = _listed(study, cells)
    starts = [0.0] * len(cells)
    for part in SPLIT_PARTS:
        shares = [100 * (cell.shares[part.field] or 0.0) for cell in cells]
        _draw_part(axis, part, starts, shares, theme)
        starts = [start + share for start, share in zip(starts, shares, strict=True)]
    for line, cell in enumerate(cells):
        axis.text(101, line, ms(cell.measured["span_ns"].median or 0.0), va="center")
    axis.set_xlim(0, 113)
    axis.set_xticks(range(0, 101, 20))
    axis.set_xlabel("share of the profiled steps' time, %; behind each bar their median")
    figure.legend(loc="outside upper center", ncols=len(SPLIT_PARTS))
    return figure


def _listed(study: Scaling, cells: Sequence[CellRow]) -> tuple[Figure, Axes]:
    """Return a figure with a line for each cell, the first on top."""
    figure = blank(MARGINS_IN + BAR_HEIGHT_IN * len(cells))
    axis = figure.subplots()
    names = [f"{cell.strategy}, {count(cell.gpus, study.device_noun)}, batch {cell.batch:,}" for cell in cells]
    axis.set_yticks(range(len(cells)), names)
    axis.set_ylim(len(cells) - 0.5, -0.5)
    axis.grid(False, axis="y")
    return figure, axis


def _draw_part(axis: Axes, part: StepPart, starts: Sequence[float], shares: Sequence[float], theme: Theme) -> None:
    """Draw one part of all bars, with its number where there is room."""
    look: dict[str, Any] = {"color": part.color, "hatch": hatch(part), "ec": theme.ground}
    axis.barh(range(len(shares)), shares, left=starts, label=part.label, **look)
    ink = "white" if part in DARK_PARTS else "black"
    for line, (share, start) in enumerate(zip(shares, starts, strict=True)):
        if share >= LABELLED:
            around = {"facecolor": part.color, "edgecolor": "none", "pad": 0.8}
            middle = start + share / 2
            axis.text(middle, line, f"{share:.0f}", ha="center", va="center", fontsize=8.5, color=ink, bbox=around)


def _subtraction(study: Scaling, theme: Theme) -> Figure | None:
    """Draw exposed communication as measured, next to what subtraction would have said; lines are quartiles."""
    rows = [(cell, weak, strong) for cell, weak, strong in grouped(study) if weak.subtraction or strong.subtraction]
    if not rows:
        return None
    figure, axis = _listed(study, [cell for cell, _, _ in rows])
    measured = [_measured(cell) for cell, _, _ in rows]
    by_weak = [_estimated(weak.subtraction) for _, weak, _ in rows]
    by_strong = [_estimated(strong.subtraction) for _, _, strong in rows]
    _scale(axis, [point for point in (*measured, *by_weak, *by_strong) if point is not None])
    _draw_points(axis, measured, PointStyle("o", COMM.color, COMM.color, -0.22), "exposed communication, measured")
    _draw_points(
        axis, by_weak, PointStyle("D", theme.ink, theme.ground, 0.0), f"T_N - T_1, batch per {study.device_noun} fixed"
    )
    _draw_points(axis, by_strong, PointStyle("s", theme.ink, theme.ground, 0.22), "T_N - T_1 / N, global batch fixed")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def _measured(cell: CellRow) -> PlotPoint | None:
    return _point(cell.exposed_mean_ns, None, None)


def _estimated(subtraction: Subtraction | None) -> PlotPoint | None:
    return _point(subtraction.estimate_ns, subtraction.low_ns, subtraction.high_ns) if subtraction is not None else None


def _point(median_ns: float | None, low_ns: float | None, high_ns: float | None) -> PlotPoint | None:
    """Return a time as a point in ms, on the x axis."""
    if median_ns is None:
        return None
    low, high = (None if ns is None else ns / NS_PER_MS for ns in (low_ns, high_ns))
    return PlotPoint(median_ns / NS_PER_MS, 0, low, high)


def _draw_points(axis: Axes, points: Sequence[PlotPoint | None], mark: PointStyle, label: str) -> None:
    """Draw a mark and its quartiles on each line of cells."""
    for line, point in enumerate(points):
        if point is None:
            continue
        y = line + mark.below
        if point.low is not None and point.high is not None:
            left, right = axis.get_xlim()
            low, high = max(point.low, left), min(point.high, right)
            axis.plot([low, high], [y, y], color=mark.ink, linewidth=1.0)
            for end, is_cut, arrow in ((low, low > point.low, "<"), (high, high < point.high, ">")):
                if is_cut:
                    axis.plot(end, y, arrow, color=mark.ink, markersize=4, clip_on=False)
        axis.plot(point.x, y, mark.shape, color=mark.ink, markerfacecolor=mark.face, markersize=5.5)
    if any(points):
        axis.plot([], [], mark.shape, color=mark.ink, markerfacecolor=mark.face, label=label)


def _scale(axis: Axes, points: Sequence[PlotPoint]) -> None:
    """Let the axis hold all points, and 0: an interval that goes on beyond it is cut."""
    values = [0.0, *(point.x for point in points)]
    room = 0.1 * ((max(values) - min(values)) or 1.0)
    axis.set_xlim(min(values) - room, max(values) + room)
    axis.axvline(0, color=axis.spines["bottom"].get_edgecolor(), linewidth=1.0)
    axis.set_xlabel("ms per step")
