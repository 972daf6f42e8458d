"""Timestamps: decimal microseconds to exact integer nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np

from analyzers.arrays import Int64
from analyzers.units import NS_PER_US

# Below 2**43 us a float64 keeps apart all decimal nanoseconds; above it, the digits themselves are read.
_EXACT_FLOAT_US = 2.0**43
# Half of what an int64 of nanoseconds holds: an event's time and its epoch are each within it.
LAST_NS = 2**62
_LAST_US = LAST_NS // NS_PER_US
_MOST_DIGITS = 20
# What is no time, among microseconds, and among nanoseconds: none that fits an int64 once the epoch is added.
NO_TIME = float("nan")
NEVER = np.iinfo(np.int64).min


def nanoseconds(microseconds: Sequence[float | Decimal]) -> Int64 | None:
    """Convert decimal microseconds to integer nanoseconds, half to even; NEVER for what is no time.

    None where they are floats, and too large for a float to tell one nanosecond from the next.
    """
    if isinstance(microseconds[0], Decimal):
        return np.array([_exact_ns(value) for value in microseconds], dtype=np.int64)
    value = np.fromiter(microseconds, np.float64, len(microseconds))
    if (np.abs(value) >= _EXACT_FLOAT_US).any():
        return None
    # The fraction apart: round(us * 1000) rounds twice, and is wrong for a quarter of the values above 2**42.
    whole = np.floor(value)
    if np.isnan(whole).any():
        return np.array([_exact_ns(value) for value in microseconds], dtype=np.int64)
    return whole.astype(np.int64) * NS_PER_US + np.rint((value - whole) * NS_PER_US).astype(np.int64)


def _exact_ns(microseconds: float | Decimal) -> int:
    value = Decimal(microseconds)
    # By its exponent first: numbers beyond what decimals compute with are an error to compare.
    if not value.is_finite() or value.adjusted() > _MOST_DIGITS or abs(value) >= _LAST_US:
        return NEVER
    return int((value * NS_PER_US).to_integral_value(ROUND_HALF_EVEN))
