"""Array types, tables of columns, lookups, parts, and rows of documents.

values          a a a b b a        begins        x . . x . x        places_since(begins)    0 1 2 0 1 0
part            0 0 0 1 2 2        firsts        0 3 4 6            rows of one part stand together

Rows of documents are built from columns by the types of their fields:

start_ns  int         start_ns=np.array([-1, 7])      -1, 7
wait_ns   int | None  wait_ns=np.array([-1, 5])       null, 5
busbw     float|None  busbw=np.array([nan, 9.5])      null, 9.5
rank      int         rank=3                          3, 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]
Float64 = NDArray[np.float64]
S = TypeVar("S", bound=np.signedinteger)
T = TypeVar("T", bound=np.generic)

# Stands in integer columns for what is not known or not there.
UNKNOWN = -1
# Products of widths below it fit 64 bits; keys less than so many times as wide as their rows are counted, not sorted.
WIDEST = 2**62
_NARROW = 8


@dataclass(frozen=True, eq=False)
class Columns:
    """Base of frozen dataclasses that are tables: their arrays have a row for each entry, other fields all rows share.

    `joined` parts follow one another; what all rows share is that of the first.

        take([0, 2])        a  x y z    ->    a  x z        joined    a  x y  and  a  z    ->    a  x y z
                            b  0 1 2          b  0 2                  b  0 1       b  2          b  0 1 2
                            shared            shared
    """

    def __len__(self) -> int:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                return len(value)
        return 0

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by their fields' names."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}

    def take(self, rows: Mask | Int64 | slice) -> Self:
        """Return the rows that a mask, an index or a slice selects."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name, value in fields.items():
            if isinstance(value, np.ndarray):
                fields[name] = value[rows]
        return type(self)(**fields)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of at least one part, in order."""
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in parts[0].columns()}
        return replace(parts[0], **columns)


def values_at(values: NDArray[T], index: NDArray[np.signedinteger], unknown: int = UNKNOWN) -> NDArray[T]:
    """Return the value at each place of an index, and for each place that is negative what stands for none.

    It costs what the index is long: np.r_[values, UNKNOWN][index] copies all values first.
    """
    if not len(values):
        return np.full(index.shape, unknown, dtype=values.dtype)
    found: NDArray[T] = values[np.maximum(index, 0)]
    found[index < 0] = unknown
    return found


def begins(values: NDArray[np.signedinteger]) -> Mask:
    """Return which entries differ from the one before; the first does."""
    is_beginning = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=is_beginning[1:])
    return is_beginning


def places_since(beginnings: Mask) -> Int64:
    """Return how many entries each stands behind the last beginning."""
    places = np.arange(len(beginnings))
    since: Int64 = places - np.maximum.accumulate(np.where(beginnings, places, 0))
    return since


def first_of(values: Int64, beginnings: Mask) -> Int64:
    """Return for each entry the value at the last beginning."""
    first: Int64 = values[np.arange(len(values)) - places_since(beginnings)]
    return first


@dataclass(frozen=True, eq=False)
class Distinct:
    """Distinct rows of some columns, in order: `columns` of them, and where the `first` like each stands.

    `index` is each row's place among the distinct ones.

        rows  1 1 0 1        columns  0 1 1        first  2 0 1        index  1 2 0 1
              2 3 2 2                 2 2 3
    """

    columns: tuple[Int64, ...]
    first: Int64
    index: Int64

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lines(self) -> Int64:
        """Return the distinct rows as one table, a line for each column."""
        return np.stack(self.columns)

    @property
    def count(self) -> Int64:
        """Return how many rows are like each distinct one."""
        return np.bincount(self.index, minlength=len(self))

    def summed(self, values: Int64) -> Int64:
        """Return the sum of the values in the rows like each, exact as np.bincount's weights, floats, are not."""
        total = np.zeros(len(self), dtype=np.int64)
        np.add.at(total, self.index, values)
        return total


def distinct(*columns: NDArray[np.signedinteger]) -> Distinct:
    """Return the distinct rows of columns of one length, fifty times sooner than np.unique does along an axis."""
    first, index = _distinct(joint(*columns))
    return Distinct(tuple(column[first].astype(np.int64) for column in columns), first, index)


def joint(*columns: NDArray[np.signedinteger]) -> Int64:
    """Return a number for each row of columns, not negative, equal for equal rows and in their order."""
    keys, width = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns if len(keys) else ():
        values, digits = _digits(column)
        if width * digits > WIDEST:
            keys, width = _places(keys)
        if width * digits > WIDEST:
            values, digits = _places(values)
        keys, width = keys * digits + values, width * digits
    return keys


def _digits(column: NDArray[np.signedinteger]) -> tuple[Int64, int]:
    """Return the values counted from the least one, and how many there may be."""
    low, high = int(column.min()), int(column.max())
    return (column - np.int64(low), high - low + 1) if high - low < WIDEST else _places(column)


def _places(values: NDArray[np.signedinteger]) -> tuple[Int64, int]:
    """Return each value's place among the distinct ones, and how many these are."""
    unique, place = np.unique(values, return_inverse=True)
    return place, len(unique)


