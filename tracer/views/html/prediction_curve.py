"""SVG of predicted steps over bucket caps.

Caps are logarithmic; DDP's default, whose first bucket has another cap than the others, stands apart on the left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log2, log10

from analyzers.prediction import Scenario, WhatIf
from analyzers.units import NS_PER_MS, ms
from tracer.views import SERIES, rounded_up
from tracer.views.html.bandwidth_curve import SHAPES, Frame, Tick, axis
from tracer.views.sections.results import cap, gpus

FRAME = Frame(860, 300, left=62, right=710, top=18, bottom=260)
# Between DDP's default and the smallest cap, in doublings.
APART = 1.5
# Of all that is shown, what stays empty above and below.
AIR = 0.08
TICKS = 5
# Pixels between the points of one cap on different numbers of GPUs, whose intervals would hide one another.
BESIDE = 3


@dataclass(frozen=True)
class CapPoint:
    """A prediction: its place, what it says; `hollow` where it is not to be trusted.

    `top` and `bottom` are where nine in ten such steps end.
    """

    x: float
    y: float
    hollow: bool
    words: str
    top: float
    bottom: float


@dataclass(frozen=True)
class CapLine:
    """Predictions for one number of GPUs: the points, those to join as SVG has them, a color and an outline."""

    label: str
    points: list[CapPoint]
    joined: str
    color: str
    shape: str


@dataclass(frozen=True)
class CapPicture:
    """All that the template draws; `noise` is the band's top and height, `measured` the run as it was."""

    lines: list[CapLine]
    across: list[Tick]
    up: list[Tick]
    noise: tuple[float, float]
    noise_words: str
    measured: CapPoint
    frame: Frame = FRAME


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


def capline(prediction: WhatIf) -> CapPicture:
    """Build the picture."""
    places, baseline = cap_places(prediction), prediction.baseline
    low_ns, high_ns = (baseline.predicted_step_ns + sign * prediction.uncertainty_ns for sign in (-1, 1))
    ends = [float(end) for scenario in prediction.of_settings for end in scenario.interval_ns]
    least_ns, most_ns, marks = round_ticks([*ends, low_ns, high_ns, baseline.measured_step_ns])
    up = axis(least_ns, most_ns, FRAME.bottom, FRAME.top)
    across = _scale(places.values(), FRAME.left + 20, FRAME.right - 20)
    lines = []
    for index, (number, scenarios) in enumerate(by_gpus(prediction)):
        points = [_point(scenario, across[places[scenario.bucket_mb]] + BESIDE * index, up) for scenario in scenarios]
        joined = [point for point, scenario in zip(points, scenarios, strict=True) if scenario.bucket_mb is not None]
        lines.append(
            CapLine(
                label=gpus(number),
                points=points,
                joined=" ".join(f"{point.x},{point.y}" for point in joined),
                color=SERIES[index % len(SERIES)],
                shape=SHAPES[index % len(SHAPES)],
            )
        )
    measured = f"measured under {cap(baseline.bucket_mb)} on {gpus(baseline.gpus)}: {ms(baseline.measured_step_ns)}"
    measured_y = up(baseline.measured_step_ns)
    return CapPicture(
        lines=lines,
        across=[Tick(across[position], cap(size).removesuffix(" MB")) for size, position in places.items()],
        up=[Tick(up(ns), label) for ns, label in marks],
        noise=(up(high_ns), round(up(low_ns) - up(high_ns), 1)),
        noise_words=f"as long as under its own settings, to within {ms(prediction.uncertainty_ns)}",
        measured=CapPoint(across[places[baseline.bucket_mb]], measured_y, False, measured, measured_y, measured_y),
    )


def _point(scenario: Scenario, x: float, up: Callable[[float], float]) -> CapPoint:
    low_ns, high_ns = scenario.interval_ns
    text = f"{cap(scenario.bucket_mb)} on {gpus(scenario.gpus)}: {ms(scenario.predicted_step_ns)}"
    within = f", nine in ten {ms(low_ns)} to {ms(high_ns)}"
    exposed = f", {ms(scenario.predicted_exposed_comm_ns)} of communication exposed"
    words = text + within + exposed + (f"; ? {scenario.why}" if scenario.why else "")
    y = up(scenario.predicted_step_ns)
    return CapPoint(round(x, 1), y, not scenario.reliable, words, up(high_ns), up(low_ns))


def round_ticks(values_ns: Sequence[float]) -> tuple[float, float, list[tuple[float, str]]]:
    """Return the ends of an axis that has these times, and round figures on it, with their words in ms."""
    least, most = min(values_ns), max(values_ns)
    air = AIR * (most - least) or 0.01 * most
    low_ns, high_ns = least - air, most + air
    every = rounded_up((high_ns - low_ns) / TICKS)
    digits = max(0, -floor(log10(every / NS_PER_MS)))
    marks = [multiple * every for multiple in range(ceil(low_ns / every), floor(high_ns / every) + 1)]
    return low_ns, high_ns, [(mark, f"{mark / NS_PER_MS:,.{digits}f}") for mark in marks]


def _scale(values: Iterable[float], start: float, end: float) -> dict[float, float]:
    """Map values to pixels, the least at the start; one alone to the middle."""
    ordered = sorted(set(values))
    span = ordered[-1] - ordered[0]
    if not span:
        return {ordered[0]: (start + end) / 2}
    return {value: round(start + (value - ordered[0]) / span * (end - start), 1) for value in ordered}
