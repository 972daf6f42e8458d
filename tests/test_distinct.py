"""Distinct rows, rows by value, and sorted sets, against numpy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import distinct, joint, rows_by, sorted_set

# Values that few bits hold, and such of which no three fit one key.
VALUES = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**31), 2**31),
    st.sampled_from([-(2**63), -(2**62), 0, 2**62, 2**63 - 1]),
)
COLUMNS = st.integers(0, 12).flatmap(
    lambda count: st.lists(st.lists(VALUES, min_size=count, max_size=count), min_size=1, max_size=4)
)


@given(COLUMNS)
def test_distinct_rows_are_those_that_numpy_finds_along_an_axis(values: list[list[int]]):
    columns = [np.array(column, dtype=np.int64) for column in values]
    unique, first, index, count = np.unique(
        np.stack(columns), axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    found = distinct(*columns)
    assert np.array_equal(found.lines, unique)
    assert np.array_equal(found.first, first)
    assert np.array_equal(found.index, index.reshape(-1))
    assert np.array_equal(found.count, count)
    assert np.array_equal(np.argsort(joint(*columns), kind="stable"), np.lexsort(columns[::-1]))


def test_sums_of_distinct_rows_are_exact_beyond_what_floats_hold():
    found = distinct(np.array([7, 5, 7]))
    assert found.summed(np.array([2**60, 1, 1])).tolist() == [1, 2**60 + 1]


@given(st.lists(VALUES, max_size=20))
def test_rows_by_value_are_in_order(values: list[int]):
    column = np.array(values, dtype=np.int64)
    rows = {value: here.tolist() for value, here in rows_by(column).items()}
    assert rows == {value: np.flatnonzero(column == value).tolist() for value in sorted(set(values))}
    assert list(rows) == sorted_set(column).tolist() == sorted(set(values))
