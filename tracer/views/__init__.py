"""Views: results as text, markdown, pages, plots, timelines, none computes.

A section is a list of blocks (`document`), with numbers from `format` and colours from `palette`; `terminal` and
`markdown` render it. The rooms inside: `sections` arrange a result; `html`, `plots`, `perfetto` and `tensorboard` show.

Decisions: docs/decisions/views.md
"""

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
from tracer.views.format import count, gbps, milliseconds, plain, size
from tracer.views.markdown import escaped, sections_markdown
from tracer.views.palette import (
    BACKWARD,
    COMM,
    COMPUTE,
    COPY,
    DARK,
    EXPOSED,
    EXPOSED_PARTS,
    FORWARD,
    HIDDEN,
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
)
from tracer.views.terminal import columns, is_wide, rendered

__all__ = [
    "BACKWARD",
    "COMM",
    "COMPUTE",
    "COPY",
    "DARK",
    "EXPOSED",
    "EXPOSED_PARTS",
    "FORWARD",
    "HIDDEN",
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
    "escaped",
    "gbps",
    "is_wide",
    "milliseconds",
    "numbers",
    "plain",
    "rendered",
    "sections_markdown",
    "size",
    "texts",
]
