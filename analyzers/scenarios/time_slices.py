"""Time slices of a device that another process shares.

kernels     ##.......##.......##.......##      work is queued throughout
            |2.1 |2.5|                         its own slice, another process's: even lengths at even distances
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Float64, Int64, medians, values_at
from analyzers.causes import Lags
from analyzers.units import ms, rounded_percent

# A shared H100 paused 73 times in 4 steps, 47 % of the time: 82 % for 2.4 ms within a fifth, 78 % of distances within a
# quarter of 3.7 ms. Of 45 runs without another process those with pauses for so much had 24 % of one length at most.
SHORTEST_NS, LONGEST_NS = 1_000_000, 10_000_000
FEWEST, LEAST_OF_TIME = 8, 0.05
LENGTHS, LENGTH_APART = 0.7, 0.2
DISTANCES, DISTANCE_APART = 0.5, 0.25


@dataclass(frozen=True)
class TimeSlices:
    """Pauses of a rank's device while work was queued: how long they mostly are, ns, and what share of its time."""

    length_ns: float
    share: float

    def __str__(self) -> str:
        often = f"for {ms(self.length_ns)} at a time, {rounded_percent(self.share)} of the time"
        return f"stands still {often}, while work is queued: another process shares it"


def find_time_slices(lags: Lags) -> dict[int, TimeSlices]:
    """Return how a rank's device pauses where another process shares it, by the rank's place; others have no entry."""
    place, start_ns, length_ns = _pauses(lags)
    found = {at: _slices(start_ns[place == at], length_ns[place == at]) for at in np.unique(place).tolist()}
    return {at: slices for at, slices in found.items() if slices is not None}


def _slices(start_ns: Int64, length_ns: Float64) -> TimeSlices | None:
    """Return one device's pauses where they are of one length and evenly apart."""
    if len(start_ns) < FEWEST:
        return None
    distance_ns = np.diff(np.sort(start_ns)).astype(np.float64)
    even = _share_near(length_ns, LENGTH_APART) >= LENGTHS and _share_near(distance_ns, DISTANCE_APART) >= DISTANCES
    if not even or length_ns.sum() < LEAST_OF_TIME * np.ptp(start_ns):
        return None
    return TimeSlices(float(np.median(length_ns)), float(length_ns.sum() / np.ptp(start_ns)))


def _pauses(lags: Lags) -> tuple[Int64, Int64, Float64]:
    """Return whose queued work stood still, when, and how long: beyond its like, or by no dependency."""
    graph = lags.graph
    taken_ns = graph.points.time_ns[graph.edges.target] - graph.points.time_ns[graph.edges.source]
    # Most kernels are too short to hold a pause, and so are their like.
    all_likes = lags.common.kernels
    may_pause = np.isin(all_likes.in_any_step, all_likes.in_any_step[taken_ns[all_likes.edge] >= SHORTEST_NS])
    likes = all_likes.take(may_pause)
    typical_ns = medians(taken_ns[likes.edge], likes.in_any_step, int(likes.in_any_step.max(initial=-1)) + 1)
    longer_ns = taken_ns[likes.edge] - typical_ns[likes.in_any_step]
    begins_ns = graph.points.time_ns[graph.edges.source[likes.edge]]
    on_device = values_at(lags.facts.activity_of_point, graph.edges.target) >= 0
    held = np.flatnonzero(on_device & (graph.edges.unknown_ns > 0))
    held_ns = graph.edges.unknown_ns[held]
    place = np.concatenate([likes.rank, graph.edge_rank[held]])
    start_ns = np.concatenate([begins_ns, graph.points.time_ns[graph.edges.target[held]] - held_ns])
    length_ns = np.concatenate([longer_ns, held_ns.astype(np.float64)])
    is_slice = (length_ns >= SHORTEST_NS) & (length_ns <= LONGEST_NS) & (place >= 0)
    return place[is_slice], start_ns[is_slice], length_ns[is_slice]


def _share_near(values: Int64 | Float64, apart: float) -> float:
    """Return the share of values that are within a share of their median of it."""
    middle = float(np.median(values))
    return float(np.mean(np.abs(values - middle) <= apart * middle))
