"""Charts of pages: bandwidth over sizes, predicted steps, panels of a sweep.

All axes but those of steps are logarithmic; DDP's default, whose first bucket has another cap than the others, stands
apart on the left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, floor, log2, log10
from textwrap import shorten

from analyzers.collectives import BandwidthRow
from analyzers.prediction import Prediction, WhatIf
from analyzers.reporting import Report
from analyzers.run import Calibration
from analyzers.units import ms
from tracer.views import (
    MOST_TICKS,
    NARROW,
    REACH,
    SERIES,
    Panel,
    PlotLine,
    PlotPoint,
    gbps,
    labels_of,
    one_unit,
    rounded_up,
    short_number,
    size,
    ticks_of,
)
from tracer.views.html.chart import (
    BOX,
    CROSS,
    DASH,
    FRAME,
    INK,
    OUTLINES,
    TICKS,
    Band,
    Chart,
    ChartMark,
    GuideLine,
    Series,
    Tick,
    axis,
    color_of,
    joined,
    line_series,
    row_places,
    rows_frame,
    times_axis,
)
from tracer.views.sections.results import cap, gpus, own_gpus, row_words, rows_besides_caps

# Between DDP's default and the smallest cap, in doublings.
APART = 1.5
# What stays free on both sides of caps, and between the points of one cap on different numbers of GPUs, whose intervals
# would hide one another.
MARGIN, BESIDE = 20, 3
# Of a panel's axes, what stays empty at both ends; and what stays free beside the marks.
PANEL_AIR, PANEL_MARGIN = 0.06, 16
# Letters that a phone has room for; all of them are shown where the pointer is.
LONGEST = 52


def bandwidth_chart(report: Report, calibration: Calibration | None) -> Chart | None:
    """Build the chart; None where no bandwidth is known."""
    rows = [row for row in report.summary.communication if row.bytes and row.busbw_gbps]
    if not rows:
        return None
    used = {(row.kind, row.group_size) for row in rows}
    calibrated = [row for row in calibration.rows if (row.collective, row.group_size) in used] if calibration else []
    sizes = [*(row.bytes or 1 for row in rows), *(row.bytes for row in calibrated)]
    rates = [rate for row in rows for rate in (row.busbw_gbps, row.busbw_low_gbps, row.busbw_high_gbps) if rate]
    across, size_decades = _decades(sizes, FRAME.left, FRAME.right)
    unit, in_unit = one_unit(10.0 ** size_decades[-1])
    up, rate_decades = _decades([*rates, *(row.busbw_gbps for row in calibrated)], FRAME.bottom, FRAME.top)
    series = [
        Series(kind, color, outline, [_measured(row, across, up) for row in rows if row.kind == kind])
        for kind, (color, outline) in _looks(rows).items()
    ]
    lines = []
    for (kind, group_size), group in groupby(
        sorted(calibrated, key=lambda row: (row.collective, row.group_size, row.bytes)),
        key=lambda row: (row.collective, row.group_size),
    ):
        points = joined([(across(log10(row.bytes)), up(log10(row.busbw_gbps))) for row in group])
        lines.append(GuideLine(points, "dashed", f"{kind} between {group_size}, calibrated", _looks(rows)[kind][0]))
    return Chart(
        label="Bus bandwidth over message size",
        x=f"message size, {unit}",
        y="busbw, GB/s",
        across=[Tick(across(power), in_unit(10.0**power)) for power in size_decades],
        up=[Tick(up(power), f"{10.0**power:,g}") for power in rate_decades],
        series=[*series, Series("calibrated", INK, DASH, look="dashed")] if lines else series,
        lines=lines,
    )


def _looks(rows: Sequence[BandwidthRow]) -> dict[str, tuple[str, str]]:
    """Choose a color and an outline for each kind."""
    kinds = dict.fromkeys(row.kind for row in rows)
    return {kind: (SERIES[at % len(SERIES)], OUTLINES[at % len(OUTLINES)]) for at, kind in enumerate(kinds)}


def _decades(values: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], range]:
    """Build an axis of logarithms, and its decades: from that below the least value to that above the greatest."""
    low = floor(log10(min(values)))
    high = max(ceil(log10(max(values))), low + 1)
    return axis(low, high, start, end), range(low, high + 1)


def _measured(row: BandwidthRow, across: Callable[[float], float], up: Callable[[float], float]) -> ChartMark:
    middle = row.busbw_gbps or 1.0
    text = f"{row.kind} between {row.group_size}, {size(row.bytes)}, {row.purpose}: {gbps(middle)} GB/s"
    text += f" ({gbps(row.busbw_low_gbps)} - {gbps(row.busbw_high_gbps)}), {row.count} times"
    if row.calibrated_gbps is not None:
        text += f"; calibrated {gbps(row.calibrated_gbps)} GB/s"
    return ChartMark(
        x=across(log10(row.bytes or 1)),
        y=up(log10(middle)),
        low=up(log10(row.busbw_low_gbps or middle)),
        high=up(log10(row.busbw_high_gbps or middle)),
        words=text + ("; a bound" if row.bound else ""),
    )


def cap_places(prediction: WhatIf) -> dict[float | None, float]:
    """Return where each cap is on the axis, the run's own included: doublings of a MB."""
    caps = {scenario.bucket_mb for scenario in prediction.of_settings} | {prediction.baseline.bucket_mb}
    sizes = sorted(size for size in caps if size is not None)
    places: dict[float | None, float] = {None: log2(sizes[0]) - APART if sizes else 0.0} if None in caps else {}
    return places | {size: log2(size) for size in sizes}


