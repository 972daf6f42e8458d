"""Charts of panels, both axes logarithmic, a row on one scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log2, log10

from tracer.views import (
    MOST_TICKS,
    NARROW,
    REACH,
    Panel,
    PlotLine,
    PlotPoint,
    labels_of,
    rounded_up,
    short_number,
    ticks_of,
)
from tracer.views.html.chart import (
    DASH,
    FRAME,
    INK,
    OUTLINES,
    TICKS,
    Chart,
    ChartMark,
    GuideLine,
    Series,
    Tick,
    axis,
    color_of,
    joined,
    line_series,
)

# Of an axis of logarithms, what stays empty at both ends; and what stays free beside the marks.
AIR, MARGIN = 0.06, 16


def panel_charts(panels: Sequence[Panel]) -> list[Chart]:
    """Draw a row of panels, those without lines left out."""
    points = [point for panel in panels for line in panel.lines for point in line.points]
    swept = sorted({point.x for point in points})
    low, high = _limits(panels, points)
    field = Field(
        logarithmic(swept[0], swept[-1], FRAME.left + MARGIN, FRAME.right - MARGIN),
        logarithmic(low, high, FRAME.bottom, FRAME.top),
        low,
        high,
    )
    looks = {label: number for number, label in enumerate(labels_of(panels))}
    return [
        Chart(
            label=panel.title,
            x=panel.x,
            y=panel.y,
            across=[Tick(field.across(value), short_number(value)) for value in ticks_of(swept, MOST_TICKS)],
            up=[Tick(field.up(value), short_number(value)) for value in _round_values(low, high, panel.doublings)],
            series=[*(_series(line, looks[line.label], panel, field) for line in panel.lines), *_meanings(panel)],
            lines=[
                GuideLine(joined([(field.across(x), field.up(y)) for x, y in sorted(ideal)]), "dashed", "ideal", color)
                for ideal, color in [
                    *((line.ideal, color_of(looks[line.label])) for line in panel.lines),
                    (panel.ideal, ""),
                ]
                if ideal
            ],
        )
        for panel in panels
        if panel.lines
    ]


@dataclass(frozen=True)
class Field:
    """Where values are on a row's axes, and where the upright one ends."""

    across: Callable[[float], float]
    up: Callable[[float], float]
    low: float
    high: float


def _series(line: PlotLine, number: int, panel: Panel, field: Field) -> Series:
    """Join a line's points, each with its interval as far as the axis goes."""
    marks = []
    for point in sorted(line.points, key=lambda point: point.x):
        words = f"{line.label}; {panel.x}: {short_number(point.x)}; {panel.y}: {short_number(point.y)}"
        mark = ChartMark(field.across(point.x), field.up(point.y), words, hollow=point.uncertain)
        if point.low is not None and point.high is not None:
            low, high = field.up(max(point.low, field.low)), field.up(min(point.high, field.high))
            words += f" ({short_number(point.low)} to {short_number(point.high)})"
            mark = replace(mark, low=low, high=high, words=words)
        marks.append(mark)
    return line_series(number, line.label, marks)


def _meanings(panel: Panel) -> list[Series]:
    """Say in the key what hollow and dashed mean, where there are such."""
    is_uncertain = any(point.uncertain for line in panel.lines for point in line.points)
    has_ideal = panel.ideal or any(line.ideal for line in panel.lines)
    hollow, dashed = Series("uncertain", INK, OUTLINES[0], look="hollow"), Series("ideal", INK, DASH, look="dashed")
    return [*([hollow] if is_uncertain else []), *([dashed] if has_ideal else [])]


def logarithmic(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return what puts values between two others onto an axis of logarithms."""
    place = axis(log2(low), log2(high), start, end)
    return lambda value: place(log2(value))


def _limits(panels: Sequence[Panel], points: Sequence[PlotPoint]) -> tuple[float, float]:
    """Return the ends of the axis: an interval makes it as far only as REACH says."""
    ideals = [panel.ideal for panel in panels] + [line.ideal for panel in panels for line in panel.lines]
    values = [y for ideal in ideals for _, y in ideal]
    for point in points:
        ends = (end for end in (point.low, point.high) if end is not None)
        values += [point.y, *(min(max(end, point.y / REACH), point.y * REACH) for end in ends)]
    low, high = min(values), max(values)
    air = (high / low) ** AIR if high > low else REACH
    return low / air, high * air


def _round_values(low: float, high: float, doublings: bool) -> list[float]:
    """Return round figures on an axis of logarithms; on a narrow one, at even distances."""
    if high < NARROW * low:
        every = rounded_up((high - low) / TICKS)
        return [multiple * every for multiple in range(ceil(low / every), floor(high / every) + 1)]
    if doublings:
        return [2.0**power for power in range(ceil(log2(low)), floor(log2(high)) + 1)]
    decades = (10.0**power for power in range(floor(log10(low)), floor(log10(high)) + 1))
    return [value for decade in decades for value in (decade, 2 * decade, 5 * decade) if low <= value <= high]
