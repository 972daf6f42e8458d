r"""Partners: the same device events in the full and the light window.

    full, stream 7     gemm  relu  gemm  topk  copy          light, stream 7     gemm  relu  gemm  sort  sort  copy
    partners           gemm  relu  gemm        copy                              gemm  relu  gemm              copy

Events are partners by name, on one device and stream, in the order of their launches (correlation ids grow with each).
Streams whose kernels moved are taken together: what a communication hook has done when its bucket arrives runs on the
next stream of torch's pool, each time another one. What is left is aligned by a longest common subsequence, if few
entries differ:

    a      g e l u m m l u        rows of a matrix, a bit each column: zero where the longest grows by one
    b      g e l u m l x u        g e l u m l u are common: 7
    band   \ \ \ \ \ \              D differences never lead farther from the diagonal than D

The rows are computed with whole numbers of as many bits as the band is wide (Hyyrö, Bit-parallel LCS-length computation
revisited, 2004), the band is widened until what differs fits into it (Ukkonen, Algorithms for approximate string
matching, 1985). Memory is a block of rows, and one row of each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.trace import Events

# A device and a stream.
Place = tuple[int, int]
# Of both windows so much must be the other's for the two to be joined.
FEWEST_JOINED = (9, 10)
# Stands for the number of any stream among those that are taken together; no stream has it.
TOGETHER = int(np.iinfo(np.int64).min)
# Rows that are computed anew at a time on the way back.
_BLOCK = 256
_NARROWEST = 64
_WIDER = 4


@dataclass(frozen=True, eq=False)
class Partners:
    """Rows of the full and of the light window that are the same events, side by side."""

    full: Int64
    light: Int64


@dataclass(frozen=True, eq=False)
class SharedNames:
    """One list of names for both windows, the full one's first, and the code of each light row in it."""

    names: tuple[str, ...]
    light: Int64


def shared_names(full: Events, light: Events) -> SharedNames:
    """Return the names of both windows as one list."""
    codes = {name: code for code, name in enumerate(full.names)}
    of_light = np.array([codes.setdefault(name, len(codes)) for name in light.names], dtype=np.int64)
    return SharedNames((*full.names, *list(codes)[len(full.names) :]), of_light[light.name])


def find_partners(full: Events, light: Events, names: SharedNames) -> Partners | None:
    """Return the events that are the same, None where they are less than nine tenths of either window's."""
    codes = full.name.astype(np.int64), names.light
    windows = [_Window(events, code, frozenset()) for events, code in zip((full, light), codes, strict=True)]
    if not _are_same(*windows):
        moved = _find_unequal(*windows)
        together = [_Window(events, code, moved) for events, code in zip((full, light), codes, strict=True)]
        if not _are_same(*together):
            return _align_streams(*windows)
        windows = together
    return Partners(windows[0].rows, windows[1].rows)


def first_difference(full: Events, light: Events, names: SharedNames) -> tuple[int, int] | None:
    """Return the first rows, one of each window, that stand at the same place and are not the same; None for none."""
    ours, theirs = _Window(full, full.name.astype(np.int64)), _Window(light, names.light)
    for row, other in zip(ours.rows.tolist(), theirs.rows.tolist(), strict=False):
        if (full.device[row], full.stream[row]) != (light.device[other], light.stream[other]):
            return row, other
        if ours.code[row] != theirs.code[other]:
            return row, other
    return None


