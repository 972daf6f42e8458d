"""Columns in parts, each looked at by itself: keys and medians.

    part    0 0 0 | 1 1 | 2 2 2 2

Rows of one part stand together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Float64, Int64, joint


def firsts(part: Int64, parts: int) -> Int64:
    """Return where each part's rows begin, and where the last's end."""
    first: Int64 = np.searchsorted(part, np.arange(parts + 1))
    return first


def medians(values: NDArray[np.int64] | Float64, part: Int64, parts: int) -> Float64:
    """Return numpy's median of each part's values, NaN for none."""
    ordered, first = values[np.lexsort((values, part))], firsts(part, parts)
    return middles(ordered, first[:-1], first[1:])


def middles(ordered: NDArray[np.int64] | Float64, first: Int64, past: Int64) -> Float64:
    """Return the median of each stretch [first, past) of sorted values, NaN for an empty one."""
    count = past - first
    median = np.full(len(first), np.nan)
    known = count > 0
    low, high = first[known] + (count[known] - 1) // 2, first[known] + count[known] // 2
    median[known] = (ordered[low].astype(np.float64) + ordered[high].astype(np.float64)) / 2
    return median


def keys_by_part(*columns: tuple[Int64, Int64]) -> list[Int64]:
    """Return for columns of parts and values one key each: in order within a part, and parts behind one another."""
    part = np.concatenate([of for of, _ in columns])
    return np.split(
        joint(part, np.concatenate([at for _, at in columns])), np.cumsum([len(of) for of, _ in columns])[:-1]
    )
