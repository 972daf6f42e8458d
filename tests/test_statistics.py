"""Confidence intervals: what they hold, how often, and what no single step can do to them."""

from itertools import chain
from math import comb
from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers import statistics
from analyzers.statistics import (
    _chi_square_95,
    difference,
    even_distance,
    is_told_apart,
    median_interval,
    odd_steps,
)
from tests.support import typical_steps
from tests.support.tiers import cases, quarters

STEPS = st.lists(st.one_of(st.floats(1, 1000), st.integers(1, 4).map(float)), max_size=9)


def by_definition(blocks):
    """The interval of docs/measuring.md, in its words: order statistics, blocks' medians, ranks by counting."""
    blocks = [block for block in blocks if block]
    steps, medians = sorted(chain(*blocks)), [median(block) for block in blocks]
    if len(steps) < 2:
        return None
    if len(blocks) == 2:
        return min(medians), max(medians)
    count = len(steps)
    chance = [sum(comb(count, below) for below in range(place)) / 2**count for place in range(1, count + 1)]
    inner = max((place for place in range(count // 2 + 1) if chance[place] <= 0.025), default=0)
    low, high = steps[inner], steps[count - 1 - inner]
    rank = {step: mean(place for place, other in enumerate(steps, 1) if other == step) for step in steps}
    spread = sum((rank[step] - (count + 1) / 2) ** 2 for step in steps)
    between = sum(len(block) * (mean(rank[step] for step in block) - (count + 1) / 2) ** 2 for block in blocks)
    freedom = len(blocks) - 1
    if freedom and spread and (count - 1) * between / spread > _chi_square_95(freedom):
        return min(low, *medians), max(high, *medians)
    return low, high


# https://www.itl.nist.gov/div898/handbook/eda/section3/eda3674.htm
CHI_SQUARE_95 = (3.841, 5.991, 7.815, 9.488, 11.070, 12.592, 14.067, 15.507, 16.919, 18.307)


def test_the_quantiles_of_chi_square_are_those_of_the_tables():
    assert [_chi_square_95(freedom) for freedom in range(1, 11)] == pytest.approx(CHI_SQUARE_95, rel=0.03)


@settings(max_examples=cases(200), deadline=None)
@given(st.lists(STEPS, max_size=9))
def test_an_interval_is_that_of_the_definition_and_holds_the_median(blocks):
    found = median_interval([np.array(block, dtype=np.float64) for block in blocks])
    assert found == by_definition(blocks)
    assert found is None or found[0] <= median(chain(*blocks)) <= found[1]


@pytest.mark.parametrize(
    ("blocks", "interval"),
    [
        ([], None),
        ([[5]], None),
        ([[5, 7]], (5, 7)),  # of fewer than six not even the outermost are enough
        ([[1, 2, 3, 4, 5, 6]], (1, 6)),
        ([[*range(1, 10)]], (2, 8)),  # P(at most 1 of 9 below) = 0.02
        ([[*range(1, 101)]], (40, 61)),
        ([[1, 2, 9], [5, 6, 9]], (2, 6)),  # two blocks: their medians' range
        ([[1, 2, 3, 4], [2, 3, 4, 5], [1, 3, 4, 6]], (2, 4)),
        ([[1, 1, 1, 1], [5, 5, 5, 5], [9, 9, 9, 9]], (1, 9)),
        ([[1.0], [2.0], [3.0]], (1, 3)),  # blocks of one step
        ([[4.0] * 8] * 3, (4, 4)),
    ],
)
def test_intervals_by_hand(blocks, interval):
    assert median_interval([np.array(block, dtype=np.float64) for block in blocks]) == interval


# 6 x 8 is what the contract asks for; of fewer blocks that differ their range is what it says: docs/measuring.md.
@pytest.mark.parametrize(("count", "size"), quarters([(2, 8), (6, 8), (3, 8), (4, 4), (8, 1), (12, 8)]))
@pytest.mark.parametrize(("drift", "noise", "slow"), [(0.0, 0.02, 0.0), (0.02, 0.02, 0.05), (0.05, 0.01, 0.05)])
def test_intervals_hold_the_true_step_as_often_as_blocks_can_tell(count, size, drift, noise, slow):
    """Blocks differ by what the machine does, steps by noise, and a few steps take up to four times as long."""
    chance = np.random.default_rng(7)
    trials, held = 150, 0
    for _ in range(trials):
        level = 1 + chance.normal(0, drift, (count, 1))
        steps = 10 * (level + chance.normal(0, noise, (count, size)))
        steps = np.where(chance.random((count, size)) < slow, steps * chance.uniform(1.5, 4, (count, size)), steps)
        odd = odd_steps(steps.ravel()).reshape(steps.shape)
        limits = median_interval([block[~is_odd] for block, is_odd in zip(steps, odd, strict=True)])
        held += limits is not None and limits[0] <= 10 <= limits[1]
    # All blocks of so many lie on one side of the truth in one of 2^(count - 1) recordings.
    assert held / trials >= min(0.9, 1 - 2.0 ** (1 - count) - 0.06)


@settings(max_examples=cases(30), deadline=None)
@given(st.integers(3, 10), st.floats(1, 1000), st.integers(0, 2**32 - 1))
def test_one_slow_step_in_every_block_voids_nothing(count, factor, seed):
    chance = np.random.default_rng(seed)
    blocks = list(chance.uniform(99, 101, (count, 8)))
    for block in blocks:
        block[chance.integers(8)] *= factor
    low, high = median_interval(blocks)
    assert 95 < low <= high < 106


def test_a_difference_holds_nothing_only_where_intervals_overlap():
    for a, b in (((1, 3), (2, 4)), ((1, 2), (3, 4)), ((3, 4), (1, 2)), ((1, 2), (2, 3))):
        overlap = a[0] <= b[1] and b[0] <= a[1]
        assert is_told_apart(difference(a, b)) is not overlap
    assert is_told_apart(None)


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


@pytest.mark.parametrize("count", [101, 5_000, 12_345])
def test_steps_outside_are_counted_or_told_by_the_normal_distribution_alike(count, monkeypatch):
    found = []
    for most in (count - 1, count):
        monkeypatch.setattr(statistics, "MOST_COUNTED", most)
        low, high = median_interval([np.arange(count, dtype=np.float64)])
        assert low == count - 1 - high
        found.append(low)
    assert found[0] in (found[1], found[1] - 1)
