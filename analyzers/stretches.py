"""Stretches of equal values in a column: where each begins, and the place of each entry in its own.

values          a a a b b a        begins        x . . x . x        places_since(begins)    0 1 2 0 1 0
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


def begins(values: Int64) -> Mask:
    """Which entries differ from the one before; the first does."""
    found: Mask = np.r_[np.ones(min(len(values), 1), dtype=bool), np.diff(values) != 0]
    return found


def places_since(beginnings: Mask) -> Int64:
    """How many entries each stands behind the last beginning."""
    places = np.arange(len(beginnings))
    since: Int64 = places - np.maximum.accumulate(np.where(beginnings, places, 0))
    return since


def first_of(values: Int64, beginnings: Mask) -> Int64:
    """Of each entry the value at the last beginning."""
    first: Int64 = values[np.arange(len(values)) - places_since(beginnings)]
    return first
