"""Charts of a page: axes, marks, lines, a key, bars of steps.

Every figure is a result's; here it only gets its place, in the chart's units from its upper left corner. `chart.html`
draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from analyzers.units import NS_PER_MS
from tracer.views import SERIES, Place, rounded_up

# Outlines around (0, 0), one for each of the palette's series; a cross, a dash and a box for what is no series.
OUTLINES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6L6 5H-6z",
    "M0-6.5L6.5 0L0 6.5L-6.5 0z",
    "M0 6L6-5H-6z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
)
CROSS, DASH, BOX = "M-6-6L6 6M-6 6L6-6", "M-6 0H8", "M-7-6h14v12h-14z"
INK = "var(--ink)"


@dataclass(frozen=True)
class Frame:
    """A chart's size and, within it, the field that its axes span; small, so that a phone shows it whole."""

    width: int = 560
    height: int = 280
    left: int = 56
    right: int = 546
    top: int = 22
    bottom: int = 236


FRAME = Frame()
# Of rows: where their field begins, the height of each, and where in it the marks are, below the name.
ROWS_LEFT, ROW, MARKS_IN_ROW = 0, 36, 0.625
# Of all that is shown, what stays empty at both ends of an axis.
AIR = 0.08
TICKS = 5


@dataclass(frozen=True)
class Tick:
    """A line of a grid, or a place on an axis, and its figure."""

    at: float
    label: str


@dataclass(frozen=True)
class ChartMark:
    """A figure: its place, what it says, from where to where it may lie; `hollow` where it is not to be trusted."""

    x: float
    y: float
    words: str
    low: float | None = None
    high: float | None = None
    hollow: bool = False


@dataclass(frozen=True)
class Series:
    """Marks that look alike, in the key by their label if they have one; `joined` are its points as SVG lists them.

    `look` is the class of their outlines in report.css, where color does not say it all; `is_dashed` their line's.
    """

    label: str
    color: str
    outline: str
    marks: Sequence[ChartMark] = ()
    joined: str = ""
    look: str = ""
    is_dashed: bool = False


@dataclass(frozen=True)
class GuideLine:
    """A line that is no series': its points, its class in report.css, what it says, a color of its own."""

    points: str
    look: str
    words: str
    color: str = ""


@dataclass(frozen=True)
class Band:
    """A stretch of the field, over its whole width, and what it says."""

    top: float
    height: float
    words: str


@dataclass(frozen=True)
class Chart:
    """All that the template draws; `sideways`: intervals lie across, and `up` names rows, above their marks."""

    label: str
    x: str
    y: str
    across: Sequence[Tick]
    up: Sequence[Tick]
    series: Sequence[Series]
    lines: Sequence[GuideLine] = ()
    band: Band | None = None
    sideways: bool = False
    frame: Frame = FRAME


@dataclass(frozen=True)
class StepBar:
    """A step as a bar: its name, what it takes, each part's look, length and words; `rest` is left empty behind them.

    `mark` is what it stands out by, `place` where it is in the timeline.
    """

    name: str
    step: str
    parts: Sequence[tuple[str, float, str]]
    rest: float | None = None
    mark: str = ""
    place: Place | None = None


def axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return what puts values between two others onto pixels, to a tenth; in the middle if there is nothing between."""
    if low == high:
        return lambda value: (start + end) / 2
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 1)


def joined(points: Sequence[tuple[float, float]]) -> str:
    """Return points as SVG lists them."""
    return " ".join(f"{x},{y}" for x, y in points)


def color_of(number: int) -> str:
    """Return the color of a series by its number; colors come again."""
    return SERIES[number % len(SERIES)]


def line_series(number: int, label: str, marks: Sequence[ChartMark]) -> Series:
    """Join marks to a line; where colors come again, they come with other outlines, and dashed."""
    outline = OUTLINES[(number + number // len(SERIES)) % len(OUTLINES)]
    points = joined([(mark.x, mark.y) for mark in marks])
    return Series(label, color_of(number), outline, marks, points, is_dashed=number >= len(SERIES))


def rows_frame(rows: int) -> Frame:
    """Return the frame of rows, whose names stand above their marks."""
    bottom = FRAME.top + ROW * rows
    return Frame(height=bottom + FRAME.height - FRAME.bottom, left=ROWS_LEFT, bottom=bottom)


def row_places(rows: int) -> list[float]:
    """Return where the marks of each row are."""
    return [FRAME.top + ROW * (row + MARKS_IN_ROW) for row in range(rows)]


def times_axis(values_ns: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], list[Tick]]:
    """Return an axis that has these times, and round figures on it, in ms; a study that exposes nothing has only 0."""
    least, most = min(values_ns), max(values_ns)
    air = AIR * (most - least) or 0.01 * most or NS_PER_MS
    low_ns, high_ns = least - air, most + air
    every = rounded_up((high_ns - low_ns) / TICKS)
    digits = max(0, -floor(log10(every / NS_PER_MS)))
    marks = [multiple * every for multiple in range(ceil(low_ns / every), floor(high_ns / every) + 1)]
    place = axis(low_ns, high_ns, start, end)
    return place, [Tick(place(mark), f"{mark / NS_PER_MS:,.{digits}f}") for mark in marks]
