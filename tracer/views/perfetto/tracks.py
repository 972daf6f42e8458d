"""Tracks of slices and counters for each rank and device.

    rank 0 (cuda:0)   steps                   |step 3           |step 4
                      compute                 ####..##........###
                      kernels                 ab.cc.dd........ef      by name, with the operator that launched each
                      layers                  conv1.conv2.....conv1
                      communication           ..######..####.....
                      exposed communication   ....wwww....wt.....     waiting, transfer, unresolved
                      DDP                     ..bucket 0..bucket 1      inside: waiting, transfer
                      idle ...
                      idle by cause           operator, synchronize, launch latency ...
                      bus bandwidth (GB/s)    ......281.....196..

Collectives have a track for each process group (`mesh_tp`; DDP), and for each stream that it uses: by number where the
group is not known. Slices of one track never overlap: what runs beside others of its own has a further track. Arrows
lead from a collective's last member to come to the others, or to it from those that had left before.

Perfetto's UI takes a slice's color from the hash of its correlation id, else of its name: no color can be named, and by
its name idle time is the loudest. So what a step is made of has correlation ids whose hash is near the palette's color,
and idle time the palest that there is. Kernels and layers are colored by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.collectives import CollectiveRow
from analyzers.hta import DEPENDENCY, CriticalPath
from analyzers.intervals import Intervals
from analyzers.rank import Cause, IdleTrack, Phase
from analyzers.rank.kernels import KernelTrack
from analyzers.reporting import CollectiveLane, Lanes, Report
from analyzers.step_parts import COMM, COPY, EXPOSED
from analyzers.trace import short_name
from tracer.views import plain

Place = tuple[int, int | str]  # rank, device

PASSES = ("forward", "backward")
# Correlation ids by category, for their color in Perfetto's UI (v52, colorizer.ts).
_COLORS = {
    **dict.fromkeys(("compute",), "compute 381"),
    **dict.fromkeys(("communication", "exposed_transfer", "transfer"), "transfer 264"),
    **dict.fromkeys(("exposed_wait", "waiting"), "waiting 1467"),
    **dict.fromkeys(("exposed_unresolved", "unresolved"), "unresolved 436"),
    **dict.fromkeys(("copies", "exposed_copies", "copy"), "copies 4752"),
    **dict.fromkeys(("idle", *(f"idle_{cause.label}" for cause in Cause)), "idle 1094"),
}
# Of a kernel's whole name, which is said with each of its calls.
_LONGEST = 100
# How many numbers each collective has for its arrows.
_MOST_MEMBERS = 2**24


@dataclass(frozen=True)
class Slice:
    """A named stretch of a track; `inside` are slices within it, in order, and `facts` what a viewer shows beside it.

    An arrow has a number, and leads from the earlier to the later of the two slices that have it.
    """

    start_ns: int
    end_ns: int
    name: str
    category: str
    inside: tuple[Slice, ...] = ()
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    arrows: tuple[int, ...] = ()

    @property
    def color(self) -> str | None:
        """Return the correlation id that colors the slice; None where its name does."""
        return _COLORS.get(self.category)


@dataclass(frozen=True)
class Track:
    """Slices by start that do not overlap, made when they are asked for."""

    name: str
    slices: Iterable[Slice]


@dataclass(frozen=True, eq=False)
class Counter:
    """Values, each from its instant on."""

    name: str
    unit: str
    at_ns: Int64
    value: Float64


@dataclass(frozen=True)
class TrackGroup:
    """The tracks of one device of one rank; `later_ns` is to be added to all their instants."""

    name: str
    tracks: Sequence[Track | Counter]
    later_ns: int = 0


def groups(lanes: Sequence[Lanes], report: Report, later_ns: Mapping[int, int] | None = None) -> Iterator[TrackGroup]:
    """Yield the tracks of every device. `later_ns` says by how much each rank's are to be later; without it by 0."""
    arrows = _arrows(report)
    for lane in lanes:
        tracks = [track for track in _tracks(lane, report, arrows) if track is not None]
        yield TrackGroup(name_of(lane), tracks, later_ns[lane.rank] if later_ns is not None else 0)


