"""The report's tables, for DataFrames, CSV, JSON and rows for databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from analyzers.causes import ChargeRow
from analyzers.collectives import CollectiveRow, GroupWindow, MemberRow, WaitingRow
from analyzers.json_documents import compact
from analyzers.layers import BucketRow, LayerRow, PipelineRow, ShardedCollective
from analyzers.layers.strategies import ExpertRow
from analyzers.reporting.document import Report, Window
from analyzers.reporting.measures import DeviceSummary, KernelRow
from analyzers.reporting.per_step import StepFigures, series
from analyzers.reporting.remedies import Advice
from analyzers.reporting.tables import Column, Table, columns, computed
from analyzers.step_parts import SPLIT_PARTS, fields_of
from analyzers.trace import short_name


class _Member(NamedTuple):
    """A member of a collective."""

    collective: CollectiveRow
    member: MemberRow


def _members(document: Report) -> list[_Member]:
    return [_Member(row, member) for row in document.collectives for member in row.members]


def _parameter_count(row: BucketRow) -> int | None:
    return None if row.parameters is None else len(row.parameters)


def _short_name(row: KernelRow) -> str:
    return short_name(row.name)


def _share(field: str) -> Column:
    return Column(lambda step: step.shares[field], float)


def _median(field: str) -> Column:
    return Column(lambda device: device.windows[field].median, float)


_OF_MEMBERS = ("waited_ns", "exposed_ns", "exposed_wait_ns", "exposed_transfer_ns")
# In the order of their files.
_LISTED: tuple[Table[Report], ...] = (
    Table("windows", "one row per step and device", columns(Window)),
    Table(
        "steps",
        "one row per step of all ranks, with its windows' median span and shares of their time",
        {
            **columns(StepFigures, "step", "start_ns", "span_ns", "overlap", "gradients_busbw_gbps"),
            **{f"{field.removesuffix('_ns')}_share": _share(field) for field in fields_of(SPLIT_PARTS)},
        },
        lambda document: series(document)[0].steps,
    ),
    Table(
        "devices",
        "one row per rank and device, medians over its typical windows",
        {
            **columns(DeviceSummary),
            **{field: _median(field) for field in ("span_ns", "comm_ns", "overlap", *fields_of(SPLIT_PARTS))},
        },
        attrgetter("summary.by_device"),
    ),
    Table(
        "collectives",
        "one row per collective, waiting and exposed time added up over its members",
        {**columns(CollectiveRow), **columns(CollectiveRow, *_OF_MEMBERS)},
    ),
    Table(
        "members",
        "one row per member of each collective",
        {
            **columns(CollectiveRow, "index", "kind", "purpose", "group", "bytes", "step", of=("collective",)),
            **columns(MemberRow, of=("member",)),
        },
        _members,
    ),
    Table(
        "waiting",
        "one row per step and device, how long it only waited, and what all others waited for it",
        columns(WaitingRow),
    ),
    Table("groups", "one row per process group, step and rank", columns(GroupWindow)),
    Table(
        "buckets",
        "one row per bucket of DDP, rank and step",
        {**columns(BucketRow), **computed(parameters=_parameter_count)},
    ),
    Table("layers", "one row per layer and window", columns(LayerRow)),
    Table(
        "sharded",
        "one row per collective of FSDP and rank",
        columns(ShardedCollective),
        attrgetter("sharded.collectives"),
    ),
    Table("experts", "one row per layer with experts, step and pass", columns(ExpertRow)),
    Table("pipeline", "one row per step and stage of a pipeline", columns(PipelineRow)),
    Table(
        "kernels",
        "one row per rank and kernel, or copy, that takes longest",
        {**columns(KernelRow, "rank", "name"), **computed(short_name=_short_name), **columns(KernelRow)},
    ),
    Table("operators", "one row per rank and operator that launches most", columns(KernelRow)),
    Table(
        "charges",
        "one row per rank or group, cause, phase and place of the critical path of all typical steps",
        columns(ChargeRow),
    ),
    Table(
        "advice",
        "one row per piece of advice, the largest gain first",
        {**columns(Advice, "rank"), **columns(Advice)},
        attrgetter("summary.advice"),
    ),
)
TABLES: Mapping[str, Table[Report]] = {table.name: table for table in _LISTED}

TABLE_SCHEMA = "tracer.table/1"
# What the rows of a document come to where nobody says how many are wanted.
MOST_BYTES = 19_000
# By the way of looking closer: the table, and how long one of its rows is.
ROWS_BY: Mapping[str, tuple[str, Callable[[Any], float | None]]] = {
    "rank": ("devices", lambda row: row.windows["span_ns"].median),
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
    """Return the longest rows of a table, a line each: so many, or as many as are small, and one at least.

    They are the report's own: as JSON they may hold lists, which columns do not.
    """
    name, length_ns = ROWS_BY[by]
    rows = sorted(TABLES[name].rows(document), key=lambda row: -(length_ns(row) or 0))
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
    return f'{{{head},"{name}":[\n{listed}\n],"left_out":{len(rows) - len(lines)}}}'
