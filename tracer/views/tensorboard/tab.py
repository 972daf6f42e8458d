"""Page of a run or sweep in TensorBoard's tab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from analyzers.comparison import Scaling
from analyzers.reporting import Lane, Mark, Report, Timeline
from analyzers.units import NS_PER_MS
from tracer.views import (
    COMPUTE,
    COPY,
    HEADING,
    TABLE,
    TIMELINE,
    TRANSFER,
    WAITING,
    WARNING,
    WORDS,
    Block,
    Section,
    Table,
    blocks,
    plain,
)
from tracer.views.sections import (
    by_bucket,
    by_collective,
    by_layer,
    lane_labels,
    letter,
    meanings,
    report_sections,
    run_title,
    scaling_tables,
    scaling_title,
    tick_ms,
)

STATIC = Path(__file__).with_name("static")
TEMPLATE = STATIC / "tab.html"

# The files that the tab loads, by the name that it asks for, with their type.
ASSETS = {"index.js": ("tab.js", "text/javascript"), "tab.css": ("tab.css", "text/css")}
# The drawing's own measures: a lane's height, where its marks begin in it, and the least length of a mark.
WIDTH, LANE, TOP, LEAST = 960.0, 30.0, 11.0, 0.8
LETTER = 6.5


def asset(name: str) -> tuple[bytes, str]:
    """A file that the tab loads, and its type."""
    file, mimetype = ASSETS[name]
    return TEMPLATE.with_name(file).read_bytes(), mimetype


@dataclass(frozen=True)
class Stroke:
    """A rectangle of a lane, with what is said of it."""

    x: float
    width: float
    color: str
    is_waiting: bool
    said: str = ""


@dataclass(frozen=True)
class DrawnLane:
    """One lane: its label, its rectangles or the outline of its cells, and its letters at their places."""

    label: str
    y: float
    color: str
    outline: str
    strokes: Sequence[Stroke]
    letters: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Drawing:
    """The step in time: its lanes, its ticks with their figures, and what it says."""

    lanes: Sequence[DrawnLane]
    ticks: Sequence[tuple[float, str]]
    place: str
    meanings: str
    height: float


def tab_of_report(report: Report) -> str:
    """A report as HTML to stand inside of a page."""
    parts = [block for section in report_sections(report)[1:] for block in _but_timeline(section)]
    # The verdict, and what must be known before it is believed.
    lead = [*parts[:1], *takewhile(lambda block: block.kind == WARNING, parts[1:])]
    more: list[tuple[str, Section]] = [
        ("Buckets", by_bucket(report, True)),
        ("Layers", by_layer(report, True)),
        ("Every collective", by_collective(report, True)),
    ]
    details = [(name, blocks([section])) for name, section in more]
    return _rendered(run_title(report.run), (lead, parts[len(lead) :]), details, drawing(report.timeline))


def _but_timeline(section: Section) -> list[Block]:
    """A section's blocks; none of the timeline's, which is drawn."""
    found = blocks([section])
    return [] if any(block.kind == TIMELINE for block in found) else found


def tab_of_study(study: Scaling) -> str:
    """A sweep's study as HTML to stand inside of a page."""
    warnings = [Block(WARNING, [f"warning: {warning}"]) for warning in study.warnings]
    parts = [block for table in scaling_tables(study) for block in _blocks(table)]
    return _rendered(scaling_title(study), (warnings, parts), [], None)


def tab_of_error(name: str, reason: str) -> str:
    """What stands in the place of a run that cannot be reported."""
    return _rendered(name, ([Block(WARNING, [reason])], []), [], None)


def _blocks(table: Table) -> list[Block]:
    rows = Block(TABLE, heads=table.heads, left=[column.is_text for column in table.columns], rows=table.rows)
    notes = [Block(WORDS, [note]) for note in table.notes]
    return [Block(HEADING, [table.title]), *([rows] if table.rows else []), *notes]


