"""Plot of the median step in time: lanes, and each bucket's way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analyzers.layers import BucketRow
from analyzers.reporting import Lane, Mark, Report, Timeline
from analyzers.units import NS_PER_MS, ms
from tracer.errors import TracerError
from tracer.views import COMPUTE, COPY, EXPOSED, HIDDEN, TRANSFER, UNRESOLVED, WAITING, Theme, milliseconds, size
from tracer.views.plots.layout import (
    SMALL_PT,
    TEXT_PT,
    Entry,
    framed,
    hatch,
    laid_out_pt,
    length,
    sheet,
    shortened,
    swatch,
)
from tracer.views.plots.report_charts import bars_in, behind, draw_bars, is_roomy, rows, stacked
from tracer.views.sections import lane_labels, letter, meanings, why_none

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LANE_IN, AXIS_IN = 0.4, 0.45
# A lane's height is 1, downwards: letters stand on its marks.
TOP, BOTTOM = 0.36, 0.96
NAME_PT = 90.0
# What marks that are shorter than a dot are still seen by, in points.
EDGE_PT = 0.5
LABELS = {"compute": ("compute", COMPUTE), "copy": ("copies", COPY)}


def timeline(report: Report, theme: Theme) -> Figure:
    """Draw compute, copies and communication of one step over time; waiting is hatched."""
    drawn = report.timeline
    if not drawn.span_ns:
        raise TracerError(f"{report.run.name}: no timeline to draw: no step has any length")
    signs = meanings([mark for lane in drawn.lanes for mark in lane.marks])
    notes = [f"{_place(drawn)} Heights: how busy it is.", *([f"Marks: {'; '.join(signs)}."] if signs else [])]
    around = sheet(report, "One step in time", _lane_entries(drawn, theme), notes)
    figure = framed(around, AXIS_IN + LANE_IN * len(drawn.lanes), theme)
    axis = figure.subplots()
    axis.set_yticks([line + (TOP + BOTTOM) / 2 for line in range(len(drawn.lanes))], lane_names(drawn.lanes))
    axis.set_ylim(len(drawn.lanes), 0)
    _in_time(axis, drawn)
    for line, lane in enumerate(drawn.lanes):
        _draw_lane(axis, lane, drawn, line + BOTTOM, theme)
    pt_per_ns = laid_out_pt(figure, axis) / drawn.span_ns
    for line, lane in enumerate(drawn.lanes):
        _letters(axis, lane.marks, line + TOP, pt_per_ns)
    return figure


def lane_names(lanes: Sequence[Lane]) -> list[str]:
    """Return the labels of the lanes."""
    return [shortened(label, TEXT_PT, NAME_PT) for label in lane_labels(lanes)]


def _place(drawn: Timeline) -> str:
    """Say which step is drawn, and its own length, which is not that of the controls' profiled steps."""
    return f"Rank {drawn.rank}, device {drawn.device}, step {drawn.step}: of median length, {ms(drawn.span_ns)}."


def _lane_entries(drawn: Timeline, theme: Theme) -> list[Entry]:
    kinds = {lane.kind for lane in drawn.lanes}
    entries = [swatch(part, theme, label) for kind, (label, part) in LABELS.items() if kind in kinds]
    marks = [mark for lane in drawn.lanes for mark in lane.marks]
    entries += [swatch(WAITING, theme, "waiting")] if any(mark.wait_ns for mark in marks) else []
    entries += [swatch(TRANSFER, theme, "transfer")] if any(mark.resolved for mark in marks) else []
    return entries + ([swatch(UNRESOLVED, theme, "unresolved")] if not all(mark.resolved for mark in marks) else [])


def _in_time(axis: Axes, drawn: Timeline) -> None:
    axis.set_xlim(0, drawn.span_ns / NS_PER_MS)
    axis.set_xlabel("ms from the step's first device event")
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)


