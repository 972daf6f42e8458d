"""The report's lists as DataFrames, under the JSON's names and units."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from analyzers.causes import ChargeRow
from analyzers.collectives import CollectiveRow, GroupWindow, MemberRow, WaitingRow
from analyzers.layers import BucketRow, LayerRow, ShardedCollective
from analyzers.reporting.document import Report, Window
from analyzers.reporting.measures import IdleCauses, KernelRow
from analyzers.reporting.per_step import series
from analyzers.step_parts import SPLIT_PARTS, fields_of
from analyzers.trace import short_name

if TYPE_CHECKING:
    import pandas as pd

Value = Callable[[Any], Any]
T = TypeVar("T")
# What a column's name ends in that says its unit.
_UNITS = {"ns": "ns", "bytes": "bytes", "gbps": "GB/s", "share": "share of 1", "overlap": "share of 1"}
NAMED_UNITS = (
    "Times (_ns) are nanoseconds, rates (_gbps) 1e9 bytes per second; shares, overlap and utilization are of 1."
)
_UNIT = re.compile(rf"(?:.*_)?({'|'.join(_UNITS)})|utilization_.*")


@dataclass(frozen=True)
class Table:
    """A table of a report: `about` says what a row is, `columns` have what each column takes from a row."""

    name: str
    about: str
    rows: Callable[[Report], Iterable[Any]]
    columns: Mapping[str, Value]

    def frame(self, document: Report) -> pd.DataFrame:
        """Build the DataFrame; its `attrs` say what a row is, and the units of columns that have one."""
        import pandas as pd

        records = [[value(row) for value in self.columns.values()] for row in self.rows(document)]
        frame = pd.DataFrame(records, columns=list(self.columns))
        frame.attrs |= {"about": self.about, "units": self.units}
        return frame

    @property
    def units(self) -> dict[str, str]:
        """Return the unit of each column that has one."""
        found = {name: _UNIT.fullmatch(name) for name in self.columns}
        return {name: _UNITS[match[1] or "share"] for name, match in found.items() if match is not None}


def _fields(kind: type[msgspec.Struct], *left_out: str, **more: Value) -> dict[str, Value]:
    """Return the columns of a row's type, but some, and others instead or behind them."""
    fields = {
        each.encode_name: attrgetter(each.name) for each in msgspec.structs.fields(kind) if each.name not in left_out
    }
    return {**fields, **more}


def _texts(name: str, between: str = " ") -> Value:
    """Return what writes a list as one text: pandas groups by no lists."""
    return lambda row: between.join(map(str, getattr(row, name)))


def _share(field: str) -> Value:
    return lambda step: step.shares[field]


def _waited_ns(row: CollectiveRow) -> int | None:
    waits = [member.wait_ns for member in row.members if member.wait_ns is not None]
    return sum(waits) if len(waits) == len(row.members) else None


def _of(half: int, columns: Mapping[str, Value]) -> dict[str, Value]:
    """Return the same columns for rows of which these are one half."""

    def from_half(value: Value) -> Value:
        return lambda pair: value(pair[half])

    return {name: from_half(value) for name, value in columns.items()}


