"""Terminal rendering of styled lines and tables."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tracer.views.format import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

Section = Sequence["RenderableType"]
# From this width on, tables show more columns; below, as many as fit a terminal of 80.
WIDE = 105
NARROW = 80
# Numbers are never cut off: a table that needs more than the terminal has is as wide as it needs to be.
_UNLIMITED = 1000


def rendered(sections: Iterable[Section], width: int | None = None, color: bool = False) -> str:
    """Sections with an empty line after each; prose wrapped at `width` columns where one is given."""
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
    for section in sections:
        for line in section:
            _print(console, line, width)
        console.print()
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _print(console: Console, line: RenderableType, width: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    words = line.renderable if isinstance(line, Padding) else line
    indent = line.left if isinstance(line, Padding) else 0
    if not isinstance(words, Text):
        console.print(line)
        return
    for wrapped in [words] if width is None else words.wrap(console, max(width - indent, 1)):
        wrapped.rstrip()
        console.print(Text(" " * indent) + wrapped)


def styled(words: str, style: str = "") -> Text:
    """A line of prose, made plain."""
    from rich.text import Text

    return Text(plain(words), style=style)


def indented(words: str, style: str = "") -> Padding:
    """Prose that stands below another line: indented, wherever it wraps."""
    from rich.padding import Padding

    return Padding(styled(words, style), (0, 0, 0, 4))


def columns(wide: bool) -> int:
    """The columns that a table of names may fill."""
    return WIDE if wide else NARROW


def table(*heads: str, left: Sequence[str] = ()) -> Table:
    """A table without borders: numbers to the right, the columns named in `left` to the left."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        made.add_column(head, justify="left" if head in left else "right", no_wrap=True, vertical="bottom")
    return made