def _draw_lane(axis: Axes, lane: Lane, drawn: Timeline, bottom: float, theme: Theme) -> None:
    axis.axhline(bottom, color=theme.faint, linewidth=0.5)
    if lane.kind in LABELS:
        _draw_cells(axis, lane, drawn, bottom)
        return
    waits = [(mark.start_ns, mark.wait_ns) for mark in lane.marks if mark.wait_ns]
    rests = [(mark.start_ns + (mark.wait_ns or 0), mark.dur_ns - (mark.wait_ns or 0)) for mark in lane.marks]
    transfers = [rest for mark, rest in zip(lane.marks, rests, strict=True) if mark.resolved]
    unresolved = [rest for mark, rest in zip(lane.marks, rests, strict=True) if not mark.resolved]
    for part, extents in ((WAITING, waits), (TRANSFER, transfers), (UNRESOLVED, unresolved)):
        spans = [(start / NS_PER_MS, max(dur, 0) / NS_PER_MS) for start, dur in extents]
        edge = part.color if part is TRANSFER else theme.ground
        look: dict[str, Any] = {"facecolor": part.color, "hatch": hatch(part), "edgecolor": edge, "linewidth": EDGE_PT}
        axis.broken_barh(spans, (bottom, TOP - BOTTOM), **look)


def _draw_cells(axis: Axes, lane: Lane, drawn: Timeline, bottom: float) -> None:
    edges = [drawn.span_ns * cell / len(lane.busy) / NS_PER_MS for cell in range(len(lane.busy) + 1)]
    heights = [bottom - share * (BOTTOM - TOP) for share in lane.busy]
    axis.stairs(heights, edges, baseline=bottom, fill=True, color=LABELS[lane.kind][1].color, linewidth=0)


def _letters(axis: Axes, marks: Sequence[Mark], top: float, pt_per_ns: float) -> None:
    """Write each mark's bucket or letter above its transfer, buckets first, where the lane is still free."""
    taken: list[tuple[float, float]] = []
    for mark in sorted(marks, key=lambda mark: mark.bucket is None):
        half = length(letter(mark), SMALL_PT) / 2 + 0.5
        middle_ns = mark.start_ns + ((mark.wait_ns or 0) + mark.dur_ns) / 2
        low, high = middle_ns * pt_per_ns - half, middle_ns * pt_per_ns + half
        if all(high <= start or end <= low for start, end in taken):
            taken.append((low, high))
            look: dict[str, Any] = {"xytext": (0, 0.8), "textcoords": "offset points", "fontsize": SMALL_PT}
            axis.annotate(letter(mark), (middle_ns / NS_PER_MS, top), ha="center", va="bottom", **look)


def buckets(report: Report, theme: Theme) -> Figure:
    """Draw each reduction of one step: when it was ready, launched and run; right of it its kernel's time."""
    chosen = report.summary.representative
    step_key = (chosen.rank, chosen.device, chosen.step)
    reductions = [row for row in report.buckets if (row.rank, row.device, row.step) == step_key]
    if not reductions:
        raise TracerError(f"{report.run.name}: {_no_buckets(report)}")
    if not any(row.overlapped_ns + row.exposed_ns for row in reductions):
        raise TracerError(f"{report.run.name}: no buckets to draw: their kernels take no time in this step")
    notes = [
        f"{_place(report.timeline)} Right: each kernel's time twice, as waiting and "
        "transfer, and below as hidden beside compute and exposed; behind it what is exposed, ms.",
        *(["Members are missing from the run: the transfer is at most this long."] if _is_bound(reductions) else []),
    ]
    around = sheet(report, "DDP's buckets in one step", _bucket_entries(reductions, theme), notes)
    figure = framed(around, bars_in(len(reductions) * BUCKET_BARS), theme)
    axis, beside = figure.subplots(1, 2, width_ratios=(1.25, 1), sharey=True)
    rows(axis, [_name(row) for row in reductions])
    axis.set_ylabel("bucket")
    _in_time(axis, report.timeline)
    start_ns = report.representative_window.start_ns
    for line, row in enumerate(reductions):
        _draw_reduction(axis, row, line, start_ns, theme)
    _kernels(beside, reductions, theme)
    return figure


def _no_buckets(report: Report) -> str:
    """Say why there are none, or none in this step."""
    if report.summary.buckets:
        return "no buckets in the step of median length: see tracer report --by bucket"
    why = why_none(report).rstrip(".")
    return why[0].lower() + why[1:]


def _is_bound(reductions: Sequence[BucketRow]) -> bool:
    return any(row.bound for row in reductions)


def _name(row: BucketRow) -> str:
    bucket = "?" if row.bucket is None else str(row.bucket)
    again = f" (pass {row.backward_pass})" if row.backward_pass else ""
    return f"{bucket}{again}: {size(row.bytes)}"


