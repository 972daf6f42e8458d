"""Pictures of runs and sweeps by kind, as files' bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from analyzers.comparison import Scaling
from analyzers.reporting import Report
from analyzers.run import Calibration
from tracer.errors import TracerError
from tracer.views import BANDWIDTH, LIGHT, Theme
from tracer.views.plots import report_charts as charts
from tracer.views.plots import step_timeline as lanes
from tracer.views.plots.axes import saved, style
from tracer.views.plots.layout import TEXT_PT
from tracer.views.plots.scaling import speedups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The kinds that show a report alone.
OF_REPORT: dict[str, Callable[[Report, Theme], Figure]] = {
    "breakdown": charts.breakdown,
    "timeline": lanes.timeline,
    "buckets": lanes.buckets,
    "layers": charts.layers,
}


def report_picture(
    report: Report, kind: str, form: str, calibration: Calibration | None = None, theme: Theme = LIGHT
) -> bytes:
    """Return a run's picture as a file in a form of FORMS. Raises TracerError if the run has nothing for it."""
    with style(theme, TEXT_PT):
        return saved(figure(report, kind, calibration, theme), form)


def figure(report: Report, kind: str, calibration: Calibration | None, theme: Theme) -> Figure:
    """Draw a run's picture, inside a style."""
    if kind == BANDWIDTH:
        return charts.bandwidth(report, calibration, theme)
    return OF_REPORT[kind](report, theme)


def scaling_picture(study: Scaling, form: str, theme: Theme = LIGHT) -> bytes:
    """Return a sweep's speedups over GPUs and epochs over batches. Raises TracerError if nothing compares."""
    with style(theme, TEXT_PT):
        drawn = speedups(study, theme)
        if drawn is None:
            raise TracerError(
                f"{study.name}: no scaling to draw: no cells on 1 and on more GPUs, or of several batches, to compare"
            )
        return saved(drawn, form)
