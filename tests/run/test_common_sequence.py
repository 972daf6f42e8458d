from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.run.partners import common_places, fewest_different
from tests.support.tiers import cases


def longest(a: list[int], b: list[int]) -> int:
    """The length of a longest common subsequence, by its definition."""

    @cache
    def of(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        return 1 + of(i + 1, j + 1) if a[i] == b[j] else max(of(i + 1, j), of(i, j + 1))

    return of(0, 0)


def columns(*lists: list[int]) -> list[np.ndarray]:
    return [np.array(each, dtype=np.int64) for each in lists]


letters = st.lists(st.integers(0, 3), max_size=40)


@given(letters, letters, st.integers(0, 80))
def test_the_sequence_is_common_and_as_long_as_any(a, b, most):
    found = common_places(*columns(a, b), most)
    differences = len(a) + len(b) - 2 * longest(a, b)
    assert fewest_different(*columns(a, b)) <= differences
    if found is None:
        assert differences > most
        return
    mine, theirs = found
    assert len(mine) == len(theirs) == longest(a, b)
    assert differences <= most
    assert [a[i] for i in mine] == [b[j] for j in theirs]
    assert (np.diff(mine) > 0).all()
    assert (np.diff(theirs) > 0).all()


@given(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.data())
@settings(max_examples=cases(50))
def test_long_sequences_are_found_block_by_block(period, data):
    a = (period * 800)[:700]
    b = list(a)
    for _ in range(data.draw(st.integers(0, 5))):
        place = data.draw(st.integers(0, len(b) - 1))
        b[place : place + data.draw(st.integers(0, 9))] = data.draw(st.lists(st.integers(0, 2), max_size=9))
    mine, theirs = common_places(*columns(a, b), len(a) + len(b))
    assert [a[i] for i in mine] == [b[j] for j in theirs]
    assert len(mine) == length_by_rows(a, b)


def length_by_rows(a: list[int], b: list[int]) -> int:
    row = [0] * (len(b) + 1)
    for code in a:
        diagonal = 0
        for place, other in enumerate(b, 1):
            diagonal, row[place] = row[place], diagonal + 1 if code == other else max(row[place], row[place - 1])
    return row[-1]


def test_nothing_is_common_to_nothing():
    for a, b in (([], []), ([1], []), ([], [1, 2])):
        mine, theirs = common_places(*columns(a, b), 5)
        assert not len(mine)
        assert not len(theirs)
