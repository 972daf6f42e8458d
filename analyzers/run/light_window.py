"""Light window: its device times joined onto the full window's rows.

A full profile (host operators, shapes, collectives' metadata) stretches the steps it watches; a light one (device
activity alone) hardly does, but knows neither steps nor operators. Recorded one after the other, they hold nearly the
same launches in the same order on every stream:

    full, stream 7     gemm    relu    topk    allreduce        launched in steps 3, 3, 3, 3
    light, stream 7    gemm  relu  sort  allreduce              these times, those steps; `topk` has no light time, and
                                                                of `sort` only its name is known
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.run.launch_estimates import estimated_launches, launches_in_full
from analyzers.run.partners import Names, Partners, first_difference, partners, shared_names
from analyzers.trace import Category, Events, Kind


@dataclass(frozen=True)
class Mismatch:
    """Why a light window could not be joined to the full one."""

    reason: str


@dataclass(frozen=True)
class Joining:
    """How many device events both windows hold, and each alone; whether the light one's launches are estimated."""

    both: int
    only_full: int
    only_light: int
    launches_are_estimated: bool


@dataclass(frozen=True, eq=False)
class Joined:
    """The same rows at the times of either window; a device event that one of them lacks is ABSENT there.

    The full window's rows come first, in their order. Behind them are the events that the light window alone holds, of
    which nothing is known but what they are called, when they ran, and about when they would have been launched.
    """

    full: Events
    light: Events
    joining: Joining


def retime(full: Events, light: Events, window: str = "light") -> Joined | Mismatch:
    """Give the full window's device rows the light window's times, or say why they do not correspond."""
    names = shared_names(full, light)
    joined = partners(full, light, names)
    if joined is None:
        return Mismatch(_reason(full, light, names, window))
    rows = np.flatnonzero(light.on_device)
    is_estimated = bool(len(rows)) and bool((light.launched_ns[rows] == UNKNOWN).all())
    launched_ns = estimated_launches(full, light, joined) if is_estimated else light.launched_ns
    is_estimated &= bool((launched_ns[rows] != UNKNOWN).any())
    light = replace(light, launched_ns=launched_ns)
    only_full = np.setdiff1d(np.flatnonzero(full.on_device), joined.full)
    only_light = np.setdiff1d(rows, joined.light)
    timed = _absent(_at_light_times(full, light, joined), only_full)
    joining = Joining(len(joined.full), len(only_full), len(only_light), is_estimated)
    if not len(only_light):
        return Joined(full, timed, joining)
    behind = len(full) + np.arange(len(only_light))
    named = replace(full, names=names.names)
    more = _by_name_alone(named, light.take(only_light), names.light[only_light])
    more_in_full = replace(
        more,
        start_ns=np.full(len(more), full.start_ns.min()),
        launched_ns=launches_in_full(full, light, joined, launched_ns, only_light),
    )
    longer = Events.joined([named, more_in_full])
    return Joined(_absent(longer, behind), Events.joined([replace(timed, names=names.names), more]), joining)


def _reason(full: Events, light: Events, names: Names, window: str) -> str:
    ours, theirs = int(full.on_device.sum()), int(light.on_device.sum())
    if not ours or not theirs:
        return f"{theirs} device events in the {window} window, {ours} in the full one"
    counts = f"of {theirs} device events in the {window} window and {ours} in the full one"
    different = first_difference(full, light, names)
    first = f"; first {_described(light, different[1])} for {_described(full, different[0])}" if different else ""
    return f"{counts} less than nine tenths are the same in the same order{first}"


def _described(events: Events, row: int) -> str:
    name = events.names[events.name[row]]
    return f"{name[:60]!r} (device {events.device[row]}, stream {events.stream[row]})"


def _at_light_times(full: Events, light: Events, joined: Partners) -> Events:
    def put(name: str) -> Int64:
        column: Int64 = getattr(full, name).copy()
        column[joined.full] = getattr(light, name)[joined.light]
        return column

    return replace(full, start_ns=put("start_ns"), dur_ns=put("dur_ns"), launched_ns=put("launched_ns"))


def _absent(events: Events, rows: Int64) -> Events:
    """Return the same rows, some of them as what did not run: no length, on no device, of no kind."""
    if not len(rows):
        return events
    values = {"category": Category.ABSENT, "kind": Kind.HOST, "dur_ns": 0}
    values |= dict.fromkeys(("device", "peer", "stream", "correlation", "external", "call", "sequence"), UNKNOWN)
    columns = {name: getattr(events, name).copy() for name in values}
    for name, value in values.items():
        columns[name][rows] = value
    return replace(events, **columns)


def _by_name_alone(full: Events, rows: Events, name: Int64) -> Events:
    """Return rows of the light window as rows of the full one's file, without what only their own file could tell."""
    nothing = np.full(len(rows), UNKNOWN, dtype=np.int64)
    told = ("thread", "correlation", "external", "sequence", "forward", "forward_thread", "grid", "position")
    columns: dict[str, Any] = dict.fromkeys(told, nothing)
    return replace(
        rows,
        **columns,
        name=name.astype(full.name.dtype),
        names=full.names,
        call=nothing.astype(full.call.dtype),
        calls=full.calls,
        inputs=nothing.astype(full.inputs.dtype),
        shapes=full.shapes,
        syncs=full.syncs,
    )
