"""Rows of documents, built from columns.

start_ns  int         start_ns=np.array([-1, 7])      -1, 7
wait_ns   int | None  wait_ns=np.array([-1, 5])       null, 5
busbw     float|None  busbw=np.array([nan, 9.5])      null, 9.5
rank      int         rank=3                          3, 3
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64

Row = TypeVar("Row", bound=msgspec.Struct)


class _Labelled(Protocol):
    @property
    def label(self) -> str: ...


def typed_rows(kind: type[Row], table: Columns | None = None, /, **columns: Any) -> list[Row]:
    """Return structs from columns by field: arrays and lists of one length; any other value is every row's.

    What no column is given for comes from the `table`. What an array holds becomes Python's own, by the field's type: a
    negative number or NaN is null where the field may be null, and stays as it is where it may not; codes 0 and 1
    become bools. A list is taken as it is: `instants` may be null, and negative where they are known.
    """
    columns = (table.columns() if table is not None else {}) | columns
    (count,) = {len(column) for column in columns.values() if isinstance(column, np.ndarray | list)}
    values = [_values(columns[name], types, count) for name, types in _types(kind).items()]
    return [kind(*row) for row in zip(*values, strict=True)]


def instants(ns: Int64, origin_ns: int) -> list[int | None]:
    """Return instants from an origin on, before which some may be; None where an instant is unknown."""
    return [None if instant == UNKNOWN else instant - origin_ns for instant in ns.tolist()]


def labels(kind: Callable[[int], _Labelled], codes: NDArray[np.signedinteger]) -> list[str]:
    """Return the label of each code of an enumeration."""
    label_of = {code: kind(code).label for code in np.unique(codes).tolist()}
    return [label_of[code] for code in codes.tolist()]


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, tuple[type, ...]]:
    """Return the types that each field may have, in the fields' order."""
    hints = get_type_hints(kind)
    return {name: _alternatives(hints[name]) for name in kind.__struct_fields__}


def _alternatives(hint: Any) -> tuple[type, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _values(column: Any, types: tuple[type, ...], count: int) -> list[Any]:
    if not isinstance(column, np.ndarray):
        return column if isinstance(column, list) else [column] * count
    values = column.astype(bool) if bool in types else column
    if NoneType in types:
        values = values.astype(object)
        values[np.isnan(column) if column.dtype.kind == "f" else column < 0] = None
    listed: list[Any] = values.tolist()
    return listed
