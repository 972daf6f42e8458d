"""Medians with spread, and 95 % confidence intervals over steps in blocks.

    block 0    o o  o o                 block 1    o o o   o              block 2   o o   o o
                 |----|   of all steps: so many lie outside that chance leaves the median out in 5 % of cases

    block 0    o o  o o          block 1         o oo   o          block 2   o o o      o
                |-------------------------------| of blocks that differ by more than steps: their medians' range

docs/dev/decisions/run.md says why, and how often these intervals hold what they should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Float64, Mask

# What is less than this share is not worth a line: of a step no advice and no outlier, of a figure no change.
LEAST_SHARE = 0.01


class Spread(msgspec.Struct, frozen=True):
    """A median with quartiles and extremes of `count` values; null where there are none."""

    count: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    minimum: float | None = None
    maximum: float | None = None


def ratio(part: float, whole: float) -> float | None:
    """Return a part over the whole, None where there is no whole."""
    return float(part / whole) if whole else None


def whole(part: float | None, share: float | None) -> float | None:
    """Return what a part is this share of, None where either is not known or 0."""
    return part / share if part and share else None


def spreads(measures: Mapping[str, NDArray[Any]]) -> dict[str, Spread]:
    """Return each measure's median, quartiles and extremes; unknown values (NaN) are left out."""
    return {name: _spread(np.asarray(values, dtype=np.float64)) for name, values in measures.items()}


def spreads_by(parts: Sequence[NDArray[Any]], measures: Mapping[str, NDArray[Any]]) -> list[dict[str, Spread]]:
    """Return for each of several parts, indices of values, what `spreads` returns for these values alone."""
    size = np.array([len(part) for part in parts], dtype=np.int64)
    rows, part = np.concatenate([np.zeros(0, dtype=np.int64), *parts]), np.repeat(np.arange(len(parts)), size)
    columns = [_spreads_of(np.asarray(values, dtype=np.float64)[rows], part, size) for values in measures.values()]
    return [dict(zip(measures, each, strict=True)) for each in zip(*columns, strict=True)]


def _spreads_of(values: NDArray[np.float64], part: NDArray[np.int64], size: NDArray[np.int64]) -> list[Spread]:
    # NaN, which is unknown, is sorted behind all numbers.
    ordered = values[np.lexsort((values, part))]
    first = np.cumsum(size) - size
    count = np.bincount(part[~np.isnan(values)], minlength=len(size))
    known = np.flatnonzero(count)
    low, high = first[known], first[known] + count[known] - 1
    figures = [_quantiles(ordered, low, high, share) for share in (0.5, 0.25, 0.75)]
    columns = (count[known], *figures, ordered[low], ordered[high])
    spread = [Spread(0)] * len(size)
    for place, row in zip(known.tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True):
        spread[place] = Spread(*row)
    return spread


def _quantiles(
    ordered: NDArray[np.float64], first: NDArray[np.int64], last: NDArray[np.int64], share: float
) -> NDArray[np.float64]:
    """Return `_quantile` for each stretch of values, of which `first` and `last` are the ends."""
    place = share * (last - first)
    index = place.astype(np.int64)
    low, high = ordered[first + index], ordered[np.minimum(first + index + 1, last)]
    past = place - index
    quantiles: NDArray[np.float64] = np.where(past < 0.5, low + (high - low) * past, high - (high - low) * (1 - past))
    return quantiles


def _spread(values: NDArray[np.float64]) -> Spread:
    known = values[~np.isnan(values)]
    if not len(known):
        return Spread(0)
    ordered = np.sort(known)
    low, median, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    return Spread(len(known), median, low, high, float(ordered[0]), float(ordered[-1]))


def _quantile(ordered: NDArray[Any], share: float) -> float:
    """The same number as numpy's percentile, which takes longer for a few values than all else of their line."""
    place = share * (len(ordered) - 1)
    index = int(place)
    low, high = ordered[index], ordered[min(index + 1, len(ordered) - 1)]
    past = place - index
    # Written as numpy does, to the last bit.
    return float(low + (high - low) * past if past < 0.5 else high - (high - low) * (1 - past))


