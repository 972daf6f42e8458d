"""Page of a run's report: tables, pictures, a timeline and the JSON.

The tables are the terminal's, word for word. Scripts are named by their hash in the page's content-security policy: the
browser runs these and no others, and fetches nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from analyzers.collectives import UnmatchedRow
from analyzers.prediction import WhatIf
from analyzers.reporting import Lanes, Report
from analyzers.run import Calibration
from analyzers.units import duration, ms
from tracer.views import SPLIT_PARTS, Column, Section, count, milliseconds, plain, styled, table
from tracer.views.html.bandwidth_curve import curve
from tracer.views.html.prediction_curve import CapLine, capline
from tracer.views.html.templates import FOLDER, filled
from tracer.views.html.timeline_data import STATES, strips
from tracer.views.sections import (
    advice_section,
    basis,
    by_bucket,
    by_rank,
    by_step,
    communication_section,
    controls,
    device_name,
    epochs,
    layers_section,
    loader,
    memory,
    named,
    own,
    representative,
    run_title,
    scale_out_section,
    scenarios,
    sentence,
    true_cost,
    waiting,
)

if TYPE_CHECKING:
    from rich.table import Table

# The first is for tables, the others are for the timeline.
SCRIPTS = ("tables.js", "timeline-draw.js", "timeline-input.js")

# A page of more windows or unmatched kernels than this would open slowly; its JSON has them all.
MOST_ROWS = 400
# A page has a row, a bar and the JSON of up to so many ranks each; of more, of those that stand out or are drawn.
MOST_RANKS = 256


@dataclass
class Shown:
    """A table of words under a title: rows in groups, which sort apart; what is said below."""

    title: str
    columns: list[Column] = field(default_factory=list)
    groups: list[list[list[str]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def report_html(
    report: Report,
    lanes: Sequence[Lanes] = (),
    calibration: Calibration | None = None,
    predicted: WhatIf | None = None,
) -> str:
    """The page; without lanes it has no timeline, without predictions no section of them.

    `calibration` is the curve that bandwidths are drawn against.
    """
    scripts = [(FOLDER / name).read_text(encoding="utf-8") for name in (SCRIPTS if lanes else SCRIPTS[:1])]
    drawn = strips(report, lanes) if lanes else None
    inside = _of_ranks(
        report, {lane.rank for lane in lanes} or {device.rank for device, _ in named(report, MOST_RANKS)}
    )
    values = {
        "report": report,
        "title": run_title(report.run),
        "warnings": report.run.warnings,
        "scripts": [_markup(script) for script in scripts],
        "drawn": drawn,
        "steps": {step: _packed(document) for step, document in drawn.steps.items()} if drawn else {},
        "states": _markup(_states()),
        "packed": _packed(msgspec.json.encode(inside)),
        "is_whole": inside is report,
        "whole_is": "the JSON" if inside is report else "tracer report --json",
        "advised": [(_figure(each.figure_ns), each) for each in report.summary.advice],
        "parts": SPLIT_PARTS,
        "bars": _bars(report),
        "curve": curve(report, calibration),
        "predicted": _predicted(predicted) if predicted is not None else None,
        "facts": _facts(report),
        "most_rows": MOST_ROWS,
        "shown": {name: shown(make(report)) for name, make in SECTIONS.items()},
    }
    return filled("report.html", values, [*map(_hash, scripts)])


@dataclass(frozen=True)
class Predicted:
    """The section of predictions: what to choose, the run's own settings, tables, and the picture."""

    why: str
    own: list[Shown]
    scenarios: list[Shown]
    scaling: list[Shown]
    basis: list[Shown]
    picture: CapLine


def _predicted(found: WhatIf) -> Predicted:
    return Predicted(
        why=sentence(found.recommended.why or ""),
        own=shown(own(found)),
        scenarios=shown(scenarios(found)),
        scaling=shown(scale_out_section(found)),
        basis=shown(basis(found)),
        picture=capline(found),
    )


def _of_ranks(report: Report, ranks: Collection[int]) -> Report:
    """The report that the page holds: of too many ranks without the rows of those that are not drawn."""
    if len(report.run.ranks) <= MOST_RANKS:
        return report
    rows = {
        name: [row for row in getattr(report, name) if row.rank in ranks]
        for name in ("windows", "unmatched", "waiting", "buckets", "layers")
    }
    collectives = [
        msgspec.structs.replace(row, members=[member for member in row.members if member.rank in ranks])
        for row in report.collectives
    ]
    return msgspec.structs.replace(report, **rows, collectives=collectives)


def _no_advice(report: Report) -> Section:
    return [] if report.summary.advice else advice_section(report)


def _about(report: Report) -> Section:
    run = report.run
    return [*controls(run), *loader(report), *true_cost(report), *epochs(run), *memory(run)]


