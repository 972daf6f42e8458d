"""The report as text that a person reads at a glance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from analyzers.document import DeviceSummary, Report, RunFacts, Spread, Window
from analyzers.units import ms, percent
from tracer.views.advice import advice, true_cost
from tracer.views.buckets import by_bucket
from tracer.views.communication import by_collective, communication, waiting
from tracer.views.epochs import epochs, memory
from tracer.views.layers import by_layer
from tracer.views.palette import COMM, PARTS
from tracer.views.terminal import WIDE, Section, count, milliseconds, rendered, styled, table
from tracer.views.timeline import timeline

if TYPE_CHECKING:
    from rich.text import Text

By = Literal["rank", "step", "collective", "bucket", "layer"]
BAR_CELLS = 66


def text(report: Report, by: By = "rank", width: int | None = None, color: bool = False) -> str:
    """The whole report; prose wrapped at `width` columns where one is given, with terminal colors where asked for."""
    return rendered(sections(report, by, width), width, color)


def sections(report: Report, by: By = "rank", width: int | None = None) -> list[Section]:
    """The report's parts in order, as wide as there is room."""
    wide = width is None or width >= WIDE
    parts: list[Section] = [
        [styled(title(report.run), "")],
        [styled(report.summary.verdict, "bold")],
        [styled(f"warning: {warning}", "yellow") for warning in report.run.warnings],
        *_VIEWS[by](report, wide),
        controls(report.run),
        *([] if by in ("step", "collective") else [true_cost(report), advice(report)]),
    ]
    return [part for part in parts if part]


def _rank_view(report: Report, wide: bool) -> list[Section]:
    measured = [_by_rank(report, wide), timeline(report, wide), *_exchange(report, wide), representative(report)]
    return [*measured, loader(report), epochs(report.run), memory(report.run)]


def _step_view(report: Report, wide: bool) -> list[Section]:
    return [by_step(report, wide), *_exchange(report, wide), representative(report), loader(report)]


def _exchange(report: Report, wide: bool) -> list[Section]:
    return [communication(report, wide), waiting(report, wide)]


# What each way of looking at a run shows, between its title and its controls.
_VIEWS: dict[By, Callable[[Report, bool], list[Section]]] = {
    "rank": _rank_view,
    "step": _step_view,
    "collective": lambda report, wide: [by_collective(report, wide), representative(report)],
    "bucket": lambda report, wide: [by_bucket(report, wide), timeline(report, wide)],
    "layer": lambda report, wide: [by_layer(report, wide)],
}


def title(run: RunFacts) -> str:
    """What was run on what, in a line."""
    batch = f"batch {run.batch_per_gpu} a device" if run.batch_per_gpu else None
    partial = len(run.ranks) < run.world_size
    ranks = f"{len(run.ranks)} of {run.world_size} ranks" if partial else count(run.world_size, "rank")
    versions = [f"{name} {run.versions[name]}" for name in ("torch", "nccl") if run.versions.get(name)]
    workload = " ".join(word for word in (run.model, run.strategy) if word)
    devices = ", ".join(dict.fromkeys(run.devices))
    facts = [run.name, workload, batch, ranks, devices, *versions]
    return " · ".join(fact for fact in facts if fact)


def _by_rank(report: Report, wide: bool) -> Section:
    devices = report.summary.by_device
    bars = [_bar(f"{device_name(device, devices):>10}", _shares(device.windows)) for device in devices]
    return [*by_rank(report, wide), "", _legend(), *bars]


def by_rank(report: Report, wide: bool) -> Section:
    """Every device's medians, and those of all."""
    devices = report.summary.by_device
    rows = table(
        "rank", "device", *(("windows",) if wide else ()), "step", *(("(min - max)",) if wide else ()), *_HEADS
    )
    for device in devices:
        rows.add_row(str(device.rank), str(device.device), *_medians(device.windows, wide))
    if len(devices) > 1:
        rows.add_section()
        rows.add_row("all", "", *_medians(report.summary.windows, wide))
    window = "light window's times" if report.run.times_from == "light" else "full window's times"
    return [styled(f"Medians over windows (one step on one device each), ms; {window}", "bold"), rows]


# The parts of a step, with what waiting is of the exposed communication behind it.
COLUMNS = tuple(name for part in PARTS for name in ((part.field, "exposed_wait_ns") if part is COMM else (part.field,)))
_LABELS = {part.field: part.label.replace(" ", "\n") for part in PARTS} | {"exposed_wait_ns": "of it\nwaiting"}
_HEADS = (*(_LABELS[name] for name in COLUMNS), "overlap")


def device_name(device: DeviceSummary, devices: Sequence[DeviceSummary]) -> str:
    """`rank 3`, or `device 3` where a rank has several."""
    alone = len({other.device for other in devices if other.rank == device.rank}) == 1
    return f"rank {device.rank}" if alone else f"device {device.device}"