def quartiles(values: NDArray[Any]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile of some numbers."""
    ordered = np.sort(values)
    return _quantile(ordered, 0.25), _quantile(ordered, 0.5), _quantile(ordered, 0.75)


def row_columns(rows: Sequence[Any], names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return attributes of rows as columns, float64, NaN for None."""
    return {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in names}


# A step is odd from so many times the median of the shorter ones on, these being at least half of all.
ODD = 1.5
# Of so many steps it is also odd above the median of the others by its tenth and by so many times their scatter.
ENOUGH_STEPS, TENTH, SCATTERS = 8, 10, 5
FEWEST_STEPS = 3


def odd_steps(lengths: Float64) -> Mask:
    """Tell which of several steps are odd, by their lengths: docs/measuring.md, Typical and odd steps."""
    if len(lengths) < FEWEST_STEPS:
        return np.zeros(len(lengths), dtype=bool)
    ordered = np.sort(lengths)
    shorter = np.searchsorted(ordered, ordered, side="left")
    median_of_shorter = (ordered[(shorter - 1) // 2] + ordered[shorter // 2]) / 2
    is_odd = (2 * shorter >= len(ordered)) & (ordered >= ODD * median_of_shorter)
    left = ordered[: np.argmax(is_odd)] if is_odd.any() else ordered
    if len(lengths) >= ENOUGH_STEPS:
        median = np.median(left)
        scatter = np.median(np.abs(left - median))
        left = left[(left - median <= median / TENTH) | (left - median <= SCATTERS * scatter)]
    odd: Mask = lengths > left[-1]
    return odd


def even_distance(numbers: Sequence[int]) -> int | None:
    """Return how far apart steps are, where all are equally far; None of fewer than two, and where they are not."""
    distances = set(np.diff(np.sort(np.asarray(numbers, dtype=np.int64))).tolist())
    return distances.pop() if len(distances) == 1 else None


Limits = tuple[float, float]

FEWEST_BLOCKS = 3
# Of more steps those outside of an interval are not counted, which takes integers of as many bits as there are steps.
MOST_COUNTED = 10_000
# Quantiles of the normal distribution: 97.5 % of it lie below the one, 95 % below the other.
NORMAL, NORMAL_95 = 1.959964, 1.644854


def median_interval(blocks: Sequence[Float64]) -> Limits | None:
    """Return what the median of all steps lies between, in 95 % of cases; None for a single step, and for none.

    A block holds the lengths of its steps. The steps' own interval (order statistics) is widened to the range of the
    blocks' medians where blocks differ by more than their steps tell; of two blocks it is that range.
    """
    known = [steps for block in blocks if len(steps := block[~np.isnan(block)])]
    pooled = np.sort(np.concatenate([np.zeros(0), *known]))
    if len(pooled) < 2:
        return None
    medians = [float(np.median(steps)) for steps in known]
    if 1 < len(known) < FEWEST_BLOCKS:
        return min(medians), max(medians)
    outside = _steps_outside(len(pooled))
    low, high = float(pooled[outside]), float(pooled[-1 - outside])
    return (min(low, *medians), max(high, *medians)) if _differ(known) else (low, high)


def difference(a: Limits, b: Limits) -> Limits:
    """Return what a less b lies between; it holds 0 where, and only where, the two overlap."""
    return a[0] - b[1], a[1] - b[0]


def is_told_apart(limits: Limits | None, other: float = 0.0) -> bool:
    """Whether an interval leaves out a value that would mean no difference; one that is not known does."""
    return limits is None or not limits[0] <= other <= limits[1]


def _steps_outside(count: int) -> int:
    """Return how many of so many steps are left out on either side, by chance in 95 % of cases not the median's.

    Each step is as likely below the median as above it: of fewer than six even the outermost are not enough. Of more
    than MOST_COUNTED steps it is the normal distribution's number, at most one off.
    """
    if count > MOST_COUNTED:
        return int((count - 1 - NORMAL * sqrt(count)) / 2)
    outside, ways, fewer, all_ways = 0, 1, 1, 2**count
    while 40 * fewer <= all_ways:
        outside += 1
        ways = ways * (count - outside + 1) // outside
        fewer += ways
    return max(outside - 1, 0)


def _differ(blocks: Sequence[Float64]) -> bool:
    """Whether blocks differ by more than their steps do, by chance in 5 % of cases.

    Kruskal and Wallis, Use of Ranks in One-Criterion Variance Analysis, 1952; steps of equal length share their ranks.
    """
    steps = np.concatenate(blocks)
    _, place, times = np.unique(steps, return_inverse=True, return_counts=True)
    rank = (np.cumsum(times) - (times - 1) / 2)[place]
    size = np.array([len(block) for block in blocks])
    count, freedom = len(steps), len(blocks) - 1
    ties = 1 - float((times**3 - times).sum()) / (count**3 - count)
    if freedom < 1 or ties <= 0:
        return False
    by_block = np.add.reduceat(rank, np.cumsum(size) - size) ** 2 / size
    return (12 / (count * (count + 1)) * float(by_block.sum()) - 3 * (count + 1)) / ties > _chi_square_95(freedom)


def _chi_square_95(freedom: int) -> float:
    """Return what 95 % of the sums of so many squares lie below: Wilson and Hilferty, 1931, good to 2 %."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + NORMAL_95 * sqrt(part)) ** 3)
