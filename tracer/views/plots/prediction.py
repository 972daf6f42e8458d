"""Plot of predictions: steps over bucket caps, efficiency over GPUs, other changes.

A hollow point is one that cannot be trusted; the band around the run's own settings is noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from analyzers.prediction import Prediction, WhatIf
from analyzers.units import NS_PER_MS, ms
from tracer.views import LIGHT, Theme, places, sentence
from tracer.views.html import by_gpus, cap_places
from tracer.views.plots.axes import MARKERS, ramp, saved, style, write_ticks
from tracer.views.plots.layout import TEXT_PT, Entry, Sheet, framed
from tracer.views.sections.results import (
    cap,
    gpus,
    hidden_means,
    no_longer_hidden,
    own_gpus,
    row_words,
    rows_besides_caps,
    signed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_IN = 2.5
# Of rows: what is between two, each line of their words, what the axis takes below them; and letters to a line.
ROW_IN, LINE_IN, ROWS_IN = 0.14, 0.14, 0.55
LABEL = 34
BAND_ALPHA = 0.25
REACH_ALPHA = 0.6
# What stays empty below and above efficiencies: of their distance from 100 %, and at least so many points.
AIR, LEAST_AIR = 0.12, 0.5
UNTRUSTED = "not to be trusted"


def prediction_picture(prediction: WhatIf, form: str, theme: Theme = LIGHT) -> bytes:
    """Return the picture as a file in a form of FORMS."""
    with style(theme, TEXT_PT):
        return saved(figure(prediction, theme), form)


def figure(prediction: WhatIf, theme: Theme) -> Figure:
    """Draw the picture, inside a style."""
    looks = _looks(prediction, theme) if prediction.has_caps else {}
    title = f"{prediction.run}: predicted steps" + " over bucket caps" * prediction.has_caps
    framing = Sheet(title, _facts(prediction), _entries(prediction, looks, theme), _notes(prediction))
    panels: list[tuple[float, Callable[[Axes], None]]] = []
    if prediction.has_caps:
        panels.append((PANEL_IN, lambda axis: _draw_steps(axis, prediction, looks, theme)))
    if prediction.scale_out is not None:
        panels.append((PANEL_IN, lambda axis: _draw_efficiency(axis, prediction, looks, theme)))
    if labels := [fill(row_words(each), LABEL, break_on_hyphens=False) for each in rows_besides_caps(prediction)]:
        lines = max(label.count("\n") + 1 for label in labels)
        height = ROWS_IN + (ROW_IN + LINE_IN * lines) * len(labels)
        panels.append((height, lambda axis: _draw_rows(axis, prediction, labels, theme)))
    heights = [height for height, _ in panels]
    drawing = framed(framing, sum(heights), theme)
    axes = drawing.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (_, draw) in zip(axes, panels, strict=True):
        draw(axis)
    return drawing


def _facts(prediction: WhatIf) -> str:
    baseline = prediction.baseline
    settings = f"{cap(baseline.bucket_mb)}, {own_gpus(baseline)}" if prediction.has_caps else own_gpus(baseline)
    return (
        f"Own settings: {settings}; measured {ms(baseline.measured_step_ns)} "
        f"({baseline.measured_from}), predicted {ms(baseline.predicted_step_ns)} ({signed(baseline.error)})"
    )


def _notes(prediction: WhatIf) -> list[str]:
    out = prediction.scale_out
    sentences = [] if out is None else [no_longer_hidden(out), hidden_means(out)]
    links = [f"Links: {prediction.links}."] if prediction.of_settings else []
    return [sentence(prediction.headline), *sentences, *links]


def _looks(prediction: WhatIf, theme: Theme) -> dict[int, dict[str, Any]]:
    """Choose a color and a marker for each number of GPUs."""
    colors = places(scenario.gpus or 1 for scenario in prediction.of_settings)
    return {
        number: {"color": ramp(theme, position), "marker": MARKERS[index % len(MARKERS)]}
        for index, (number, position) in enumerate(colors.items())
    }


def _entries(prediction: WhatIf, looks: Mapping[int, Mapping[str, Any]], theme: Theme) -> list[Entry]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Entry] = [(gpus(number), Line2D([], [], markersize=4.5, **look)) for number, look in looks.items()]
    entries.append(("measured", Line2D([], [], **_measured_look(theme))))
    reach = Line2D(
        [], [], color=theme.faint, marker="|" if looks else "_", markersize=10, linestyle="", alpha=REACH_ALPHA
    )
    entries.append(("what it lies between", reach))
    if looks:
        entries.append(("noise around own settings", Patch(color=theme.faint, alpha=BAND_ALPHA, linewidth=0)))
    if not all(scenario.reliable for scenario in prediction.scenarios):
        hollow = Line2D([], [], color=theme.faint, marker="o", markersize=4.5, mfc=theme.ground, ls="")
        entries.append((UNTRUSTED, hollow))
    return entries


def _measured_look(theme: Theme) -> dict[str, Any]:
    return {"color": theme.ink, "marker": "x", "markersize": 7, "markeredgewidth": 1.6, "linestyle": ""}


def _draw_steps(axis: Axes, prediction: WhatIf, looks: Mapping[int, Mapping[str, Any]], theme: Theme) -> None:
    at, baseline = cap_places(prediction), prediction.baseline
    low, high = ((baseline.measured_step_ns + sign * prediction.uncertainty_ns) / NS_PER_MS for sign in (-1, 1))
    axis.axhspan(low, high, color=theme.faint, alpha=BAND_ALPHA, linewidth=0)
    for number, scenarios in by_gpus(prediction):
        sized = [scenario for scenario in scenarios if scenario.bucket_mb is not None]
        color = looks[number]["color"]
        axis.plot(
            [at[scenario.bucket_mb] for scenario in sized],
            [_step_ms(scenario) for scenario in sized],
            color=color,
            lw=1.2,
        )
        low_ms, high_ms = ([scenario.steps_within_ns[end] / NS_PER_MS for scenario in scenarios] for end in (0, 1))
        across = [at[scenario.bucket_mb] for scenario in scenarios]
        axis.vlines(across, low_ms, high_ms, color=color, linewidth=0.8, alpha=REACH_ALPHA)
        for scenario in scenarios:
            _draw_point(axis, at[scenario.bucket_mb], _step_ms(scenario), scenario.reliable, looks[number], theme)
    axis.plot(at[baseline.bucket_mb], baseline.measured_step_ns / NS_PER_MS, zorder=4, **_measured_look(theme))
    labels = [cap(size).removesuffix(" MB") for size in at]
    axis.set_xticks(
        list(at.values()),
        [f"{label} *" if size == baseline.bucket_mb else label for size, label in zip(at, labels, strict=True)],
    )
    axis.set_xlabel("bucket_cap_mb (* the run's own)")
    axis.set_ylabel("step, ms")
    axis.ticklabel_format(axis="y", useOffset=False)
    axis.margins(x=0.06, y=0.1)


def _draw_rows(axis: Axes, prediction: WhatIf, labels: Sequence[str], theme: Theme) -> None:
    """Draw what is changed besides caps, a row each, from the top, over the run's own step as measured."""
    rows, baseline = rows_besides_caps(prediction), prediction.baseline
    look = {"color": ramp(theme, 1.0), "marker": "o"}
    axis.axvline(baseline.measured_step_ns / NS_PER_MS, color=theme.ink, linewidth=0.8, linestyle=":")
    for place, scenario in enumerate(rows):
        low_ms, high_ms = (end / NS_PER_MS for end in scenario.steps_within_ns)
        axis.hlines(place, low_ms, high_ms, color=look["color"], linewidth=0.8, alpha=REACH_ALPHA)
        _draw_point(axis, _step_ms(scenario), place, scenario.reliable, look, theme)
    axis.plot(baseline.measured_step_ns / NS_PER_MS, -0.75, zorder=4, **_measured_look(theme))
    axis.set_yticks(range(len(rows)), labels)
    axis.set_ylim(len(rows) - 0.5, -1.1)
    axis.set_xlabel("step, ms")
    axis.ticklabel_format(axis="x", useOffset=False)


