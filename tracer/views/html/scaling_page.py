"""Page of the scaling study: sentence, efficiency, parts of steps, folded tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2

from analyzers.comparison import CellRow, Ratio, Scaling
from analyzers.units import NS_PER_MS, ms, percent
from tracer.views import COMM, MOST_LINES, MOST_TICKS, SPLIT_PARTS, count, in_legend, spread_out, ticks_of
from tracer.views.html.chart import (
    FRAME,
    INK,
    OUTLINES,
    ROWS_LEFT,
    Chart,
    ChartMark,
    GuideLine,
    Series,
    StepBar,
    Tick,
    axis,
    joined,
    line_series,
    row_places,
    rows_frame,
    times_axis,
)
from tracer.views.html.charts import panel_charts
from tracer.views.html.templates import filled
from tracer.views.sections.results import (
    MOST_CELLS,
    PANELS,
    RowMarks,
    cell_words,
    grouped,
    left_out,
    scaling_tables,
    scaling_title,
    study_panels,
    subtraction_rows,
)

# Which of the study's definitions stand below which table.
MEANINGS = {
    "time": ("step", "epoch"),
    "weak": ("weak", "told", "baseline"),
    "strong": ("strong", "told", "baseline"),
    "shares": ("measured",),
    "subtraction": ("subtraction", "measured"),
    "bandwidth": ("bandwidth",),
    "epochs": ("epoch",),
}
# What a study is made for; other tables are folded.
UNFOLDED = ("shares", "time", "weak", "strong", "bandwidth")
# What the page draws by itself.
OWN = "shares"
PERCENTS = range(0, 101, 25)
# Between the marks of one row, whose intervals would hide one another.
BESIDE = 4


@dataclass(frozen=True)
class TableCharts:
    """What is drawn beside a table, and what is left out of it."""

    charts: Sequence[Chart]
    notes: Sequence[str]


def scaling_html(study: Scaling) -> str:
    """Build the page."""
    shown = sorted(scaling_tables(study), key=lambda table: table.name != OWN)
    meanings = {table: {name: study.definitions[name] for name in names} for table, names in MEANINGS.items()}
    bars = _bars(study)
    drawn = {field for bar in bars for field, share, _ in bar.parts if share}
    return filled(
        "scaling.html",
        {
            "study": study,
            "title": scaling_title(study),
            "warnings": [str(warning) for warning in study.warnings],
            "tables": shown,
            "drawn": {**{name: _drawn(study, name) for name in PANELS}, "subtraction": _subtraction(study)},
            "meanings": meanings,
            "unfolded": UNFOLDED,
            "efficiency": _efficiency(study),
            "bars": bars,
            "parts": in_legend(SPLIT_PARTS),
            "legend": [part for part in SPLIT_PARTS if part.field in drawn],
        },
    )


def _drawn(study: Scaling, name: str) -> TableCharts:
    rows, notes = study_panels(study, PANELS[name])
    return TableCharts([chart for row in rows for chart in panel_charts(row)], notes)


def _subtraction(study: Scaling) -> TableCharts:
    """Draw what subtraction would have said beside what was measured, a row for each cell."""
    whole, marks = subtraction_rows(study)
    if not whole:
        return TableCharts([], [])
    cells, noun = spread_out(whole, MOST_CELLS), study.device_noun
    names = [cell_words(cell, noun) for cell in cells]
    marks = [replace(each, points=spread_out(each.points, MOST_CELLS)) for each in marks]
    frame = rows_frame(len(cells))
    times = [0.0, *(point.x * NS_PER_MS for each in marks for point in each.points if point is not None)]
    across, ticks = times_axis(times, frame.left, frame.right)
    chart = Chart(
        label="Exposed communication, measured and subtracted",
        x="ms per step",
        y="",
        across=ticks,
        up=[Tick(place, name) for place, name in zip(row_places(len(cells)), names, strict=True)],
        series=[_row_marks(each, number, names, across) for number, each in enumerate(marks)],
        lines=[GuideLine(joined([(across(0), frame.top), (across(0), frame.bottom)]), "grid", "0")],
        sideways=True,
        frame=frame,
    )
    return TableCharts([chart], left_out(len(whole), len(cells), "cells"))


def _row_marks(marks: RowMarks, number: int, names: Sequence[str], across: Callable[[float], float]) -> Series:
    """Draw the marks of one look, a little below those before; intervals end where the axis does."""
    drawn = []
    for point, name, place in zip(marks.points, names, row_places(len(names)), strict=True):
        if point is not None:
            low, high = (
                None if end is None else min(max(across(end * NS_PER_MS), ROWS_LEFT), FRAME.right)
                for end in (point.low, point.high)
            )
            words = f"{name}, {marks.label}: {point.x:,.3f} ms"
            drawn.append(ChartMark(across(point.x * NS_PER_MS), place + BESIDE * number, words, low, high))
    return Series(marks.label, COMM.color if number == 0 else INK, OUTLINES[number], drawn)


def _bars(study: Scaling) -> list[StepBar]:
    fields, noun = [part.field for part in SPLIT_PARTS], study.device_noun
    return [
        _bar(cell, cell_words(cell, noun))
        for cell, _, _ in grouped(study)
        if all(cell.shares.get(name) is not None for name in fields)
    ]


def _bar(cell: CellRow, name: str) -> StepBar:
    """Show what a cell's profiled steps are made of, in shares of their time; and their median."""
    shares = [(part, cell.shares[part.field] or 0.0) for part in SPLIT_PARTS]
    parts = [(part.field, share, f"{part.label} {percent(share)}") for part, share in shares]
    return StepBar(name, ms(cell.measured["span_ns"].median or 0.0), parts)