def _distinct(keys: Int64) -> tuple[Int64, Int64]:
    """Return where each distinct key first stands, by key, and each key's place among them."""
    width = int(keys.max(initial=-1)) + 1
    if width > _NARROW * len(keys):
        _, first, index = np.unique(keys, return_index=True, return_inverse=True)
        return first, index
    # Of rows with one key the last to be written is the first that stands there.
    first = np.full(width, UNKNOWN, dtype=np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]
    present = first >= 0
    return first[present], (np.cumsum(present) - 1)[keys]


def sorted_set(values: NDArray[S]) -> NDArray[S]:
    """Return the distinct values in order: np.unique takes eighty times as long where most are distinct."""
    ordered = np.sort(values)
    return ordered[begins(ordered)]


def rows_by(values: NDArray[np.signedinteger]) -> dict[int, Int64]:
    """Return the rows of each value, in order, by value; quick where few values are distinct."""
    if not len(values):
        return {}
    if (values == values[0]).all():
        return {int(values[0]): np.arange(len(values))}
    keys, width = _digits(values)
    if width > 2**16:
        present = sorted_set(values)
        keys, width = np.searchsorted(present, values), len(present)
    # numpy sorts numbers of 16 bits by their digits.
    order = np.argsort(keys.astype(np.uint16) if width <= 2**16 else keys, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(begins(ordered))
    parts = [order[low:past] for low, past in pairwise([*first.tolist(), len(order)])]
    return dict(zip(ordered[first].tolist(), parts, strict=True))


def find(ordered: Int64, wanted: Int64) -> Int64:
    """Return where each wanted value first stands in a sorted column, -1 where it does not."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    position = np.searchsorted(ordered, wanted).clip(max=len(ordered) - 1)
    matched: Int64 = np.where(ordered[position] == wanted, position, -1)
    return matched


def is_in(values: Int64, others: Int64) -> Mask:
    """Return which values are among others; np.isin takes four times as long where both are many."""
    return find(np.sort(others), values) >= 0


def none_if_negative(value: int | np.int64) -> int | None:
    """Return a length, number or instant, null where it is -1."""
    return None if value < 0 else int(value)


def firsts(part: Int64, parts: int) -> Int64:
    """Return where each part's rows begin, and where the last's end."""
    first: Int64 = np.searchsorted(part, np.arange(parts + 1))
    return first


def medians(values: NDArray[np.int64] | Float64, part: Int64, parts: int) -> Float64:
    """Return numpy's median of each part's values, NaN for none."""
    order = np.lexsort((values, part))
    first = firsts(part[order], parts)
    return middles(values[order], first[:-1], first[1:])


def middles(ordered: NDArray[np.int64] | Float64, first: Int64, past: Int64) -> Float64:
    """Return the median of each stretch [first, past) of sorted values, NaN for an empty one."""
    count = past - first
    median = np.full(len(first), np.nan)
    known = count > 0
    low, high = first[known] + (count[known] - 1) // 2, first[known] + count[known] // 2
    median[known] = (ordered[low].astype(np.float64) + ordered[high].astype(np.float64)) / 2
    return median


def keys_by_part(*columns: tuple[Int64, Int64]) -> list[Int64]:
    """Return for columns of parts and values one key each: in order within a part, and parts behind one another."""
    part = np.concatenate([of for of, _ in columns])
    return np.split(
        joint(part, np.concatenate([at for _, at in columns])), np.cumsum([len(of) for of, _ in columns])[:-1]
    )


Row = TypeVar("Row", bound=msgspec.Struct)


class Labelled(IntEnum):
    """Codes of which each has a name in documents, its own in lower case."""

    @property
    def label(self) -> str:
        """Return the name that every output uses."""
        return self.name.lower()


def typed_rows(kind: type[Row], table: Columns | None = None, /, **columns: Any) -> list[Row]:
    """Return structs from columns by field: arrays and lists of one length; any other value is every row's.

    What no column is given for comes from the `table`. What an array holds becomes Python's own, by the field's type: a
    negative number or NaN is null where the field may be null, and stays as it is where it may not; codes 0 and 1
    become bools. A list is taken as it is: `instants` may be null, and negative where they are known.
    """
    types, known = _types(kind), table.columns() if table is not None else {}
    columns |= {name: known[name] for name in types if name not in columns}
    (count,) = {len(column) for column in columns.values() if isinstance(column, np.ndarray | list)}
    values = {name: _values(column, types[name], count) for name, column in columns.items()}
    return [kind(*row) for row in zip(*(values[name] for name in types), strict=True)]


def instants(ns: Int64, origin_ns: int) -> list[int | None]:
    """Return instants from an origin on, before which some may be; None where an instant is unknown."""
    return [None if instant == UNKNOWN else instant - origin_ns for instant in ns.tolist()]


def labels(kind: Callable[[int], Labelled], codes: NDArray[np.signedinteger]) -> list[str]:
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
