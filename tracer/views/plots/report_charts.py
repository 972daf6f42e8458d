"""Charts of a report: parts by rank, layers, bandwidth over sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from analyzers.collectives import CollectiveRow
from analyzers.layers import LayerSummary
from analyzers.rank import is_layer
from analyzers.reporting import DeviceSummary, Report, mean_steps
from analyzers.run import Calibration
from analyzers.statistics import LEAST_SHARE
from analyzers.units import NS_PER_MS, ms, percent
from tracer.errors import TracerError
from tracer.views import (
    BACKWARD,
    CAUSE_PARTS,
    EXPOSED,
    FORWARD,
    HIDDEN,
    KIND_MARKS,
    StepPart,
    Theme,
    count,
    gbps,
    in_legend,
    one_unit,
)
from tracer.views.plots.axes import DASHED, ramp, write_ticks
from tracer.views.plots.layout import (
    COLUMN_IN,
    MARGIN_PT,
    PT_PER_IN,
    SMALL_PT,
    TEXT_PT,
    Entry,
    framed,
    hatch,
    length,
    sheet,
    shortened,
    swatch,
)
from tracer.views.sections import device_name, named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR_IN, AXIS_IN, TALLEST_IN = 0.26, 0.5, 6.0
SCATTER_IN = 2.7
MOST_LAYERS = 14
# A line for each size of group that was calibrated.
LINES = ("-", ":", (0, (6, 1, 1, 1)))
NAME_PT = 120.0
# Darker colors (of 255, by luminance) want white numbers on them.
DARKER = 120
# What a number inside of a bar keeps from its ends, and one behind it from it.
INSET_PT = 3.0
# What stands between labels and axes: ticks and pads.
TICKS_PT = 20.0
# Message sizes that differ by less than this are drawn as one, in decades; and how far kinds then are apart.
SAME_SIZE, BESIDE = 0.1, 0.09


@dataclass(frozen=True)
class Bars:
    """One part of all bars: where it begins on each, and how long it is; ms."""

    part: StepPart
    starts: Sequence[float]
    lengths: Sequence[float]

    @property
    def ends(self) -> list[float]:
        """Return where the next part begins."""
        return [start + length for start, length in zip(self.starts, self.lengths, strict=True)]


def breakdown(report: Report, theme: Theme) -> Figure:
    """Draw what the mean step of each rank is made of."""
    shown, means = named(report), mean_steps(report)
    steps = [means.get((device.rank, device.device), {}) for device, _ in shown]
    bars = stacked(CAUSE_PARTS, [[step.get(part.field) for part in CAUSE_PARTS] for step in steps])
    ends = bars[-1].ends if bars else [0.0] * len(steps)
    labels = [_label(device, standing.word, report) for device, standing in shown]
    axes_pt, typical = _axes_pt(labels, ends), count(report.summary.windows["span_ns"].count, "typical window")
    notes = [
        f"Means over {typical} (one step on one device each), {report.run.times_from} window's times.",
        *_of_two_causes(bars),
        *(_small_parts(bars, labels, ends, axes_pt) if is_roomy(len(steps)) else []),
        *_left_out(report),
        *_unmatched(report),
    ]
    entries = [swatch(part, theme) for part in in_legend(each.part for each in bars)]
    figure = framed(sheet(report, "Where a step's time goes", entries, notes), bars_in(len(steps)), theme)
    axis = figure.subplots()
    rows(axis, labels)
    for part_bars in bars:
        draw_bars(axis, part_bars, theme)
    longest = max(ends, default=0.0) or 1.0
    axis.set_xlim(0, longest * (axes_pt + _behind_pt(ends)) / axes_pt)
    axis.set_xlabel("ms")
    if is_roomy(len(steps)):
        _number(axis, bars, longest / axes_pt, theme)
        behind(axis, ends, [ms(end * NS_PER_MS) for end in ends])
    return figure


def _axes_pt(labels: Sequence[str], ends: Sequence[float]) -> float:
    """Return about how wide the longest bar is drawn, in points: without its label, and without what is behind it."""
    widest = min(max((length(label, TEXT_PT) for label in labels), default=0.0), NAME_PT)
    return COLUMN_IN * PT_PER_IN - 2 * MARGIN_PT - widest - TICKS_PT - _behind_pt(ends)


def _behind_pt(ends: Sequence[float]) -> float:
    """Return what room the figures behind the bars need."""
    return max((length(ms(end * NS_PER_MS), SMALL_PT) for end in ends), default=0.0) + 2 * INSET_PT


def _small_parts(bars: Sequence[Bars], labels: Sequence[str], ends: Sequence[float], axes_pt: float) -> list[str]:
    """Write the figures that have no room in their bars, with the bar if others have room; no slivers."""
    longest, small = max(ends, default=0.0), []
    for part_bars in bars:
        is_seen = max(part_bars.lengths) >= LEAST_SHARE * longest
        if not is_seen:
            continue
        left = [bar for bar, long in zip(labels, part_bars.lengths, strict=True) if not _fits(long, longest / axes_pt)]
        figures = [
            _two_digits(long) + (f" ({bar})" if len(left) < len(labels) else "")
            for bar, long in zip(labels, part_bars.lengths, strict=True)
            if bar in left and (len(left) == len(labels) or long >= LEAST_SHARE * longest)
        ]
        if figures:
            small.append(f"{part_bars.part.label} {', '.join(figures)}")
    return [f"Narrow parts, ms, from the first bar to the last: {'; '.join(small)}."] if small else []


def _fits(long: float, ms_per_pt: float) -> bool:
    """Whether a part's number has room inside it."""
    return (length(_two_digits(long), SMALL_PT) + 2 * INSET_PT) * ms_per_pt <= long


