"""Plots of the scaling study as PNG files.

Columns of panels are strategies; every number comes from `analyzers.comparison.scaling`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analyzers.comparison import CellRow, Scaling
from analyzers.units import ms
from tracer.views import COMM, COMPUTE, LIGHT, SPLIT_PARTS, TRANSFER, Panel, PlotPoint, StepPart, Theme, spread_out
from tracer.views.plots.axes import WIDTH_IN, blank, grid, noted, png, style
from tracer.views.plots.layout import hatch
from tracer.views.sections.results import (
    MOST_CELLS,
    PANELS,
    cell_words,
    epoch_over_batch,
    grouped,
    left_out,
    strong_over_gpus,
    study_panels,
    subtraction_rows,
    weak_over_gpus,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A picture over a page's whole width.
PAGE_IN = 7.2
# Of a strategy's name, what a title of such a picture holds.
SHORT = 10
# From this share of a step, %, on, a part of its bar has room for its number.
LABELLED = 5.0
BAR_HEIGHT_IN, MARGINS_IN = 0.34, 1.2
# Parts whose color wants white numbers on it.
DARK_PARTS = (COMPUTE, TRANSFER)
# Every picture that there may be.
PICTURES = (*(f"{name}.png" for name in PANELS), "shares.png", "subtraction.png")


def plots(study: Scaling, theme: Theme = LIGHT) -> dict[str, bytes]:
    """Draw the study's pictures, PNG by file name."""
    with style(theme):
        figures = {f"{name}.png": _grid(study, builders, theme) for name, builders in PANELS.items()}
        figures |= {"shares.png": _shares(study, theme), "subtraction.png": _subtraction(study, theme)}
        return {name: png(figure) for name, figure in figures.items() if figure is not None}


def speedups(study: Scaling, theme: Theme) -> Figure | None:
    """Draw weak and strong scaling over GPUs, and epochs over batches, with short titles; None of nothing swept."""

    def weak(study: Scaling, strategy: str) -> Panel:
        panel = weak_over_gpus(study, strategy)
        return replace(
            panel, title=f"{strategy[:SHORT]}: weak scaling", y=f"speedup, batch per {study.device_noun} fixed"
        )

    def strong(study: Scaling, strategy: str) -> Panel:
        panel = strong_over_gpus(study, strategy)
        return replace(panel, title=f"{strategy[:SHORT]}: strong scaling", y="speedup, global batch fixed")

    def epochs(study: Scaling, strategy: str) -> Panel:
        return replace(epoch_over_batch(study, strategy), title=f"{strategy[:SHORT]}: epoch, derived")

    return _grid(study, (weak, strong, epochs), theme, PAGE_IN)


def _grid(
    study: Scaling, builders: Sequence[Callable[[Scaling, str], Panel]], theme: Theme, width_in: float = WIDTH_IN
) -> Figure | None:
    """Draw rows of panels, a column per strategy; None where nothing would be drawn."""
    rows, notes = study_panels(study, builders)
    return noted(grid(rows, theme, width_in), notes, theme) if rows else None


@dataclass(frozen=True)
class PointStyle:
    """How a point is drawn, and how far below the middle of its line."""

    shape: str
    ink: str
    face: str
    below: float


def _shares(study: Scaling, theme: Theme) -> Figure | None:
    """Draw what steps are made of, as measured: a bar per cell, whose parts add up to its windows' time."""
    fields = [part.field for part in SPLIT_PARTS]
    whole = [cell for cell, _, _ in grouped(study) if all(cell.shares.get(name) is not None for name in fields)]
    if not whole:
        return None
    cells = spread_out(whole, MOST_CELLS)
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
    return noted(figure, left_out(len(whole), len(cells), "cells"), theme)


def _listed(study: Scaling, cells: Sequence[CellRow]) -> tuple[Figure, Axes]:
    """Return a figure with a line for each cell, the first on top."""
    figure = blank(MARGINS_IN + BAR_HEIGHT_IN * len(cells))
    axis = figure.subplots()
    noun = study.device_noun
    axis.set_yticks(range(len(cells)), [cell_words(cell, noun) for cell in cells])
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
    whole, marks = subtraction_rows(study)
    if not whole:
        return None
    cells = spread_out(whole, MOST_CELLS)
    figure, axis = _listed(study, cells)
    drawn = [spread_out(each.points, MOST_CELLS) for each in marks]
    _scale(axis, [point for points in drawn for point in points if point is not None])
    looks = (
        PointStyle("o", COMM.color, COMM.color, -0.22),
        PointStyle("D", theme.ink, theme.ground, 0.0),
        PointStyle("s", theme.ink, theme.ground, 0.22),
    )
    for each, points, look in zip(marks, drawn, looks, strict=True):
        _draw_points(axis, points, look, each.label)
    figure.legend(loc="outside upper center", ncols=3)
    return noted(figure, left_out(len(whole), len(cells), "cells"), theme)


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
