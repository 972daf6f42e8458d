"""Timeline of one window: compute and copies in cells, collectives by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, labels, typed_rows
from analyzers.collectives import Exchange, Lines, lines_of
from analyzers.rank import CELLS, Purpose, cell_edges, device_label
from analyzers.ranks import RankIndex
from analyzers.trace import GLOO_BACKEND, Collective


class Mark(msgspec.Struct, frozen=True):
    """One collective on a lane.

    `resolved`: what is left of waiting is transfer.
    """

    start_ns: int
    dur_ns: int
    wait_ns: int | None
    bucket: int | None
    kind: str
    purpose: str
    resolved: bool = True


class Lane(msgspec.Struct, frozen=True):
    """A lane of a timeline.

    `busy`: each cell's covered share.
    """

    label: str
    kind: str
    busy: list[float]
    marks: list[Mark]


class Timeline(msgspec.Struct, frozen=True):
    """The representative window, in cells of equal length."""

    rank: int
    device: int | str
    step: int
    span_ns: int
    cells: int
    lanes: list[Lane]


def timeline(exchanged: Exchange, index: RankIndex, window: int, bucket_of: Mapping[int, int]) -> Timeline:
    """Build the lanes for one window, given as a rank's row in its breakdown.

    `bucket_of` gives the bucket of a row of the matching's table.
    """
    measured = exchanged.run.measured[index]
    rows = measured.windows
    device, span_ns = int(rows.device[window]), int(rows.span_ns[window])
    edges = cell_edges(rows.start_ns[window : window + 1], rows.span_ns[window : window + 1])[0]
    lengths = np.maximum(np.diff(edges), 1)
    full = measured.occupancy
    lanes = [Lane("compute", "compute", (full.compute_ns[window] / lengths).round(4).tolist(), [])]
    if full.copy_ns[window].any():
        lanes.append(Lane("copies", "copy", (full.copy_ns[window] / lengths).round(4).tolist(), []))
    lanes += _communication(exchanged, index, window, bucket_of)
    number = exchanged.run.ranks[index].rank
    return Timeline(number, device_label(device), int(rows.step[window]), span_ns, CELLS, lanes)


def _communication(exchanged: Exchange, index: RankIndex, window: int, bucket_of: Mapping[int, int]) -> Iterator[Lane]:
    """Yield the window's communication, a lane for each group's on each stream."""
    measured = exchanged.run.measured[index]
    comm, rows = measured.communication, measured.windows
    start_ns, end_ns = int(rows.start_ns[window]), int(rows.start_ns[window] + rows.span_ns[window])
    device = rows.device[window]
    inside = ((comm.device == device) | (comm.peer == device)) & (comm.end_ns > start_ns) & (comm.start_ns < end_ns)
    kernels = np.flatnonzero(inside)
    of_table = kernels + int(exchanged.first_row[index])
    lines = lines_of(exchanged.matching.table)
    lane, labels = lanes_of(lines, of_table, comm.stream[kernels], is_cpu=bool(device < 0))
    for code, label in enumerate(labels):
        marks = _marks(exchanged, index, kernels[lane == code], (start_ns, end_ns), bucket_of)
        yield Lane(str(label), "comm", _busy(marks, end_ns - start_ns), marks)


class LaneName(NamedTuple):
    """A lane's process group, empty where none is known; the stream where the group has several, or none is known."""

    group: str
    stream: str

    def __str__(self) -> str:
        return f"{self.group} ({self.stream})" if self.group and self.stream else self.group or self.stream


def lanes_of(lines: Lines, rows: Int64, stream: Int64, is_cpu: bool) -> tuple[Int64, tuple[LaneName, ...]]:
    """Return the lane of each of a device's rows of the table, and the lanes' names: a lane per group and stream.

    Groups come in the same order of names on all devices, what is in none that is known last, streams by first use.
    """
    if not len(rows):
        return np.zeros(0, dtype=np.int64), ()
    line = lines.of_row[rows]
    streams, stream_of = np.unique(stream, return_inverse=True)
    pairs, first, which = np.unique(line * len(streams) + stream_of, return_index=True, return_inverse=True)
    of_lane = [(int(line[row]), int(stream[row])) for row in first.tolist()]
    order = sorted(range(len(pairs)), key=lambda lane: (lines.places[of_lane[lane][0]], of_lane[lane][0], first[lane]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[which], _names(lines, [of_lane[lane] for lane in order], is_cpu)


def _names(lines: Lines, lanes: Sequence[tuple[int, int]], is_cpu: bool) -> tuple[LaneName, ...]:
    """Return the name of each lane, given as line and stream."""
    streams = Counter(line for line, _ in lanes)
    groups = Counter(lines.known[line].name for line in streams if line != UNKNOWN)
    names = []
    for line, stream in lanes:
        if line == UNKNOWN:
            words = GLOO_BACKEND if is_cpu else f"stream {stream}" if stream >= 0 else "collectives"
            names.append(LaneName("", words))
            continue
        of_line = lines.known[line]
        group = f"group {of_line.group}: " if groups[of_line.name] > 1 else ""
        names.append(LaneName(f"{group}{of_line.name}", f"stream {stream}" if streams[line] > 1 else ""))
    return tuple(names)


def _marks(
    exchanged: Exchange, index: RankIndex, kernels: Int64, extent: tuple[int, int], bucket_of: Mapping[int, int]
) -> list[Mark]:
    """Return the marks of kernels, clipped to the window."""
    comm, rows = exchanged.run.measured[index].communication, exchanged.first_row[index] + kernels
    begin_ns, end_ns = np.maximum(comm.start_ns[kernels], extent[0]), np.minimum(comm.end_ns[kernels], extent[1])
    return typed_rows(
        Mark,
        start_ns=begin_ns - extent[0],
        dur_ns=end_ns - begin_ns,
        wait_ns=exchanged.wait_ns(index)[kernels],
        bucket=[bucket_of.get(row) for row in rows.tolist()],
        kind=labels(Collective, comm.kind[kernels]),
        purpose=labels(Purpose, comm.purpose[kernels]),
        resolved=exchanged.is_resolved[rows],
    )


def _busy(marks: list[Mark], span_ns: int) -> list[float]:
    """Return how much of each cell communication covers; kernels of one stream overlap only where batched."""
    edges = cell_edges(np.zeros(1, dtype=np.int64), np.array([span_ns]))[0]
    covered = np.zeros(CELLS)
    for mark in marks:
        covered += np.clip(
            np.minimum(edges[1:], mark.start_ns + mark.dur_ns) - np.maximum(edges[:-1], mark.start_ns), 0, None
        )
    shares: list[float] = np.minimum(covered / np.maximum(np.diff(edges), 1), 1.0).round(4).tolist()
    return shares
