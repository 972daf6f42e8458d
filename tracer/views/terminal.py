"""Terminal rendering of a document's blocks."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from tracer.views.document import Block, Caution, Drawing, Heading, Paragraph, Section, Span, Table
from tracer.views.format import plain

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table as RichTable
    from rich.text import Text

# From this width on, tables show more columns; below, as many as fit a terminal of 80, and folded where it is narrower.
WIDE = 105
# Numbers are never cut off: what is printed is as wide as it needs to be.
_UNLIMITED = 1000
_INDENT = 4
# Between two columns; and the least that a column of words wraps to before its table is folded.
_GAP = 2
_FEWEST_LETTERS = 16


def is_wide(width: int | None) -> bool:
    """Whether tables have room for all their columns; they do if no width is given."""
    return width is None or width >= WIDE


def columns(width: int | None) -> int:
    """Return the number of columns that a drawing or a table of names may fill."""
    return WIDE if width is None else min(width, WIDE)


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
        for number, table in enumerate(_tables(block, width)):
            if number:
                console.print()
            console.print(table)
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


def _tables(shown: Table, width: int | None) -> list[RichTable]:
    """Build the table; of one that is wider than the terminal words wrap, and its columns go on in further tables."""
    kept = [index for index, column in enumerate(shown.columns) if is_wide(width) or not column.wide]
    widths = {index: _column_width(shown, index) for index in kept}
    if width is None:
        return [_table(shown, widths)]
    _wrap_words(shown, widths, width)
    return [_table(shown, {index: widths[index] for index in part}) for part in _folded(shown, widths, width)]


def _column_width(shown: Table, index: int) -> int:
    from rich.cells import cell_len

    words = [*shown.columns[index].head.split("\n"), *(row[index] for row in shown.rows)]
    return max(cell_len(plain(word)) for word in words)


def _total(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _wrap_words(shown: Table, widths: dict[int, int], width: int) -> None:
    """Narrow columns of words, the widest first, until the table fits or none has letters to spare."""
    for index in sorted(widths, key=lambda index: -widths[index]):
        if shown.columns[index].is_text:
            excess = max(_total(widths.values()) - width, 0)
            widths[index] = min(widths[index], max(widths[index] - excess, _FEWEST_LETTERS))


def _folded(shown: Table, widths: Mapping[int, int], width: int) -> list[list[int]]:
    """Return the columns of each table; those that name the rows begin every one."""
    parts = [[first := next(iter(widths))]]
    keys = list(takewhile(lambda index: shown.columns[index].is_text, widths)) or [first]
    if _total([widths[index] for index in keys]) > width // 2:
        keys = [first]
    for index in list(widths)[1:]:
        if _total([widths[other] for other in (*parts[-1], index)]) > width and len(parts[-1]) > len(keys):
            parts.append([*keys])
        parts[-1].append(index)
    return parts


def _table(shown: Table, widths: Mapping[int, int]) -> RichTable:
    """Build a table without borders: numbers to the right, text to the left."""
    from rich.table import Table as RichTable

    table = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    heads = {index: [plain(line) for line in shown.columns[index].head.split("\n")] for index in widths}
    tallest = max(map(len, heads.values()))
    for index, width in widths.items():
        column = shown.columns[index]
        # Heads stand at the bottom, and rows at the top where words wrap.
        head = "\n".join([*[""] * (tallest - len(heads[index])), *heads[index]])
        justify: JustifyMethod = "left" if column.is_text else "right"
        table.add_column(head, justify=justify, no_wrap=not column.is_text, overflow="fold", max_width=width)
    number = 0
    for group in shown.groups:
        if number and shown.is_spaced:
            table.add_row()
        for row in group:
            style = "bold" if number in shown.marked else None
            table.add_row(*(plain(row[index]) for index in widths), style=style)
            number += 1
    return table


def _drawn(line: Sequence[Span]) -> Text:
    from rich.text import Text

    return Text.assemble(*((plain(span.words), span.color) for span in line))
