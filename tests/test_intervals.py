import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.intervals import EMPTY, Intervals, crossings, owned, union_of
from tests.support.drawing import runs

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1])))


def of(pairs: list[tuple[int, int]]) -> Intervals:
    return union_of([start for start, _ in pairs], [end for _, end in pairs])


def drawn(picture: str) -> Intervals:
    return of([(start, start + length) for _, start, length in runs(picture)])


def picture(intervals: Intervals, width: int) -> str:
    return "".join("#" if at in instants(intervals) else "." for at in range(width))


def instants(intervals: Intervals) -> set[int]:
    return {at for start, end in zip(intervals.start, intervals.end, strict=True) for at in range(start, end)}


def covered(pairs: list[tuple[int, int]]) -> set[int]:
    return {at for start, end in pairs for at in range(start, end)}


@pytest.mark.parametrize(
    ("operation", "result"),
    [(Intervals.__or__, "##########.."), (Intervals.__and__, "..##........"), (Intervals.__sub__, "##....####..")],
)
def test_operations_as_drawn(operation, result):
    a, b = drawn("####..####.."), drawn("..####......")
    assert picture(operation(a, b), 12) == result


@given(spans, spans)
def test_operations_are_those_of_sets(left, right):
    a, b = of(left), of(right)
    assert instants(a | b) == covered(left) | covered(right)
    assert instants(a & b) == covered(left) & covered(right)
    assert instants(a - b) == covered(left) - covered(right)


@given(spans, spans)
def test_results_are_sorted_disjoint_and_never_empty_or_touching(left, right):
    a, b = of(left), of(right)
    for result in (a, a | b, a & b, a - b):
        assert (result.end > result.start).all()
        assert (result.start[1:] > result.end[:-1]).all()


@given(spans, spans)
def test_length_within(pairs, windows):
    start, end = np.array([w[0] for w in windows], dtype=int), np.array([w[1] for w in windows], dtype=int)
    expected = [len(covered(pairs) & set(range(*window))) for window in windows]
    assert of(pairs).length_within(start, end).tolist() == expected
    assert of(pairs).length_ns() == len(covered(pairs))


def test_nothing():
    assert len(EMPTY) == len(EMPTY | EMPTY) == len(EMPTY & EMPTY) == len(EMPTY - EMPTY) == EMPTY.length_ns() == 0


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([start for start, _ in pairs], dtype=int), np.array([end for _, end in pairs], dtype=int)


@given(spans)
def test_each_instant_is_owned_by_the_earliest_started(pairs):
    start, end, owner = owned(*columns(pairs))
    found = {at: who for low, high, who in zip(start, end, owner, strict=True) for at in range(low, high)}
    assert found == {
        at: min((low, place) for place, (low, high) in enumerate(pairs) if low <= at < high)[1] for at in covered(pairs)
    }
    assert (end - start).sum() == of(pairs).length_ns()
    assert (end > start).all()
    assert (start[1:] >= end[:-1]).all()


@given(spans, spans)
def test_crossings_are_all_meetings(left, right):
    others = of(right)
    met = crossings(*columns(left), others.start, others.end)
    found = [
        (mine, theirs, at)
        for mine, theirs, low, high in zip(met.mine, met.theirs, met.start, met.end, strict=True)
        for at in range(low, high)
    ]
    assert sorted(found) == sorted(
        (mine, theirs, at)
        for mine, (low, high) in enumerate(left)
        for theirs, (begin, stop) in enumerate(zip(others.start, others.end, strict=True))
        for at in range(max(low, begin), min(high, stop))
    )
    assert (met.end > met.start).all()