def _windows(report: Report) -> Section:
    first = msgspec.structs.replace(report, windows=report.windows[:MOST_ROWS])
    return by_step(first, wide=True)


def _bandwidths(report: Report) -> Section:
    return communication_section(report, wide=True, most=len(report.summary.communication))


# What of the text report stands in which part of the page, with as many columns and rows as there are.
SECTIONS: dict[str, Callable[[Report], Section]] = {
    "advice": _no_advice,
    "ranks": lambda report: by_rank(report, True, MOST_RANKS),
    "representative": representative,
    "windows": _windows,
    "communication": _bandwidths,
    "waiting": lambda report: waiting(report, most=MOST_ROWS),
    "buckets": lambda report: by_bucket(report, wide=True),
    "layers": lambda report: layers_section(report, wide=True),
    "unmatched": lambda report: _unmatched(report.unmatched),
    "about": _about,
}


def shown(section: Section) -> list[Shown]:
    """A section's tables: each bold line begins one, other lines are its notes."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    found: list[Shown] = []
    for line in section:
        words = line.renderable if isinstance(line, Padding) else line
        if isinstance(words, Text) and words.style == "bold":
            found.append(Shown(words.plain))
            continue
        if not found:
            found.append(Shown(""))
        if isinstance(words, Table):
            found[-1].columns = [Column(str(each.header), each.justify == "left") for each in words.columns]
            found[-1].groups = _groups(words)
        elif isinstance(words, Text) and words.plain:
            found[-1].notes.append(words.plain)
    return found


def _groups(table: Table) -> list[list[list[str]]]:
    """A table's rows, parted where it has a line between sections."""
    rows = zip(*(map(str, column.cells) for column in table.columns), strict=True)
    groups: list[list[list[str]]] = [[]]
    for row, cells in zip(table.rows, rows, strict=True):
        # An empty row is how a terminal parts groups.
        if any(cells):
            groups[-1].append(list(cells))
        if row.end_section:
            groups.append([])
    return [group for group in groups if group]


def _unmatched(rows: Sequence[UnmatchedRow]) -> Section:
    if not rows:
        return []
    left = ("kind", "kernel", "why")
    lines = table("rank", "device", "kind", "kernel", "starts, ms", "ms", "why", left=left)
    for row in islice(rows, MOST_ROWS):
        times = (milliseconds(row.start_ns), milliseconds(row.dur_ns))
        lines.add_row(str(row.rank), str(row.device), row.kind, plain(row.name), *times, plain(row.why))
    return [styled(f"Communication that is in no collective: {count(len(rows), 'kernel')}", "bold"), lines]


@dataclass(frozen=True)
class Bar:
    """A device's bar: its name, its step, and each part's median (ns) with its words."""

    name: str
    step: str
    parts: list[tuple[str, float, str]]


def _bars(report: Report) -> list[Bar]:
    """Medians of each device; the page makes each bar full, whatever they add up to."""
    devices = report.summary.by_device
    bars = []
    for device, _ in named(report, MOST_RANKS):
        medians = {part.field: device.windows[part.field].median or 0.0 for part in SPLIT_PARTS}
        parts = [(part.field, medians[part.field], f"{part.label} {ms(medians[part.field])}") for part in SPLIT_PARTS]
        bars.append(Bar(device_name(device, devices), ms(device.windows["span_ns"].median or 0), parts))
    return bars


def _figure(figure_ns: int) -> str:
    return duration(figure_ns)


def _facts(report: Report) -> list[tuple[str, str]]:
    """What is known of the run and its software, in words."""
    run = report.run
    versions = [(name, version or "-") for name, version in run.versions.items()]
    said = [
        ("ranks", f"{len(run.ranks)} of {run.world_size}"),
        ("devices", ", ".join(f"{run.devices.count(name)} x {name}" for name in dict.fromkeys(run.devices))),
        ("strategy", run.strategy),
        ("backend", run.backend),
        ("transport", run.links.transport),
        ("link's own rate", None if run.links.limit_gbps is None else f"{run.links.limit_gbps:g} GB/s one way"),
        ("links known from", run.links.source),
        ("times from", f"the {run.times_from} window"),
    ]
    return [*((name, value) for name, value in said if value), *versions]


def _states() -> str:
    """What the timeline's letters mean, for its script; all of it is the palette's, and holds no `<`."""
    states = [{"letter": letter, "field": part.field, "label": part.label} for letter, (part, _) in STATES.items()]
    return msgspec.json.encode(states).decode()


def _markup(text: str) -> object:
    from markupsafe import Markup

    return Markup(text)


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _packed(data: bytes) -> str:
    """Gzipped, in base64, which no tag can end; the same for the same report."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")