def by_gpus(prediction: WhatIf) -> list[tuple[int, list[Prediction]]]:
    """Return the scenarios for each number of GPUs, caps in order of size, the default first."""
    ordered = sorted(prediction.of_settings, key=lambda scenario: (scenario.gpus or 1, scenario.bucket_mb or 0.0))
    return [(number, list(group)) for number, group in groupby(ordered, key=lambda scenario: scenario.gpus or 1)]


def caps_chart(prediction: WhatIf) -> Chart:
    """Draw steps over caps, a series for each number of GPUs."""
    places, baseline = cap_places(prediction), prediction.baseline
    low_ns, high_ns = (baseline.measured_step_ns + sign * prediction.uncertainty_ns for sign in (-1, 1))
    ends = [float(end) for scenario in prediction.of_settings for end in scenario.steps_within_ns]
    up, ticks = times_axis([*ends, low_ns, high_ns, baseline.measured_step_ns], FRAME.bottom, FRAME.top)
    across = axis(min(places.values()), max(places.values()), FRAME.left + MARGIN, FRAME.right - MARGIN)
    series = []
    for index, (number, scenarios) in enumerate(by_gpus(prediction)):
        marks = [
            _predicted(
                scenario,
                f"{cap(scenario.bucket_mb)} on {gpus(number)}",
                round(across(places[scenario.bucket_mb]) + BESIDE * index, 1),
                up,
            )
            for scenario in scenarios
        ]
        sized = [mark for mark, scenario in zip(marks, scenarios, strict=True) if scenario.bucket_mb is not None]
        look = SERIES[index % len(SERIES)], OUTLINES[index % len(OUTLINES)]
        series.append(Series(gpus(number), *look, marks, joined([(mark.x, mark.y) for mark in sized])))
    measured = f"measured under {cap(baseline.bucket_mb)} on {own_gpus(baseline)}: {ms(baseline.measured_step_ns)}"
    own = ChartMark(across(places[baseline.bucket_mb]), up(baseline.measured_step_ns), measured)
    noise = f"as long as under its own settings, to within {ms(prediction.uncertainty_ns)}"
    return Chart(
        label="Predicted steps over bucket caps",
        x="bucket cap, MB",
        y="step, ms",
        across=[Tick(across(place), cap(size).removesuffix(" MB")) for size, place in places.items()],
        up=ticks,
        series=[
            *series,
            Series("measured", INK, CROSS, [own], look="measured"),
            Series("noise", INK, BOX, look="noise"),
        ],
        band=Band(up(high_ns), round(up(low_ns) - up(high_ns), 1), noise),
    )


def rows_chart(prediction: WhatIf) -> Chart | None:
    """Draw what is changed besides caps, a row each; None where caps are all that is asked about."""
    scenarios = rows_besides_caps(prediction)
    if not scenarios:
        return None
    frame = rows_frame(len(scenarios))
    measured_ns = prediction.baseline.measured_step_ns
    ends = (end for each in scenarios for end in each.steps_within_ns)
    across, ticks = times_axis([measured_ns, *ends], frame.left, frame.right)
    places = row_places(len(scenarios))
    names = [row_words(each) for each in scenarios]
    marks = [
        _predicted(each, name, place, across, sideways=True)
        for each, name, place in zip(scenarios, names, places, strict=True)
    ]
    measured = across(measured_ns)
    return Chart(
        label="Predicted steps with something else changed",
        x="step, ms; the line is the run's own, as measured",
        y="",
        across=ticks,
        up=[Tick(place, shorten(name, LONGEST, placeholder="...")) for place, name in zip(places, names, strict=True)],
        series=[Series("", INK, OUTLINES[0], marks)],
        lines=[
            GuideLine(
                joined([(measured, frame.top), (measured, frame.bottom)]),
                "measured",
                f"the run's own step, measured: {ms(measured_ns)}",
            )
        ],
        frame=frame,
        sideways=True,
    )


def _predicted(
    scenario: Prediction, what: str, place: float, along: Callable[[float], float], sideways: bool = False
) -> ChartMark:
    """Return a prediction as a mark at a place on one axis, its step along the other."""
    low_ns, high_ns = scenario.steps_within_ns
    step = along(scenario.step_ns)
    words = f"{what}: {ms(scenario.step_ns)}, between {ms(low_ns)} and {ms(high_ns)}"
    if scenario.predicted_exposed_comm_ns is not None:
        words += f", {ms(scenario.predicted_exposed_comm_ns)} of communication exposed"
    words += f"; ? {scenario.why}" if scenario.why else ""
    x, y = (step, place) if sideways else (place, step)
    return ChartMark(x, y, words, along(low_ns), along(high_ns), not scenario.reliable)


def panel_charts(panels: Sequence[Panel]) -> list[Chart]:
    """Draw a row of panels, those without lines left out."""
    points = [point for panel in panels for line in panel.lines for point in line.points]
    swept = sorted({point.x for point in points})
    low, high = _limits(panels, points)
    field = Field(
        logarithmic(swept[0], swept[-1], FRAME.left + PANEL_MARGIN, FRAME.right - PANEL_MARGIN),
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
    air = (high / low) ** PANEL_AIR if high > low else REACH
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
