"""Markdown rendering of a document's blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracer.views.document import Block, Caution, Drawing, Heading, Section, Table
from tracer.views.format import plain

# Where GitHub would see a mention, an address of mail or of the web, none of which a backslash prevents.
_LINKED = re.compile(r"(?<=@)(?=\S)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_BREAK = "&#8203;"


def sections_markdown(sections: Iterable[Section], level: int = 3) -> str:
    """Write the sections in GitHub's markdown, tables with all their columns; headings have one level."""
    return "\n\n".join(_markdown(block, level) for section in sections for block in section) + "\n"


def _markdown(block: Block, level: int) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Drawing):
        # Indented, which no word can end.
        lines = ("".join(span.words for span in line) for line in block.lines)
        return "\n".join(f"    {plain(line)}".rstrip() for line in lines)
    text = escaped(f"warning: {block.words}" if isinstance(block, Caution) else block.words)
    return f"{'#' * level} {text}" if isinstance(block, Heading) else text


def _table(table: Table) -> str:
    rule = [":--" if column.is_text else "--:" for column in table.columns]
    heads, *rows = [
        [escaped(cell) for cell in row] for row in ([column.title for column in table.columns], *table.rows)
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows))


def escaped(text: str) -> str:
    """Escape what means something to markdown or HTML; a space without width stands in what would become a link."""
    shown = "".join(f"\\{sign}" if sign in "\\`*_[]<>|#~$&" else sign for sign in plain(text))
    return _LINKED.sub(_BREAK, shown)
