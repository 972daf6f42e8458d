"""Layout of a run's picture: title, facts, legend, notes.

title
facts
# compute  # transfer  # waiting
|
|  axes
|________
notes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from analyzers.reporting import Report
from analyzers.run import HIGH_DISTORTION
from analyzers.units import ms
from tracer.views import StepPart, Theme
from tracer.views.plots.axes import blank, words
from tracer.views.sections import run_title as facts_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# As wide as a column of text, or half of a page; what is drawn at 8 points is read at 5 in a column of 3.3 inches.
COLUMN_IN = 5.2
TITLE_PT, TEXT_PT, SMALL_PT = 10.0, 8.0, 7.0
LEADING = 1.3
MARGIN_PT = 6.0
GAP_PT = 5.0
# Of a legend: what stands before its words, and between its columns.
SWATCH_PT, BETWEEN_PT = 20.0, 14.0
PT_PER_IN = 72.0
# Letters are measured as curves; drawn as dots they are a little wider.
HINTED = 0.98
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
# More than any line has room for.
_MOST_CHARACTERS = 1_000

Entry: TypeAlias = "tuple[str, Artist]"


@dataclass(frozen=True)
class Sheet:
    """What stands around the axes."""

    title: str
    facts: str
    entries: Sequence[Entry]
    notes: Sequence[str] = field(default=())


def sheet(report: Report, title: str, entries: Sequence[Entry], notes: Sequence[str]) -> Sheet:
    """Build a run's sheet, with a note on what the profiler did to it."""
    # Versions would wrap the line, and are in the report.
    facts = facts_of(replace(report.run, versions={}))
    return Sheet(title, facts, entries, [*notes, profiler_note(report)])


def profiler_note(report: Report) -> str:
    """Say what a step takes without the profiler, and how much longer the recording's profiled steps are."""
    distortion, step_ns = report.run.controls.distortion, report.run.controls.unprofiled_step_ns
    if distortion is None or step_ns is None:
        return "Uncertain: what the profiler adds to these times is not known."
    step = f"without the profiler a step takes {ms(step_ns)}; the recording's profiled steps take"
    if distortion > HIGH_DISTORTION:
        return f"Distorted: {step} {distortion:.2f} times that: idle time and waiting above all."
    return f"{step[:1].upper()}{step[1:]} {distortion:.3f} times that."


