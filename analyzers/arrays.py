"""Array types and helpers for columns: equal values, lookups, nulls.

values          a a a b b a        begins        x . . x . x        places_since(begins)    0 1 2 0 1 0
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]
Float64 = NDArray[np.float64]

# Stands in integer columns for what is not known or not there.
UNKNOWN = -1


def begins(values: Int64) -> Mask:
    """Return which entries differ from the one before; the first does."""
    is_beginning: Mask = np.r_[np.ones(min(len(values), 1), dtype=bool), np.diff(values) != 0]
    return is_beginning


def places_since(beginnings: Mask) -> Int64:
    """Return how many entries each stands behind the last beginning."""
    places = np.arange(len(beginnings))
    since: Int64 = places - np.maximum.accumulate(np.where(beginnings, places, 0))
    return since


def first_of(values: Int64, beginnings: Mask) -> Int64:
    """Return for each entry the value at the last beginning."""
    first: Int64 = values[np.arange(len(values)) - places_since(beginnings)]
    return first


def find(ordered: Int64, wanted: Int64) -> Int64:
    """Return where each wanted value first stands in a sorted column, -1 where it does not."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    position = np.searchsorted(ordered, wanted).clip(max=len(ordered) - 1)
    matched: Int64 = np.where(ordered[position] == wanted, position, -1)
    return matched


def natural(value: int | np.int64) -> int | None:
    """Return a length, number or instant, null where it is -1."""
    return None if value < 0 else int(value)
