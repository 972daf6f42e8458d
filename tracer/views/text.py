"""The report as text that a person reads at a glance."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from analyzers.report import DeviceSummary, Report, RunFacts, Spread, Window
from analyzers.units import NS_PER_MS, ms, percent
from tracer.views.palette import PARTS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

By = Literal["rank", "step"]
BAR_WIDTH = 24


def text(report: Report, by: By = "rank", width: int = 100, color: bool = False) -> str:
    """The whole report, `width` columns wide, with terminal colors where asked for."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="truecolor" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for section in _sections(report, by):
        _print(console, section)
    return out.getvalue()


def _print(console: Console, section: Sequence[RenderableType]) -> None:
    for line in section:
        console.print(line)
    console.print()


def _sections(report: Report, by: By) -> list[Sequence[RenderableType]]:
    sections: list[Sequence[RenderableType]] = [
        [_title(report.run)],
        [_style(report.summary.verdict, "bold")],
        [_style(f"warning: {warning}", "yellow") for warning in report.run.warnings],
        _by_step(report) if by == "step" else _by_rank(report),
        _representative(report),
        _controls(report.run),
    ]
    return [section for section in sections if section]


def _style(words: str, style: str) -> Text:
    from rich.text import Text

    return Text(words, style=style)


def _title(run: RunFacts) -> str:
    batch = f"batch {run.batch_per_gpu} a device" if run.batch_per_gpu else None
    ranks = (
        f"{len(run.ranks)} of {run.world_size} ranks"
        if len(run.ranks) < run.world_size
        else _count(run.world_size, "rank")
    )
    versions = [f"{name} {run.versions[name]}" for name in ("torch", "nccl") if run.versions.get(name)]
    workload = " ".join(word for word in (run.model, run.strategy) if word)
    devices = ", ".join(dict.fromkeys(run.devices))
    facts = [run.name, workload, batch, ranks, devices, *versions]
    return " · ".join(fact for fact in facts if fact)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _by_rank(report: Report) -> Sequence[RenderableType]:
    devices = report.summary.by_device
    table = _table("rank", "device", "windows", "step ms", "(min - max)", *_PART_HEADS, "overlap")
    for device in devices:
        table.add_row(
            str(device.rank), str(device.device), str(device.windows["span_ns"].count), *_medians(device.windows)
        )
    if len(devices) > 1:
        everything = report.summary.windows
        table.add_section()
        table.add_row("all", "", str(everything["span_ns"].count), *_medians(everything))
    legend = _legend()
    bars = [_bar_line(f"{_name(device, devices):>10}", _shares(device.windows)) for device in devices]
    return [_style("Medians over the windows (one step on one device each), ms", "bold"), table, "", legend, *bars]


_PART_HEADS = tuple(part.label for part in PARTS)


def _name(device: DeviceSummary, devices: Sequence[DeviceSummary]) -> str:
    alone = len({other.device for other in devices if other.rank == device.rank}) == 1
    return f"rank {device.rank}" if alone else f"device {device.device}"


def _medians(measures: Mapping[str, Spread]) -> list[str]:
    span = measures["span_ns"]
    parts = [_milliseconds(measures[part.field].median) for part in PARTS]
    extent = f"{_milliseconds(span.minimum)} - {_milliseconds(span.maximum)}"
    return [_milliseconds(span.median), extent, *parts, percent(measures["overlap"].median)]


def _by_step(report: Report) -> Sequence[RenderableType]:
    table = _table("rank", "device", "step", "starts ms", "span ms", *_PART_HEADS, "comm", "overlap")
    for window in report.windows:
        parts = [_milliseconds(getattr(window, part.field)) for part in PARTS]
        table.add_row(
            str(window.rank),
            str(window.device),
            str(window.step),
            _milliseconds(window.start_ns),
            _milliseconds(window.span_ns),
            *parts,
            _milliseconds(window.comm_ns),
            percent(window.overlap),
        )
    return [_style("Every window (one step on one device), ms", "bold"), table]


def _representative(report: Report) -> Sequence[RenderableType]:
    window = representative_window(report)
    table = _table("", "ms", "share")
    for part in PARTS:
        value = getattr(window, part.field)
        table.add_row(part.label, _milliseconds(value), percent(value / window.span_ns if window.span_ns else None))
    table.add_section()
    table.add_row("span", _milliseconds(window.span_ns), percent(1.0))
    place = f"rank {window.rank}, device {window.device}, step {window.step}"
    comm = f"communication in all {ms(window.comm_ns)}, of it hidden behind compute {ms(window.overlapped_comm_ns)}"
    return [_style(f"The step of median length ({place}), where lines add up", "bold"), table, comm]


def representative_window(report: Report) -> Window:
    """The window that the summary names."""
    chosen = report.summary.representative
    key = (chosen.rank, chosen.device, chosen.step)
    return next(window for window in report.windows if (window.rank, window.device, window.step) == key)


def _controls(run: RunFacts) -> Sequence[RenderableType]:
    controls = run.controls
    if controls.unprofiled_step_ns is None:
        return []
    line = f"Controls: a step takes {ms(controls.unprofiled_step_ns)} without the profiler"
    if controls.profiled_step_ns is not None:
        line += f", {ms(controls.profiled_step_ns)} with it ({_factor(controls.distortion)})"
    if controls.nosync_step_ns is not None and controls.sync_cost_ns is not None:
        line += f"; {ms(controls.nosync_step_ns)} without gradient synchronization"
        line += f", which so costs {ms(controls.sync_cost_ns)}"
    return [line + "."]


def _factor(distortion: float | None) -> str:
    return "-" if distortion is None else f"x{distortion:.3f}"


def _table(*heads: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _milliseconds(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / NS_PER_MS:,.3f}"


def _shares(measures: Mapping[str, Spread]) -> list[float]:
    """Median parts as shares of their own sum, so that the bar is full."""
    medians = [measures[part.field].median or 0.0 for part in PARTS]
    whole = sum(medians) or 1.0
    return [median / whole for median in medians]


def _bar_line(label: str, shares: Sequence[float]) -> Text:
    from rich.text import Text

    line = Text(f"{label} ")
    for part, length in zip(PARTS, _cells(shares, BAR_WIDTH * 3), strict=True):
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
    return line
