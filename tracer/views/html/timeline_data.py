"""Lanes as the page's timeline script reads them.

    states      "cixti"             what the device does, stretch by stretch; the letters are STATES
    lengths     [800, 20, ...]      how long; the first begins where the step does
    within      [code, ...]         of idle stretches, place among the names of where the host was, -1 for nowhere known
    layers      [gap, length, code, ...]     code: place among the names, doubled, and 1 for the backward
    kernels     [since the start before, length, code, operator, layer, ...]    code: of the name, doubled, 1 for a copy
    marks       [[start, length, wait, exposed, collective, bucket, kind, group, name], ...]    group: place in `groups`
    host        [gap, length, state, name, ...]     what launching threads do, if it is drawn; state: place among STATES
    groups      ["mesh_tp", ...]    process groups in the order of their lanes, empty for none that is known
    path        [[length, charge, rank, group], ...]    the critical path; charge: place among `charges`, -1 where it is
                                    not known; rank: -1 for a group's; group: place among the names, or -1

All steps share one list of names. Every stretch is there, to the nanosecond. What would make the page too large is left
out whole: steps, then ranks; and of further steps the kernels and what launched them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers import step_parts
from analyzers.arrays import Int64, values_at
from analyzers.causes import Charge, PathLane
from analyzers.json_documents import compact
from analyzers.rank import HostTrack, is_layer
from analyzers.reporting import CollectiveLane, Lanes, LayerLane, Report
from analyzers.trace import short_name
from tracer.views import COMPUTE, COPY, IDLE_PARTS, TRANSFER, UNRESOLVED, WAITING, count
from tracer.views.sections import CAUSE_MEANINGS

# Lanes of nothing but time, by letter; capital letters are causes of idle time, in their order.
_TIMES = {
    "c": step_parts.COMPUTE.lane,
    "t": step_parts.TRANSFER.lane,
    "w": step_parts.WAITING.lane,
    "u": step_parts.UNRESOLVED.lane,
    "x": step_parts.COPY.lane,
}
_IDLE = "ISOPLKDUFAG"
# The letter of each state, and the part of a step it is. Outside of the windows it is a dot.
STATES = dict(zip((*_TIMES, *_IDLE), (COMPUTE, TRANSFER, WAITING, UNRESOLVED, COPY, *IDLE_PARTS), strict=True))
OUTSIDE = "."
# The look of each charge of the critical path: that of the state which is called so, or is nearest to it.
_LOOKS = {
    Charge.COMPUTE: "c",
    Charge.PACKING: "c",
    Charge.COPY: "x",
    Charge.TRANSFER: "t",
    Charge.KERNEL_GAP: "K",
    Charge.LAUNCH: "L",
    Charge.OPERATOR: "O",
    Charge.PYTHON: "P",
    Charge.GC: "G",
    Charge.INPUT: "I",
    Charge.ALLOCATOR: "A",
    Charge.SYNCHRONIZE: "S",
    Charge.PROFILER: "F",
    Charge.UNRESOLVED: "u",
    Charge.UNKNOWN: "U",
}
CHARGES = [[charge.label, CAUSE_MEANINGS[charge.label], look] for charge, look in _LOOKS.items()]
# A million stretches are about 5 MB of page; 64 ranks of ResNet-50 have 0.25 million a step.
MOST_STRETCHES = 1_000_000
# Kernels by name take twice as much each.
MOST_KERNELS = 500_000
Extent = tuple[int, int]


@dataclass(frozen=True)
class Strips:
    """A document for each step that is drawn, the representative one first, and one of their names.

    `left_out` says in words what is not drawn.
    """

    steps: dict[int, bytes]
    names: bytes
    left_out: list[str]


def strips(
    report: Report,
    lanes: Sequence[Lanes],
    most: int = MOST_STRETCHES,
    most_kernels: int = MOST_KERNELS,
    paths: Mapping[int, PathLane] | None = None,
) -> Strips:
    """Encode the steps of all devices; if they have too many stretches, fewer steps, and fewer devices in the first.

    `paths` are critical paths of steps, by number.
    """
    first, extents = report.summary.representative.step, _extents(report)
    steps = sorted(extents, key=lambda step: (step != first, step))
    devices = _devices(report, lanes, extents[first], most)
    kept: dict[int, bytes] = {}
    names: dict[str, int] = {}
    named = 0
    for step in steps:
        most -= sum(_count(lane, extents[step]) for lane in devices)
        if kept and most < 0:
            break
        most_kernels -= sum(_count_kernels(lane, extents[step]) for lane in devices)
        with_kernels = most_kernels >= 0
        named += with_kernels
        drawn = _step(report, devices, (step, extents[step]), names, with_kernels)
        path = _path(paths[step], extents[step], names) if paths and step in paths else None
        kept[step] = compact(drawn | {"path": path})
    left_out = [*_left_out(report, lanes, devices, steps, kept)]
    if named < len(kept):
        left_out.append(f"Kernels are drawn in {named} of these {count(len(kept), 'step')}.")
    return Strips(kept, compact(_named(names, devices) | {"ranks": report.run.ranks, "charges": CHARGES}), left_out)


def _named(names: dict[str, int], devices: Sequence[Lanes]) -> dict[str, Any]:
    """Return the list of names, the places of lines that are no layers, and short names of kernels by place."""
    kernels = {name for lane in devices for name in (*lane.kernels.names, *lane.collectives.names)}
    short = {code: short_name(name) for name, code in names.items() if name in kernels}
    words = list(names)
    apart = [names[line] for lane in devices[:1] for line in lane.layers.names if line in names and not is_layer(line)]
    shorter = {str(code): name for code, name in short.items() if name != words[code]}
    return {"names": words, "apart": apart, "short": shorter}


def _left_out(
    report: Report, lanes: Sequence[Lanes], devices: Sequence[Lanes], steps: Sequence[int], kept: dict[int, bytes]
) -> Iterable[str]:
    whole = len(report.summary.by_device)
    if len(lanes) < whole:
        ranks = len({lane.rank for lane in lanes})
        yield f"Drawn are the devices of {ranks} of {count(len(report.run.ranks), 'rank')}; --ranks names others."
    if len(devices) < len(lanes):
        yield (
            f"Drawn are {len(devices)} of {count(len(lanes), 'device')}: the representative one, those that made "
            f"others wait most, and more evenly among the rest."
        )
    if len(kept) < len(steps):
        yield f"Drawn are {len(kept)} of {count(len(steps), 'step')}."


def _extents(report: Report) -> dict[int, Extent]:
    """Return for each step its beginning on the first device, and its end on the last one."""
    extents: dict[int, Extent] = {}
    for row in report.windows:
        start, end = extents.get(row.step, (row.start_ns, 0))
        extents[row.step] = min(start, row.start_ns), max(end, row.start_ns + row.span_ns)
    return extents


def _devices(report: Report, lanes: Sequence[Lanes], extent: Extent, most: int) -> list[Lanes]:
    """Return as many devices as there is room for in the first step, in the order of ranks."""
    room, kept = most, list[int]()
    for index in _by_importance(report, lanes):
        room -= _count(lanes[index], extent)
        if kept and room < 0:
            break
        kept.append(index)
    return [lanes[index] for index in sorted(kept)]


def _by_importance(report: Report, lanes: Sequence[Lanes]) -> list[int]:
    """Order devices: the representative one, the eight others waited longest for, the rest spread evenly."""
    chosen = report.summary.representative
    caused: dict[tuple[int, int | str], int] = defaultdict(int)
    for row in report.waiting:
        caused[row.rank, row.device] += row.caused_ns
    keys = [(lane.rank, lane.device) for lane in lanes]
    worst = sorted(range(len(keys)), key=lambda index: -caused[keys[index]])[:8]
    representative = [index for index, key in enumerate(keys) if key == (chosen.rank, chosen.device)]
    # Counting with reversed binary digits, every beginning of which is spread evenly.
    spread = sorted(range(len(keys)), key=lambda index: f"{index:020b}"[::-1])
    return list(dict.fromkeys([*representative, *worst, *spread]))


def _count(lane: Lanes, extent: Extent) -> int:
    times = [getattr(lane, name).start for name in _TIMES.values()]
    starts = [*times, lane.idle_causes.start_ns, lane.layers.start_ns]
    return sum(int(np.diff(np.searchsorted(start, extent))[0]) for start in starts)


def _count_kernels(lane: Lanes, extent: Extent) -> int:
    """Count kernels that start in an extent, and stretches of the host that launches them."""
    starts = [lane.kernels.start_ns, *([lane.host_track.start_ns] if lane.host_track is not None else [])]
    return sum(int(np.diff(np.searchsorted(start, extent))[0]) for start in starts)


def _step(
    report: Report, devices: Sequence[Lanes], at: tuple[int, Extent], names: dict[str, int], with_kernels: bool
) -> dict[str, Any]:
    step, extent = at
    drawn = [
        _device(lane, extent, names, sum(other.rank == lane.rank for other in devices) == 1)
        | {"kernels": _kernels(lane, extent, names).tolist() if with_kernels else None}
        | ({"host": _host(lane.host_track, extent, names).tolist()} if lane.host_track and with_kernels else {})
        for lane in devices
    ]
    shown = {mark[4] for device in drawn for mark in device["marks"]} - {-1}
    return {
        "step": step,
        "start_ns": extent[0],
        "span_ns": extent[1] - extent[0],
        "devices": drawn,
        "collectives": {str(index): msgspec.to_builtins(report.collectives[index]) for index in sorted(shown)},
    }


def _path(lane: PathLane, extent: Extent, names: dict[str, int]) -> list[list[int]]:
    """Encode the critical path, clipped to an extent, with the gaps in it and none at its end."""
    seen = _within(lane.start_ns, lane.end_ns, extent)
    start, end = np.clip(lane.start_ns[seen], *extent), np.clip(lane.end_ns[seen], *extent)
    gap = start - np.r_[extent[0], end[:-1]][: len(start)]
    group = values_at(_places(lane.groups, names), lane.group[seen])
    own = np.stack([end - start, lane.cause[seen], lane.rank[seen], group], axis=1)
    between = np.stack([gap, *np.full((3, len(gap)), -1)], axis=1)
    rows = np.stack([between, own], axis=1).reshape(-1, 4)
    encoded: list[list[int]] = rows[rows[:, 0] > 0].tolist()
    return encoded


def _device(lane: Lanes, extent: Extent, names: dict[str, int], alone: bool) -> dict[str, Any]:
    states, lengths = _states(lane, extent)
    idle = lane.idle_causes
    seen = _within(idle.start_ns, idle.end_ns, extent)
    inside = (lane.steps.end_ns > extent[0]) & (lane.steps.start_ns < extent[1])
    windows = np.stack([lane.steps.step, lane.steps.start_ns - extent[0], lane.steps.end_ns - extent[0]])[:, inside]
    return {
        "rank": lane.rank,
        "device": lane.device,
        "label": f"rank {lane.rank}" if alone else f"rank {lane.rank}, device {lane.device}",
        "windows": windows.T.tolist(),
        "states": states,
        "lengths": lengths.tolist(),
        "within": values_at(_places(idle.names, names), idle.name[seen]).tolist(),
        "layers": _layers(lane.layers, extent, names).tolist(),
        "marks": _marks(lane.collectives, extent, names),
        "groups": _groups(lane.collectives),
    }


def _within(start: Int64, end: Int64, extent: Extent) -> slice:
    """Return which of sorted stretches that do not overlap reach into an extent."""
    return slice(int(np.searchsorted(end, extent[0], side="right")), int(np.searchsorted(start, extent[1])))


def _states(lane: Lanes, extent: Extent) -> tuple[str, Int64]:
    """Encode what a device does, without gaps: lanes never overlap, and the rest is outside the windows."""
    times, idle = [getattr(lane, name) for name in _TIMES.values()], lane.idle_causes
    cut = [_within(time.start, time.end, extent) for time in times]
    seen = _within(idle.start_ns, idle.end_ns, extent)
    start = np.concatenate([*(time.start[part] for time, part in zip(times, cut, strict=True)), idle.start_ns[seen]])
    end = np.concatenate([*(time.end[part] for time, part in zip(times, cut, strict=True)), idle.end_ns[seen]])
    lengths_of = [max(part.stop - part.start, 0) for part in cut]
    letter = np.r_[np.repeat(np.array(list(_TIMES)), lengths_of), np.array(list(_IDLE))[idle.cause[seen]]]
    start, end = np.clip(start, *extent), np.clip(end, *extent)
    order = np.flatnonzero(end > start)
    order = order[np.argsort(start[order], kind="stable")]
    # A gap before each stretch and one after the last, most of no length.
    gap = np.r_[start[order], extent[1]] - np.r_[extent[0], end[order]]
    lengths, letters = np.empty(2 * len(order) + 1, dtype=np.int64), np.full(2 * len(order) + 1, OUTSIDE)
    lengths[::2], lengths[1::2], letters[1::2] = gap, end[order] - start[order], letter[order]
    there = lengths > 0
    return "".join(letters[there]), lengths[there]


def _layers(lane: LayerLane, extent: Extent, names: dict[str, int]) -> Int64:
    """Encode stretches of layers, each after the one before: gap, length, code."""
    inside = _within(lane.start_ns, lane.end_ns, extent)
    start, end = np.clip(lane.start_ns[inside], *extent), np.clip(lane.end_ns[inside], *extent)
    code = 2 * _places(lane.names, names)[lane.layer[inside]] + lane.backward[inside]
    return np.stack([start - np.r_[extent[0], end[:-1]][: len(start)], end - start, code], axis=1).ravel()


def _host(track: HostTrack, extent: Extent, names: dict[str, int]) -> Int64:
    """Encode stretches of the host, each after the one before: gap, length, state, name."""
    track = track.take(_within(track.start_ns, track.end_ns, extent))
    start, end = np.clip(track.start_ns, *extent), np.clip(track.end_ns, *extent)
    name = values_at(_places_of(track.names, track.name, names), track.name)
    gap = start - np.r_[extent[0], end[:-1]][: len(start)]
    return np.stack([gap, end - start, track.cause + len(_TIMES), name], axis=1).ravel()


def _kernels(lane: Lanes, extent: Extent, names: dict[str, int]) -> Int64:
    """Encode kernels by start, clipped: time since the start before, length, code, operator, layer."""
    kernels = lane.kernels
    first, last = np.searchsorted(kernels.start_ns, (extent[0] - kernels.longest_ns, extent[1]))
    rows = np.arange(first, last)[kernels.end_ns[first:last] > extent[0]]
    start, end = np.clip(kernels.start_ns[rows], *extent), np.clip(kernels.end_ns[rows], *extent)
    named = np.r_[_places_of(kernels.names, np.r_[kernels.name[rows], kernels.operator[rows]], names), -1]
    code = 2 * named[kernels.name[rows]] + kernels.is_copy[rows]
    layer = _places(lane.layers.names, names)[kernels.layer[rows]]
    columns = (np.diff(start, prepend=extent[0]), end - start, code, named[kernels.operator[rows]], layer)
    return np.stack(columns, axis=1).ravel()


def _places_of(own: Sequence[str], codes: NDArray[np.integer], names: dict[str, int]) -> Int64:
    """Return where those names stand among the page's that codes use; -1 for the others."""
    used = set(np.unique(codes).tolist())
    return np.array([_place(name, names) if code in used else -1 for code, name in enumerate(own)], dtype=np.int64)


