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


def _spread(values: NDArray[np.float64]) -> Spread:
    known = values[~np.isnan(values)]
    if not len(known):
        return Spread(0)
    low, median, high = (float(value) for value in np.percentile(known, [25, 50, 75]))
    return Spread(len(known), median, low, high, float(known.min()), float(known.max()))


def row_columns(rows: Sequence[Any], names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return attributes of rows as columns, float64, NaN for None."""
    return {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in names}
