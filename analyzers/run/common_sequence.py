r"""Longest common subsequence of two columns, if few entries differ.

    a      g e l u m m l u        rows of a matrix, a bit each column: zero where the longest grows by one
    b      g e l u m l x u        g e l u m l u are common: 7
    band   \ \ \ \ \ \              D differences never lead farther from the diagonal than D

The rows are computed with whole numbers of as many bits as the band is wide (Hyyrö, Bit-parallel LCS-length computation
revisited, 2004), the band is widened until what differs fits into it (Ukkonen, Algorithms for approximate string
matching, 1985). Memory is a block of rows, and one row of each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import Int64, Mask

# Rows that are computed anew at a time on the way back.
_BLOCK = 256
_NARROWEST = 64
_WIDER = 4


def common_places(a: Int64, b: Int64, most: int) -> tuple[Int64, Int64] | None:
    """Return the places of a longest common subsequence in each of two columns of codes from 0 on.

    None where more than `most` entries of both together are in no such sequence.
    """
    if fewest_different(a, b) > most:
        return None
    head = _equal_before(a, b)
    tail = _equal_before(a[head:][::-1], b[head:][::-1])
    mine, theirs = a[head : len(a) - tail], b[head : len(b) - tail]
    differences = abs(len(mine) - len(theirs))
    while len(mine) and len(theirs):
        differences = min(max(differences * _WIDER, _NARROWEST), most)
        band = _Band(mine, theirs, differences)
        if band.differences <= differences:
            pairs = band.pairs() + head
            break
        if differences == most:
            return None
    else:
        pairs = np.zeros((2, 0), dtype=np.int64)
    places = np.arange(tail)
    whole = np.concatenate(
        [np.tile(np.arange(head), (2, 1)), pairs, np.stack([places + len(a) - tail, places + len(b) - tail])], axis=1
    )
    return whole[0], whole[1]


def fewest_different(a: Int64, b: Int64) -> int:
    """Return how many entries of both have no partner in whatever order: no fewer are in no common subsequence."""
    count = int(max(a.max(initial=-1), b.max(initial=-1))) + 1
    return int(np.abs(np.bincount(a, minlength=count) - np.bincount(b, minlength=count)).sum())


def _equal_before(a: Int64, b: Int64) -> int:
    """Return how many entries are equal before the first that differ."""
    length = min(len(a), len(b))
    different: Mask = a[:length] != b[:length]
    return int(different.argmax()) if different.any() else length


@dataclass(frozen=True, eq=False)
class _Band:
    """The matrix of `a` (rows) by `b` (columns) near its diagonal, wide enough for so many `allowed` differences.

    Bit k of row i stands for column i - below + k; columns outside of `b` equal nothing.
    """

    a: Int64
    b: Int64
    allowed: int

    @property
    def below(self) -> int:
        """Return how far the band reaches below the diagonal."""
        return (self.allowed + len(self.a) - len(self.b) + 1) // 2

    @property
    def width(self) -> int:
        """Return how many columns each row has: the band reaches as far as insertions can lead."""
        return self.below + (self.allowed + len(self.b) - len(self.a) + 1) // 2 + 1

    @cached_property
    def _columns_of(self) -> dict[int, int]:
        """The columns of each code that both hold, as bits."""
        codes = np.intersect1d(self.a, self.b).tolist()
        return {
            code: int.from_bytes(np.packbits(self.b == code, bitorder="little").tobytes(), "little") for code in codes
        }

    def _rows(self, first: int, before: int) -> Iterator[int]:
        """Yield a block of rows from `first` on; `before` is the row before."""
        full, top = (1 << self.width) - 1, 1 << (self.width - 1)
        left, span = first - self.below, (1 << (self.width + _BLOCK)) - 1
        near: dict[int, int] = {}
        row = before
        for place, code in enumerate(self.a[first : first + _BLOCK].tolist()):
            if code not in near:
                columns = self._columns_of.get(code, 0)
                near[code] = (columns >> left if left >= 0 else columns << -left) & span
            row = row >> 1 | top
            met = row & near[code] >> place
            row = (row + met | row - met) & full
            yield row

    @cached_property
    def _blocks(self) -> tuple[list[int], int]:
        """The row before each block, and how long the longest sequence is."""
        row, length = (1 << self.width) - 1, 0
        begins = []
        for first in range(0, len(self.a), _BLOCK):
            begins.append(row)
            for following in self._rows(first, row):
                length += 1 - (row & 1)  # the column that the band leaves
                row = following
        return begins, length + self.width - row.bit_count()

    @property
    def differences(self) -> int:
        """Return how many entries are in no longest sequence inside the band; exact where it is at most `allowed`."""
        return len(self.a) + len(self.b) - 2 * self._blocks[1]

    def pairs(self) -> Int64:
        """Return the places of a longest sequence in `a` and in `b`, found from its end backwards."""
        pairs: list[tuple[int, int]] = []
        column = len(self.b) - 1
        for block in range(len(self._blocks[0]) - 1, -1, -1):
            first, before = block * _BLOCK, self._blocks[0][block]
            rows = [before, *self._rows(first, before)]
            place = len(rows) - 1
            while place and column >= 0:
                bit = column - (first + place - 1 - self.below)
                if bit < 0:
                    place -= 1  # beside the band
                elif rows[place] >> bit & 1:
                    column -= 1
                else:
                    place -= 1
                    if bit + 1 == self.width or rows[place] >> (bit + 1) & 1:
                        pairs.append((first + place, column))
                        column -= 1
        return np.array(pairs[::-1], dtype=np.int64).reshape(-1, 2).T
