"""Views: results as text, markdown, pages, plots, timelines, none computes.

A section is a list of blocks (`document`), with numbers from `format` and colours from `palette`; `terminal` and
`markdown` render it, and `csv_tables` writes frames. The rooms inside: `sections` arrange a result; `html`, `plots`,
`perfetto` and `tensorboard` show.

Decisions: docs/decisions/views.md
"""

from analyzers.units import count, size
from tracer.views.csv_tables import csv_text
from tracer.views.document import (
    Block,
    Caution,
    Column,
    Drawing,
    Heading,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    TitledTable,
    numbers,
    texts,
)
from tracer.views.format import gbps, milliseconds, plain
from tracer.views.markdown import escaped, sections_markdown
from tracer.views.palette import (
    BACKWARD,
    CAUSE_PARTS,
    COMM,
    COMPUTE,
    COPY,
    DARK,
    EXPOSED,
    EXPOSED_PARTS,
    FORWARD,
    HIDDEN,
    IDLE_LOOKS,
    IDLE_PARTS,
    KIND_MARKS,
    LIGHT,
    PARTS,
    SERIES,
    SPLIT_PARTS,
    TRANSFER,
    UNRESOLVED,
    WAITING,
    StepPart,
    Theme,
    in_legend,
)
from tracer.views.terminal import columns, is_wide, rendered

__all__ = [
    "BACKWARD",
    "CAUSE_PARTS",
    "COMM",
    "COMPUTE",
    "COPY",
    "DARK",
    "EXPOSED",
    "EXPOSED_PARTS",
    "FORWARD",
    "HIDDEN",
    "IDLE_LOOKS",
    "IDLE_PARTS",
    "KIND_MARKS",
    "LIGHT",
    "PARTS",
    "SERIES",
    "SPLIT_PARTS",
    "TRANSFER",
    "UNRESOLVED",
    "WAITING",
    "Block",
    "Caution",
    "Column",
    "Drawing",
    "Heading",
    "Paragraph",
    "Row",
    "Section",
    "Span",
    "StepPart",
    "Table",
    "Theme",
    "TitledTable",
    "columns",
    "count",
    "csv_text",
    "escaped",
    "gbps",
    "in_legend",
    "is_wide",
    "milliseconds",
    "numbers",
    "plain",
    "rendered",
    "sections_markdown",
    "size",
    "texts",
]