class _Window:
    """Device rows of one window by device, stream, launch and start (a graph's kernels share their launch)."""

    def __init__(self, events: Events, code: Int64, moved: Set[Place] = frozenset()) -> None:
        self.code = code
        self.device = events.device.astype(np.int64)
        self.stream = events.stream.astype(np.int64)
        for device, stream in moved:
            self.stream[(self.device == device) & (events.stream == stream)] = TOGETHER
        rows = np.flatnonzero(events.on_device)
        keys = (events.start_ns, events.correlation, self.stream, self.device)
        self.rows: Int64 = rows[np.lexsort(tuple(key[rows] for key in keys))]
        self.launch_order: Int64 = rows[np.lexsort((events.start_ns[rows], events.correlation[rows]))]

    def by_place(self) -> dict[Place, Int64]:
        """Return the rows of each stream, in order."""
        device, stream = self.device[self.rows], self.stream[self.rows]
        begins = np.flatnonzero((np.diff(device) != 0) | (np.diff(stream) != 0)) + 1
        parts = np.split(self.rows, begins) if len(self.rows) else []
        return {(int(self.device[part[0]]), int(self.stream[part[0]])): part for part in parts}

    def together(self, places: Set[Place]) -> Int64:
        """Return the rows of several streams, in the order of their launches."""
        chosen = np.zeros(len(self.device), dtype=bool)
        for device, stream in places:
            chosen |= (self.device == device) & (self.stream == stream)
        return self.launch_order[chosen[self.launch_order]]


def _are_same(full: _Window, light: _Window) -> bool:
    """Whether the windows hold the same names on every stream, in one order."""
    if len(full.rows) != len(light.rows):
        return False
    pairs = ((full.device, light.device), (full.stream, light.stream), (full.code, light.code))
    return all(np.array_equal(ours[full.rows], theirs[light.rows]) for ours, theirs in pairs)


def _find_unequal(full: _Window, light: _Window) -> set[Place]:
    """Return the streams on which the windows hold other names, or in another order."""
    none = np.zeros(0, dtype=np.int64)
    ours, theirs = full.by_place(), light.by_place()
    return {
        place
        for place in ours.keys() | theirs.keys()
        if not np.array_equal(full.code[ours.get(place, none)], light.code[theirs.get(place, none)])
    }


def _align_streams(full: _Window, light: _Window) -> Partners | None:
    """Return the longest common sequence of each stream, of those that moved together."""
    most = _most_different(len(full.rows), len(light.rows))
    ours, theirs = full.by_place(), light.by_place()
    none = np.zeros(0, dtype=np.int64)
    unequal = _find_unequal(full, light)
    pairs = [(ours[place], theirs[place]) for place in ours.keys() - unequal]
    moved = _find_exchanging(full, light, unequal)
    for place in sorted(unequal - moved):
        of_full, of_light = ours.get(place, none), theirs.get(place, none)
        allowed = min(most, _most_different(len(of_full), len(of_light)))
        common = common_places(full.code[of_full], light.code[of_light], allowed)
        if common is None:
            moved.add(place)
        else:
            pairs.append((of_full[common[0]], of_light[common[1]]))
    for device in sorted({device for device, _ in moved}):
        streams = {place for place in moved if place[0] == device}
        of_full, of_light = full.together(streams), light.together(streams)
        common = common_places(full.code[of_full], light.code[of_light], most)
        if common is None:
            return None
        pairs.append((of_full[common[0]], of_light[common[1]]))
    joined = Partners(*(np.concatenate([none, *(pair[side] for pair in pairs)]) for side in (0, 1)))
    different = len(full.rows) + len(light.rows) - 2 * len(joined.full)
    return joined if different <= most else None


def _most_different(full: int, light: int) -> int:
    """Return how many rows of both may be without a partner where nine tenths of either have one."""
    part, whole = FEWEST_JOINED
    fewest = -(-part * max(full, light) // whole)
    return full + light - 2 * fewest


def _find_exchanging(full: _Window, light: _Window, unequal: set[Place]) -> set[Place]:
    """Return streams that lack kernels of a name that other streams of their device have too many of, exactly."""
    ours, theirs = full.by_place(), light.by_place()
    count = int(max(full.code.max(initial=0), light.code.max(initial=0))) + 1
    none = np.zeros(0, dtype=np.int64)
    more = {
        place: np.bincount(light.code[theirs.get(place, none)], minlength=count)
        - np.bincount(full.code[ours.get(place, none)], minlength=count)
        for place in unequal
    }
    moved = set()
    for device in {device for device, _ in unequal}:
        balanced = sum(change for place, change in more.items() if place[0] == device) == 0
        moved |= {place for place, change in more.items() if place[0] == device and (balanced & (change != 0)).any()}
    return moved


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
