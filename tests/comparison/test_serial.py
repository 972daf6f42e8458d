"""Steps that are correlated in time: how often unchanged pairs are marked, and what is still found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.comparison.change import LEVEL, changes, interval, pooled
from analyzers.comparison.permutation_test import significance
from analyzers.comparison.runs import compare
from analyzers.comparison.serial import OF_BLOCKS, OF_STEPS, correlation, freed
from analyzers.notices import Code
from tests.support.comparing import controlled, stepping
from tests.support.tiers import cases, quarters

# Of so many pairs; a share may exceed the level by three standard deviations of it.
CASES = 150
MOST = LEVEL + 3 * (LEVEL * (1 - LEVEL) / CASES) ** 0.5


def correlated(rng: np.random.Generator, steps: int, r: float, figures: int = 1) -> np.ndarray:
    """Steps of which each is r times the one before, and chance: each of variance 1."""
    values = rng.normal(size=(steps, figures))
    for step in range(1, steps):
        values[step] = r * values[step - 1] + (1 - r * r) ** 0.5 * values[step]
    return values


def share_marked(a: np.ndarray, b: np.ndarray, assumed: float = OF_STEPS) -> float:
    """Of pairs of runs, a column each, judged alone, the share that is marked."""
    alone = [correlation(a[:, [k]], b[:, [k]], assumed)[0] for k in range(a.shape[1])]
    tested = significance(a, b), significance(freed(a, np.array(alone)), freed(b, np.array(alone)))
    return float(np.mean([max(p) <= LEVEL for p in zip(*(each.p for each in tested), strict=True)]))


@pytest.mark.parametrize("r", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("steps", quarters([3, 5, 8, 4, 6, 12, 100]))
def test_unchanged_pairs_are_marked_as_seldom_as_is_said(steps, r):
    rng = np.random.default_rng(steps)
    assert share_marked(correlated(rng, steps, r, CASES), correlated(rng, steps, r, CASES)) <= MOST


def test_as_they_are_half_of_the_pairs_come_apart():
    rng = np.random.default_rng(8)
    p = significance(correlated(rng, 8, 0.8, CASES), correlated(rng, 8, 0.8, CASES)).p
    assert np.mean(p <= LEVEL) > 0.4


@pytest.mark.parametrize(("steps", "figures"), quarters([(8, 5), (12, 20)]))
def test_tables_of_correlated_steps_are_marked_as_seldom(steps, figures):
    rng, cases, found = np.random.default_rng(figures), 40, 0
    for _ in range(cases):
        a, b = (0.5 * correlated(rng, steps, 0.8) + correlated(rng, steps, 0.8, figures) for _ in range(2))
        found += any(change.is_marked for change in changes(table(a, b)).values())
    assert found <= cases * LEVEL + 3 * (cases * LEVEL * (1 - LEVEL)) ** 0.5


def table(a: np.ndarray, b: np.ndarray):
    return {k: (pooled(enumerate(a[:, k])), pooled(enumerate(b[:, k]))) for k in range(a.shape[1])}


@pytest.mark.parametrize(
    ("steps", "deviations", "least"), quarters([(6, 10, 0.4), (8, 5, 0.7), (8, 10, 0.97), (12, 5, 0.9), (20, 2.5, 0.9)])
)
def test_a_change_of_steps_that_know_nothing_of_one_another_is_found(steps, deviations, least):
    """10 % are 5 deviations of steps that scatter by 2 %."""
    rng = np.random.default_rng(steps)
    a, b = rng.normal(size=(steps, CASES)), deviations + rng.normal(size=(steps, CASES))
    assert share_marked(a, b) >= least


@pytest.mark.parametrize("blocks", [4, 8])
def test_rounds_that_differ_as_wholes_are_marked_as_seldom(blocks):
    """A round's steps have something in common: its median is one observation, and rounds may drift a little."""
    rng = np.random.default_rng(blocks)
    a, b = (
        np.median(correlated(rng, blocks, 0.3, CASES)[:, None] + rng.normal(size=(blocks, 8, CASES)), axis=1)
        for _ in range(2)
    )
    assert share_marked(a, b, OF_BLOCKS) <= MOST


def test_the_same_ramp_in_both_windows_is_no_change():
    rng = np.random.default_rng(1)
    ramp = np.arange(8.0)[:, None]
    assert share_marked(ramp + rng.normal(size=(8, CASES)), ramp + rng.normal(size=(8, CASES))) <= MOST


VALUES = st.lists(st.none() | st.integers(-9, 9).map(float), min_size=1, max_size=9)


@given(VALUES, st.floats(0, 1))
def test_each_step_is_freed_of_the_one_before(values, r):
    expected = []
    for step, value in enumerate(values):
        before = values[step - 1] if step and values[step - 1] is not None else value
        expected.append(np.nan if value is None else value - r * before)
    column = np.array([np.nan if value is None else value for value in values])[:, None]
    assert freed(column, np.array([r])).ravel() == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_equal_steps_stay_equal():
    assert len(set(freed(np.full((5, 1), 0.1), np.array([0.7])).ravel())) == 1


@settings(max_examples=cases(60), deadline=None)
@given(*[st.lists(st.floats(1, 100), min_size=4, max_size=8, unique=True)] * 2)
def test_an_interval_leaves_out_none_where_a_change_is_found(a, b):
    columns = np.array(a)[:, None], np.array(b)[:, None]
    carried = correlation(*columns, OF_BLOCKS)
    rest = [freed(column, carried) for column in columns]
    limits = interval(*(column.ravel() for column in columns))
    near = min(np.abs(y.ravel()[:, None] - x.ravel()).min() for x, y in (columns, rest))
    if limits is None or near < 1e-6:
        return
    p = max(significance(*columns).p[0], significance(*rest).p[0])
    assert (limits[0] <= 0 <= limits[1]) == (p > LEVEL)


def test_where_steps_resemble_the_ones_before_more_launches_are_asked_for():
    # Two launches of which each climbs from step to step.
    a, b = [2.3, 4.5, 5.6, 5.3, 4.9, 6.5, 5.2, 5.7], [0.1, 0.4, 1.6, 1.9, 2.8, 3.8, 3.7, 3.4]
    found = compare(*(stepping([[10 + more] for more in steps]) for steps in (a, b)))
    assert (found.step["span_ns"].state, found.step["span_ns"].changed) == ("correlated", False)
    (notice,) = (each for each in found.warnings if each.code == Code.LAUNCHES_DIFFER)
    assert "1 figure differs, but each step resembles the one before" in notice.text
    assert "record more launches" in str(notice.remedy)


def test_blocks_of_one_level_each_are_a_change():
    a, b = ([level + 0.1 * (block % 3) for block in range(8)] for level in (10, 11))
    found = compare(*(controlled(stepping([[10.0]]), {"unprofiled": blocks}) for blocks in (a, b)))
    assert found.controls["unprofiled_step_ns"].state == "changed"
