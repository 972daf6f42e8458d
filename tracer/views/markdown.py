"""The text report as blocks: headings, tables, prose and drawings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from tracer.views.document import escaped
from tracer.views.format import plain
from tracer.views.terminal import Section, rendered

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

HEADING, WORDS, WARNING, TABLE, DRAWING, TIMELINE = "heading", "words", "warning", "table", "drawing", "timeline"
STYLES = {"bold": HEADING, "yellow": WARNING}


@dataclass(frozen=True)
class Block:
    """Lines of words, of a drawing also in pieces of one color each; a table's heads, which stand left, and rows."""

    kind: str
    lines: Sequence[str] = ()
    pieces: Sequence[Sequence[tuple[str, str]]] = ()
    heads: Sequence[str] = ()
    left: Sequence[bool] = ()
    rows: Sequence[Sequence[str]] = field(default=())


def blocks(sections: Iterable[Section]) -> list[Block]:
    """What the sections of a text hold, in order; lines that are drawn stay together."""
    found = [block for section in sections for line in section for block in _block(line)]
    made: list[Block] = []
    for kind, own in groupby(found, key=lambda block: block.kind):
        together = list(own)
        made += [_together(together)] if kind == DRAWING else together
    return made


def _together(drawings: Sequence[Block]) -> Block:
    lines = [line for drawing in drawings for line in drawing.lines]
    return Block(DRAWING, lines, [pieces for drawing in drawings for pieces in drawing.pieces])


def _block(line: RenderableType) -> Iterator[Block]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    words = line.renderable if isinstance(line, Padding) else line
    if isinstance(words, Table):
        yield _table(words) if words.show_header else Block(TIMELINE, rendered([[words]]).splitlines())
    elif isinstance(words, Text) and words.plain.strip():
        # What is drawn in several colors is a drawing.
        if words.spans:
            yield Block(DRAWING, [plain(words.plain)], [list(_pieces(words))])
        else:
            yield Block(STYLES.get(str(words.style), WORDS), [plain(words.plain)])


def _pieces(words: Text) -> Iterator[tuple[str, str]]:
    """A line in pieces, each with its color, which may be none."""
    at = 0
    for span in words.spans:
        yield from [(plain(words.plain[at : span.start]), "")] if span.start > at else []
        yield plain(words.plain[span.start : span.end]), str(span.style)
        at = span.end
    yield plain(words.plain[at:]), ""


def _table(table: Table) -> Block:
    heads = [str(column.header).replace("-\n", "").replace("\n", " ") for column in table.columns]
    rows = zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True)
    left = [column.justify == "left" for column in table.columns]
    return Block(TABLE, heads=heads, left=left, rows=[list(row) for row in rows])


def sections_markdown(sections: Iterable[Section]) -> str:
    """The sections in GitHub's markdown."""
    return "\n\n".join(map(_markdown, blocks(sections))) + "\n"


def _markdown(block: Block) -> str:
    if block.kind == TABLE:
        rule = [":--" if is_left else "--:" for is_left in block.left]
        rows = [[escaped(cell) for cell in row] for row in (block.heads, *block.rows)]
        return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))
    if block.kind in (DRAWING, TIMELINE):
        # Indented, which no word can end.
        return "\n".join(f"    {plain(line)}" for line in block.lines)
    words = " ".join(map(escaped, block.lines))
    return f"### {words}" if block.kind == HEADING else words
