"""Medians with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

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