def _efficiency(study: Scaling) -> TableCharts:
    """Draw each strategy's and batch's efficiency over devices; nothing where nothing compares."""
    noun = study.device_noun
    rows = [(row, row.efficiency) for row in study.weak if row.gpus > 1 and row.efficiency is not None]
    if not rows:
        return TableCharts([], [])
    numbers = sorted({1, *(row.gpus for row, _ in rows)})
    # What cannot be told makes no axis.
    top = 1.05 * max([1.0, *(efficiency.value for _, efficiency in rows if efficiency.is_told)])
    across, up = axis(0, log2(numbers[-1]), FRAME.left, FRAME.right), axis(0, top, FRAME.bottom, FRAME.top)
    marks: dict[str, list[ChartMark]] = {}
    for row, efficiency in sorted(rows, key=lambda each: each[0].gpus):
        name = f"{row.strategy}, batch {row.batch:,}"
        words = f"{row.strategy}, {count(row.gpus, noun)}, batch {row.batch:,}: {_told(efficiency)}"
        points = marks.setdefault(name, [ChartMark(across(0), up(1.0), f"one {noun}")])
        height = up(min(efficiency.value, top))
        points.append(ChartMark(across(log2(row.gpus)), height, words, hollow=not efficiency.is_told))
    lines = spread_out(list(marks.items()), MOST_LINES)
    chart = Chart(
        label=f"Weak efficiency over {noun}s",
        x=f"{noun}s",
        y="",
        across=[Tick(across(log2(gpus)), f"{gpus}") for gpus in ticks_of(numbers, MOST_TICKS)],
        up=[Tick(up(number / 100), f"{number} %") for number in PERCENTS],
        series=[line_series(number, name, points) for number, (name, points) in enumerate(lines)],
        lines=[GuideLine(joined([(FRAME.left, up(1.0)), (FRAME.right, up(1.0))]), "dashed", "ideal")],
    )
    return TableCharts([chart], left_out(len(marks), len(lines), "lines"))


def _told(efficiency: Ratio) -> str:
    return percent(efficiency.value) if efficiency.is_told else "cannot be told"
