"""SVG of predicted steps besides those of caps: a row each.

as recorded                   |      ---o---
reshard_after_forward=False   |  ---o---            o: the prediction, ---: where nine in ten such steps lie
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

from analyzers.prediction import Scenario, WhatIf
from analyzers.units import ms
from tracer.views.html.bandwidth_curve import Frame, Tick, axis
from tracer.views.html.prediction_curve import round_ticks
from tracer.views.sections.results import row_words, rows_besides_caps

WIDTH, LEFT, RIGHT, TOP = 860, 330, 830, 20
ROW, FOOT = 24, 40
# Letters that there is room for, left of the field; all of them are shown where the pointer is.
LONGEST = 52


@dataclass(frozen=True)
class PredictedRow:
    """One row: its words, where it is, where the prediction and its interval are across; what it says in full."""

    label: str
    y: float
    x: float
    low: float
    high: float
    hollow: bool
    words: str


@dataclass(frozen=True)
class RowPicture:
    """All that the template draws; `measured` is where the run's own step is, across."""

    rows: list[PredictedRow]
    across: list[Tick]
    up: list[Tick]
    measured: float
    measured_words: str
    frame: Frame


def row_picture(prediction: WhatIf) -> RowPicture | None:
    """Build the picture; None where caps are all that is asked about."""
    scenarios = rows_besides_caps(prediction)
    if not scenarios:
        return None
    bottom = TOP + ROW * len(scenarios)
    frame = Frame(WIDTH, bottom + FOOT, left=LEFT, right=RIGHT, top=TOP, bottom=bottom)
    measured_ns = prediction.baseline.measured_step_ns
    low_ns, high_ns, marks = round_ticks([measured_ns, *_ends(scenarios)])
    across = axis(low_ns, high_ns, LEFT, RIGHT)
    return RowPicture(
        rows=[
            PredictedRow(
                label=shorten(row_words(each, prediction), LONGEST, placeholder="..."),
                y=TOP + ROW * (place + 0.5),
                x=across(each.predicted_step_ns),
                low=across(each.interval_ns[0]),
                high=across(each.interval_ns[1]),
                hollow=not each.reliable,
                words=_words(each, prediction),
            )
            for place, each in enumerate(scenarios)
        ],
        across=[Tick(across(ns), label) for ns, label in marks],
        up=[],
        measured=across(measured_ns),
        measured_words=f"the run's own step, measured: {ms(measured_ns)}",
        frame=frame,
    )


def _ends(scenarios: Sequence[Scenario]) -> list[float]:
    return [float(end) for each in scenarios for end in each.interval_ns]


def _words(scenario: Scenario, prediction: WhatIf) -> str:
    low_ns, high_ns = scenario.interval_ns
    step = f"{row_words(scenario, prediction)}: {ms(scenario.predicted_step_ns)}"
    within = f", nine in ten {ms(low_ns)} to {ms(high_ns)}"
    return step + within + (f"; ? {scenario.why}" if scenario.why else "")
