"""SVG of bandwidth over message size: measured and calibrated.

Both axes are logarithmic. Every figure is the report's or the calibration's; here they only get their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log10

from analyzers.collectives import BandwidthRow
from analyzers.reporting import Report
from analyzers.run import Calibration
from tracer.views import SERIES, gbps, size

# Outlines around (0, 0), one for each of the palette's series.
SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6L6 5H-6z",
    "M0-6.5L6.5 0L0 6.5L-6.5 0z",
    "M0 6L6-5H-6z",
    "M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
)


@dataclass(frozen=True)
class Frame:
    """A picture's size and, within it, the field that its axes span, in pixels from the upper left corner."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


FRAME = Frame(860, 320, left=52, right=710, top=14, bottom=280)


@dataclass(frozen=True)
class Marker:
    """What was measured of one kind, group and size: its place, its quartiles' places, and what it says."""

    x: float
    y: float
    low: float
    high: float
    kind: str
    words: str


@dataclass(frozen=True)
class CalibratedLine:
    """A calibrated curve: SVG's list of points, and what it is of."""

    points: str
    kind: str
    words: str


@dataclass(frozen=True)
class Tick:
    """A line of a grid, or a place on an axis, and its figure."""

    at: float
    label: str


@dataclass(frozen=True)
class KindStyle:
    """How a kind is drawn."""

    color: str
    shape: str


@dataclass(frozen=True)
class CurvePicture:
    """All that the template draws."""

    markers: list[Marker]
    lines: list[CalibratedLine]
    across: list[Tick]
    up: list[Tick]
    series: dict[str, KindStyle]
    frame: Frame = FRAME


def axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return what puts values between two others onto pixels, to a tenth."""
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 1)


def curve(report: Report, calibration: Calibration | None) -> CurvePicture | None:
    """Build the picture; None where no bandwidth is known."""
    rows = [row for row in report.summary.communication if row.bytes and row.busbw_gbps]
    if not rows:
        return None
    kinds = list(dict.fromkeys(row.kind for row in rows))
    used = {(row.kind, row.group_size) for row in rows}
    calibrated = [row for row in calibration.rows if (row.collective, row.group_size) in used] if calibration else []
    points = [(float(row.bytes or 1), row.busbw_gbps or 1.0) for row in rows]
    points += [(float(row.bytes), row.busbw_gbps) for row in calibrated]
    points += [(points[0][0], edge) for row in rows for edge in (row.busbw_low_gbps, row.busbw_high_gbps) if edge]
    across, sizes = _decades([x for x, _ in points], FRAME.left, FRAME.right)
    up, rates = _decades([y for _, y in points], FRAME.bottom, FRAME.top)
    lines = []
    for (kind, group_size), group in groupby(
        sorted(calibrated, key=lambda row: (row.collective, row.group_size, row.bytes)),
        key=lambda row: (row.collective, row.group_size),
    ):
        path = " ".join(f"{across(log10(row.bytes))},{up(log10(row.busbw_gbps))}" for row in group)
        lines.append(CalibratedLine(path, kind, f"{kind} between {group_size}, calibrated"))
    return CurvePicture(
        markers=[_marker(row, across, up) for row in rows],
        lines=lines,
        across=[Tick(across(power), size(10**power)) for power in sizes],
        up=[Tick(up(power), f"{10.0**power:,g}") for power in rates],
        series={kind: KindStyle(SERIES[at % len(SERIES)], SHAPES[at % len(SHAPES)]) for at, kind in enumerate(kinds)},
    )


def _decades(values: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], range]:
    """Build an axis of logarithms, and its decades: from that below the least value to that above the greatest."""
    low = floor(log10(min(values)))
    high = max(ceil(log10(max(values))), low + 1)
    return axis(low, high, start, end), range(low, high + 1)


def _marker(row: BandwidthRow, across: Callable[[float], float], up: Callable[[float], float]) -> Marker:
    middle = row.busbw_gbps or 1.0
    text = f"{row.kind} between {row.group_size}, {size(row.bytes)}, {row.purpose}: {gbps(middle)} GB/s"
    text += f" ({gbps(row.busbw_low_gbps)} - {gbps(row.busbw_high_gbps)}), {row.count} times"
    if row.calibrated_gbps is not None:
        text += f"; calibrated {gbps(row.calibrated_gbps)} GB/s"
    return Marker(
        x=across(log10(row.bytes or 1)),
        y=up(log10(middle)),
        low=up(log10(row.busbw_low_gbps or middle)),
        high=up(log10(row.busbw_high_gbps or middle)),
        kind=row.kind,
        words=text + ("; a bound" if row.bound else ""),
    )
