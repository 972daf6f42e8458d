"""Page of a run's report: tables, pictures, a timeline and the JSON.

The tables are the terminal's, word for word. Scripts are named by their hash in the page's content-security policy: the
browser runs these and no others, and fetches nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from analyzers.causes import PathLane
from analyzers.collectives import UnmatchedRow
from analyzers.json_documents import compact
from analyzers.lazy_fields import evaluated, replaced
from analyzers.paths import read_text
from analyzers.prediction import WhatIf
from analyzers.reporting import Lanes, Report
from analyzers.run import Calibration
from analyzers.units import ms
from tracer.views import (
    CAUSE_PARTS,
    HELP,
    HOST,
    HOST_OUTSIDE,
    IDLE,
    SHADES,
    Drawing,
    Field,
    Heading,
    Place,
    Section,
    Table,
    TitledTable,
    count,
    field,
    in_legend,
    milliseconds,
    sentence,
    table,
)
from tracer.views.html.chart import Chart, StepBar
from tracer.views.html.charts import bandwidth_chart, caps_chart, rows_chart
from tracer.views.html.report_top import outline, top
from tracer.views.html.templates import FOLDER, filled, policy
from tracer.views.html.timeline_data import STATES, strips
from tracer.views.sections import (
    advice_section,
    by_bucket,
    by_charge,
    by_collective,
    by_expert,
    by_group,
    by_rank,
    by_step,
    causes_in_full,
    communicates,
    communication_section,
    compute_section,
    controls,
    device_name,
    epochs,
    idle_section,
    layers_section,
    listed_advice,
    loader,
    memory,
    named,
    pipeline_section,
    representative,
    run_title,
    true_cost,
    waiting,
)
from tracer.views.sections.results import basis, other_scenarios, own, scale_out_section, scenarios

# The first is for tables, the others are for the timeline.
TIMELINE = ("timeline-data.js", "timeline-draw.js", "timeline-marks.js", "timeline-find.js", "timeline-input.js")
SCRIPTS = ("tables.js", *TIMELINE)

# A page of more windows or unmatched kernels than this would open slowly; its JSON has them all.
MOST_ROWS = 400
# A page has a row, a bar and the JSON of up to so many ranks each; of more, of those that stand out or are drawn.
MOST_ROWS_OF_RANKS = 256
# Of kernels and operators as many rows each.
MOST_LISTED = 20


def report_html(
    report: Report,
    lanes: Sequence[Lanes] = (),
    calibration: Calibration | None = None,
    predicted: WhatIf | None = None,
    paths: Mapping[int, PathLane] | None = None,
) -> str:
    """Build the page; without lanes it has no timeline, without predictions no section on them.

    `calibration` is the curve that bandwidths are drawn against, `paths` are the critical paths of steps, by number.
    """
    scripts = [*map(_script, SCRIPTS if lanes else SCRIPTS[:1])]
    drawn = strips(report, lanes, paths=paths) if lanes else None
    inside = _of_ranks(
        report, {lane.rank for lane in lanes} or {device.rank for device, _ in named(report, MOST_ROWS_OF_RANKS)}
    )
    hosts = [lane.rank for lane in lanes if lane.host_track is not None]
    shown = {name: titled(make(report)) for name, make in SECTIONS.items()}
    values = {
        "report": report,
        "title": run_title(report.run),
        "warnings": [str(warning) for warning in report.run.warnings],
        "notes": [str(note) for note in report.run.notes],
        "scripts": [_markup(script) for script in scripts],
        "drawn": drawn,
        "has_path": bool(paths),
        "hosts": hosts,
        "steps": {step: _packed(document) for step, document in drawn.steps.items()} if drawn else {},
        "names": _packed(drawn.names) if drawn else "",
        "states": _markup(_states()),
        "packed": _packed(compact(evaluated(inside))),
        "is_whole": inside is report,
        "whole_is": "the JSON" if inside is report else "tracer report --json",
        "top": top(report),
        "sections": outline(report, shown, predicted),
        "parts": [*in_legend(CAUSE_PARTS), IDLE, *([HOST, HOST_OUTSIDE] if hosts else [])],
        "communicates": communicates(report),
        "legend": in_legend(part for part in CAUSE_PARTS if report.summary.shares[part.field]),
        "bars": _bars(report),
        "bandwidth": bandwidth_chart(report, calibration),
        "predicted": _predicted(predicted) if predicted is not None else None,
        "facts": _facts(report),
        "most_rows": MOST_ROWS,
        "shown": shown,
        "steps_of_pipelines": _drawings(_pipeline(report)),
    }
    return filled("report.html", values, [*map(_hash, scripts)])


def scripts_policy() -> str:
    """Return the policy that a server sends with the page: it allows the scripts of any report."""
    return policy([_hash(_script(name)) for name in SCRIPTS])


def _script(name: str) -> str:
    return read_text(FOLDER / name)


@dataclass(frozen=True)
class PredictionSection:
    """The section of predictions: what to choose, the run's own settings, tables, and pictures."""

    why: str
    own: list[TitledTable]
    scenarios: list[TitledTable]
    others: list[TitledTable]
    scaling: list[TitledTable]
    basis: list[TitledTable]
    over_caps: Chart | None
    besides: Chart | None