def _two_digits(value_ms: float) -> str:
    return f"{value_ms:.2f}" if value_ms < 100 else f"{value_ms:.0f}"


def _of_two_causes(bars: Sequence[Bars]) -> list[str]:
    """Say in which order two causes of idle time stand that look alike."""
    shown = {part_bars.part.look for part_bars in bars}
    orders = {"idle_host": "host is operators, then Python", "idle_device": "device is kernel gaps, then dependencies"}
    words = [order for look, order in orders.items() if look in shown]
    return [f"Of idle time, {'; '.join(words)}."] if words else []


def _left_out(report: Report) -> list[str]:
    devices = len(report.summary.by_device)
    shown = len(named(report))
    return [f"Of {devices:,} devices {shown} are drawn: those that stand out."] if shown < devices else []


def _label(device: DeviceSummary, word: str, report: Report) -> str:
    """Name a device, and if it is one of many say in a word why it is shown."""
    name = device_name(device, report.summary.by_device)
    return f"{name} ({word})" if word else name


def stacked(parts: Sequence[StepPart], values_ns: Sequence[Sequence[float | None]]) -> list[Bars]:
    """Stack parts next to one another, a line of values per bar; only those that are not all zero."""
    series: list[Bars] = []
    for column, part in enumerate(parts):
        lengths = [(values[column] or 0.0) / NS_PER_MS for values in values_ns]
        if any(lengths):
            series.append(Bars(part, series[-1].ends if series else [0.0] * len(lengths), lengths))
    return series


def bars_in(bars: int) -> float:
    """Return the height of axes with this many bars."""
    return AXIS_IN + min(BAR_IN * bars, TALLEST_IN)


def is_roomy(bars: int) -> bool:
    """Whether bars have their full height."""
    return BAR_IN * bars <= TALLEST_IN


def rows(axis: Axes, labels: Sequence[str]) -> None:
    """Label a line each, the first on top; of too many, name only every few."""
    every = -(-len(labels) // int(TALLEST_IN / 0.15))
    shown = [shortened(label, TEXT_PT, NAME_PT) for label in labels[::every]]
    axis.set_yticks(range(0, len(labels), every), shown)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)


