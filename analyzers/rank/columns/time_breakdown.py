"""Breakdown of each window: compute, exposed communication, exposed copies, idle.

    compute      ####..##....
    comm         ..####......
    copy         ........#...
    exposed      ....##......   communication that no compute hides
    idle         .........###

`compute + exposed comm + exposed copy + idle == span`, exactly, in every window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, joint, rows_by
from analyzers.intervals import Intervals
from analyzers.rank.columns.activity import Activity, activities, device_labels
from analyzers.rank.columns.windows import Steps, Windows, profiler_steps, windows
from analyzers.rank.kernels import Extents
from analyzers.ranks import RankNumber
from analyzers.run import RankTrace, Run
from analyzers.texts import brief

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Breakdown(Columns):
    """One row a window, ordered by rank, device, step; arrays of one length, times in integer ns.

    `start_ns` is on the epoch. `outside_ns` is the device activity that lies in no window, once per (rank, device),
    on its first row. `unmarked` windows are whole traces, in which no step is marked; in `doubted` ones runs what says
    that it lasts longer than it can. A window that `ends_cycle` lacks its host's part: it ends with its last device
    event. `pause_in` is the step whose mark on the host holds the longest pause of a window, -1 where none does.
    `mark_ns` is how long the step is marked on the host, 0 where that is not known.
    """

    rank: Int64
    device: Int64
    step: Int64
    start_ns: Int64
    span_ns: Int64
    compute_ns: Int64
    comm_ns: Int64
    copy_ns: Int64
    overlapped_comm_ns: Int64
    exposed_comm_ns: Int64
    exposed_copy_ns: Int64
    idle_ns: Int64
    outside_ns: Int64
    unmarked: NDArray[np.bool_]
    ends_cycle: NDArray[np.bool_]
    pause_in: Int64
    mark_ns: Int64
    doubted: NDArray[np.bool_]

    __repr__ = brief

    @property
    def overlap(self) -> NDArray[np.float64]:
        """Return overlapped over all communication, NaN in windows without communication."""
        share = np.full(len(self), np.nan)
        np.divide(self.overlapped_comm_ns, self.comm_ns, out=share, where=self.comm_ns > 0)
        return share

    def by_device(self) -> Iterator[tuple[tuple[RankNumber, int], Int64]]:
        """Yield every rank and device in order, with its windows."""
        for rows in rows_by(joint(self.rank, self.device)).values():
            yield (RankNumber(int(self.rank[rows[0]])), int(self.device[rows[0]])), rows

    def to_frame(self) -> pd.DataFrame:
        """Return one row per window, columns named as in the JSON; `device` is an index, or `cpu`."""
        import pandas as pd  # a quarter of a second that reading alone need not wait

        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        columns["device"] = device_labels(self.device)
        return pd.DataFrame(columns).assign(overlap=self.overlap)


def breakdown(source: Run | RankTrace) -> Breakdown:
    """Return the breakdown of every window in a run, or in one rank."""
    if isinstance(source, RankTrace):
        steps = profiler_steps(source.timed)
        # The steps of a light window are the full one's, at times of their own where it marks them.
        timed = _at_light_times(source, steps) if source.is_light else steps
        rows = Breakdown.joined([_of_device(activity, steps, timed) for activity in activities(source)])
        return replace(rows, mark_ns=np.zeros_like(rows.mark_ns)) if source.is_light else rows
    return Breakdown.joined([breakdown(trace) for trace in source.ranks])


def _at_light_times(source: RankTrace, steps: Steps) -> Steps:
    """Return the steps when they are in the light window, none where it does not mark as many."""
    marks = source.light_marks
    if marks is None or len(marks[0]) != len(steps.number):
        return steps.none()
    return replace(steps, start_ns=marks[0], end_ns=marks[1])


def _of_device(activity: Activity, steps: Steps, timed: Steps) -> Breakdown:
    tiles = windows(activity, steps)
    compute, comm, copy = activity.compute, activity.comm, activity.copy
    busy = compute | comm | copy

    def inside(time: Intervals) -> Int64:
        return time.length_within(tiles.start_ns, tiles.end_ns)

    count = len(tiles.step)
    span_ns = tiles.end_ns - tiles.start_ns
    outside_ns = np.zeros(count, dtype=np.int64)
    outside_ns[0] = tiles.outside_ns
    return Breakdown(
        rank=np.full(count, activity.rank),
        device=np.full(count, activity.device),
        step=tiles.step,
        start_ns=tiles.start_ns,
        span_ns=span_ns,
        compute_ns=inside(compute),
        comm_ns=inside(comm),
        copy_ns=inside(copy),
        overlapped_comm_ns=inside(comm & compute),
        exposed_comm_ns=inside(comm - compute),
        exposed_copy_ns=inside(copy - (compute | comm)),
        idle_ns=span_ns - inside(busy),
        outside_ns=outside_ns,
        unmarked=np.full(count, tiles.unmarked),
        ends_cycle=tiles.ends_cycle,
        pause_in=_pause_in(busy, tiles, timed),
        mark_ns=tiles.mark_ns,
        doubted=(inside(activity.cut) > 0) | activity.is_endless(tiles.start_ns, tiles.end_ns),
    )


def _pause_in(busy: Intervals, tiles: Windows, steps: Steps) -> Int64:
    """Return the step on the host that holds the middle of each window's longest pause.

    host      |1      |2      |3           the pause is of step 2 on the host,
    device     aaa aaa    bbb bbb cc       and in the window of step 1
    """
    start_ns, end_ns = busy.end[:-1], busy.start[1:]
    window = np.searchsorted(tiles.start_ns, start_ns, side="right") - 1
    order = np.lexsort((end_ns - start_ns, window))
    last = order[np.flatnonzero(np.diff(window[order], append=len(tiles.step)))]
    last = last[window[last] >= 0]
    pause_in = np.full(len(tiles.step), UNKNOWN, dtype=np.int64)
    pause_in[window[last]] = steps.number_at((start_ns[last] + end_ns[last]) // 2)
    return pause_in


def extents(rows: Breakdown) -> Extents:
    """Return from when to when the windows of each device are, for one rank: they leave no gap."""
    device, index = np.unique(rows.device, return_inverse=True)
    start_ns, end_ns = np.full(len(device), np.iinfo(np.int64).max), np.zeros(len(device), dtype=np.int64)
    np.minimum.at(start_ns, index, rows.start_ns)
    np.maximum.at(end_ns, index, rows.start_ns + rows.span_ns)
    return Extents(device, start_ns, end_ns)


# As many as fit a line of text.
CELLS = 96


@dataclass(frozen=True, eq=False)
class Occupancy:
    """A line for each window, a column for each cell: ns of compute and of copies in it."""

    compute_ns: NDArray[np.int64]
    copy_ns: NDArray[np.int64]


def occupancy(devices: Sequence[Activity], rows: Breakdown) -> Occupancy:
    """Return the cells for every window of a rank."""
    shape = (len(rows), CELLS)
    compute_ns, copy_ns = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for activity in devices:
        tiles = np.flatnonzero(rows.device == activity.device)
        edges = cell_edges(rows.start_ns[tiles], rows.span_ns[tiles])
        for column, time in ((compute_ns, activity.compute), (copy_ns, activity.copy)):
            lengths = time.length_within(edges[:, :-1].ravel(), edges[:, 1:].ravel())
            column[tiles] = lengths.reshape(-1, CELLS)
    return Occupancy(compute_ns, copy_ns)


def cell_edges(start_ns: NDArray[np.int64], span_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges of each window's cells: one more than there are cells, the last at the window's end."""
    steps = np.arange(CELLS + 1)
    edges: NDArray[np.int64] = start_ns[:, None] + span_ns[:, None] * steps // CELLS
    return edges
