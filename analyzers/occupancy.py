"""How full each window is, in cells of equal length: what a timeline shows of compute and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.activity import Activity
from analyzers.breakdown import Breakdown

# As many as fit a line of text.
CELLS = 96


@dataclass(frozen=True, eq=False)
class Occupancy:
    """A line for each window, a column for each cell: ns of compute and of copies in it."""

    compute_ns: NDArray[np.int64]
    copy_ns: NDArray[np.int64]


def occupancy(devices: Sequence[Activity], rows: Breakdown) -> Occupancy:
    """The cells of every window of a rank."""
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
    """Edges of each window's cells: one more than there are cells, the last at the window's end."""
    steps = np.arange(CELLS + 1)
    edges: NDArray[np.int64] = start_ns[:, None] + span_ns[:, None] * steps // CELLS
    return edges