def _place(name: str, names: dict[str, int]) -> int:
    return names.setdefault(name, len(names))


def _places(own: Sequence[str], names: dict[str, int]) -> Int64:
    """Return where names stand among the page's, which grow by new ones."""
    return np.array([_place(name, names) for name in own], dtype=np.int64)


def _groups(lane: CollectiveLane) -> list[str]:
    """Return the groups of a device, each once, though it have several streams."""
    return list(dict.fromkeys(name.group for name in lane.lanes))


def _marks(lane: CollectiveLane, extent: Extent, names: dict[str, int]) -> list[list[Any]]:
    """List communication kernel by kernel, whole; -1 for what is not known or is none."""
    inside = np.flatnonzero((lane.end_ns > extent[0]) & (lane.start_ns < extent[1]))
    columns = (
        *(lane.start_ns - extent[0], lane.end_ns - lane.start_ns, lane.wait_ns, lane.exposed_ns),
        *(lane.index, lane.bucket),
    )
    numbers = np.stack(columns, axis=1)[inside].tolist()
    groups = {group: place for place, group in enumerate(_groups(lane))}
    group = [groups[name.group] for name in lane.lanes]
    name = _places_of(lane.names, lane.name[inside], names)[lane.name[inside]].tolist()
    return [
        [*row, lane.kind[index], group[of_lane], kernel]
        for row, index, of_lane, kernel in zip(numbers, inside.tolist(), lane.lane[inside].tolist(), name, strict=True)
    ]
