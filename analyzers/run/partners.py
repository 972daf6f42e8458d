"""Partners: the same device events in the full and the light window.

    full, stream 7     gemm  relu  gemm  topk  copy          light, stream 7     gemm  relu  gemm  sort  sort  copy
    partners           gemm  relu  gemm        copy                              gemm  relu  gemm              copy

Events are partners by name, on one device and stream, in the order of their launches (correlation ids grow with each).
Streams whose kernels moved are taken together: what a communication hook has done when its bucket arrives runs on the
next stream of torch's pool, each time another one.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Int64
from analyzers.run.common_sequence import common_places
from analyzers.trace import Events

# A device and a stream.
Place = tuple[int, int]
# Of both windows so much must be the other's for the two to be joined.
FEWEST_JOINED = (9, 10)
# Stands for the number of any stream among those that are taken together; no stream has it.
TOGETHER = int(np.iinfo(np.int64).min)


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