def draw_bars(axis: Axes, bars: Bars, theme: Theme, height: float = 0.8, shift: float = 0.0) -> None:
    """Draw one part of all bars."""
    places = [line + shift for line in range(len(bars.lengths))]
    edge = 0.4 if len(places) < TALLEST_IN / BAR_IN else 0
    look: dict[str, Any] = {
        "color": bars.part.over(theme.ground),
        "hatch": hatch(bars.part),
        "ec": theme.ground,
        "linewidth": edge,
    }
    axis.barh(places, bars.lengths, left=bars.starts, height=height, **look)


def _number(axis: Axes, bars: Sequence[Bars], ms_per_pt: float, theme: Theme) -> None:
    """Write each part's milliseconds inside it, where there is room."""
    for part_bars in bars:
        behind_it = part_bars.part.over(theme.ground)
        ink = "white" if _luminance(behind_it) < DARKER else "black"
        around = {"facecolor": behind_it, "edgecolor": "none", "pad": 0.8}
        for line, (start, long) in enumerate(zip(part_bars.starts, part_bars.lengths, strict=True)):
            if long and _fits(long, ms_per_pt):
                look: dict[str, Any] = {"fontsize": SMALL_PT, "color": ink, "bbox": around}
                axis.text(start + long / 2, line, _two_digits(long), ha="center", va="center_baseline", **look)


def _luminance(color: str) -> float:
    """Return how bright a color is, of 255, by the weights of ITU-R BT.709."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def behind(axis: Axes, ends: Sequence[float], labels: Sequence[str], shift: float = 0.0) -> None:
    """Write a label after each bar's end."""
    for line, (end, label) in enumerate(zip(ends, labels, strict=True)):
        look: dict[str, Any] = {"xytext": (INSET_PT, 0), "textcoords": "offset points", "fontsize": SMALL_PT}
        axis.annotate(label, (end, line + shift), va="center", **look)


def _unmatched(report: Report) -> list[str]:
    share = report.summary.unmatched_share
    if not share:
        return []
    return [f"{percent(share)} of communication could not be matched between ranks: it is unresolved."]


def layers(report: Report, theme: Theme) -> Figure:
    """Draw the layers that compute or communicate longest, in the model's order; compute and communication apart."""
    modules = [layer for layer in report.summary.layers if is_layer(layer.layer)]
    if not any(_sum(layer, FORWARD, BACKWARD, HIDDEN, EXPOSED) for layer in modules):
        raise TracerError(f"{report.run.name}: no layers to draw: most steps have no work that a layer launched")
    shown = _longest(modules)
    compute, comm = (
        stacked(parts, [[layer.measures[part.field].median for part in parts] for layer in shown])
        for parts in ((FORWARD, BACKWARD), (HIDDEN, EXPOSED))
    )
    most = "compute or communicate" if comm else "compute"
    notes = [
        f"{len(shown)} of {count(len(modules), 'layer')}: those that {most} longest; medians "
        "over typical windows (one step on one device each). Optimizer, loss, packing: left out.",
        *(_whose(report) if comm else []),
    ]
    entries = [swatch(part_bars.part, theme) for part_bars in (*compute, *comm)]
    figure = framed(sheet(report, "Layers, in the model's order", entries, notes), bars_in(len(shown)), theme)
    panels = [bars for bars in (compute, comm) if bars]
    axes = figure.subplots(1, len(panels), width_ratios=(3, 2)[: len(panels)], sharey=True, squeeze=False)[0]
    rows(axes[0], [layer.layer for layer in shown])
    for axis, bars in zip(axes, panels, strict=True):
        for part_bars in bars:
            draw_bars(axis, part_bars, theme)
        axis.set_xlim(left=0)
        # A number at the end of the axis would leave the page.
        axis.set_xticks([tick for tick in axis.get_xticks() if tick <= 0.97 * axis.get_xlim()[1]])
        axis.set_xlabel(f"{'compute' if bars is compute else 'comm'}, ms per step")
        axis.grid(False, axis="y")
        axis.tick_params(axis="y", length=0)
    return figure


