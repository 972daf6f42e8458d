"""Views of results: terminal, markdown, pages, plots, timelines, TensorBoard.

None computes. Here is what all share: `document` and `terminal`, `markdown`, `format` for numbers, `palette` for
colours. `sections` arrange a result; `html`, `plots`, `perfetto` and `tensorboard` are where it is shown.

Decisions: docs/decisions/views.md
"""

from tracer.views.document import Column, Table, escaped, section, table_markdown
from tracer.views.format import count, gbps, milliseconds, plain, size
from tracer.views.markdown import HEADING, TABLE, TIMELINE, WARNING, WORDS, Block, blocks, sections_markdown
from tracer.views.palette import (
    BACKWARD,
    COMM,
    COMPUTE,
    COPY,
    DARK,
    EXPOSED,
    FORWARD,
    HIDDEN,
    KIND_MARKS,
    LIGHT,
    PARTS,
    SERIES,
    SPLIT_PARTS,
    TRANSFER,
    WAITING,
    Part,
    Theme,
)
from tracer.views.terminal import WIDE, Section, columns, indented, rendered, styled, table

__all__ = [
    "BACKWARD",
    "COMM",
    "COMPUTE",
    "COPY",
    "DARK",
    "EXPOSED",
    "FORWARD",
    "HEADING",
    "HIDDEN",
    "KIND_MARKS",
    "LIGHT",
    "PARTS",
    "SERIES",
    "SPLIT_PARTS",
    "TABLE",
    "TIMELINE",
    "TRANSFER",
    "WAITING",
    "WARNING",
    "WIDE",
    "WORDS",
    "Block",
    "Column",
    "Part",
    "Section",
    "Table",
    "Theme",
    "blocks",
    "columns",
    "count",
    "escaped",
    "gbps",
    "indented",
    "milliseconds",
    "plain",
    "rendered",
    "section",
    "sections_markdown",
    "size",
    "styled",
    "table",
    "table_markdown",
]
