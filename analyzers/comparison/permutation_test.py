"""Permutation test over whole steps of two runs.

    A  o o  o  o o                 A and B come apart: of all ways to call five of these ten steps A,
    B            x x   x x  x      two (this one and its mirror image) do so as much: p = 2 / 252

A step is the unit: what its ranks, layers and buckets did in it belongs together, and moves together when labels are
permuted. The statistic is the standardized rank sum (Wilcoxon 1945; midranks where values are equal): one slow step
counts no more than its place. Many measures are corrected for by the distribution of the least p over all of them under
the same permutations, step-down (Westfall and Young, Resampling-Based Multiple Testing, 1993, min P): whatever their
dependence, the chance to find any difference where there is none is at most the level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Float64
from analyzers.statistics import NORMAL, Limits

# Up to as many permutations all are tried (eight steps against eight have 12,870); beyond, a sample of them.
MOST_PERMUTATIONS = 13_000
# Of thousands of measures fewer permutations are tried: each measure's p is held for each of them (50 MB).
MOST_HELD = 6_500_000
SEED = 1
# And of thousands of steps: so many labels are drawn in all, and so many held at once (40 MB).
MOST_LABELS, LABELS_AT_ONCE = 13_000_000, 1 << 20
# Of more pairs of steps not all differences are made: the one that is asked for is closed in upon.
MOST_PAIRS = 1 << 20
# Equal statistics differ in their last digits by the order of sums.
DIGITS = 9
# Of more steps rank sums are normal to a thousandth, and are not counted.
MOST_COUNTED = 60


@dataclass(frozen=True, eq=False)
class Significance:
    """For each measure: its own p, the p corrected for all measures, and the least p that its steps could have had."""

    p: Float64
    adjusted_p: Float64
    least_p: Float64


def significance(a: Float64, b: Float64) -> Significance:
    """Test two runs' steps (rows) in all measures (columns) together; NaN where a step lacks a value."""
    if not len(a) or not len(b) or not a.shape[1]:
        none = np.ones(a.shape[1])
        return Significance(none, none, none)
    steps = np.concatenate([a, b])
    p = _tails(np.concatenate([_statistics(steps, labels) for labels in _labelings(len(a), len(b), a.shape[1])]))
    return Significance(p[0], _corrected(p), p.min(axis=0))


