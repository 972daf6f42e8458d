"""Medians with their spread, and confidence intervals (95 %) over blocks.

    block 0    o o  o o          block 1         o oo   o          block 2   o o o      o
               steps of a block resemble one another: blocks, not steps, are what chance drew

Many blocks are drawn anew, and steps within each that is drawn; few cannot be, since what was not drawn is not known
from them. docs/dev/decisions/run.md says why, and how often these intervals hold what they should.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import erf, sqrt
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Float64, Int64, Mask

# What is less than this share is not worth a line: of a step no advice and no outlier, of a figure no change.
LEAST_SHARE = 0.01


class Spread(msgspec.Struct, frozen=True):
    """A median with its quartiles and extremes, over `count` values; all null where there is none."""

    count: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    minimum: float | None = None
    maximum: float | None = None


def ratio(part: float, whole: float) -> float | None:
    """Return a part over the whole, None where there is no whole."""
    return float(part / whole) if whole else None


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

RESAMPLES = 2000
SEED = 1
# Five values all lie on one side of their median with a chance of 2 / 2^5 = 6 %: only from six on do they alone tell.
ENOUGH_BLOCKS = 6
# Student's t for 95 %, two-sided, by degrees of freedom; above the last one a formula is good to 0.002:
# Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
NORMAL = 1.959964
# A median is told among so many values; of more, evenly spaced ones stand for all.
MOST_VALUES = 2048


def median_interval(blocks: Sequence[Float64]) -> Limits | None:
    """Return what the median of all values lies between; None for a single step.

    A block has a row for each step, a column for each rank, NaN where a rank lacks it; values are positive. Ranks of a
    step depend on one another, and steps of a block. The steps of one block stand for blocks: they know of no drift.
    """
    known = [rows for block in blocks if len(rows := block[~np.isnan(block).all(axis=1)])]
    if len(known) == 1:
        known = [step[np.newaxis, :] for step in known[0]]
    if len(known) < 2:
        return None
    pooled = np.concatenate(known)
    median = float(np.nanmedian(pooled))
    low, high = _few(known, median) if len(known) < ENOUGH_BLOCKS else _many(known, pooled)
    return min(low, median), max(high, median)


def difference(a: Limits, b: Limits) -> Limits:
    """Return what a less b lies between; it holds 0 where, and only where, the two overlap."""
    return a[0] - b[1], a[1] - b[0]


def is_told_apart(limits: Limits | None, other: float = 0.0) -> bool:
    """Whether an interval leaves out a value that would mean no difference; one that is not known does."""
    return limits is None or not limits[0] <= other <= limits[1]


def _few(blocks: Sequence[Float64], median: float) -> Limits:
    """Return Student's interval of the blocks' medians, as factors: what slows a step slows it by a share."""
    logs = np.log([float(np.nanmedian(block)) for block in blocks])
    reach = _student(len(blocks) - 1) * float(np.std(logs, ddof=1)) / sqrt(len(blocks))
    return float(median * np.exp(-reach)), float(median * np.exp(reach))


def _many(blocks: Sequence[Float64], steps: Float64) -> Limits:
    """Return percentiles of medians drawn anew, set apart as far as so few blocks call for.

    The bootstrap takes blocks as drawn for all that there are, and is too narrow by sqrt((n - 1) / n), and by Student's
    t against the normal: Hesterberg, What Teachers Should Know About the Bootstrap, 2015, expanded percentiles.
    """
    count = len(blocks)
    tail = 100 * (1 - erf(_student(count - 1) * sqrt(count / (count - 1)) / sqrt(2))) / 2
    drawn = _medians(steps, _draws(np.array([len(block) for block in blocks])))
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return float(low), float(high)


def _student(freedom: int) -> float:
    """Return Student's t for 95 %."""
    z = NORMAL
    return STUDENT.get(freedom, z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2))


def _draws(sizes: Int64) -> Float64:
    """Return how often each step is drawn, a row per resample: blocks are drawn, then as many steps of each."""
    chance = np.random.default_rng(SEED)
    count, steps = len(sizes), int(sizes.sum())
    first = np.cumsum(sizes) - sizes
    block = chance.integers(count, size=(RESAMPLES, count))
    own = chance.random((RESAMPLES, count, int(sizes.max()))) * sizes[block][:, :, np.newaxis]
    step = first[block][:, :, np.newaxis] + own.astype(np.int64)
    is_drawn = np.arange(sizes.max()) < sizes[block][:, :, np.newaxis]
    cell = step + steps * np.arange(RESAMPLES)[:, np.newaxis, np.newaxis]
    times = np.bincount(cell[is_drawn], minlength=RESAMPLES * steps)
    return times.reshape(RESAMPLES, steps).astype(np.float64)


def _medians(steps: Float64, times: Float64) -> Float64:
    """Return the median of all values of the steps, each taken so many times, for each row of times."""
    values = np.unique(steps[~np.isnan(steps)])
    if len(values) > MOST_VALUES:
        values = values[np.linspace(0, len(values) - 1, MOST_VALUES).round().astype(np.int64)]
    # How many values of each step are at most so large; a rank that is not there (NaN) sorts behind all.
    upto = np.stack([np.searchsorted(row, values, "right") for row in np.sort(steps, axis=1)])
    together = times @ upto.astype(np.float64)
    half = together[:, -1:] / 2
    lower, upper = values[np.argmax(together >= half, axis=1)], values[np.argmax(together > half, axis=1)]
    medians: Float64 = (lower + upper) / 2
    return medians
