"""The cells of windows, against counting nanoseconds."""

from itertools import pairwise

import numpy as np
import pytest

from analyzers.rank.columns.activity import activities
from analyzers.rank.columns.time_breakdown import CELLS, breakdown, cell_edges, occupancy
from tests.support.attributed import union
from tests.support.drawing import draw
from tests.support.samples import REPORTED, reported


@pytest.mark.parametrize("seed", range(8))
def test_cells_hold_what_ran_in_them(seed):
    random = np.random.default_rng(seed)
    compute, copy = ("".join(random.choice(list("..ab"), 100 + 37 * seed)) for _ in range(2))
    trace = draw(compute=compute, copy=copy, step="0" * 50 + "1" * (len(compute) - 50))
    rows = breakdown(trace)
    full = occupancy(activities(trace), rows)
    for window, (start, span) in enumerate(zip(rows.start_ns.tolist(), rows.span_ns.tolist(), strict=True)):
        edges = [start + span * cell // CELLS for cell in range(CELLS + 1)]
        for picture, cells in ((compute, full.compute_ns[window]), (copy, full.copy_ns[window])):
            busy = [sum(mark != "." for mark in picture[low:high]) for low, high in pairwise(edges)]
            assert cells.tolist() == busy
    assert full.compute_ns.sum(axis=1).tolist() == rows.compute_ns.tolist()


def test_cells_tile_the_window():
    edges = cell_edges(np.array([5, 7]), np.array([1000, 3]))
    assert edges[:, 0].tolist() == [5, 7]
    assert edges[:, -1].tolist() == [1005, 10]
    assert (np.diff(edges, axis=1) >= 0).all()


@pytest.mark.parametrize("path", REPORTED)
def test_a_timeline_is_the_representative_window(path):
    found = reported(path)
    shown, chosen = found.timeline, found.summary.representative
    assert (shown.rank, shown.device, shown.step) == (chosen.rank, chosen.device, chosen.step)
    (window,) = [
        row for row in found.windows if (row.rank, row.device, row.step) == (shown.rank, shown.device, shown.step)
    ]
    assert shown.span_ns == window.span_ns
    places = [(mark.start_ns, mark.dur_ns) for lane in shown.lanes for mark in lane.marks]
    assert all(start >= 0 and dur > 0 and start + dur <= window.span_ns for start, dur in places)
    covered = union([(start, start + dur) for start, dur in places])
    assert sum(end - start for start, end in covered) == window.comm_ns
    for lane in shown.lanes:
        assert len(lane.busy) == shown.cells
        assert all(0 <= share <= 1 for share in lane.busy)
    numbers = {row.bucket for row in found.buckets if (row.rank, row.step) == (shown.rank, shown.step)} - {None}
    marked = {mark.bucket for lane in shown.lanes for mark in lane.marks} - {None}
    assert marked >= numbers or found.buckets[0].device == "cpu" or not numbers
