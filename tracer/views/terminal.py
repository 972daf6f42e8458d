"""Terminal rendering of a document's blocks."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from tracer.views.document import Block, Caution, Drawing, Heading, Paragraph, Section, Span, Table
from tracer.views.format import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# From this width on, tables show more columns; below, as many as fit a terminal of 80, and folded where it is narrower.
WIDE = 105
# Numbers are never cut off: what is printed is as wide as it needs to be.
_UNLIMITED = 1000
_INDENT = 4
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
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
        for number, widths in enumerate(_tables(block, width)):
            if number:
                console.print()
            console.file.writelines(f"{line}\n" for line in _lines(console, block, widths))
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


def _tables(shown: Table, width: int | None) -> list[dict[int, int]]:
    """Return the widths of each table's columns.

    Where they are wider than the terminal words wrap, and columns go on in further tables.
    """
    kept = [index for index, column in enumerate(shown.columns) if is_wide(width) or not column.wide]
    widths = {index: _column_width(shown, index) for index in kept}
    _wrap_words(shown, widths, width or _UNLIMITED)
    if width is None:
        return [widths]
    return [{index: widths[index] for index in part} for part in _folded(shown, widths, width)]


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


def _lines(console: Console, shown: Table, widths: Mapping[int, int]) -> Iterator[str]:
    """Yield the lines of a table without borders: numbers to the right, text to the left.

    Rich's own table takes 0.2 ms for each cell, which is half a minute for a sweep's study of 3,000 recordings.
    """
    heads = [[plain(line) for line in shown.columns[index].head.split("\n")] for index in widths]
    tallest = max(map(len, heads))
    # Heads stand at the bottom, and rows at the top where words wrap.
    yield from _row(console, shown, widths, [[*[""] * (tallest - len(head)), *head] for head in heads], is_head=True)
    number = 0
    for group in shown.groups:
        if number and shown.is_spaced:
            yield ""
        for row in group:
            cells = [[plain(row[index])] for index in widths]
            yield from _row(console, shown, widths, cells, is_marked=number in shown.marked)
            number += 1


def _row(
    console: Console,
    shown: Table,
    widths: Mapping[int, int],
    cells: Sequence[Sequence[str]],
    is_head: bool = False,
    is_marked: bool = False,
) -> Iterator[str]:
    """Yield a row's lines, of which each cell has its own."""
    columns = [
        [part for line in cell for part in _wrapped(console, line, width, shown.columns[index].is_text)]
        for cell, (index, width) in zip(cells, widths.items(), strict=True)
    ]
    height = max(map(len, columns))
    tops = [height - len(lines) if is_head else 0 for lines in columns]
    gaps = [*[_GAP] * (len(columns) - 1), 0]
    style = console.is_terminal and (_DIM if is_head else _BOLD if is_marked else "")
    for number in range(height):
        pieces: list[str] = []
        for lines, top, width, gap in zip(columns, tops, widths.values(), gaps, strict=True):
            is_within = 0 <= number - top < len(lines)
            pieces += [lines[number - top], " " * gap] if is_within else [" " * (width + gap)]
        yield "".join(f"{style}{piece}{_PLAIN}" for piece in pieces if piece) if style else "".join(pieces)


def _wrapped(console: Console, words: str, width: int, is_text: bool) -> list[str]:
    """Return a cell's words in lines of its column's width."""
    from rich.cells import cell_len
    from rich.text import Text

    if not is_text:
        words = words.rstrip()
        return [" " * (width - cell_len(words)) + words]
    if cell_len(words) <= width:
        return [words + " " * (width - cell_len(words))]
    return [line.plain for line in Text(words).wrap(console, width, justify="left", overflow="fold")]


def _drawn(line: Sequence[Span]) -> Text:
    from rich.text import Text

    return Text.assemble(*((plain(span.words), span.color) for span in line))
