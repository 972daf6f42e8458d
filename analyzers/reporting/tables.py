"""One table of a report as JSON, its longest rows first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from analyzers.json_documents import compact
from analyzers.reporting.document import Report

TABLE_SCHEMA = "tracer.table/1"
# What the rows of a document come to where nobody says how many are wanted.
MOST_BYTES = 19_000

# By the way of looking closer: where the report has the rows, and how long one is.
ROWS_BY: Mapping[str, tuple[str, Callable[[Any], float | None]]] = {
    "rank": ("summary.by_device", lambda row: row.windows["span_ns"].median),
    "step": ("windows", attrgetter("span_ns")),
    "collective": ("collectives", lambda row: max((member.dur_ns for member in row.members), default=0)),
    "group": ("groups", attrgetter("comm_ns")),
    "bucket": ("buckets", attrgetter("dur_ns")),
    "layer": ("layers", lambda row: row.forward_ns + row.backward_ns),
    "expert": ("experts", attrgetter("exposed_ns")),
    "kernel": ("kernels", attrgetter("total_ns")),
    "pipeline": ("pipeline", attrgetter("bubble_ns")),
    "cause": ("charges", attrgetter("ns")),
    "charge": ("charges", attrgetter("ns")),
}


def to_table_json(document: Report, by: str, limit: int | None = None) -> str:
    """Return the longest rows of a table, a line each: so many, or as many as are small, and one at least."""
    place, length_ns = ROWS_BY[by]
    rows = sorted(attrgetter(place)(document), key=lambda row: -(length_ns(row) or 0))
    lines: list[str] = []
    left = MOST_BYTES
    for row in rows[:limit]:
        line = compact(row).decode()
        left -= len(line.encode()) + 2
        if limit is None and lines and left < 0:
            break
        lines.append(line)
    head = f'"schema":"{TABLE_SCHEMA}","run":{compact(document.run.name).decode()}'
    listed = ",\n".join(lines)
    return f'{{{head},"{place.rpartition(".")[2]}":[\n{listed}\n],"left_out":{len(rows) - len(lines)}}}'
