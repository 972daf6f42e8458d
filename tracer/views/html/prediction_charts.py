"""Charts of predicted steps: over bucket caps, and other changes.

Caps are logarithmic; DDP's default, whose first bucket has another cap than the others, stands apart on the left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import ceil, floor, log2, log10
from textwrap import shorten

from analyzers.prediction import Scenario, WhatIf
from analyzers.units import NS_PER_MS, ms
from tracer.views import SERIES, rounded_up
from tracer.views.html.chart import (
    BOX,
    CROSS,
    FRAME,
    INK,
    OUTLINES,
    Band,
    Chart,
    ChartMark,
    Frame,
    GuideLine,
    Series,
    Tick,
    axis,
    joined,
)
from tracer.views.sections.results import cap, gpus, row_words, rows_besides_caps

# Between DDP's default and the smallest cap, in doublings.
APART = 1.5
# What stays free on both sides of caps, and between the points of one cap on different numbers of GPUs, whose intervals
# would hide one another, pixels.
MARGIN, BESIDE = 20, 3
# Of all that is shown, what stays empty at both ends of an axis.
AIR = 0.08
TICKS = 5
# Of rows: where their field begins and ends, and the height of each and of what is below them, pixels.
LEFT, RIGHT, ROW, FOOT = 330, 830, 24, 40
# Letters that there is room for, left of the field; all of them are shown where the pointer is.
LONGEST = 52


def cap_places(prediction: WhatIf) -> dict[float | None, float]:
    """Return where each cap is on the axis, the run's own included: doublings of a MB."""
    caps = {scenario.bucket_mb for scenario in prediction.of_settings} | {prediction.baseline.bucket_mb}
    sizes = sorted(size for size in caps if size is not None)
    places: dict[float | None, float] = {None: log2(sizes[0]) - APART if sizes else 0.0} if None in caps else {}
    return places | {size: log2(size) for size in sizes}


def by_gpus(prediction: WhatIf) -> list[tuple[int, list[Scenario]]]:
    """Return the scenarios for each number of GPUs, caps in order of size, the default first."""
    ordered = sorted(prediction.of_settings, key=lambda scenario: (scenario.gpus, scenario.bucket_mb or 0.0))
    return [(number, list(group)) for number, group in groupby(ordered, key=lambda scenario: scenario.gpus)]


def caps_chart(prediction: WhatIf) -> Chart:
    """Draw steps over caps, a series for each number of GPUs."""
    places, baseline = cap_places(prediction), prediction.baseline
    low_ns, high_ns = (baseline.predicted_step_ns + sign * prediction.uncertainty_ns for sign in (-1, 1))
    ends = [float(end) for scenario in prediction.of_settings for end in scenario.interval_ns]
    up, ticks = _times([*ends, low_ns, high_ns, baseline.measured_step_ns], FRAME.bottom, FRAME.top)
    across = axis(min(places.values()), max(places.values()), FRAME.left + MARGIN, FRAME.right - MARGIN)
    series = []
    for index, (number, scenarios) in enumerate(by_gpus(prediction)):
        marks = [
            _mark(
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
    measured = f"measured under {cap(baseline.bucket_mb)} on {gpus(baseline.gpus)}: {ms(baseline.measured_step_ns)}"
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
    bottom = FRAME.top + ROW * len(scenarios)
    frame = Frame(height=bottom + FOOT, left=LEFT, right=RIGHT, bottom=bottom)
    measured_ns = prediction.baseline.measured_step_ns
    across, ticks = _times([measured_ns, *(end for each in scenarios for end in each.interval_ns)], LEFT, RIGHT)
    places = [frame.top + ROW * (place + 0.5) for place in range(len(scenarios))]
    names = [row_words(each, prediction) for each in scenarios]
    marks = [
        _mark(each, name, place, across, sideways=True)
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


def _mark(
    scenario: Scenario, what: str, place: float, along: Callable[[float], float], sideways: bool = False
) -> ChartMark:
    """Return a prediction as a mark at a place on one axis, its step along the other."""
    low_ns, high_ns = scenario.interval_ns
    step = along(scenario.predicted_step_ns)
    words = f"{what}: {ms(scenario.predicted_step_ns)}, nine in ten {ms(low_ns)} to {ms(high_ns)}"
    words += f", {ms(scenario.predicted_exposed_comm_ns)} of communication exposed"
    words += f"; ? {scenario.why}" if scenario.why else ""
    x, y = (step, place) if sideways else (place, step)
    return ChartMark(x, y, words, along(low_ns), along(high_ns), not scenario.reliable)


def _times(values_ns: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], list[Tick]]:
    """Return an axis that has these times, and round figures on it, in ms."""
    least, most = min(values_ns), max(values_ns)
    air = AIR * (most - least) or 0.01 * most
    low_ns, high_ns = least - air, most + air
    every = rounded_up((high_ns - low_ns) / TICKS)
    digits = max(0, -floor(log10(every / NS_PER_MS)))
    marks = [multiple * every for multiple in range(ceil(low_ns / every), floor(high_ns / every) + 1)]
    place = axis(low_ns, high_ns, start, end)
    return place, [Tick(place(mark), f"{mark / NS_PER_MS:,.{digits}f}") for mark in marks]
