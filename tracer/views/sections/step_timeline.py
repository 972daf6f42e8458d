"""Section that draws one step: compute as shades, collectives where they ran.

compute   ████████████▒░    ██▓
mesh_tp        ···a====a=··a===
comm 19     ·g===
          |0 ms     |1        |2
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.reporting import Lane, Mark, Report, Timeline
from analyzers.units import NS_PER_MS, duration
from tracer.views import COMM, COMPUTE, COPY, Drawing, Heading, Paragraph, Section, Span, columns, plain, rounded_up

SHADES = " ░▒▓█"
WAITING, TRANSFER, UNRESOLVED = "·", "=", "~"
LETTERS = {"broadcast": "b", "all_gather": "g", "reduce_scatter": "r", "all_reduce": "a", "send_recv": "s"}
OTHER = "?"
LONGEST_LABEL = 32
_GAP = 2
_FEWEST_CELLS = 24
_TICKS = 8


def timeline(report: Report, width: int | None) -> Section:
    """Draw the lanes of the step of median length, with a time axis under them."""
    drawn = report.timeline
    if not drawn.span_ns:
        return []
    labels = lane_labels(drawn.lanes)
    gutter = max(map(len, labels)) + _GAP
    cells = max(min(columns(width) - gutter, drawn.cells), _FEWEST_CELLS)
    lines = [
        [Span(label.ljust(gutter)), _lane(lane, drawn.span_ns, cells)]
        for label, lane in zip(labels, drawn.lanes, strict=True)
    ]
    scale = [Span(" " * gutter + axis(drawn.span_ns, cells))]
    where = f"rank {drawn.rank}, device {drawn.device}, step {drawn.step}"
    title = f"The step of median length in time ({where}); a cell is {duration(drawn.span_ns / cells)}"
    return [Heading(title), Drawing([*lines, scale]), *_legend(drawn)]


def lane_labels(lanes: Sequence[Lane]) -> list[str]:
    """Return `compute`, `copies`, `comm`; where several communicate their groups' names, or `comm 19`."""
    several = sum(lane.kind == "comm" for lane in lanes) > 1
    labels = [lane.label if lane.kind != "comm" else _named(lane.label) if several else "comm" for lane in lanes]
    return [plain(label) for label in labels]


def _named(label: str) -> str:
    label = f"comm {label.removeprefix('stream ')}" if label.startswith("stream ") else label
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 3]}..."


def _lane(lane: Lane, span_ns: int, cells: int) -> Span:
    if lane.kind != "comm":
        shown = "".join(SHADES[_level(share)] for share in _resampled(lane.busy, cells))
        return Span(shown, (COMPUTE if lane.kind == "compute" else COPY).color)
    return Span(_drawn(lane.marks, span_ns, cells), COMM.color)


def _level(share: float) -> int:
    """Return the shade for a share, a quarter of a cell each; the least share has one."""
    return min(len(SHADES) - 1, 1 + int(share * 4)) if share > 0 else 0


def _resampled(busy: Sequence[float], cells: int) -> list[float]:
    """Resample shares to another number of cells."""
    covered = np.concatenate([[0.0], np.cumsum(busy)])
    at = np.interp(np.linspace(0, len(busy), cells + 1), np.arange(len(covered)), covered)
    shares: list[float] = (np.diff(at) * cells / len(busy)).round(4).tolist()
    return shares


def _drawn(marks: Sequence[Mark], span_ns: int, cells: int) -> str:
    """Draw all marks of a lane: first where they are, then what they are, buckets before the others."""
    lane = [" "] * cells
    places = [_place(mark, span_ns, cells) for mark in marks]
    for mark, (first, turn, last) in zip(marks, places, strict=True):
        lane[first:last] = [WAITING] * (turn - first) + [TRANSFER if mark.resolved else UNRESOLVED] * (last - turn)
    taken = [False] * cells
    order = sorted(range(len(marks)), key=lambda index: marks[index].bucket is None)
    for index in order:
        _write(lane, taken, letter(marks[index]), places[index])
    return "".join(lane)


def _place(mark: Mark, span_ns: int, cells: int) -> tuple[int, int, int]:
    """Return a mark's first cell, the first of its transfer, and the cell after its last; the last is transfer."""
    half_a_cell = span_ns // cells // 2
    wait_end_ns, end_ns = mark.start_ns + (mark.wait_ns or 0), mark.start_ns + mark.dur_ns + half_a_cell
    first, turn, last = (at * cells // span_ns for at in (mark.start_ns, wait_end_ns, end_ns))
    first = min(first, cells - 1)
    last = min(max(last, first + 1), cells)
    return first, min(turn, last - 1), last


def letter(mark: Mark) -> str:
    """Return the number of a mark's bucket, or the letter for its kind."""
    return str(mark.bucket) if mark.bucket is not None else LETTERS.get(mark.kind, OTHER)


def _write(lane: list[str], taken: list[bool], name: str, extent: tuple[int, int, int]) -> None:
    """Write a name where the transfer begins; else elsewhere on its mark, or next to it where the lane is free."""
    first, turn, last = extent
    length = len(name)
    inside = sorted(range(first, last - length + 1), key=lambda start: abs(start - turn))
    beside = [start for start in (first, last - length) if start not in inside]
    for start in (*inside, *beside):
        cells = range(start, start + length)
        free = all(0 <= at < len(lane) and not taken[at] and (first <= at < last or lane[at] == " ") for at in cells)
        if free:
            lane[start : start + length] = name
            taken[start : start + length] = [True] * length
            return


def axis(span_ns: int, cells: int) -> str:
    """Draw ticks at round milliseconds, each with its figure right of it."""
    span, step = span_ns / NS_PER_MS, tick_ms(span_ns)
    axis = ""
    for tick in range(int(span / step) + 1):
        at = round(tick * step / span * cells)
        label = f"|{tick * step:.6g}" + ("" if tick else " ms")
        if at + len(label) <= cells and (not axis or len(axis) < at):
            axis = axis.ljust(at) + label
    return axis


def tick_ms(span_ns: int) -> float:
    """Return the distance between ticks: round milliseconds."""
    span = span_ns / NS_PER_MS
    return rounded_up(span / _TICKS)


def _legend(drawn: Timeline) -> Section:
    """Explain the signs that are drawn."""
    marks = [mark for lane in drawn.lanes for mark in lane.marks]
    if not marks:
        return []
    unresolved = [] if all(mark.resolved for mark in marks) else [f"{UNRESOLVED} either of these, not known which"]
    signs = [f"{WAITING} waiting, {TRANSFER} transfer", *unresolved, *meanings(marks)]
    return [Paragraph("; ".join(signs), is_faint=True)]


def meanings(marks: Sequence[Mark]) -> list[str]:
    """Explain the numbers and letters of some marks."""
    kinds = {mark.kind for mark in marks if mark.bucket is None}
    letters = [f"{sign} {kind}" for kind, sign in LETTERS.items() if kind in kinds]
    numbers = ["numbers: buckets"] if any(mark.bucket is not None for mark in marks) else []
    others = [f"{OTHER} {', '.join(sorted(kinds - set(LETTERS)))}"] if kinds - set(LETTERS) else []
    return [*numbers, *letters, *others]