def _predicted(prediction: WhatIf) -> PredictionSection:
    return PredictionSection(
        why=sentence(prediction.headline),
        own=titled(own(prediction)),
        scenarios=titled(scenarios(prediction)),
        others=titled(other_scenarios(prediction)),
        scaling=titled(scale_out_section(prediction)),
        basis=titled(basis(prediction)),
        over_caps=caps_chart(prediction) if prediction.has_caps else None,
        besides=rows_chart(prediction),
    )


def _of_ranks(report: Report, ranks: Collection[int]) -> Report:
    """Return the report that the page holds: of too many ranks, only the rows of those that are drawn."""
    if len(report.run.ranks) <= MOST_ROWS_OF_RANKS:
        return report
    rows = {
        name: [row for row in getattr(report, name) if row.rank in ranks]
        for name in (
            *("windows", "groups", "unmatched", "waiting", "buckets", "layers", "pipeline", "kernels", "operators"),
        )
    }
    idle = replaced(
        report.idle,
        **{
            name: [row for row in getattr(report.idle, name) if row.rank in ranks]
            for name in report.idle.__struct_fields__
        },
    )
    collectives = [
        msgspec.structs.replace(row, members=[member for member in row.members if member.rank in ranks])
        for row in report.collectives
    ]
    return replaced(report, **rows, collectives=collectives, idle=idle)


def _about(report: Report) -> Section:
    run = report.run
    return [*controls(run), *loader(report), *true_cost(report), *epochs(run), *memory(run)]


def _collectives(report: Report) -> Section:
    first = replaced(report, collectives=report.collectives[:MOST_ROWS])
    return by_collective(first) if report.collectives else []


def _pipeline(report: Report) -> Section:
    return pipeline_section(report) if report.pipeline else []


def _drawings(section: Section) -> list[str]:
    """Return a section's drawings as text of one width."""
    drawings = [block.lines for block in section if isinstance(block, Drawing)]
    return ["\n".join("".join(span.words for span in line) for line in lines) for lines in drawings]


# What of the text report stands in which part of the page, with as many columns and rows as there are.
SECTIONS: dict[str, Callable[[Report], Section]] = {
    "advice": lambda report: [] if listed_advice(report) else advice_section(report),
    "ranks": lambda report: by_rank(report, MOST_ROWS_OF_RANKS),
    "representative": representative,
    "idle": idle_section,
    "windows": lambda report: by_step(replaced(report, windows=report.windows[:MOST_ROWS])),
    "groups": lambda report: by_group(report) if len(report.summary.groups) > 1 else [],
    "communication": lambda report: communication_section(report, most=len(report.summary.communication)),
    "collectives": _collectives,
    "waiting": lambda report: waiting(report, most=MOST_ROWS),
    "buckets": lambda report: by_bucket(report),
    "layers": layers_section,
    "pipeline": _pipeline,
    "experts": lambda report: by_expert(report) if report.experts or report.attention else [],
    "kernels": lambda report: compute_section(report, most=MOST_LISTED),
    "unmatched": lambda report: _unmatched(report.unmatched),
    "causes": causes_in_full,
    "charges": lambda report: by_charge(report) if report.summary.charges is not None else [],
    "about": _about,
}


