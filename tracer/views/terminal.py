"""Terminal rendering of a document's blocks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tracer.views.document import Block, Caution, Drawing, Heading, Paragraph, Section, Span, Table
from tracer.views.format import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

# From this width on, tables show more columns; below, as many as fit a terminal of 80.
WIDE = 105
NARROW = 80
# Numbers are never cut off: a table that needs more than the terminal has is as wide as it needs to be.
_UNLIMITED = 1000
_INDENT = 4


def is_wide(width: int | None) -> bool:
    """Whether tables have room for all their columns; they do if no width is given."""
    return width is None or width >= WIDE


def columns(wide: bool) -> int:
    """Return the number of columns that a table of names may fill."""
    return WIDE if wide else NARROW


def rendered(sections: Iterable[Section], width: int | None = None, color: bool = False) -> str:
    """Render sections with an empty line after each; prose wrapped at `width` columns if given."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=_UNLIMITED,
        force_terminal=color,
        color_system="truecolor" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for section in filter(None, sections):
        for block in _spaced(section):
            _print(console, block, width)
        console.print()
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _spaced(section: Section) -> Iterator[Block | None]:
    """Yield the blocks, and None for an empty line: before a heading, and a drawing that has no heading."""
    yield section[0]
    for before, block in pairwise(section):
        is_part = isinstance(block, Heading) or (isinstance(block, Drawing) and not isinstance(before, Heading))
        yield from [None, block] if is_part else [block]


def _print(console: Console, block: Block | None, width: int | None) -> None:
    if block is None:
        console.print()
    elif isinstance(block, Table):
        console.print(_table(block, is_wide(width)))
    elif isinstance(block, Drawing):
        for line in block.lines:
            console.print(_drawn(line))
    else:
        _print_words(console, block, width)


def _print_words(console: Console, block: Heading | Paragraph | Caution, width: int | None) -> None:
    from rich.text import Text

    indent = _INDENT if isinstance(block, Paragraph) and block.is_indented else 0
    text = _words(block)
    for line in [text] if width is None else text.wrap(console, max(width - indent, 1)):
        line.rstrip()
        # Indented wherever it wraps.
        console.print(Text(" " * indent) + line)


def _words(block: Heading | Paragraph | Caution) -> Text:
    from rich.text import Text

    if isinstance(block, Heading):
        return Text(plain(block.words), style="bold")
    if isinstance(block, Caution):
        return Text(plain(f"warning: {block.words}"), style="yellow")
    return Text(plain(block.words), style="dim" if block.is_faint else "")


def _table(shown: Table, wide: bool) -> RichTable:
    """Build a table without borders: numbers to the right, text to the left, with as many columns as fit."""
    from rich.table import Table as RichTable

    kept = [index for index, column in enumerate(shown.columns) if wide or not column.wide]
    table = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index in kept:
        column = shown.columns[index]
        head = "\n".join(map(plain, column.head.split("\n")))
        table.add_column(head, justify="left" if column.is_text else "right", no_wrap=True, vertical="bottom")
    number = 0
    for group in shown.groups:
        if number and shown.is_spaced:
            table.add_row()
        for row in group:
            table.add_row(*(plain(row[index]) for index in kept), style="bold" if number in shown.marked else None)
            number += 1
    return table


def _drawn(line: Sequence[Span]) -> Text:
    from rich.text import Text

    return Text.assemble(*((plain(span.words), span.color) for span in line))
