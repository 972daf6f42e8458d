"""Columns of whole numbers and of exact times from what rows say.

Threads, streams and processes are numbers, numbers written as texts, or names; timestamps are decimal microseconds,
which become integer nanoseconds.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64
from analyzers.units import NS_PER_US

_INT32 = np.iinfo(np.int32)
# As torch 1.8 wrote threads; int64 has no more digits.
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def int64_column(values: Sequence[Any]) -> Int64:
    """Return a column of whole numbers; what does not fit 64 bits is UNKNOWN, a name a number of its own."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.array([_whole_number(value) for value in values], dtype=np.int64)


def sparse_column(values: Sequence[Any]) -> Int64:
    """Return the same column of what few files say: counting what is UNKNOWN takes a fifth of the time."""
    if values.count(UNKNOWN) == len(values):
        return np.full(len(values), UNKNOWN, dtype=np.int64)
    return int64_column(values)


def _whole_number(value: int | str) -> int:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else UNKNOWN
    # Far from what numbers a thread, a stream or a process is ever called by.
    return -zlib.crc32(value.encode(errors="replace")) - 2**40


def narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers of 64 bits in 32, where all of them fit: most are small, and columns are what reading keeps."""
    if values.dtype != np.int64:
        return values
    if not len(values) or (values.min() >= _INT32.min and values.max() <= _INT32.max):
        return values.astype(np.int32)
    return values


def spread(values: Int64, rows: NDArray[np.bool_]) -> Int64:
    """Return a column of all rows from the values that some have."""
    column = np.full(len(rows), UNKNOWN, dtype=np.int64)
    column[rows] = values
    return column


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
