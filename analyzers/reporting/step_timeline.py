"""Timeline of one window: compute and copies in cells, collectives by stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from analyzers.arrays import natural
from analyzers.collectives import Exchange
from analyzers.rank import CELLS, Purpose, cell_edges, device_label
from analyzers.ranks import RankIndex
from analyzers.trace import GLOO_BACKEND, Collective


class Mark(msgspec.Struct, frozen=True):
    """One collective on a lane, ns from the window's start: its bucket, or a letter for its kind.

    What it takes after its waiting is transfer if it is `resolved`: all members in the run, and matched.
    """

    start_ns: int
    dur_ns: int
    wait_ns: int | None
    bucket: int | None
    kind: str
    purpose: str
    resolved: bool = True


class Lane(msgspec.Struct, frozen=True):
    """One lane of a timeline: `busy` is the share of each cell that it covers, `marks` what lies on it."""

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
    """Yield a lane for each stream with communication in the window, by the first kernel on it."""
    measured = exchanged.run.measured[index]
    comm, rows = measured.communication, measured.windows
    start_ns, end_ns = int(rows.start_ns[window]), int(rows.start_ns[window] + rows.span_ns[window])
    device = rows.device[window]
    inside = ((comm.device == device) | (comm.peer == device)) & (comm.end_ns > start_ns) & (comm.start_ns < end_ns)
    kernels = np.flatnonzero(inside)
    streams = list(dict.fromkeys(comm.stream[kernels].tolist()))
    for stream in streams:
        stream_kernels = kernels[comm.stream[kernels] == stream]
        marks = [_mark(exchanged, index, kernel, (start_ns, end_ns), bucket_of) for kernel in stream_kernels.tolist()]
        label = GLOO_BACKEND if device < 0 else f"stream {stream}" if stream >= 0 else "communication"
        yield Lane(label, "comm", _busy(marks, end_ns - start_ns), marks)


def _mark(
    exchanged: Exchange, index: RankIndex, kernel: int, extent: tuple[int, int], bucket_of: Mapping[int, int]
) -> Mark:
    """Build the mark for one kernel, clipped to the window."""
    comm, row = exchanged.run.measured[index].communication, int(exchanged.first_row[index]) + kernel
    start_ns, end_ns = max(int(comm.start_ns[kernel]), extent[0]), min(int(comm.end_ns[kernel]), extent[1])
    entry = int(exchanged.entry[row])
    return Mark(
        start_ns=start_ns - extent[0],
        dur_ns=end_ns - start_ns,
        wait_ns=natural(exchanged.transfers.wait_ns[entry]) if entry >= 0 else None,
        bucket=bucket_of.get(row),
        kind=Collective(int(comm.kind[kernel])).label,
        purpose=Purpose(int(comm.purpose[kernel])).label,
        resolved=bool(exchanged.is_resolved[row]),
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
