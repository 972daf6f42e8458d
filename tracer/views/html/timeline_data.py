"""Lanes as the page's timeline script reads them.

    states      "cixti"             what the device does, stretch by stretch; the letters are STATES
    lengths     [800, 20, ...]      how long; the first begins where the step does
    within      [code, ...]         of idle stretches, place in `names` of where the host was, -1 for nowhere known
    layers      [gap, length, code, ...]     code: place in `names`, doubled, and 1 for the backward
    marks       [[start, length, wait, exposed, collective, bucket, kind, group], ...]      group: place in `groups`
    groups      ["mesh_tp", ...]    process groups in the order of their lanes, empty for none that is known

Every stretch is there, to the nanosecond. What would make the page too large is left out whole: steps, then ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays import Int64
from analyzers.reporting import CollectiveLane, Lanes, LayerLane, Report
from tracer.views import COMPUTE, COPY, IDLE_PARTS, TRANSFER, UNRESOLVED, WAITING, count

# Lanes of nothing but time, by letter; capital letters are causes of idle time, in their order.
_TIMES = {
    "c": "compute",
    "t": "exposed_transfer",
    "w": "exposed_wait",
    "u": "exposed_unresolved",
    "x": "exposed_copies",
}
_IDLE = "ISOPLKDU"
# The letter of each state, and the part of a step it is. Outside of the windows it is a dot.
STATES = dict(zip((*_TIMES, *_IDLE), (COMPUTE, TRANSFER, WAITING, UNRESOLVED, COPY, *IDLE_PARTS), strict=True))
OUTSIDE = "."
# A million stretches are about 5 MB of page; 64 ranks of ResNet-50 have 0.25 million a step.
MOST_STRETCHES = 1_000_000


@dataclass(frozen=True)
class Strips:
    """A document for each step that is drawn, the representative one first; in words, what is left out."""

    steps: dict[int, bytes]
    left_out: list[str]


def strips(report: Report, lanes: Sequence[Lanes], most: int = MOST_STRETCHES) -> Strips:
    """Encode the steps of all devices; if they have too many stretches, fewer steps, and fewer devices in the first."""
    first = report.summary.representative.step
    steps = sorted({row.step for row in report.windows}, key=lambda step: (step != first, step))
    devices = _devices(report, lanes, _extent(report, first), most)
    kept: dict[int, bytes] = {}
    room = most
    for step in steps:
        extent = _extent(report, step)
        room -= sum(_count(lane, extent) for lane in devices)
        if kept and room < 0:
            break
        kept[step] = msgspec.json.encode(_step(report, devices, step, extent))
    return Strips(kept, list(_left_out(report, lanes, devices, steps, kept)))


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


def _extent(report: Report, step: int) -> tuple[int, int]:
    """Return the first device's beginning of a step, and the last one's end."""
    rows = [row for row in report.windows if row.step == step]
    return min(row.start_ns for row in rows), max(row.start_ns + row.span_ns for row in rows)


def _devices(report: Report, lanes: Sequence[Lanes], extent: tuple[int, int], most: int) -> list[Lanes]:
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


def _count(lane: Lanes, extent: tuple[int, int]) -> int:
    times = [getattr(lane, name).start for name in _TIMES.values()]
    starts = [*times, lane.idle_causes.start_ns, lane.layers.start_ns]
    return sum(int(np.diff(np.searchsorted(start, extent))[0]) for start in starts)


def _step(report: Report, devices: Sequence[Lanes], step: int, extent: tuple[int, int]) -> dict[str, Any]:
    names: dict[str, int] = {}
    drawn = [_device(lane, extent, names, _is_alone(lane, devices)) for lane in devices]
    shown = {mark[4] for device in drawn for mark in device["marks"]} - {-1}
    return {
        "step": step,
        "start_ns": extent[0],
        "span_ns": extent[1] - extent[0],
        "devices": drawn,
        "names": list(names),
        "collectives": {str(index): msgspec.to_builtins(report.collectives[index]) for index in sorted(shown)},
    }


def _is_alone(lane: Lanes, devices: Sequence[Lanes]) -> bool:
    return sum(other.rank == lane.rank for other in devices) == 1


def _device(lane: Lanes, extent: tuple[int, int], names: dict[str, int], alone: bool) -> dict[str, Any]:
    states, lengths = _states(lane, extent)
    idle = lane.idle_causes
    seen = (idle.end_ns > extent[0]) & (idle.start_ns < extent[1])
    inside = (lane.steps.end_ns > extent[0]) & (lane.steps.start_ns < extent[1])
    windows = np.stack([lane.steps.step, lane.steps.start_ns - extent[0], lane.steps.end_ns - extent[0]])[:, inside]
    return {
        "rank": lane.rank,
        "device": lane.device,
        "label": f"rank {lane.rank}" if alone else f"rank {lane.rank}, device {lane.device}",
        "windows": windows.T.tolist(),
        "states": states,
        "lengths": lengths.tolist(),
        "within": np.r_[_places(idle.names, names), -1][idle.name[seen]].tolist(),
        "layers": _layers(lane.layers, extent, names).tolist(),
        "marks": _marks(lane.collectives, extent),
        "groups": _groups(lane.collectives),
    }


def _states(lane: Lanes, extent: tuple[int, int]) -> tuple[str, Int64]:
    """Encode what a device does, without gaps: lanes never overlap, and the rest is outside the windows."""
    times, idle = [getattr(lane, name) for name in _TIMES.values()], lane.idle_causes
    start = np.concatenate([*(time.start for time in times), idle.start_ns])
    end = np.concatenate([*(time.end for time in times), idle.end_ns])
    letter = np.r_[np.repeat(np.array(list(_TIMES)), [len(time) for time in times]), np.array(list(_IDLE))[idle.cause]]
    start, end = np.clip(start, *extent), np.clip(end, *extent)
    order = np.flatnonzero(end > start)
    order = order[np.argsort(start[order], kind="stable")]
    # A gap before each stretch and one after the last, most of no length.
    gap = np.r_[start[order], extent[1]] - np.r_[extent[0], end[order]]
    lengths, letters = np.empty(2 * len(order) + 1, dtype=np.int64), np.full(2 * len(order) + 1, OUTSIDE)
    lengths[::2], lengths[1::2], letters[1::2] = gap, end[order] - start[order], letter[order]
    there = lengths > 0
    return "".join(letters[there]), lengths[there]


def _layers(lane: LayerLane, extent: tuple[int, int], names: dict[str, int]) -> Int64:
    """Encode stretches of layers, each after the one before: gap, length, code."""
    first, last = np.searchsorted(lane.end_ns, extent[0], side="right"), np.searchsorted(lane.start_ns, extent[1])
    inside = slice(int(first), int(last))
    start, end = np.clip(lane.start_ns[inside], *extent), np.clip(lane.end_ns[inside], *extent)
    code = 2 * _places(lane.names, names)[lane.layer[inside]] + lane.backward[inside]
    return np.stack([start - np.r_[extent[0], end[:-1]][: len(start)], end - start, code], axis=1).ravel()


def _places(own: Sequence[str], names: dict[str, int]) -> Int64:
    """Return where names stand among the page's, which grow by new ones."""
    return np.array([names.setdefault(name, len(names)) for name in own], dtype=np.int64)


def _groups(lane: CollectiveLane) -> list[str]:
    """Return the groups of a device, each once, though it have several streams."""
    return list(dict.fromkeys(name.group for name in lane.lanes))


def _marks(lane: CollectiveLane, extent: tuple[int, int]) -> list[list[Any]]:
    """List communication kernel by kernel, whole; -1 for what is not known or is none."""
    inside = np.flatnonzero((lane.end_ns > extent[0]) & (lane.start_ns < extent[1]))
    columns = (
        *(lane.start_ns - extent[0], lane.end_ns - lane.start_ns, lane.wait_ns, lane.exposed_ns),
        *(lane.index, lane.bucket),
    )
    numbers = np.stack(columns, axis=1)[inside].tolist()
    groups = {group: place for place, group in enumerate(_groups(lane))}
    group = [groups[name.group] for name in lane.lanes]
    return [
        [*row, lane.kind[index], group[of_lane]]
        for row, index, of_lane in zip(numbers, inside.tolist(), lane.lane[inside].tolist(), strict=True)
    ]
