"""Page of the scaling study: sentence, efficiency, parts of steps, folded tables."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from analyzers.comparison import CellRow, Scaling, WeakRow
from analyzers.units import ms, percent
from tracer.views import SERIES, SPLIT_PARTS, count, in_legend
from tracer.views.html.bandwidth_curve import FRAME, SHAPES, Frame, Tick
from tracer.views.html.templates import filled
from tracer.views.sections.results import grouped, picture_of, scaling_tables, scaling_title

# Which of the study's definitions stand below which table.
MEANINGS = {
    "time": ("step", "epoch"),
    "weak": ("weak", "baseline"),
    "strong": ("strong", "baseline"),
    "shares": ("measured",),
    "subtraction": ("subtraction", "measured"),
    "bandwidth": ("bandwidth",),
    "epochs": ("epoch",),
}
# What the page draws by itself.
OWN = "shares"
PERCENTS = range(0, 101, 25)


@dataclass(frozen=True)
class EfficiencyPoint:
    """A cell's efficiency, in pixels; hollow where it is uncertain."""

    x: float
    y: float
    words: str
    hollow: bool


@dataclass(frozen=True)
class EfficiencyLine:
    """A strategy's cells of one batch per GPU, over GPUs."""

    label: str
    color: str
    shape: str
    points: list[EfficiencyPoint]

    @property
    def joined(self) -> str:
        """Return the points as SVG lists them."""
        return " ".join(f"{point.x},{point.y}" for point in self.points)


@dataclass(frozen=True)
class EfficiencyPicture:
    """Weak efficiency over GPUs."""

    lines: list[EfficiencyLine]
    across: list[Tick]
    up: list[Tick]
    frame: Frame = FRAME


@dataclass(frozen=True)
class CellBar:
    """What a cell's profiled steps are made of, in shares of their time; and their median."""

    name: str
    step: str
    parts: list[tuple[str, float, str]]


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
            "efficiency": _efficiency(study.weak),
            "bars": bars,
            "parts": in_legend(SPLIT_PARTS),
            "legend": [part for part in SPLIT_PARTS if part.field in drawn],
        },
    )


def _embedded(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode("ascii")


def _bars(study: Scaling) -> list[CellBar]:
    fields = [part.field for part in SPLIT_PARTS]
    return [_bar(cell) for cell, _, _ in grouped(study) if all(cell.shares.get(name) is not None for name in fields)]


def _bar(cell: CellRow) -> CellBar:
    shares = [(part, cell.shares[part.field] or 0.0) for part in SPLIT_PARTS]
    parts = [(part.field, share, f"{part.label} {percent(share)}") for part, share in shares]
    name = f"{cell.strategy}, {count(cell.gpus, 'GPU')}, batch {cell.batch:,}"
    return CellBar(name, ms(cell.measured["span_ns"].median or 0.0), parts)


def _efficiency(weak: Sequence[WeakRow]) -> EfficiencyPicture | None:
    """Draw each strategy's and batch's efficiency over GPUs; None where nothing compares."""
    rows = [row for row in weak if row.gpus > 1 and row.efficiency is not None]
    if not rows:
        return None
    numbers = sorted({1, *(row.gpus for row in rows)})
    top = max(1.0, *(row.efficiency.value for row in rows if row.efficiency is not None))

    def across(gpus: int) -> float:
        return round(FRAME.left + (FRAME.right - FRAME.left) * log2(gpus) / log2(numbers[-1]), 1)

    def up(share: float) -> float:
        return round(FRAME.bottom - (FRAME.bottom - FRAME.top) * share / (1.05 * top), 1)

    lines: dict[tuple[str, int], list[EfficiencyPoint]] = {}
    for row in sorted(rows, key=lambda row: row.gpus):
        if row.efficiency is None:
            continue
        value = row.efficiency.value
        words = f"{row.strategy}, {count(row.gpus, 'GPU')}, batch {row.batch:,}: {percent(value)}"
        start = [EfficiencyPoint(across(1), up(1.0), "one GPU", hollow=False)]
        points = lines.setdefault((row.strategy, row.batch), start)
        points.append(EfficiencyPoint(across(row.gpus), up(value), words, row.efficiency.uncertain))
    return EfficiencyPicture(
        [
            EfficiencyLine(f"{name}, batch {batch:,}", SERIES[at % len(SERIES)], SHAPES[at % len(SHAPES)], points)
            for at, ((name, batch), points) in enumerate(lines.items())
        ],
        [Tick(across(gpus), f"{gpus}") for gpus in numbers],
        [Tick(up(number / 100), f"{number} %") for number in PERCENTS],
    )
