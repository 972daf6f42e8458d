"""Tables of ready words, alike in terminal, markdown and page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tracer.views.format import plain
from tracer.views.terminal import Section, styled, table


@dataclass(frozen=True)
class Column:
    """A head, which may have several lines; text stands to the left; `wide`: left out on a narrow terminal."""

    head: str
    is_text: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Table:
    """A title, rows of words under columns, and what must be said below them; `name` is what others know it by.

    `marked` are the numbers of rows that stand out.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default=())
    marked: Collection[int] = ()

    @property
    def heads(self) -> list[str]:
        """The heads, each in one line; a word that is broken for a narrow column is whole again."""
        return [column.head.replace("-\n", "").replace("\n", " ") for column in self.columns]


def section(shown: Table, wide: bool) -> Section:
    """The table for a terminal, with as many columns as fit."""
    kept = [place for place, column in enumerate(shown.columns) if wide or not column.wide]
    left = [column.head for column in shown.columns if column.is_text]
    lines = table(*(shown.columns[place].head for place in kept), left=left)
    for number, row in enumerate(shown.rows):
        lines.add_row(*(plain(row[place]) for place in kept), style="bold" if number in shown.marked else None)
    return [styled(shown.title, "bold"), *([lines] if shown.rows else []), *map(styled, shown.notes)]


def table_markdown(shown: Table) -> str:
    """The table in GitHub's markdown, with all its columns."""
    rule = [":--" if column.is_text else "--:" for column in shown.columns]
    rows = [[escaped(cell) for cell in cells] for cells in (shown.heads, *shown.rows)]
    lines = ["| " + " | ".join(cells) + " |" for cells in (rows[0], rule, *rows[1:])] if shown.rows else []
    notes = [f"\n{escaped(note)}" for note in shown.notes]
    return "\n".join([f"## {escaped(shown.title)}", "", *lines, *notes])


def escaped(words: str) -> str:
    """Words that mean nothing to markdown or HTML."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#~$&" else sign for sign in plain(words))