def _medians(measures: Mapping[str, Spread], wide: bool) -> list[str]:
    span = measures["span_ns"]
    count, extent = [str(span.count)], [f"{milliseconds(span.minimum)} - {milliseconds(span.maximum)}"]
    parts = [milliseconds(measures[name].median) for name in COLUMNS]
    step = [milliseconds(span.median)]
    return [*(count if wide else []), *step, *(extent if wide else []), *parts, percent(measures["overlap"].median)]


def by_step(report: Report, wide: bool) -> Section:
    """Every window."""
    rows = table("rank", "device", "step", *(("starts",) if wide else ()), "span", *_HEADS)
    for window in report.windows:
        start = [milliseconds(window.start_ns)] if wide else []
        values = [window.span_ns, *(getattr(window, name) for name in COLUMNS)]
        measured = [milliseconds(value) for value in values]
        rows.add_row(str(window.rank), str(window.device), str(window.step), *start, *measured, percent(window.overlap))
    return [styled("Every window (one step on one device), ms", "bold"), rows]


def representative(report: Report) -> Section:
    """The one window whose lines add up."""
    window = representative_window(report)
    rows = table("", "ms", "share")
    for part in PARTS:
        value = getattr(window, part.field)
        rows.add_row(part.label, milliseconds(value), _of(value, window))
    if window.input_idle_ns:
        rows.add_row("of it waiting for input", milliseconds(window.input_idle_ns), _of(window.input_idle_ns, window))
    rows.add_section()
    rows.add_row("span", milliseconds(window.span_ns), percent(1.0))
    place = f"rank {window.rank}, device {window.device}, step {window.step}"
    comm = (
        f"communication in all {ms(window.comm_ns)}, of it hidden behind compute {ms(window.overlapped_comm_ns)}, "
        f"exposed waiting {ms(window.exposed_wait_ns)}, exposed transfer {ms(window.exposed_transfer_ns)}"
    )
    heading = styled(f"The step of median length ({place}), where lines add up", "bold")
    return [heading, rows, styled(comm, "")]


def _of(value_ns: int, window: Window) -> str:
    return percent(value_ns / window.span_ns if window.span_ns else None)


def loader(report: Report) -> Section:
    """What the loader takes, where the traces show one."""
    found = report.summary.input
    if found is None or found.fetch_ns.median is None:
        return []
    longest = found.longest
    most = f"; most on rank {longest.rank}, {ms(longest.idle_ns.median or 0)}" if len(found.by_device) > 1 else ""
    line = (
        f"Input: in a step of {ms(found.span_ns.median or 0)} the host is in the DataLoader for "
        f"{ms(found.fetch_ns.median)}, and the device idles for {ms(found.idle_ns.median or 0)} of it{most} "
        f"(medians; {found.window} window's times)."
    )
    return [styled(line, "")]


def representative_window(report: Report) -> Window:
    """The window that the summary names."""
    chosen = report.summary.representative
    key = (chosen.rank, chosen.device, chosen.step)
    return next(window for window in report.windows if (window.rank, window.device, window.step) == key)


def controls(run: RunFacts) -> Section:
    """What a step takes without the profiler, and without synchronization."""
    controls = run.controls
    if controls.unprofiled_step_ns is None:
        return []
    line = f"Controls: a step takes {ms(controls.unprofiled_step_ns)} without the profiler"
    if controls.profiled_step_ns is not None:
        line += f", {ms(controls.profiled_step_ns)} with it ({_factor(controls.distortion)})"
    if controls.nosync_step_ns is not None and controls.sync_cost_ns is not None:
        line += f"; {ms(controls.nosync_step_ns)} without gradient synchronization"
        line += f", which so costs {ms(controls.sync_cost_ns)}"
    return [styled(line + ".", "")]


def _factor(distortion: float | None) -> str:
    return "-" if distortion is None else f"x{distortion:.3f}"


def _shares(measures: Mapping[str, Spread]) -> list[float]:
    """Median parts as shares of their own sum, so that the bar is full."""
    medians = [measures[part.field].median or 0.0 for part in PARTS]
    whole = sum(medians) or 1.0
    return [median / whole for median in medians]


def _bar(label: str, shares: Sequence[float]) -> Text:
    from rich.text import Text

    line = Text(f"{label} ")
    for part, length in zip(PARTS, _cells(shares, BAR_CELLS), strict=True):
        line.append(part.glyph * length, style=part.color)
    return line


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """Whole cells that add up to the width: each share's edge rounded to its cell."""
    edges = [round(width * sum(shares[: index + 1])) for index in range(len(shares))]
    return [edge - before for before, edge in zip([0, *edges], edges, strict=False)]


def _legend() -> Text:
    from rich.text import Text

    line = Text(" " * 11)
    for part in PARTS:
        line.append(f"{part.glyph} ", style=part.color)
        line.append(f"{part.label}   ")
    line.rstrip()
    return line