def _draw_point(axis: Axes, x: float, y: float, reliable: bool, look: Mapping[str, Any], theme: Theme) -> None:
    face = look["color"] if reliable else theme.ground
    axis.plot(x, y, markersize=4.5, markerfacecolor=face, linestyle="", zorder=3, **look)


def _step_ms(scenario: Prediction) -> float:
    return scenario.step_ns / NS_PER_MS


def _draw_efficiency(axis: Axes, prediction: WhatIf, looks: Mapping[int, Mapping[str, Any]], theme: Theme) -> None:
    """Draw the best cap's efficiency on each number of GPUs."""
    from matplotlib.ticker import FixedLocator

    out = prediction.scale_out
    rows = [] if out is None else [row for row in out.rows if row.efficiency is not None]
    shares = [100 * (row.efficiency or 0.0) for row in rows]
    axis.set_xscale("log", base=2)
    axis.plot([row.gpus for row in rows], shares, color=theme.faint, linewidth=1.2)
    for row, share in zip(rows, shares, strict=True):
        _draw_point(axis, row.gpus, share, row.reliable, looks[row.gpus], theme)
    write_ticks(axis.xaxis, FixedLocator([row.gpus for row in rows]), lambda value: f"{value:,.0f}")
    axis.set_xlabel("GPUs, the batch of each as it was")
    axis.set_ylabel("efficiency under the best cap, %")
    air = max(AIR * (100 - min(shares, default=0)), LEAST_AIR)
    axis.set_ylim(min(shares, default=0) - air, 100 + air)
