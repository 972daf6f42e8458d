"""Confidence intervals: what they hold, how often, and what no single step can do to them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.statistics import (
    _draws,
    _medians,
    _student,
    difference,
    even_distance,
    is_told_apart,
    median_interval,
    odd_steps,
)
from tests.support import typical_steps
from tests.support.tiers import cases, thirds

STEPS = st.lists(st.floats(1, 1000), min_size=1, max_size=9)
BLOCKS = st.lists(STEPS.map(lambda steps: np.array(steps)[:, np.newaxis]), min_size=1, max_size=9)


def pooled(blocks):
    return np.concatenate([block.ravel() for block in blocks])


@settings(max_examples=cases(60), deadline=None)
@given(BLOCKS)
def test_an_interval_holds_the_median_and_is_the_same_again(blocks):
    limits = median_interval(blocks)
    if len(pooled(blocks)) == 1:
        assert limits is None
        return
    assert limits is not None
    assert limits[0] <= np.median(pooled(blocks)) <= limits[1]
    assert median_interval(blocks) == limits


@settings(max_examples=cases(60), deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=7), st.data())
def test_weighted_medians_are_those_of_steps_taken_so_often(blocks, data):
    ranks = data.draw(st.integers(1, 3))
    steps = np.array([[step + rank for rank in range(ranks)] for block in blocks for step in block])
    if ranks > 1 and len(steps) > 1:
        steps[0, -1] = np.nan
    times = _draws(np.array([len(block) for block in blocks]))[:20]
    expected = [np.nanmedian(np.repeat(steps, row.astype(int), axis=0)) for row in times]
    assert _medians(steps, times) == pytest.approx(expected)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9))
@settings(max_examples=cases(60), deadline=None)
def test_as_many_steps_are_drawn_of_each_block_as_it_has(sizes):
    times = _draws(np.array(sizes))
    first = np.cumsum([0, *sizes])
    for number, size in enumerate(sizes):
        of_block = times[:, first[number] : first[number + 1]].sum(axis=1)
        assert not (of_block % size).any()
    blocks = sum(times[:, first[k] : first[k + 1]].sum(axis=1) / size for k, size in enumerate(sizes))
    assert (blocks == len(sizes)).all()


# 6 x 8 is what the contract asks for; of 2 and 3 blocks the interval is Student's.
@pytest.mark.parametrize(("count", "size"), thirds([(2, 8), (6, 8), (3, 8), (4, 4), (8, 1), (12, 8)]))
@pytest.mark.parametrize(("drift", "noise", "slow"), [(0.0, 0.02, 0.0), (0.02, 0.02, 0.05), (0.05, 0.01, 0.05)])
def test_intervals_hold_the_true_step_at_least_nine_times_in_ten(count, size, drift, noise, slow):
    """Blocks differ by what the machine does, steps by noise, and a few steps take up to four times as long."""
    chance = np.random.default_rng(7)
    trials, held = 150, 0
    for _ in range(trials):
        level = 1 + chance.normal(0, drift, (count, 1, 1))
        steps = 10 * (level + chance.normal(0, noise, (count, size, 1)) + chance.normal(0, noise / 5, (count, size, 2)))
        steps = np.where(
            chance.random((count, size, 1)) < slow, steps * chance.uniform(1.5, 4, (count, size, 1)), steps
        )
        limits = median_interval(list(steps))
        held += limits is not None and limits[0] <= 10 <= limits[1]
    assert held / trials >= 0.9


@settings(max_examples=cases(30), deadline=None)
@given(st.integers(3, 10), st.floats(1, 1000), st.integers(0, 2**32 - 1))
def test_one_slow_step_in_every_block_voids_nothing(count, factor, seed):
    chance = np.random.default_rng(seed)
    blocks = list(chance.uniform(99, 101, (count, 8, 1)))
    for block in blocks:
        block[chance.integers(8)] *= factor
    low, high = median_interval(blocks)
    assert 95 < low <= high < 106


def test_few_blocks_say_little_and_one_says_what_its_steps_do():
    def width(count):
        blocks = [np.full((8, 1), 100.0 + k % 2) for k in range(count)]
        low, high = median_interval(blocks)
        return high - low

    assert width(2) > 3 * width(3) > width(6)
    steps = np.array([[100.0], [101.0], [102.0], [103.0]])
    assert median_interval([steps]) == median_interval([step[np.newaxis] for step in steps])
    assert median_interval([steps[:1]]) is None
    assert median_interval([]) is None
    assert median_interval([steps, np.full((2, 1), np.nan)]) == median_interval([steps])


def test_a_difference_holds_nothing_only_where_intervals_overlap():
    for a, b in (((1, 3), (2, 4)), ((1, 2), (3, 4)), ((3, 4), (1, 2)), ((1, 2), (2, 3))):
        overlap = a[0] <= b[1] and b[0] <= a[1]
        assert is_told_apart(difference(a, b)) is not overlap
    assert is_told_apart(None)


# https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm
@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (10, 2.228), (11, 2.201), (30, 2.042), (100, 1.984)])
def test_students_t_is_that_of_the_tables(freedom, t):
    assert _student(freedom) == pytest.approx(t, abs=0.0025)


LENGTHS = st.one_of(st.integers(1, 2**54), st.integers(90, 160), st.sampled_from([100, 110, 111, 150, 225, 1000]))


@settings(max_examples=cases(300), deadline=None)
@given(st.lists(LENGTHS, max_size=24), st.randoms(use_true_random=False))
def test_odd_steps_are_those_of_the_definition_in_any_order(lengths, chance):
    expected = dict(zip(lengths, typical_steps.odd(lengths), strict=True))
    shuffled = [*lengths]
    chance.shuffle(shuffled)
    assert odd_steps(np.array(shuffled, dtype=np.float64)).tolist() == [expected[length] for length in shuffled]


@pytest.mark.parametrize(
    ("lengths", "odd"),
    [
        ([10, 15], []),  # of fewer than three none is
        ([10, 10, 15], [15]),
        ([10, 15, 15], []),  # the shorter ones are not half of all
        ([10, 10, 15, 15], [15, 15]),
        ([10, 10, 14, 14], []),
        ([10, 10, 10, 14, 16], [16]),
        ([10, 10, 10, 15, 14], [15]),  # and not the shorter one beside it
        ([1, 1, 10, 10, 10, 10], []),
        ([10] * 7 + [12], [12]),  # from eight on without any scatter a tenth is enough
        ([10] * 6 + [12], []),
        ([], []),
    ],
)
def test_odd_steps_by_hand(lengths, odd):
    found = odd_steps(np.array(lengths, dtype=np.float64))
    assert [length for length, is_odd in zip(lengths, found, strict=True) if is_odd] == odd


def test_a_distance_is_told_where_it_is_the_same_between_all():
    assert [even_distance(numbers) for numbers in ([], [4], [4, 10], [10, 4, 16], [4, 10, 15])] == [
        *(None, None),
        *(6, 6),
        None,
    ]
