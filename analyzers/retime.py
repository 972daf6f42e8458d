"""Device times of a light window put on the rows of a full one.

A full profile (host operators, shapes, collectives' metadata) stretches the steps it watches; a light one (device
activity alone) hardly does, but knows neither steps nor operators. Recorded one after the other over the same number of
identical steps, they hold the same launches in the same order on every stream:

    full, stream 7     gemm    relu    allreduce        launched in steps 3, 3, 3
    light, stream 7    gemm  relu  allreduce            these times, those steps
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzers.events import Events


@dataclass(frozen=True)
class Mismatch:
    """Why a light window could not be joined to the full one."""

    reason: str


def retime(full: Events, light: Events, window: str = "light") -> Events | Mismatch:
    """The full window's rows, device rows with the light window's times; or why they do not correspond.

    Rows correspond by device and stream, in the order of their launches (correlation ids grow with each launch).
    """
    full_rows, light_rows = _launch_order(full), _launch_order(light)
    if len(full_rows) != len(light_rows):
        return Mismatch(f"{len(light_rows)} device events in the {window} window, {len(full_rows)} in the full one")
    same_place = (full.device[full_rows] == light.device[light_rows]) & (
        full.stream[full_rows] == light.stream[light_rows]
    )
    same_name = _names(full, full_rows) == _names(light, light_rows)
    different = np.flatnonzero(~(same_place & same_name))
    if len(different):
        ours, theirs = _described(full, full_rows[different[0]]), _described(light, light_rows[different[0]])
        first = f"first {theirs} for {ours}"
        return Mismatch(f"{len(different)} of {len(full_rows)} device events differ, {first}")

    def put(name: str) -> NDArray[np.int64]:
        column: NDArray[np.int64] = getattr(full, name).copy()
        column[full_rows] = getattr(light, name)[light_rows]
        return column

    return replace(full, start_ns=put("start_ns"), dur_ns=put("dur_ns"), launched_ns=put("launched_ns"))


def _launch_order(events: Events) -> NDArray[np.int64]:
    """Indices of the device rows by device, stream, launch, and start (a graph's kernels share their launch)."""
    rows = np.flatnonzero(events.on_device)
    keys = (events.start_ns, events.correlation, events.stream, events.device)
    order: NDArray[np.int64] = rows[np.lexsort(tuple(key[rows] for key in keys))]
    return order


def _described(events: Events, row: int) -> str:
    name = events.names[events.name[row]]
    return f"{name[:60]!r} (device {events.device[row]}, stream {events.stream[row]})"


def _names(events: Events, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    return np.array(events.names, dtype=object)[events.name[rows]]