_EXPOSED = {name: attrgetter(name) for name in ("exposed_wait_ns", "exposed_transfer_ns")}
_COLLECTIVE = _fields(CollectiveRow, "members", group=_texts("group"))
_OPERATOR = _fields(KernelRow)
_KERNEL = {
    "rank": _OPERATOR["rank"],
    "name": _OPERATOR["name"],
    "short_name": lambda row: short_name(row.name),
    **_OPERATOR,
}
# Every table of a report, in the order of their files.
TABLES = (
    Table(
        "windows",
        "one row per step and device: compute, exposed communication, copies, idle time and its causes",
        attrgetter("windows"),
        _fields(
            Window, "idle", **{f"idle_{name}": attrgetter(f"idle.{name}") for name in IdleCauses.__struct_fields__}
        ),
    ),
    Table(
        "steps",
        "one row per step of all ranks together: the median of its windows' spans, shares of their time",
        lambda document: series(document)[0].steps,
        {
            **{name: attrgetter(name) for name in ("step", "start_ns", "span_ns", "overlap", "gradients_busbw_gbps")},
            **{f"{field.removesuffix('_ns')}_share": _share(field) for field in fields_of(SPLIT_PARTS)},
        },
    ),
    Table(
        "collectives",
        "one row per collective: bytes, transfer, bus bandwidth; waiting and exposed time of all its members added up",
        attrgetter("collectives"),
        {**_COLLECTIVE, "waited_ns": _waited_ns, "exposed_ns": attrgetter("exposed_ns"), **_EXPOSED},
    ),
    Table(
        "members",
        "one row per member of each collective: when its kernel ran, how long it waited for the others",
        lambda document: ((row, member) for row in document.collectives for member in row.members),
        {
            **_of(0, {name: _COLLECTIVE[name] for name in ("index", "kind", "purpose", "group", "bytes", "step")}),
            **_of(1, _fields(MemberRow, **_EXPOSED)),
        },
    ),
    Table(
        "waiting",
        "one row per step and device: how long it only waited, and what all others waited for it",
        attrgetter("waiting"),
        _fields(WaitingRow),
    ),
    Table(
        "groups",
        "one row per process group, step and rank: its communication",
        attrgetter("groups"),
        _fields(GroupWindow, ranks=_texts("ranks")),
    ),
    Table(
        "buckets",
        "one row per bucket of DDP, rank and step: ready, launched, queued, waiting, hidden, exposed",
        attrgetter("buckets"),
        _fields(
            BucketRow,
            "hidden_by",
            parameters=lambda row: None if row.parameters is None else len(row.parameters),
            layers=_texts("layers", ", "),
        ),
    ),
    Table(
        "layers",
        "one row per layer and window: forward, backward, gradient bytes, hidden, exposed",
        attrgetter("layers"),
        _fields(LayerRow, "comm", buckets=_texts("buckets")),
    ),
    Table(
        "sharded",
        "one row per collective of FSDP and rank: module, prefetch, why it is exposed",
        attrgetter("sharded.collectives"),
        _fields(ShardedCollective, "hidden_by"),
    ),
    Table("kernels", "one row per rank and kernel, or copy, that takes longest", attrgetter("kernels"), _KERNEL),
    Table("operators", "one row per rank and operator that launches most", attrgetter("operators"), _OPERATOR),
    Table(
        "charges",
        "one row per rank or group, cause, phase and place of the critical path of all typical steps",
        attrgetter("charges"),
        _fields(ChargeRow),
    ),
)
FRAMES: Mapping[str, Callable[[Report], pd.DataFrame]] = {table.name: table.frame for table in TABLES}


def table_function(name: str, report_of: Callable[[T], Report]) -> Callable[[T], pd.DataFrame]:
    """Return what makes the frame of whatever has a report; its docstring has the columns."""
    (table,) = (table for table in TABLES if table.name == name)

    def made(of: T) -> pd.DataFrame:
        return table.frame(report_of(of))

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"Return {table.about}.\n\nColumns: {', '.join(table.columns)}.\n{NAMED_UNITS}"
    return made


def _frame_function(name: str) -> Callable[[Report], pd.DataFrame]:
    made = table_function(name, lambda document: document)
    made.__name__ = made.__qualname__ = f"{name}_frame"
    return made


windows_frame = _frame_function("windows")
steps_frame = _frame_function("steps")
collectives_frame = _frame_function("collectives")
members_frame = _frame_function("members")
waiting_frame = _frame_function("waiting")
groups_frame = _frame_function("groups")
buckets_frame = _frame_function("buckets")
layers_frame = _frame_function("layers")
sharded_frame = _frame_function("sharded")
kernels_frame = _frame_function("kernels")
operators_frame = _frame_function("operators")
charges_frame = _frame_function("charges")
