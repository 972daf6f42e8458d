"""Section on calibrated links: bus bandwidth over message size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from analyzers.run import CalibratedLinks, Calibration, CalibrationRow
from analyzers.units import NS_PER_US, binary_size
from tracer.views import Paragraph, Section, Table, gbps, numbers, rendered, texts

BAR_CELLS = 32
# Left-aligned blocks of one to eight eighths of a cell.
EIGHTHS = "▏▎▍▌▋▊▉█"
_HEADS = [*texts("collective"), *numbers("ranks", "dtype", "size", "time us", "algbw GB/s", "busbw GB/s")]


def calibration_text(calibration: Calibration) -> str:
    """Write the whole table, in the order in which collectives were measured."""
    peak_gbps = max(row.busbw_gbps for row in calibration.rows)
    return rendered([_title(calibration.links), [_table(calibration.rows, peak_gbps)], _peaks(calibration)])


def _title(links: CalibratedLinks | None) -> Section:
    if links is None:
        return []
    devices = [f"{links.devices.count(device)} x {device}" for device in dict.fromkeys(links.devices)]
    facts = [*devices, links.backend, links.transport]
    limit = "not known" if links.limit_gbps is None else f"{links.limit_gbps:.4g} GB/s one way"
    why = f" ({links.source})" if links.source else ""
    return [Paragraph(" · ".join(fact for fact in facts if fact)), Paragraph(f"link's own rate: {limit}{why}")]


def _table(rows: Sequence[CalibrationRow], peak_gbps: float) -> Table:
    curve = f"busbw, a full bar {gbps(peak_gbps)} GB/s"
    groups = [
        [[*_cells(row), _bar(row.busbw_gbps / peak_gbps)] for row in group]
        for _, group in groupby(rows, key=lambda row: (row.collective, row.group_size))
    ]
    return Table([*_HEADS, *texts(curve)], groups, is_spaced=True)


def _cells(row: CalibrationRow) -> list[str]:
    time = f"{row.time_ns / NS_PER_US:,.1f}"
    kind = [row.collective, str(row.group_size), row.dtype or "-"]
    return [*kind, binary_size(row.bytes), time, gbps(row.algbw_gbps), gbps(row.busbw_gbps)]


def _bar(share: float) -> str:
    """Draw a bar as long as the share, to an eighth of a cell; at least one eighth."""
    whole, rest = divmod(max(round(share * BAR_CELLS * len(EIGHTHS)), 1), len(EIGHTHS))
    return EIGHTHS[-1] * whole + (EIGHTHS[rest - 1] if rest else "")


def _peaks(calibration: Calibration) -> Section:
    best: dict[str, CalibrationRow] = {}
    for row in calibration.rows:
        if row.collective not in best or row.busbw_gbps > best[row.collective].busbw_gbps:
            best[row.collective] = row
    limit = calibration.links.limit_gbps if calibration.links else None
    return [Paragraph(_peak(row, limit)) for row in best.values()]


def _peak(row: CalibrationRow, limit_gbps: float | None) -> str:
    of_link = f", {100 * row.busbw_gbps / limit_gbps:.0f} % of the link" if limit_gbps else ""
    return f"{row.collective} peaks at {gbps(row.busbw_gbps)} GB/s of bus bandwidth, {binary_size(row.bytes)}{of_link}"
