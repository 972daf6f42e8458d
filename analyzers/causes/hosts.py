"""Hosts without the profiler: what of their time it stretches, and by how much.

profiled    |op|call|op|call|....sleep....|op|call|      excess: what lasts beyond four times the median per recorded row
dense       |op|call|op|call|.|           |op|call|      is stretched by the profiler, and scaled
unprofiled  |o|c|o|c|..sleep..|o|c|
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Float64, Int64, Mask
from analyzers.causes.pace import Course
from analyzers.rank import EdgeKind
from analyzers.ranks import RankNumber
from analyzers.run import Controls

# What lasts longer than so many times the rank's median per recorded row does not stretch under the profiler.
LONG_PER_ROW = 4
# The profiler stretches hosts by no more than four, and shortens none.
LEAST_SHARE, MOST_SHARE = 0.25, 1.0
# Where less than a tenth of what is dense would be left, nothing is excess.
NOTHING_IS_EXCESS = 0.1


@dataclass(frozen=True, eq=False)
class Hosts:
    """Of each of the run's edges what is dense and excess of a host's time, ns; and by rank the share of it that is
    left without the profiler (1: not known), and whether all of its time, excess too, is scaled by that."""

    dense_ns: Float64
    excess_ns: Float64
    share: Float64
    scales_all: Mask

    def scaled(self, edge_rank: Int64, factor: Float64) -> Float64:
        """Return each edge's time without the profiler, a column for each common factor."""
        share = np.r_[self.share, 1.0][edge_rank]
        is_all = np.r_[self.scales_all, False][edge_rank]
        dense = np.where(is_all, self.dense_ns + self.excess_ns, self.dense_ns) * share
        excess = np.where(is_all, 0, self.excess_ns)
        return dense[:, None] * factor + excess[:, None]


def hosts_of(course: Course, controls: Controls) -> Hosts:
    """Return what of the hosts' time is dense, and how much of it they take without the profiler."""
    graph = course.graph
    edges, rank = graph.edges, graph.edge_rank
    rows = np.maximum(graph.of_parts(lambda part: part.rows_per_edge), 1)
    is_host = np.isin(edges.kind, (EdgeKind.STRETCH, EdgeKind.CALL))
    lag_ns = np.where(is_host, edges.lag_ns, 0).astype(np.float64)
    usual = np.array([_usual_per_row(lag_ns, rows, (rank == place) & (edges.kind == EdgeKind.STRETCH)) for place in range(len(graph.ranks))])
    excess = np.maximum(lag_ns - LONG_PER_ROW * np.r_[usual, 0][rank] * rows, 0)
    excess[~is_host] = 0
    told = controls.host_step_ns()
    shares = [_share(course, place, number, told.get(number), lag_ns - excess, excess) for place, number in enumerate(graph.ranks)]
    share = np.array([share for share, _ in shares])
    known = ~np.isnan(share)
    share[~known] = np.median(share[known]) if known.any() else 1.0
    return Hosts(lag_ns - excess, excess, share, np.array([is_all for _, is_all in shares]))


def _usual_per_row(lag_ns: Float64, rows: Int64, chosen: Mask) -> float:
    return float(np.median((lag_ns / rows)[chosen])) if chosen.any() else 0.0


def _share(
    course: Course, place: int, number: RankNumber, control_ns: float | None, dense_ns: Float64, excess_ns: Float64
) -> tuple[float, bool]:
    """Return what is left of a rank's dense time, NaN where nothing tells; and whether all is scaled by it."""
    if control_ns is None:
        return float("nan"), False
    graph = course.graph
    own = course.edges.take(graph.edge_rank[course.edges.edge] == place)
    dense, excess, copied = (
        _median_step(own.step, values[own.edge], len(course.steps))
        for values in (dense_ns, excess_ns, _blocking_copies(course))
    )
    share = (control_ns - excess - copied) / dense if dense else 1.0
    if share < NOTHING_IS_EXCESS:
        return float(np.clip(control_ns / _profiled_ns(course, place), 0.01, MOST_SHARE)), True
    return float(np.clip(share, LEAST_SHARE, MOST_SHARE)), False


def _median_step(step: Int64, ns: Float64, steps: int) -> float:
    return float(np.median(np.bincount(step, ns, steps)))


def _profiled_ns(course: Course, place: int) -> float:
    """Return a typical step of a rank's host, from the launch of its first activity to that of the next one's."""
    part = course.graph.parts[place]
    lengths = dict(zip(part.steps[:-1].tolist(), np.diff(part.cut_ns).tolist(), strict=True))
    known = [lengths[step] for step in course.steps if step in lengths]
    return float(np.median(known)) if known else 1.0


def _blocking_copies(course: Course) -> Float64:
    """Return for each edge that is a blocking copy how long it takes, 0 for all others."""
    graph = course.graph
    return graph.of_parts(_copies_of_part).astype(np.float64)


def _copies_of_part(part):
    edges = part.edges
    activity = np.maximum((edges.source - 2 * len(part.calls)) // 2, 0)
    blocking = np.zeros(len(part.activities) + 1, dtype=bool)
    blocks = np.flatnonzero((edges.kind == EdgeKind.BLOCK))
    call = edges.target[blocks] // 2
    source = activity[blocks]
    blocking[source[part.activities.call[source] == call]] = True
    is_run = (edges.kind == EdgeKind.RUN) & blocking[activity]
    return np.where(is_run, np.where(edges.light_ns >= 0, edges.light_ns, edges.lag_ns), 0)
