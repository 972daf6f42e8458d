"""Page of the scaling study: sentence, efficiency, parts of steps, folded tables."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from math import log2

from analyzers.comparison import CellRow, Ratio, Scaling
from analyzers.units import ms, percent
from tracer.views import SERIES, SPLIT_PARTS, count, in_legend
from tracer.views.html.chart import FRAME, OUTLINES, Chart, ChartMark, GuideLine, Series, StepBar, Tick, axis, joined
from tracer.views.html.templates import filled
from tracer.views.sections.results import grouped, picture_of, scaling_tables, scaling_title

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


def scaling_html(study: Scaling, light: Mapping[str, bytes], dark: Mapping[str, bytes]) -> str:
    """Build the page, with the same pictures on a light and on a dark ground, by file name."""
    shown = sorted(scaling_tables(study), key=lambda table: table.name != OWN)
    pictures = {
        table.name: {"light": _embedded(light[name]), "dark": _embedded(dark[name])}
        for table in shown
        if (name := picture_of(table)) in light and name in dark and table.name != OWN
    }
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
            "pictures": pictures,
            "meanings": meanings,
            "unfolded": UNFOLDED,
            "efficiency": _efficiency(study),
            "bars": bars,
            "parts": in_legend(SPLIT_PARTS),
            "legend": [part for part in SPLIT_PARTS if part.field in drawn],
        },
    )


def _embedded(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


def _bars(study: Scaling) -> list[StepBar]:
    fields = [part.field for part in SPLIT_PARTS]
    return [
        _bar(cell, study.device_noun)
        for cell, _, _ in grouped(study)
        if all(cell.shares.get(name) is not None for name in fields)
    ]


def _bar(cell: CellRow, noun: str) -> StepBar:
    """Show what a cell's profiled steps are made of, in shares of their time; and their median."""
    shares = [(part, cell.shares[part.field] or 0.0) for part in SPLIT_PARTS]
    parts = [(part.field, share, f"{part.label} {percent(share)}") for part, share in shares]
    name = f"{cell.strategy}, {count(cell.gpus, noun)}, batch {cell.batch:,}"
    return StepBar(name, ms(cell.measured["span_ns"].median or 0.0), parts)


def _efficiency(study: Scaling) -> Chart | None:
    """Draw each strategy's and batch's efficiency over devices; None where nothing compares."""
    noun = study.device_noun
    rows = [(row, row.efficiency) for row in study.weak if row.gpus > 1 and row.efficiency is not None]
    if not rows:
        return None
    numbers = sorted({1, *(row.gpus for row, _ in rows)})
    # What cannot be told makes no axis.
    top = 1.05 * max([1.0, *(efficiency.value for _, efficiency in rows if efficiency.is_told)])
    across, up = axis(0, log2(numbers[-1]), FRAME.left, FRAME.right), axis(0, top, FRAME.bottom, FRAME.top)
    marks: dict[tuple[str, int], list[ChartMark]] = {}
    for row, efficiency in sorted(rows, key=lambda each: each[0].gpus):
        words = f"{row.strategy}, {count(row.gpus, noun)}, batch {row.batch:,}: {_told(efficiency)}"
        points = marks.setdefault((row.strategy, row.batch), [ChartMark(across(0), up(1.0), f"one {noun}")])
        height = up(min(efficiency.value, top))
        points.append(ChartMark(across(log2(row.gpus)), height, words, hollow=not efficiency.is_told))
    return Chart(
        label=f"Weak efficiency over {noun}s",
        x=f"{noun}s",
        y="",
        across=[Tick(across(log2(gpus)), f"{gpus}") for gpus in numbers],
        up=[Tick(up(number / 100), f"{number} %") for number in PERCENTS],
        series=[
            Series(
                f"{name}, batch {batch:,}",
                SERIES[at % len(SERIES)],
                # Where colors come again, they come with other outlines, and dashed.
                OUTLINES[(at + at // len(SERIES)) % len(OUTLINES)],
                points,
                joined([(point.x, point.y) for point in points]),
                is_dashed=at >= len(SERIES),
            )
            for at, ((name, batch), points) in enumerate(marks.items())
        ],
        lines=[GuideLine(joined([(FRAME.left, up(1.0)), (FRAME.right, up(1.0))]), "dashed", "ideal")],
    )


def _told(efficiency: Ratio) -> str:
    return percent(efficiency.value) if efficiency.is_told else "cannot be told"
