"""Tables of columns: rows taken, tables joined, values looked up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, medians, values_at


@dataclass(frozen=True, eq=False)
class Table(Columns):
    names: tuple[str, ...]
    name: Int64
    sent: Mask
    cells: Int64  # a line for each row
    calls: int = 0

    @cached_property
    def doubled(self) -> Int64:
        return 2 * self.name


def table(count: int, first: int = 0) -> Table:
    number = np.arange(first, first + count)
    return Table(("a", "b"), number, number % 2 == 0, np.stack([number, -number], axis=1), calls=7)


COUNTED = st.integers(0, 6).flatmap(
    lambda count: st.tuples(st.just(count), st.lists(st.integers(0, max(count - 1, 0)), max_size=5 * min(count, 1)))
)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=20))
def test_medians_are_each_parts_in_whatever_order_rows_come(rows):
    found = medians(np.array([value for value, _ in rows], dtype=np.int64), np.array([part for _, part in rows]), 4)
    for part in range(4):
        own = [value for value, of in rows if of == part]
        assert np.isnan(found[part]) if not own else found[part] == np.median(own)


@given(COUNTED)
def test_take_selects_the_same_rows_of_every_array(counted: tuple[int, list[int]]):
    count, places = counted
    whole, rows = table(count), np.array(places, dtype=np.int64)
    assert len(whole) == len(whole.doubled) == count
    taken = whole.take(rows)
    assert len(taken) == len(places)
    assert taken.names == whole.names and taken.calls == whole.calls
    for field in ("name", "sent", "cells", "doubled"):
        assert np.array_equal(getattr(taken, field), getattr(whole, field)[rows])
    assert np.array_equal(whole.take(whole.sent).name, whole.name[whole.sent])
    assert np.array_equal(whole.take(slice(1, 3)).name, whole.name[1:3])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_joined_parts_are_the_table_that_they_were(counts: list[int]):
    begins = np.cumsum([0, *counts]).tolist()
    joined = Table.joined([table(count, first) for count, first in zip(counts, begins, strict=False)])
    whole = table(sum(counts))
    for field in fields(Table):
        assert np.array_equal(getattr(joined, field.name), getattr(whole, field.name))
        assert type(getattr(joined, field.name)) is type(getattr(whole, field.name))
    assert list(joined.columns()) == ["name", "sent", "cells"]


@given(st.lists(st.integers(0, 9), max_size=5), st.data())
def test_values_at_places_are_those_of_the_values_and_the_unknown_behind(values: list[int], data: st.DataObject):
    index = np.array(data.draw(st.lists(st.integers(-9, len(values) - 1), max_size=6)), dtype=np.int32)
    column = np.array(values, dtype=np.int64)
    assert np.array_equal(values_at(column, index), np.r_[column, UNKNOWN][np.maximum(index, -1)])
    marks = column > 4
    found = values_at(marks, index, False)
    assert found.dtype == bool and np.array_equal(found, np.r_[marks, False][np.maximum(index, -1)])
    assert np.array_equal(column, values)  # as they were