def _most(steps: int, measures: int) -> int:
    """Return how many permutations are tried of so many steps, for so many measures."""
    return max(MOST_PERMUTATIONS // 10, min(MOST_PERMUTATIONS, MOST_HELD // measures, MOST_LABELS // steps))


def _labelings(a_steps: int, b_steps: int, measures: int) -> Iterator[Float64]:
    """Yield ways to call `a_steps` of all steps A (1; else 0), a row each, in blocks; the first is the true one."""
    steps = a_steps + b_steps
    most = _most(steps, measures)
    # Of so many steps nobody need count how many ways there are, which takes integers of as many bits.
    if steps <= MOST_PERMUTATIONS and comb(steps, a_steps) <= most:
        yield _labels(np.array(list(combinations(range(steps), a_steps))), steps)
        return
    yield _labels(np.arange(a_steps)[None, :], steps)
    chance, at_once = np.random.default_rng(SEED), max(1, LABELS_AT_ONCE // steps)
    for drawn in range(1, most, at_once):
        order = chance.random((min(at_once, most - drawn), steps)).argsort(axis=1)
        yield _labels(order[:, :a_steps], steps)


def _labels(chosen: NDArray[np.int64], steps: int) -> Float64:
    labels = np.zeros((len(chosen), steps))
    np.put_along_axis(labels, chosen, 1.0, axis=1)
    return labels


def _statistics(values: Float64, labels: Float64) -> Float64:
    """Return how many standard deviations A's rank sum is from what chance gives, a row for each labeling."""
    is_known = ~np.isnan(values)
    ranks = np.where(is_known, _midranks(values), 0.0)
    total = is_known.sum(axis=0)
    counts, sums = labels @ is_known.astype(np.float64), labels @ ranks
    center = (total + 1) / 2
    scatter = (np.where(is_known, ranks - center, 0.0) ** 2).sum(axis=0) / np.maximum(total * (total - 1), 1)
    deviation = np.sqrt(counts * (total - counts) * scatter)
    distance = np.abs(sums - counts * center)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics: Float64 = np.where(deviation > 0, distance / deviation, 0.0)
    return np.round(statistics, DIGITS)


def _midranks(values: Float64) -> Float64:
    """Rank from 1 in each column, equal values sharing the mean of theirs; NaN last."""
    ordered = np.sort(values, axis=0)
    columns = range(values.shape[1])
    below = np.stack([np.searchsorted(ordered[:, k], values[:, k], "left") for k in columns], axis=1)
    upto = np.stack([np.searchsorted(ordered[:, k], values[:, k], "right") for k in columns], axis=1)
    ranks: Float64 = (below + upto + 1) / 2
    return ranks


def _tails(statistics: Float64) -> Float64:
    """Return each statistic's p: the share of labelings whose statistic is as large."""
    ordered = np.sort(statistics, axis=0)
    columns = range(statistics.shape[1])
    smaller = np.stack([np.searchsorted(ordered[:, k], statistics[:, k], "left") for k in columns], axis=1)
    tails: Float64 = (len(statistics) - smaller) / len(statistics)
    return tails


def _corrected(p: Float64) -> Float64:
    """Correct by step-down min P: set each p against the least of itself and of all that are not smaller."""
    order = np.argsort(p[0], kind="stable")
    least = np.ones(len(p))
    ordered_p = np.empty(len(order))
    for position in range(len(order) - 1, -1, -1):
        least = np.minimum(least, p[:, order[position]])
        ordered_p[position] = np.mean(least <= p[0, order[position]] + 10.0**-DIGITS)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(ordered_p)
    return adjusted


def shift_interval(a: Float64, b: Float64, level: float) -> Limits | None:
    """Return by how much B's steps exceed A's: every shift that the test of rank sums does not tell from none.

    It leaves out 0 where, and only where, that test finds a difference at this level, 5 %: Hodges and Lehmann,
    Estimates of Location Based on Rank Tests, 1963; Moses. None where not even steps that all came apart would tell.
    """
    outside = _outside(len(a), len(b), level)
    if not outside:
        return None
    if len(a) * len(b) > MOST_PAIRS:
        a, b = np.sort(a), np.sort(b)
        return _difference(a, b, outside), _difference(a, b, len(a) * len(b) - outside + 1)
    differences = np.sort((b[:, np.newaxis] - a).ravel())
    return float(differences[outside - 1]), float(differences[len(differences) - outside])


def _difference(a: Float64, b: Float64, place: int) -> float:
    """Return which of all differences b - a, from the least on, has a place, to a part in 10^15 of their range."""
    low, high = float(b[0] - a[-1]), float(b[-1] - a[0])
    while low < (middle := (low + high) / 2) < high:
        # As many differences are not above it as steps of A are not below each step of B less it.
        upto = len(a) * len(b) - int(np.searchsorted(a, b - middle, "left").sum())
        low, high = (low, middle) if upto >= place else (middle, high)
    return high


def _outside(a_steps: int, b_steps: int, level: float) -> int:
    """Return how many differences of pairs may lie beyond each end of the interval."""
    pairs, steps = a_steps * b_steps, a_steps + b_steps
    if steps > MOST_COUNTED:
        return max(floor(pairs / 2 - NORMAL * sqrt(pairs * (steps + 1) / 12)), 0)
    # ways[k, u]: choices of k of the steps so far with u pairs the wrong way round (Mann and Whitney 1947).
    ways = np.zeros((a_steps + 1, pairs + 1))
    ways[0, 0] = 1
    for step in range(steps):
        for chosen in range(min(step + 1, a_steps), 0, -1):
            wrong = step + 1 - chosen
            if wrong <= b_steps:
                ways[chosen, wrong:] += ways[chosen - 1, : pairs + 1 - wrong]
    tail = 2 * np.cumsum(ways[a_steps]) / comb(steps, a_steps)
    return int(np.searchsorted(tail, level, "right"))
