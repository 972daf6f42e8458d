"""Structure of JSON by its quotes and brackets alone, in numpy.

Exact where the text is JSON as far as it goes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")


@dataclass(frozen=True)
class Structure:
    """Where a text's events are: offsets of the first ones' bounds, of the last one's end, and of the list's end.

    `is_broken` where a brace closes what only a bracket may close.
    """

    first_end: int | None
    second_start: int | None
    last_event_end: int | None
    list_end: int | None
    is_broken: bool

    def separator(self, text: bytearray) -> bytes | None:
        """Return the text between one event and the next, where there are two with a comma between."""
        if self.first_end is None or self.second_start is None:
            return None
        between = bytes(text[self.first_end - 1 : self.second_start + 1])
        return between if _BETWEEN.fullmatch(between) else None


def scan(text: bytes | bytearray) -> Structure:
    """Find the events of a text that begins with the bracket of their list, by quotes and brackets alone.

    Exact where the text is JSON as far as it goes.
    """
    offsets, depth, change = brackets(text)
    listed = np.flatnonzero(depth == 0)
    stop = int(listed[0]) if len(listed) else len(offsets)
    ends = offsets[:stop][(depth[:stop] == 1) & (change[:stop] < 0)] + 1
    starts = offsets[:stop][(depth[:stop] == 2) & (change[:stop] > 0)]
    closed = int(offsets[stop]) if len(listed) else None
    is_broken = closed is not None and text[closed] != ord("]")
    return Structure(
        first_end=int(ends[0]) if len(ends) else None,
        second_start=int(starts[1]) if len(starts) > 1 else None,
        last_event_end=int(ends[-1]) if len(ends) else None,
        list_end=None if is_broken else closed,
        is_broken=is_broken,
    )


def brackets(text: bytes | bytearray) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return every bracket and brace outside of strings: its offset, the depth after it, and the change it makes."""
    # A copy: who looks at all threads' frames, as Dask's profiler does, keeps this array, and its text could not grow.
    data = np.frombuffer(bytes(text), dtype=np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    if b"\\" in text:
        quotes = quotes[~_is_escaped(data, quotes)]
    opens = (data == ord("{")) | (data == ord("["))
    offsets = np.flatnonzero(opens | (data == ord("}")) | (data == ord("]")))
    offsets = offsets[np.searchsorted(quotes, offsets) % 2 == 0]
    change = np.where(opens[offsets], 1, -1)
    return offsets, np.cumsum(change), change


def _is_escaped(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an odd number of backslashes stands before each offset."""
    index = np.arange(len(data))
    other = np.maximum.accumulate(np.where(data != ord("\\"), index, -1))
    before = np.where(offsets > 0, other[offsets - 1], offsets - 1)
    escaped: NDArray[np.bool_] = (offsets - 1 - before) % 2 == 1
    return escaped