def name_of(lane: Lanes) -> str:
    """Return what a device is called: rank 3 (cuda:3, host)."""
    device = lane.device if isinstance(lane.device, str) else f"cuda:{lane.device}"
    return f"rank {lane.rank} ({', '.join([device, lane.host] if lane.host else [device])})"


def _tracks(lane: Lanes, report: Report, arrows: Mapping[int, _Arrows]) -> Iterator[Track | Counter | None]:
    yield Track("steps", _steps(lane))
    yield _times(lane, "compute")
    yield from _kernels(lane)
    if len(lane.layers.start_ns):
        yield Track("layers", _layers(lane))
    yield _times(lane, "communication")
    yield _times(lane, COMM.words, {part.lane: part.label for part in EXPOSED})
    yield from _groups(lane, report, arrows)
    yield _times(lane, "copies")
    yield _times(lane, COPY.words, {COPY.lane: COPY.words})
    yield _times(lane, "idle")
    if len(lane.idle_causes.start_ns):
        yield Track("idle by cause", _idle(lane.idle_causes))
    yield from _counters(lane.collectives, report.collectives)


def _steps(lane: Lanes) -> Iterator[Slice]:
    steps = lane.steps
    for step, start, end in zip(steps.step.tolist(), steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True):
        yield Slice(start, end, f"step {step}", "step")


def _times(lane: Lanes, track: str, names: Mapping[str, str] | None = None) -> Track | None:
    """Merge lanes of nothing but time, which do not overlap, into one track; None where all of them are empty.

    `names` are what stretches of each lane are called; without them there is one lane, called like the track.
    """
    names = names or {track: track}
    times = {name: lane.times[name] for name in names}
    return Track(track, _merged(times, names)) if any(len(time) for time in times.values()) else None


def _merged(times: Mapping[str, Intervals], names: Mapping[str, str]) -> Iterator[Slice]:
    start = np.concatenate([time.start for time in times.values()])
    end = np.concatenate([time.end for time in times.values()])
    which = np.repeat(np.arange(len(times)), [len(time) for time in times.values()])
    order = np.argsort(start, kind="stable")
    keys = list(times)
    for begin, stop, key in zip(start[order].tolist(), end[order].tolist(), which[order].tolist(), strict=True):
        yield Slice(begin, stop, names[keys[key]], keys[key])


def _kernels(lane: Lanes) -> Iterator[Track]:
    """Yield kernels and copies by name; those that overlap others on further tracks."""
    kernels = lane.kernels
    for level, rows in enumerate(apart(kernels, np.arange(len(kernels.start_ns)))):
        yield Track("kernels" if level == 0 else f"kernels ({level + 1})", (_kernel(lane, row) for row in rows))