def _rendered(
    name: str,
    parts: tuple[Sequence[Block], Sequence[Block]],
    details: Sequence[tuple[str, Sequence[Block]]],
    drawn: Drawing | None,
) -> str:
    """The page: what leads it, the drawing, what stands below it, what can be opened."""
    import jinja2

    # `finalize` sees each value before it is escaped.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=_plain, trim_blocks=True, lstrip_blocks=True
    )
    colors = {"compute": COMPUTE.color, "copies": COPY.color, "waiting": WAITING.color, "transfer": TRANSFER.color}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    lead, below = parts
    return template.render(
        title=name, lead=lead, parts=below, details=details, drawn=drawn, colors=colors, lane=LANE, top=TOP
    )


def _plain(value: object) -> object:
    return "\n".join(map(plain, value.split("\n"))) if type(value) is str else value


def drawing(timeline: Timeline) -> Drawing | None:
    """The lanes of a timeline as shapes; None where it has no length."""
    if not timeline.span_ns:
        return None
    step = tick_ms(timeline.span_ns)
    span_ms = timeline.span_ns / NS_PER_MS
    ticks = [(_x(tick * step / span_ms), f"{tick * step:.6g}") for tick in range(int(span_ms / step) + 1)]
    labels = lane_labels(timeline.lanes)
    lanes = [
        _lane(lane, label, place, timeline.span_ns)
        for place, (lane, label) in enumerate(zip(timeline.lanes, labels, strict=True))
    ]
    marks = [mark for lane in timeline.lanes for mark in lane.marks]
    place = f"rank {timeline.rank}, device {timeline.device}, step {timeline.step}"
    return Drawing(lanes, ticks, place, "; ".join(meanings(marks)), LANE * len(lanes))


def _x(share: float) -> float:
    return round(share * WIDTH, 2)


def _lane(lane: Lane, label: str, place: int, span_ns: int) -> DrawnLane:
    y = LANE * place
    color = {"compute": COMPUTE, "copy": COPY}.get(lane.kind, TRANSFER).color
    if lane.kind != "comm":
        return DrawnLane(label, y, color, _outline(lane.busy, y), [], [])
    strokes = [stroke for mark in lane.marks for stroke in _strokes(mark, span_ns)]
    return DrawnLane(label, y, color, "", strokes, _letters(lane.marks, span_ns))


def _outline(busy: Sequence[float], y: float) -> str:
    """The cells of a lane as one path."""
    bottom = y + LANE
    path = [f"M0 {bottom:g}"]
    for cell, share in enumerate(busy):
        height = round(bottom - share * (LANE - TOP), 2)
        path.append(f"L{_x(cell / len(busy)):g} {height:g}L{_x((cell + 1) / len(busy)):g} {height:g}")
    return "".join([*path, f"L{WIDTH:g} {bottom:g}Z"])


def _strokes(mark: Mark, span_ns: int) -> list[Stroke]:
    wait_ns = mark.wait_ns or 0
    words = f"{letter(mark)} {mark.kind}, {mark.purpose}: {mark.dur_ns / NS_PER_MS:.3f} ms"
    said = words if mark.wait_ns is None else f"{words}, of it waiting {wait_ns / NS_PER_MS:.3f} ms"
    start, turn, length = (_x(ns / span_ns) for ns in (mark.start_ns, mark.start_ns + wait_ns, mark.dur_ns - wait_ns))
    waiting = [Stroke(start, round(turn - start, 2), WAITING.color, True, said)] if wait_ns else []
    return [*waiting, Stroke(turn, max(length, LEAST), TRANSFER.color, False, said)]


def _letters(marks: Sequence[Mark], span_ns: int) -> list[tuple[float, str]]:
    """Letters at the middle of their transfers, buckets first, where there is room."""
    found: list[tuple[float, str]] = []
    for mark in sorted(marks, key=lambda mark: mark.bucket is None):
        x, sign = _x((mark.start_ns + ((mark.wait_ns or 0) + mark.dur_ns) / 2) / span_ns), letter(mark)
        if all(abs(x - other) > LETTER * (len(sign) + len(word)) / 2 for other, word in found):
            found.append((x, sign))
    return found
