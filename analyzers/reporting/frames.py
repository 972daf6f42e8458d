"""The report's lists as DataFrames, under the JSON's names and units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from analyzers.causes import ChargeRow
from analyzers.collectives import CollectiveRow, GroupWindow
from analyzers.layers import BucketRow, LayerRow, ShardedCollective
from analyzers.reporting.document import Report, Window
from analyzers.reporting.measures import KernelRow

if TYPE_CHECKING:
    import pandas as pd


def windows_frame(document: Report) -> pd.DataFrame:
    """Return the report's windows, a row each, in the JSON's units and order, causes of idle time flat."""
    import pandas as pd

    return pd.DataFrame([_flat(window) for window in document.windows])


def _flat(window: Window) -> dict[str, Any]:
    causes = {f"idle_{name}": ns for name, ns in msgspec.structs.asdict(window.idle).items()}
    return {name: value for name, value in msgspec.structs.asdict(window).items() if name != "idle"} | causes


def groups_frame(document: Report) -> pd.DataFrame:
    """Return communication by process group, a row for each step of each rank; ranks in one text."""
    return _frame(document.groups, GroupWindow, {"ranks": _spaced}, ())


def buckets_frame(document: Report) -> pd.DataFrame:
    """Return the reductions of DDP's buckets, a row each; what hid them left out, parameters counted."""
    return _frame(document.buckets, BucketRow, {"parameters": _count, "layers": ", ".join}, ("hidden_by",))


def layers_frame(document: Report) -> pd.DataFrame:
    """Return layers and other lines, a row for each window; their communication as its totals."""
    return _frame(document.layers, LayerRow, {"buckets": _spaced}, ("comm",))


def sharded_frame(document: Report) -> pd.DataFrame:
    """Return the collectives of sharded modules, a row each on each rank; what hid them left out."""
    return _frame(document.sharded.collectives, ShardedCollective, {}, ("hidden_by",))


def kernels_frame(document: Report) -> pd.DataFrame:
    """Return the longest kernels and copies, a row for each rank."""
    return _frame(document.kernels, KernelRow, {}, ())


def operators_frame(document: Report) -> pd.DataFrame:
    """Return the operators that launched most, by device time, a row for each rank."""
    return _frame(document.operators, KernelRow, {}, ())


def charges_frame(document: Report) -> pd.DataFrame:
    """Return what the critical path of the typical steps consists of, a row for each rank or group, cause and place."""
    return _frame(document.charges, ChargeRow, {}, ())


def _spaced(values: list[int]) -> str:
    return " ".join(map(str, values))


def _count(values: list[Any] | None) -> int | None:
    return None if values is None else len(values)


def _frame(
    rows: Sequence[msgspec.Struct],
    kind: type[msgspec.Struct],
    shown: Mapping[str, Callable[[Any], Any]],
    left_out: Sequence[str],
) -> pd.DataFrame:
    """Build a DataFrame from rows under the JSON's names."""
    import pandas as pd

    fields = [field for field in msgspec.structs.fields(kind) if field.name not in left_out]
    records = [
        [
            shown[field.name](value) if field.name in shown else value
            for field in fields
            for value in [getattr(row, field.name)]
        ]
        for row in rows
    ]
    return pd.DataFrame(records, columns=[field.encode_name for field in fields])


def collectives_frame(document: Report) -> pd.DataFrame:
    """Return the report's collectives, a row each, members left out."""
    return _frame(document.collectives, CollectiveRow, {}, ("members",))


# Every table of a report, by name.
FRAMES: Mapping[str, Callable[[Report], pd.DataFrame]] = {
    "windows": windows_frame,
    "collectives": collectives_frame,
    "groups": groups_frame,
    "buckets": buckets_frame,
    "layers": layers_frame,
    "sharded": sharded_frame,
    "kernels": kernels_frame,
    "operators": operators_frame,
    "charges": charges_frame,
}
