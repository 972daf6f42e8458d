"""Rows of Events by name: one sorted index against a mask over all rows."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.trace.events import NONE, Events

# Few letters, so that names share beginnings; the last sorts behind all others.
TEXTS = st.text("ab\U0010ffff", max_size=4)


def rows_of(names: list[str], rows: list[int]) -> Events:
    columns = {field.name: np.zeros(len(rows), dtype=np.int64) for field in fields(Events)}
    said = {"name": np.array(rows, dtype=np.int32), "names": tuple(names), "calls": (), "shapes": (), "syncs": NONE}
    return Events(**columns | said)  # type: ignore[arg-type]


@given(st.lists(TEXTS, min_size=1, unique=True), st.data())
def test_rows_named_are_those_of_the_mask(names: list[str], data: st.DataObject):
    events = rows_of(names, data.draw(st.lists(st.integers(0, len(names) - 1), max_size=20)))
    prefixes = data.draw(st.lists(TEXTS, max_size=3))
    assert events.rows_named(*prefixes).tolist() == np.flatnonzero(events.named(*prefixes)).tolist()