def _longest(modules: Sequence[LayerSummary]) -> list[LayerSummary]:
    """Return the layers that compute longest, and of the others those that communicate longest, in their order."""
    by_compute = sorted(modules, key=lambda layer: _sum(layer, FORWARD, BACKWARD), reverse=True)
    by_comm = sorted(modules, key=lambda layer: _sum(layer, HIDDEN, EXPOSED), reverse=True)
    chosen = by_compute[: MOST_LAYERS // 2]
    chosen += [layer for layer in by_comm if layer not in chosen and _sum(layer, HIDDEN, EXPOSED)]
    chosen = chosen[:MOST_LAYERS]
    chosen += [layer for layer in by_compute if layer not in chosen][: MOST_LAYERS - len(chosen)]
    return [layer for layer in modules if layer in chosen]


def _sum(layer: LayerSummary, *parts: StepPart) -> float:
    return sum(layer.measures[part.field].median or 0.0 for part in parts)


def _whose(report: Report) -> list[str]:
    if report.summary.buckets:
        return ["Communication: of its bucket's reduction, the layer's share by bytes."]
    return ["Communication: the layer's own collectives."]


def bandwidth(report: Report, calibration: Calibration | None, theme: Theme) -> Figure:
    """Draw every collective's bus bandwidth over its size, with what calibration measured and the link's rate."""
    measured = [row for row in report.collectives if row.busbw_gbps and row.bytes]
    if not measured:
        raise TracerError(f"{report.run.name}: no bandwidth to draw: {_why_no_bandwidth(report)}")
    drawn = _groups(measured)
    curves = _curves(measured, calibration)
    lines = {size: LINES[index % len(LINES)] for index, size in enumerate(sorted({size for _, size in curves}))}
    entries = [*(_points_entry(group, theme) for group in drawn), *_line_entries(lines, report, theme)]
    notes = _bandwidth_notes(report, measured, bool(curves))
    figure = framed(sheet(report, "Bus bandwidth over message size", entries, notes), SCATTER_IN, theme)
    axis = figure.subplots()
    for (kind, group_size), points in curves.items():
        color = ramp(theme, KIND_MARKS[kind][0])
        axis.plot(*zip(*points, strict=True), color=color, linestyle=lines[group_size], linewidth=1.2, zorder=1)
    places = _side_by_side(drawn)
    for group in drawn:
        look = _look(group[0], theme)
        axis.plot([places[group[0].kind, row.bytes] for row in group], [row.busbw_gbps or 0 for row in group], **look)
    if report.run.links.limit_gbps is not None:
        axis.axhline(report.run.links.limit_gbps, color=theme.ink, linestyle=DASHED, linewidth=1.0)
    _logarithmic(axis)
    return figure


def _groups(collectives: Sequence[CollectiveRow]) -> list[list[CollectiveRow]]:
    """Group collectives by kind, bounds apart, in the palette's order."""
    by_style: dict[tuple[str, bool], list[CollectiveRow]] = {}
    for row in sorted(collectives, key=lambda row: (list(KIND_MARKS).index(row.kind), row.bound)):
        by_style.setdefault((row.kind, row.bound), []).append(row)
    return list(by_style.values())


def _side_by_side(groups: Sequence[Sequence[CollectiveRow]]) -> dict[tuple[str, int | None], float]:
    """Return where each kind's collectives of a size are drawn: kinds of about one size next to one another."""
    kinds: dict[int, list[str]] = {}
    for group in groups:
        for row in group:
            of_size = kinds.setdefault(round(log10(row.bytes or 1) / SAME_SIZE), [])
            of_size += [row.kind] if row.kind not in of_size else []
    places: dict[tuple[str, int | None], float] = {}
    for row in (row for group in groups for row in group):
        of_size = kinds[round(log10(row.bytes or 1) / SAME_SIZE)]
        shift = of_size.index(row.kind) - (len(of_size) - 1) / 2
        places[row.kind, row.bytes] = (row.bytes or 1) * 10 ** (BESIDE * shift)
    return places


def _why_no_bandwidth(report: Report) -> str:
    if not any(window.comm_ns for window in report.windows):
        return "no communication was found"
    if not report.collectives:
        return "no collective could be matched between ranks"
    return "no collective's size and transfer are both known"


def _curves(
    collectives: Sequence[CollectiveRow], calibration: Calibration | None
) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """Return what calibration measured for the kinds and group sizes that are drawn: bandwidth at each size."""
    curves: dict[tuple[str, int], list[tuple[int, float]]] = {}
    drawn = {(row.kind, row.group_size) for row in collectives}
    for row in sorted(calibration.rows if calibration else (), key=lambda row: row.bytes):
        if (row.collective, row.group_size) in drawn:
            curves.setdefault((row.collective, row.group_size), []).append((row.bytes, row.busbw_gbps))
    return curves


def _look(row: CollectiveRow, theme: Theme) -> dict[str, Any]:
    """Return how such collectives are drawn; a bound is hollow."""
    position, marker = KIND_MARKS[row.kind]
    color = ramp(theme, position)
    face = "none" if row.bound else color
    return {"color": color, "marker": marker, "markersize": 4.5, "markerfacecolor": face, "linestyle": ""}


def _points_entry(group: Sequence[CollectiveRow], theme: Theme) -> Entry:
    from matplotlib.lines import Line2D

    sizes = ", ".join(map(str, sorted({row.group_size for row in group})))
    return f"{'~ ' * group[0].bound}{group[0].kind}, {sizes} ranks", Line2D([], [], **_look(group[0], theme))


def _line_entries(lines: Mapping[int, Any], report: Report, theme: Theme) -> list[Entry]:
    from matplotlib.lines import Line2D

    limit = report.run.links.limit_gbps
    entries: list[Entry] = [
        (f"calibrated, {size} ranks", Line2D([], [], color=theme.faint, linestyle=line, linewidth=1.2))
        for size, line in lines.items()
    ]
    if limit is not None:
        line = Line2D([], [], color=theme.ink, linestyle=DASHED, linewidth=1.0)
        entries.append((f"the link's limit, {gbps(limit)} GB/s", line))
    return entries


def _bandwidth_notes(report: Report, measured: Sequence[CollectiveRow], has_curves: bool) -> list[str]:
    unknown = len(report.collectives) - len(measured)
    is_shifted = any(place != nbytes for (_, nbytes), place in _side_by_side([measured]).items())
    shared = " Kinds of about one size are drawn side by side." if is_shifted else ""
    unknown_note = f" Of {unknown} more size or transfer is not known." if unknown else ""
    notes = [f"A point is one collective; 1 GB is 1e9 bytes.{shared}{unknown_note}"]
    if any(row.bound for row in measured):
        notes.append("~ a bound: members may leave before all have come, or are missing from the run.")
    if not has_curves:
        notes.append("These links were not calibrated for what is drawn: see tracer calibrate, and --links.")
    if report.run.links.limit_gbps is not None and report.run.links.source:
        notes.append(f"The link's limit: {report.run.links.source}.")
    return notes


def _logarithmic(axis: Axes) -> None:
    from matplotlib.ticker import LogLocator

    axis.set_xscale("log")
    axis.set_yscale("log")
    for dimension in (axis.xaxis, axis.yaxis):
        low, high = dimension.get_data_interval()
        # Whole decades, so that two at least have a tick.
        dimension.axes.set(
            **{f"{dimension.axis_name}lim": (10 ** floor(log10(low) - 0.02), 10 ** ceil(log10(high) + 0.02))}
        )
    unit, in_unit = one_unit(axis.get_xlim()[1])
    write_ticks(axis.xaxis, LogLocator(numticks=7), in_unit)
    write_ticks(axis.yaxis, LogLocator(numticks=7), lambda value: f"{value:,g}")
    axis.set_xlabel(f"message size, {unit}")
    axis.set_ylabel("busbw, GB/s")
