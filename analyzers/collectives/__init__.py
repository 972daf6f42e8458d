"""Kernels become matched collectives, with waiting, transfer and bandwidth.

In order: `table` and `groups` bring all ranks' kernels together; the room `alignment` pairs them, a group's members all
at once; `matching` is the result. `clocks` compares ranks' clocks, `transfer` divides each collective into waiting and
transfer, `bandwidth` and `waits` say what links gave and who was waited for. `measured` puts them together, `by_group`
divides what is exposed among process groups, `rows` and `warnings` are what a report says.

Decisions: docs/dev/decisions/collectives.md
"""

from analyzers.collectives.bandwidth import purposes, traffic
from analyzers.collectives.by_group import (
    NO_GROUP,
    OF_GROUPS,
    SEVERAL,
    GroupSummary,
    GroupWindow,
    Lines,
    OneGroup,
    group_rows,
    group_summaries,
    line_names,
    lines_of,
)
from analyzers.collectives.groups import Key
from analyzers.collectives.measured import Exchange, ExposedParts, exchange
from analyzers.collectives.rows import (
    BandwidthRow,
    ClockRow,
    CollectiveRow,
    CopyRow,
    MemberRow,
    UnmatchedRow,
    WaitingRow,
    bandwidth_rows,
    clock_row,
    collective_rows,
    copy_rows,
    unmatched_rows,
    waiting_rows,
)
from analyzers.collectives.waits import awaited
from analyzers.collectives.warnings import exchange_warnings