def _kernel(lane: Lanes, row: int) -> Slice:
    kernels, is_copy = lane.kernels, bool(lane.kernels.is_copy[row])
    name, operator = kernels.names[kernels.name[row]], int(kernels.operator[row])
    short = short_name(name)
    facts = {"kernel": name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."} if short != name else {}
    if operator >= 0:
        facts["operator"] = kernels.names[operator]
    if not is_copy:
        facts["layer"] = lane.layers.names[kernels.layer[row]]
    start, end = int(kernels.start_ns[row]), int(kernels.end_ns[row])
    return Slice(start, end, short, "copy" if is_copy else "kernel", facts=facts)


def _layers(lane: Lanes) -> Iterator[Slice]:
    layers = lane.layers
    columns = (layers.start_ns, layers.end_ns, layers.layer, layers.backward)
    for start, end, layer, backward in zip(*(column.tolist() for column in columns), strict=True):
        yield Slice(start, end, layers.names[layer], PASSES[backward])


# What a slice says whose instants inside of its gap are not known.
_BY_PROPORTION = "in proportion to the full window's gap, and in order of cause: this window has no host rows"


def _idle(lane: IdleTrack) -> Iterator[Slice]:
    """Yield idle time by cause, with where the host was, or launched from, as facts."""
    columns = (lane.start_ns, lane.end_ns, lane.cause, lane.phase, lane.name, lane.call)
    names = [*lane.names, None]
    divided = {"divided": _BY_PROPORTION} if lane.by_proportion else {}
    for start, end, cause, phase, name, call in zip(*(column.tolist() for column in columns), strict=True):
        label = Cause(cause).label
        # What is the device's own has no place on the host but that of its launch.
        where = "host_in" if cause <= Cause.PYTHON else "launched_by"
        facts = {where: names[name], "call": names[call], "phase": Phase(phase).label, **divided}
        known = {key: value for key, value in facts.items() if value is not None}
        yield Slice(start, end, label.replace("_", " "), f"idle_{label}", facts=known)


@dataclass(frozen=True)
class _Arrows:
    """The arrows of one collective: when its last member started, which that is, and the number of each other's."""

    last_ns: int
    sender: Place
    taken: Mapping[Place, int]


def _arrows(report: Report) -> dict[int, _Arrows]:
    """Return the arrows of every collective that has several members, by its index."""
    arrows = {}
    for row in report.collectives:
        last = max(row.members, key=lambda member: member.start_ns)
        devices = [(member.rank, member.device) for member in row.members]
        sender = last.rank, last.device
        taken = {device: (row.index + 1) * _MOST_MEMBERS + k for k, device in enumerate(devices) if device != sender}
        if taken:
            arrows[row.index] = _Arrows(last.start_ns, sender, taken)
    return arrows


def _groups(lane: Lanes, report: Report, arrows: Mapping[int, _Arrows]) -> Iterator[Track]:
    """Yield each group's collectives, stream by stream; what overlaps on one stream has a further track."""
    marks = lane.collectives
    for code, label in enumerate(map(str, marks.lanes)):
        for level, rows in enumerate(apart(marks, np.flatnonzero(marks.lane == code))):
            slices = (_collective(lane, row, report.collectives, arrows) for row in rows)
            yield Track(label if level == 0 else f"{label} ({level + 1})", slices)


def apart(lane: CollectiveLane | KernelTrack, rows: Int64) -> list[list[int]]:
    """Split rows, by start, into parts without overlaps."""
    parts: list[list[int]] = []
    ends: list[int] = []
    for row, start, end in zip(
        *(each.tolist() for each in (rows, lane.start_ns[rows], lane.end_ns[rows])), strict=True
    ):
        free = next((part for part, last in enumerate(ends) if last <= start), None)
        if free is None:
            parts.append([row])
            ends.append(end)
        else:
            parts[free].append(row)
            ends[free] = end
    return parts


def _collective(lane: Lanes, row: int, collectives: Sequence[CollectiveRow], arrows: Mapping[int, _Arrows]) -> Slice:
    """Build one collective's slice on one member: in it how long it waited, and its transfer."""
    marks = lane.collectives
    start, end, wait = int(marks.start_ns[row]), int(marks.end_ns[row]), int(marks.wait_ns[row])
    index, bucket, kind, purpose = int(marks.index[row]), int(marks.bucket[row]), marks.kind[row], marks.purpose[row]
    what = f"bucket {bucket} {kind}" if bucket >= 0 else kind if purpose == "other" else f"{kind} {purpose}"
    if index < 0:
        unmatched = {"kernel": marks.names[marks.name[row]], "exposed_ns": int(marks.exposed_ns[row])}
        return Slice(start, end, f"{what} (unmatched)", kind, facts=unmatched)
    whole = Slice(start, end, what, kind, facts=_facts(collectives[index], marks, row))
    arrival = _arrival(whole, wait, arrows.get(index), (lane.rank, lane.device))
    if wait < 0:
        return replace(whole, inside=arrival)
    rest = "unresolved" if collectives[index].partial else "transfer"
    parts = [Slice(start, start + wait, "waiting", "waiting"), Slice(start + wait, end, rest, rest)]
    parts = [part for part in parts if part.end_ns > part.start_ns]
    if arrival and arrival[0].start_ns > start and parts:
        parts[-1] = replace(parts[-1], inside=arrival)
        arrival = ()
    return replace(whole, inside=(*arrival, *parts))


def _arrival(whole: Slice, wait: int, arrows: _Arrows | None, device: Place) -> tuple[Slice, ...]:
    """Return the instant in a slice where its arrows are, if any: the last arrival, or just after that."""
    if arrows is None:
        return ()
    start, end, last = whole.start_ns, whole.end_ns, arrows.last_ns
    if device == arrows.sender:
        return (Slice(start, start, "last to arrive", "arrival", arrows=tuple(arrows.taken.values())),)
    # Later by a nanosecond at least, since arrows lead forwards; a ring's transfer may begin before the last arrival.
    at = end if end <= last else min(max(start + max(wait, 0), last + 1), end)
    name = "left before all came" if end <= last else "all are there"
    return (Slice(at, at, name, "arrival", arrows=(arrows.taken[device],)),)


def _facts(collective: CollectiveRow, marks: CollectiveLane, row: int) -> dict[str, str | int | float]:
    """Return what the report says about a collective; what is unknown is left out."""
    facts: dict[str, str | int | float | None] = {
        "kernel": marks.names[marks.name[row]],
        "collective": collective.index,
        "group": " ".join(map(str, collective.group)),
        "dtype": collective.dtype,
        "bytes": collective.bytes,
        "step": collective.step,
        "transfer_ns": collective.transfer_ns,
        "busbw_gbps": collective.busbw_gbps,
        "utilization_at_size": collective.utilization_at_size,
        "wait_ns": int(marks.wait_ns[row]) if marks.wait_ns[row] >= 0 else None,
        "exposed_ns": int(marks.exposed_ns[row]),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _counters(marks: CollectiveLane, collectives: Sequence[CollectiveRow]) -> Iterator[Counter | None]:
    """Yield bandwidth and utilization while transfers run, added where several do."""
    rows = [collectives[index] if index >= 0 else None for index in marks.index.tolist()]
    yield _counter("bus bandwidth", "GB/s", marks, [row.busbw_gbps if row else None for row in rows])
    name, shares = "utilization at size", [row.utilization_at_size if row else None for row in rows]
    if all(share is None for share in shares):
        name, shares = "utilization of link", [row.utilization_of_link if row else None for row in rows]
    percents = [None if share is None else 100 * share for share in shares]
    yield _counter(name, "%", marks, percents)


def _counter(name: str, unit: str, marks: CollectiveLane, values: Sequence[float | None]) -> Counter | None:
    is_known = np.array([value is not None for value in values], dtype=bool) & (marks.wait_ns >= 0)
    if not is_known.any():
        return None
    value = np.array([value or 0.0 for value in values])[is_known]
    begun, end = (marks.start_ns + marks.wait_ns)[is_known], marks.end_ns[is_known]
    at = np.unique(np.r_[begun, end])
    change, running = np.zeros(len(at)), np.zeros(len(at), dtype=np.int64)
    for instants, sign in ((begun, 1), (end, -1)):
        np.add.at(change, np.searchsorted(at, instants), sign * value)
        np.add.at(running, np.searchsorted(at, instants), sign)
    # Where nothing runs the sum is nothing, whatever rounding has left of it.
    return Counter(f"{name} ({unit})", unit, at, np.where(np.cumsum(running) > 0, np.cumsum(change), 0.0))


def path_group(path: CriticalPath, origin_ns: int) -> TrackGroup:
    """Draw the path on one track, then per host and stream on others; instants count from `origin_ns`."""
    begin = np.maximum.accumulate(path.start_ns)
    drawn = np.flatnonzero((path.end_ns > begin) & (np.array(path.bound) != DEPENDENCY))
    lanes = sorted({path.place[row] for row in drawn.tolist()})
    tracks = [Track("critical path", _slices(path, begin - origin_ns, path.end_ns - origin_ns, drawn.tolist()))]
    for lane in lanes:
        rows = [row for row in drawn.tolist() if path.place[row] == lane]
        tracks.append(Track(lane, _slices(path, begin - origin_ns, path.end_ns - origin_ns, rows)))
    what = "whole trace" if path.step is None else f"step {path.step}"
    return TrackGroup(f"rank {path.rank}: critical path (HTA), {what}", tracks)


def _slices(path: CriticalPath, begin: Int64, end: Int64, rows: Sequence[int]) -> Iterator[Slice]:
    for row in rows:
        facts: dict[str, str | int | float] = {"weight_ns": int(path.weight_ns[row]), "place": path.place[row]}
        yield Slice(int(begin[row]), int(end[row]), plain(path.name[row]), path.bound[row], facts=facts)
