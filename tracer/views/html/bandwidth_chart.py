"""Chart of bandwidth over message size: measured and calibrated, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import ceil, floor, log10

from analyzers.collectives import BandwidthRow
from analyzers.reporting import Report
from analyzers.run import Calibration
from tracer.views import SERIES, gbps, size
from tracer.views.html.chart import DASH, FRAME, INK, OUTLINES, Chart, ChartMark, GuideLine, Series, Tick, axis, joined


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
    up, rate_decades = _decades([*rates, *(row.busbw_gbps for row in calibrated)], FRAME.bottom, FRAME.top)
    series = [
        Series(kind, color, outline, [_mark(row, across, up) for row in rows if row.kind == kind])
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
        x="message size",
        y="busbw, GB/s",
        across=[Tick(across(power), size(10**power)) for power in size_decades],
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


def _mark(row: BandwidthRow, across: Callable[[float], float], up: Callable[[float], float]) -> ChartMark:
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
