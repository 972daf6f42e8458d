"""Kernels become matched collectives, with waiting, transfer and bandwidth.

In order: `table` and `groups` bring all ranks' kernels together; `sequences`, `candidates`, `alignment`, `pairing` and
`offsets` match them, all members of a group at once; `matching` is the result. `clocks` compares ranks' clocks,
`transfer` divides each collective into waiting and transfer, `bandwidth` and `stragglers` say what links gave and who
was waited for. `measured` puts them together, `by_group` divides what is exposed among process groups, `rows` and
`warnings` are what a report says.

Decisions: docs/decisions/collectives.md
"""

from analyzers.collectives.bandwidth import purposes, traffic
from analyzers.collectives.by_group import (
    NO_GROUP,
    OF_GROUPS,
    SEVERAL,
    GroupSummary,
    GroupWindow,
    Line,
    Lines,
    OneGroup,
    group_rows,
    group_summaries,
    line_names,
    line_times,
    lines_of,
)
from analyzers.collectives.groups import Key
from analyzers.collectives.measured import Exchange, ExposedParts, exchange
from analyzers.collectives.rows import (
    BandwidthRow,
    ClockRow,
    CollectiveRow,
    CopyRow,
    UnmatchedRow,
    WaitingRow,
    bandwidth_rows,
    clock_row,
    collective_rows,
    copy_rows,
    late_rank,
    unmatched_rows,
    waiting_rows,
)
from analyzers.collectives.stragglers import STANDS_OUT, Reason, late_because
from analyzers.collectives.warnings import exchange_warnings

__all__ = [
    "NO_GROUP",
    "OF_GROUPS",
    "SEVERAL",
    "STANDS_OUT",
    "BandwidthRow",
    "ClockRow",
    "CollectiveRow",
    "CopyRow",
    "Exchange",
    "ExposedParts",
    "GroupSummary",
    "GroupWindow",
    "Key",
    "Line",
    "Lines",
    "OneGroup",
    "Reason",
    "UnmatchedRow",
    "WaitingRow",
    "bandwidth_rows",
    "clock_row",
    "collective_rows",
    "copy_rows",
    "exchange",
    "exchange_warnings",
    "group_rows",
    "group_summaries",
    "late_because",
    "late_rank",
    "line_names",
    "line_times",
    "lines_of",
    "purposes",
    "traffic",
    "unmatched_rows",
    "waiting_rows",
]