def _unmatched(rows: Sequence[UnmatchedRow]) -> Section:
    if not rows:
        return []

    def place(row: UnmatchedRow) -> Place:
        return Place(row.step, row.rank, row.device, kernel=row.name)

    title = f"Communication that is in no collective: {count(len(rows), 'kernel')}"
    return [Heading(title), table(_UNMATCHED, rows[:MOST_ROWS], place=place, subject=3)]


_UNMATCHED: Sequence[Field[UnmatchedRow]] = (
    Field("rank", cell=lambda row: str(row.rank)),
    Field("device", cell=lambda row: str(row.device)),
    Field("kind", True, cell=lambda row: row.kind),
    Field("kernel", True, cell=lambda row: row.name),
    field("start_ns", "starts, ms"),
    Field("ms", cell=lambda row: milliseconds(row.dur_ns)),
    Field("why", True, help=HELP["why"], cell=lambda row: row.why),
)


def _bars(report: Report) -> list[StepBar]:
    """Build a bar per device from its medians; the page makes each bar full, whatever they add up to."""
    devices = report.summary.by_device
    marks = {marked.rank: marked.mark for marked in report.summary.headline.marked}
    bars = []
    for device, _ in named(report, MOST_ROWS_OF_RANKS):
        medians = [(part, device.windows[part.field].median or 0.0) for part in CAUSE_PARTS]
        parts = [(part.look or part.field, median, f"{part.label} {ms(median)}") for part, median in medians]
        name, place = device_name(device, devices), Place(rank=device.rank, device=device.device)
        step = ms(device.windows["span_ns"].median or 0)
        bars.append(StepBar(name, step, parts, mark=marks.get(device.rank, ""), place=place))
    return bars


def _facts(report: Report) -> list[tuple[str, str]]:
    """Return what is known about the run and its software, in words."""
    run = report.run
    versions = [(name, version or "-") for name, version in run.versions.items()]
    facts = [
        ("ranks", f"{len(run.ranks)} of {run.world_size}"),
        ("devices", ", ".join(f"{run.devices.count(name)} x {name}" for name in dict.fromkeys(run.devices))),
        ("strategy", run.strategy),
        ("backend", run.backend),
        ("transport", run.links.transport),
        ("link's own rate", None if run.links.limit_gbps is None else f"{run.links.limit_gbps:g} GB/s one way"),
        ("links known from", run.links.source),
        ("times from", f"the {run.times_from} window"),
    ]
    return [*((name, value) for name, value in facts if value), *versions]


def _states() -> str:
    """Encode what the timeline's letters mean, and its shades, for its script: the palette's, which holds no `<`."""
    states = [
        {
            "letter": letter,
            "color": part.color,
            "label": part.label,
            "shade": part.shade,
            "pattern": part.pattern,
            "look": part.look or part.field,
        }
        for letter, part in STATES.items()
    ]
    return msgspec.json.encode({"states": states, "shades": SHADES}).decode()


def _markup(text: str) -> object:
    from markupsafe import Markup

    return Markup(text)


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _packed(data: bytes) -> object:
    """Compress to gzip in base64, which no tag can end; the same for the same report."""
    return _markup(base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii"))


def error_html(title: str, reason: str) -> str:
    """Build a page that says why there is no other."""
    return filled("error.html", {"title": title, "reason": reason, "warnings": [], "tables": []})


def titled(section: Section) -> list[TitledTable]:
    """Return a section's tables: each heading begins one; prose goes below it wherever the section has it.

    Drawings are left out: a page has its own.
    """
    tables: list[TitledTable] = []
    for block in section:
        if isinstance(block, Heading):
            tables.append(_empty(block.words))
            continue
        last = tables.pop() if tables else _empty("")
        if isinstance(block, Table):
            last = replace(last, table=block)
        elif not isinstance(block, Drawing):
            last = replace(last, notes=[*last.notes, block.words])
        tables.append(last)
    return tables


def _empty(title: str) -> TitledTable:
    return TitledTable("", title, Table((), ()))
