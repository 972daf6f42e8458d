"""Views: results as text, markdown, pages, plots, timelines, none computes.

A section is a list of blocks (`document`), with numbers from `format` and colours from `palette`; `terminal` and
`markdown` render it, and `csv_tables` writes frames. `panels` are lines to draw, `choices` has the words of options.
The rooms inside: `sections` arrange a result; `html`, `plots`, `perfetto`, `rows` and `tensorboard` show.

Decisions: docs/dev/decisions/views.md
"""

from analyzers.units import count, size
from tracer.views.choices import BANDWIDTH, ITEMSIZE, KINDS, SCALING, By
from tracer.views.csv_tables import csv_text
from tracer.views.document import (
    HELP,
    Block,
    Caution,
    Column,
    Drawing,
    Field,
    Heading,
    Paragraph,
    Place,
    Section,
    Span,
    Table,
    TitledTable,
    field,
    numbers,
    table,
    texts,
)
from tracer.views.format import (
    figure,
    gbps,
    milliseconds,
    of_limit,
    one_unit,
    plain,
    plain_lines,
    rounded_up,
    seconds,
    sentence,
)
from tracer.views.markdown import escaped, sections_markdown
from tracer.views.palette import (
    ASCII,
    BACKWARD,
    BAR_PARTS,
    CAUSE_PARTS,
    COMM,
    COMPUTE,
    COPY,
    DARK,
    EXPOSED,
    EXPOSED_PARTS,
    FORWARD,
    HIDDEN,
    HOST,
    HOST_OUTSIDE,
    IDLE,
    IDLE_LOOKS,
    IDLE_OR_WAIT,
    IDLE_PARTS,
    KIND_MARKS,
    LIGHT,
    PARTS,
    SERIES,
    SHADES,
    SPLIT_PARTS,
    TRANSFER,
    UNRESOLVED,
    WAITING,
    StepPart,
    Theme,
    in_legend,
)
from tracer.views.panels import (
    MOST_LINES,
    MOST_TICKS,
    NARROW,
    REACH,
    Panel,
    PlotLine,
    PlotPoint,
    labels_of,
    places,
    short_number,
    spread_out,
    ticks_of,
    told_apart,
)
from tracer.views.terminal import columns, is_wide, rendered
