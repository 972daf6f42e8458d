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


def find(known: Int64, wanted: Int64) -> Int64:
    """Where each wanted value first stands in a sorted column, -1 where it does not."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.searchsorted(known, wanted).clip(max=len(known) - 1)
    found: Int64 = np.where(known[place] == wanted, place, -1)
    return found


def natural(value: int | np.int64) -> int | None:
    """A length, number or instant, null where it is -1."""
    return None if value < 0 else int(value)
