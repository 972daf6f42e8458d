"""Light window: its device times joined onto the full window's rows.

A full profile (host operators, shapes, collectives' metadata) stretches the steps it watches; a light one (device
activity alone) hardly does, but knows neither steps nor operators. Recorded one after the other over the same number of
identical steps, they hold the same launches in the same order on every stream:

    full, stream 7     gemm    relu    allreduce        launched in steps 3, 3, 3
    light, stream 7    gemm  relu  allreduce            these times, those steps
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzers.trace import Events

# A device and a stream.
Place = tuple[int, int]
# Stands for the number of any stream among those that are taken together; no stream has it.
TOGETHER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Mismatch:
    """Why a light window could not be joined to the full one."""

    reason: str


def retime(full: Events, light: Events, window: str = "light") -> Events | Mismatch:
    """Give the full window's device rows the light window's times, or say why they do not correspond.

    Rows correspond by device and stream, in the order of their launches (correlation ids grow with each launch).
    Streams whose kernels differ between the windows are taken together: what a communication hook has done when its
    bucket arrives runs on the next stream of torch's pool, each time another one.
    """
    full_rows, light_rows = _launch_order(full), _launch_order(light)
    if len(full_rows) != len(light_rows):
        return Mismatch(f"{len(light_rows)} device events in the {window} window, {len(full_rows)} in the full one")
    different = _different(full, full_rows, light, light_rows)
    if len(different):
        ours, theirs = _described(full, full_rows[different[0]]), _described(light, light_rows[different[0]])
        mismatch = Mismatch(f"{len(different)} of {len(full_rows)} device events differ, first {theirs} for {ours}")
        full_names, light_names = _sequences(full, full_rows), _sequences(light, light_rows)
        moved = {
            stream
            for stream in full_names.keys() | light_names.keys()
            if full_names.get(stream) != light_names.get(stream)
        }
        full_rows, light_rows = _launch_order(full, moved), _launch_order(light, moved)
        if len(_different(full, full_rows, light, light_rows, moved)):
            return mismatch

    def put(name: str) -> NDArray[np.int64]:
        column: NDArray[np.int64] = getattr(full, name).copy()
        column[full_rows] = getattr(light, name)[light_rows]
        return column

    return replace(full, start_ns=put("start_ns"), dur_ns=put("dur_ns"), launched_ns=put("launched_ns"))


def _launch_order(events: Events, moved: Set[Place] = frozenset()) -> NDArray[np.int64]:
    """Indices of the device rows by device, stream, launch, and start (a graph's kernels share their launch)."""
    rows = np.flatnonzero(events.on_device)
    keys = (events.start_ns, events.correlation, _streams(events, moved), events.device)
    order: NDArray[np.int64] = rows[np.lexsort(tuple(key[rows] for key in keys))]
    return order


def _streams(events: Events, moved: Set[Place]) -> NDArray[np.int64]:
    """Each row's stream; those that are moved are one."""
    streams = events.stream.astype(np.int64)
    for device, stream in moved:
        streams[(events.device == device) & (events.stream == stream)] = TOGETHER
    return streams


def _different(
    full: Events, ours: NDArray[np.int64], light: Events, theirs: NDArray[np.int64], moved: Set[Place] = frozenset()
) -> NDArray[np.intp]:
    """Which of the rows that stand side by side are of another device, stream or name."""
    same_place = (full.device[ours] == light.device[theirs]) & (
        _streams(full, moved)[ours] == _streams(light, moved)[theirs]
    )
    return np.flatnonzero(~(same_place & (_names(full, ours) == _names(light, theirs))))


def _sequences(events: Events, rows: NDArray[np.int64]) -> dict[Place, list[str]]:
    """The names of what ran on each stream, in order."""
    sequences: dict[Place, list[str]] = {}
    for row in rows.tolist():
        stream = int(events.device[row]), int(events.stream[row])
        sequences.setdefault(stream, []).append(events.names[events.name[row]])
    return sequences


def _described(events: Events, row: int) -> str:
    name = events.names[events.name[row]]
    return f"{name[:60]!r} (device {events.device[row]}, stream {events.stream[row]})"


def _names(events: Events, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    return np.array(events.names, dtype=object)[events.name[rows]]