def _draw_reduction(axis: Axes, row: BucketRow, line: int, start_ns: int, theme: Theme) -> None:
    """Draw when it was ready and launched, and its kernel, on a line of its own."""

    def at(ns: int) -> float:
        return (ns - start_ns) / NS_PER_MS

    if row.launched_ns is not None and row.ready_ns is not None and row.launched_ns < row.ready_ns:
        ahead = [at(row.launched_ns), at(row.ready_ns)]
        axis.plot(ahead, [line, line], color=theme.faint, linewidth=0.8, linestyle=AHEAD, zorder=1)
    if row.ready_ns is not None and row.ready_ns < row.start_ns:
        axis.plot([at(row.ready_ns), at(row.start_ns)], [line, line], color=theme.ink, linewidth=1.2, zorder=3)
    (lengths,) = _kernel([row])
    starts = (row.start_ns, *[row.start_ns + lengths[0]] * 2)
    for part, start, dur in zip(KERNEL_PARTS, starts, lengths, strict=True):
        if not dur:
            continue
        edge = theme.ground if part.pattern else part.color
        look: dict[str, Any] = {"facecolor": part.color, "hatch": hatch(part), "edgecolor": edge, "linewidth": EDGE_PT}
        axis.broken_barh([(at(start), dur / NS_PER_MS)], (line - 0.35, 0.7), **look)
    for ns, sign in ((row.ready_ns, READY), (row.launched_ns, LAUNCHED)):
        if ns is not None:
            sized: dict[str, Any] = {"markersize": 4, "color": theme.ink, "markerfacecolor": theme.ground}
            axis.plot(at(ns), line, marker=sign, zorder=4, **sized)


KERNEL_PARTS = (WAITING, TRANSFER, UNRESOLVED)


def _kernel(reductions: Sequence[BucketRow]) -> list[tuple[int, int, int]]:
    """Return how long each reduction's kernel waited, was in transfer, and either of these."""
    waits = [(row, row.wait_ns or 0) for row in reductions]
    return [
        (wait, 0, row.dur_ns - wait) if row.transfer_ns is None or row.bound else (wait, row.dur_ns - wait, 0)
        for row, wait in waits
    ]


def _kernels(axis: Axes, reductions: Sequence[BucketRow], theme: Theme) -> None:
    """Draw each kernel's time twice, one below the other."""
    waited = stacked(KERNEL_PARTS, _kernel(reductions))
    hidden = stacked((HIDDEN, EXPOSED), [(row.overlapped_ns, row.exposed_ns) for row in reductions])
    for series, shift in ((waited, -0.21), (hidden, 0.21)):
        for part_bars in series:
            draw_bars(axis, part_bars, theme, 0.4, shift)
    axis.set_xlim(0, max(hidden[-1].ends) * 1.3)
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("ms of its kernel")
    if is_roomy(len(reductions) * BUCKET_BARS):
        behind(axis, hidden[-1].ends, [milliseconds(row.exposed_ns) for row in reductions], 0.21)


# How many bars' height a bucket has.
BUCKET_BARS = 2
READY, LAUNCHED = "o", "|"
AHEAD = (0, (1, 2))


def _bucket_entries(reductions: Sequence[BucketRow], theme: Theme) -> list[Entry]:
    from matplotlib.lines import Line2D

    def mark(sign: str) -> Line2D:
        return Line2D([], [], color=theme.ink, marker=sign, markersize=4, markerfacecolor=theme.ground, linestyle="")

    entries: list[Entry] = []
    if any(row.ready_ns is not None for row in reductions):
        late = Line2D([], [], color=theme.ink, linewidth=1.2)
        entries = [("ready", mark(READY)), ("late launch, queue", late)]
    if any(row.launched_ns is not None for row in reductions):
        ahead = Line2D([], [], color=theme.faint, linewidth=0.8, linestyle=AHEAD)
        entries += [("launched", mark(LAUNCHED)), ("launched ahead", ahead)]
    lengths = [sum(part) for part in zip(*_kernel(reductions), strict=True)]
    for part, label, ns in zip(KERNEL_PARTS, ("waiting", "transfer", "unresolved"), lengths, strict=True):
        entries += [swatch(part, theme, label)] if ns else []
    entries += [swatch(HIDDEN, theme, "hidden (below)")] if any(row.overlapped_ns for row in reductions) else []
    return entries + ([swatch(EXPOSED, theme, "exposed (below)")] if any(row.exposed_ns for row in reductions) else [])