def framed(around: Sheet, body_in: float, theme: Theme, width_in: float = COLUMN_IN) -> Figure:
    """Build a figure with axes of this height, and the sheet's text around them."""
    room = (width_in * PT_PER_IN - 2 * MARGIN_PT) * HINTED
    title, facts = (
        list(_wrapped(text, size, room)) for text, size in ((around.title, TITLE_PT), (around.facts, SMALL_PT))
    )
    notes = [line for note in around.notes for line in _wrapped(note, SMALL_PT, room)]
    columns = _columns([label for label, _ in around.entries], room)
    legend_pt = TEXT_PT * 1.6 * -(-len(around.entries) // max(columns, 1))
    head_pt = MARGIN_PT + (len(title) * TITLE_PT + len(facts) * SMALL_PT) * LEADING + legend_pt + 2 * GAP_PT
    foot_pt = MARGIN_PT + len(notes) * SMALL_PT * LEADING + GAP_PT
    height_pt = head_pt + body_in * PT_PER_IN + foot_pt
    figure = blank(height_pt / PT_PER_IN, width_in)
    body = (0, foot_pt / height_pt, 1, body_in * PT_PER_IN / height_pt)
    figure.set_layout_engine("constrained", rect=body, w_pad=MARGIN_PT / PT_PER_IN)
    top = height_pt - MARGIN_PT
    top = _written(figure, title, top, TITLE_PT, theme.ink)
    top = _written(figure, facts, top, SMALL_PT, theme.faint) - GAP_PT
    _legend(figure, around.entries, columns, top)
    _written(figure, notes, foot_pt - GAP_PT, SMALL_PT, theme.faint)
    return figure


def laid_out_pt(figure: Figure, axis: Axes) -> float:
    """Return how wide axes are once there is room for what is next to them, in points."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    return float(axis.get_window_extent().width) / figure.dpi * PT_PER_IN


def _written(figure: Figure, lines: Sequence[str], top_pt: float, size: float, color: str) -> float:
    """Write lines of text below a height; return the height below them."""
    width_pt, height_pt = (inches * PT_PER_IN for inches in figure.get_size_inches())
    weight = "bold" if size == TITLE_PT else "normal"
    for line in lines:
        corner = (MARGIN_PT / width_pt, top_pt / height_pt)
        figure.text(*corner, line, va="top", fontsize=size, color=color, weight=weight, in_layout=False)
        top_pt -= size * LEADING
    return top_pt


def _legend(figure: Figure, entries: Sequence[Entry], columns: int, top_pt: float) -> None:
    if not entries:
        return
    width_pt, height_pt = (inches * PT_PER_IN for inches in figure.get_size_inches())
    legend = figure.legend(
        handles=[handle for _, handle in entries],
        labels=[words(label) for label, _ in entries],
        ncols=columns,
        loc="upper left",
        bbox_to_anchor=(MARGIN_PT / width_pt, top_pt / height_pt),
        fontsize=TEXT_PT,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.5,
        handleheight=0.8,
        columnspacing=BETWEEN_PT / TEXT_PT,
        labelspacing=0.45,
    )
    legend.set_in_layout(False)


def _columns(labels: Sequence[str], room: float) -> int:
    """Return as many columns of a legend as fit, filled from above."""
    for count in range(len(labels), 1, -1):
        rows = -(-len(labels) // count)
        if -(-len(labels) // rows) != count:
            continue
        widths = [max(length(label, TEXT_PT) for label in labels[at : at + rows]) for at in range(0, len(labels), rows)]
        if sum(widths) + count * (SWATCH_PT + BETWEEN_PT) <= room:
            return count
    return 1


def swatch(part: StepPart, theme: Theme, label: str | None = None) -> Entry:
    """Return a part of a step as a legend shows it."""
    from matplotlib.patches import Patch

    return label or part.label, Patch(facecolor=part.over(theme.ground), hatch=hatch(part), edgecolor=theme.ground)


_HATCHES = {
    "hatched": "////",
    "crossed": "xxxx",
    "dotted": "....",
    "striped": "\\\\\\\\",
    "level": "-----",
    "upright": "||||",
}


def hatch(part: StepPart) -> str | None:
    """Return the hatching of a part that has one."""
    return _HATCHES.get(part.pattern)


def shortened(text: str, size: float, room: float) -> str:
    """Shorten a name until it fits: what is too much is left out of its middle."""
    text = words(_measurable(text))
    if length(text, size) <= room:
        return text
    kept = len(text) - 1
    while kept > 1 and length(_cut(text, kept), size) > room:
        kept -= 1 + kept // 20
    return _cut(text, max(kept, 1))


def _measurable(text: str) -> str:
    """Return a name without most of its middle, where it fits into no line and would take minutes to measure."""
    return text if len(text) <= _MOST_CHARACTERS else _cut(text, _MOST_CHARACTERS)


def _cut(text: str, kept: int) -> str:
    return text[: -(-kept // 2)] + ELLIPSIS + text[len(text) - kept // 2 :]


def _wrapped(text: str, size: float, room: float) -> Iterator[str]:
    """Yield text in lines that fit; a word that is longer than a line is shortened."""
    line = ""
    for word in map(_measurable, words(text).split(" ")):
        longer = f"{line} {word}" if line else word
        if length(longer, size) <= room:
            line = longer
            continue
        if line:
            yield line
        line = shortened(word, size, room)
    if line:
        yield line


@cache
def length(text: str, size: float) -> float:
    """Return how wide a line of text is, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    weight = "bold" if size == TITLE_PT else "normal"
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width)
