"""Columns of whole numbers from what rows say.

Threads, streams and processes are numbers, numbers written as texts, or names.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64

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
