"""Rows from columns, against rows that are built keyword by keyword."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.arrays import Columns, Int64, instants, labels, typed_rows


class Colour(IntEnum):
    RED = 0
    BLUE = 1

    @property
    def label(self) -> str:
        return self.name.lower()


class Painted(msgspec.Struct, frozen=True):
    rank: int
    start_ns: int
    wait_ns: int | None
    busbw_gbps: float | None
    gbps: float
    bound: bool
    ahead: bool | None
    colour: str
    launched_ns: int | None
    backward_pass: int = msgspec.field(name="pass")


Record = tuple[int, int, float, float, bool, int, int, "int | None", int]
RECORDS: st.SearchStrategy[list[Record]] = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-1, 2**63 - 1),
        st.floats() | st.just(math.nan),
        st.floats(width=32),
        st.booleans(),
        st.integers(-2, 1),
        st.sampled_from([*Colour]),
        st.none() | st.integers(-5, 5),
        st.integers(-1, 3),
    )
)


def keyword_by_keyword(record: Record) -> Painted:
    start_ns, wait_ns, busbw, gbps, bound, ahead, colour, launched_ns, pass_ = record
    return Painted(
        rank=3,
        start_ns=start_ns,
        wait_ns=None if wait_ns < 0 else wait_ns,
        busbw_gbps=None if math.isnan(busbw) else busbw,
        gbps=gbps,
        bound=bound,
        ahead=None if ahead < 0 else bool(ahead),
        colour=Colour(colour).label,
        launched_ns=launched_ns,
        backward_pass=pass_,
    )


@given(RECORDS)
def test_rows_are_those_that_are_built_keyword_by_keyword(records: list[Record]):
    columns = [[record[place] for record in records] for place in range(9)]
    start_ns, wait_ns, busbw, gbps, bound, ahead, colour, launched_ns, pass_ = columns
    rows = typed_rows(
        Painted,
        backward_pass=np.array(pass_, dtype=np.int32),
        rank=3,
        start_ns=np.array(start_ns, dtype=np.int64),
        wait_ns=np.array(wait_ns, dtype=np.int64),
        busbw_gbps=np.array(busbw, dtype=np.float64),
        gbps=np.array(gbps, dtype=np.float32),
        bound=np.array(bound, dtype=bool),
        ahead=np.array(ahead, dtype=np.int8),
        colour=labels(Colour, np.array(colour, dtype=np.int8)),
        launched_ns=launched_ns,
    )
    wanted = [keyword_by_keyword(record) for record in records]
    # NaN in a field that may not be null stays, and is unlike itself; the text tells ints from floats and bools.
    assert [repr(row) for row in rows] == [repr(row) for row in wanted]
    assert msgspec.json.encode(rows) == msgspec.json.encode(wanted)


class Pair(msgspec.Struct):
    rank: int
    ns: int | None


@pytest.mark.parametrize("columns", [{"rank": np.arange(2)}, {"rank": 0, "ns": np.arange(2), "bytes": 0}])
def test_every_field_has_a_column_and_every_column_a_field(columns: dict[str, object]):
    with pytest.raises(KeyError):
        typed_rows(Pair, **columns)


@dataclass(frozen=True, eq=False)
class Waits(Columns):
    rank: Int64
    ns: Int64
    start_ns: Int64


def test_a_table_has_what_no_column_is_given_for():
    table = Waits(np.array([0, 1]), np.array([-1, 5]), np.array([7, 9]))
    assert typed_rows(Pair, table) == [Pair(0, None), Pair(1, 5)]
    assert typed_rows(Pair, table, rank=3) == [Pair(3, None), Pair(3, 5)]
    with pytest.raises(KeyError):
        typed_rows(Pair, table, n=np.arange(2))


def test_unknown_instants_are_null_and_known_ones_may_be_negative():
    assert instants(np.array([-1, 5, 12]), 6) == [None, -1, 6]


def test_columns_are_of_one_length():
    with pytest.raises(ValueError):
        typed_rows(Pair, rank=np.arange(2), ns=np.arange(3))


def test_how_many_rows_there_are_some_column_says():
    with pytest.raises(ValueError):
        typed_rows(Pair, rank=0, ns=None)
