"""Scale hosts to their time without the profiler.

profiled    |op|call|op|call|....sleep....|op|call|     excess: what lasts beyond four times the median per row
dense       |op|call|op|call|.|           |op|call|     is stretched by the profiler, and scaled
unprofiled  |o|c|o|c|..sleep..|o|c|
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import Float64, Int64, Mask
from analyzers.causes.pace import Course
from analyzers.rank import EdgeKind, RankGraph
from analyzers.ranks import RankNumber

# What lasts longer than so many times the rank's median per recorded row does not stretch under the profiler.
LONG_PER_ROW = 4
# The profiler stretches hosts by no more than four, and shortens none.
LEAST_SHARE, MOST_SHARE = 0.25, 1.0
HOST_TIME = (EdgeKind.STRETCH, EdgeKind.CALL)
# Where less than a tenth of what is dense would be left, nothing is excess.
NOTHING_IS_EXCESS = 0.1


@dataclass(frozen=True, eq=False)
class Hosts:
    """What of each of the run's edges is dense and excess of a host's time, ns as profiled; 0 for all other edges.

    `copies_ns` is how long the edges take that are blocking copies, 0 for all others.
    """

    course: Course
    dense_ns: Float64
    excess_ns: Float64
    copies_ns: Float64

    @cached_property
    def is_host(self) -> Mask:
        """Whether edges are a host's own time."""
        is_host: Mask = np.isin(self.course.graph.edges.kind, HOST_TIME)
        return is_host

    @cached_property
    def of_steps(self) -> Float64:
        """Return the median step's dense time, excess and blocking copies of each rank: a row each."""
        course, edges = self.course, self.course.edges
        ranks, steps = len(course.graph.ranks), len(course.steps)
        key = course.graph.edge_rank[edges.edge] * steps + edges.step
        own = key >= 0
        columns = (self.dense_ns, self.excess_ns, self.copies_ns)
        sums = [np.bincount(key[own], ns[edges.edge[own]], ranks * steps).reshape(ranks, steps) for ns in columns]
        medians: Float64 = np.median(np.stack(sums), axis=2)
        return medians


@dataclass(frozen=True, eq=False)
class Shares:
    """By rank what is left of its host's dense time without the profiler, and whether all of it is scaled by that."""

    share: Float64
    scales_all: Mask

    def times(self, factor: float) -> Shares:
        """Return the same by a common factor."""
        return Shares(self.share * factor, self.scales_all)

    @property
    def left(self) -> tuple[Float64, Float64]:
        """Return what is left of dense and of excess time by the place of the rank, last where there is none."""
        return np.r_[self.share, 1.0], np.r_[np.where(self.scales_all, self.share, 1.0), 1.0]


def hosts_of(course: Course) -> Hosts:
    """Return what of the hosts' time is dense: excess is what lasts much beyond the median per recorded row."""
    graph = course.graph
    edges, rank = graph.edges, graph.edge_rank
    rows = np.maximum(graph.of_parts(lambda part: part.rows_per_edge), 1)
    lag_ns = np.where(np.isin(edges.kind, HOST_TIME), edges.lag_ns, 0).astype(np.float64)
    usual = np.array([*map(_usual_ns, graph.parts), 0.0])
    excess = np.maximum(lag_ns - LONG_PER_ROW * usual[rank] * rows, 0)
    copies_ns = graph.of_parts(_blocking_copies).astype(np.float64)
    return Hosts(course, lag_ns - excess, excess, copies_ns)


def _usual_ns(part: RankGraph) -> float:
    """Return a rank's median time per recorded row, over all that its host does between calls."""
    chosen = part.edges.kind == EdgeKind.STRETCH
    per_row = part.edges.lag_ns[chosen] / np.maximum(part.rows_per_edge[chosen], 1)
    return float(np.median(per_row)) if len(per_row) else 0.0


def shares_of(hosts: Hosts, host_ns: Mapping[RankNumber, float]) -> Shares:
    """Return what is left of each rank's host without the profiler, by what a step takes it with the device at rest.

    A rank without such a control takes the others' median; without any nothing is known, and all is left.
    """
    ranks = hosts.course.graph.ranks
    shares = [_share(hosts, place, host_ns.get(number)) for place, number in enumerate(ranks)]
    share = np.array([share for share, _ in shares])
    known = ~np.isnan(share)
    share[~known] = np.median(share[known]) if known.any() else 1.0
    return Shares(share, np.array([is_all for _, is_all in shares]))


def _share(hosts: Hosts, place: int, control_ns: float | None) -> tuple[float, bool]:
    """Return what is left of a rank's dense time, NaN where nothing tells; and whether all is scaled by it.

    The device is at rest in the control: of the excess it holds sleeps, input and collections, of a blocked copy that
    copy's own duration, of a wait for the device or for room in the queue nothing.
    """
    if control_ns is None:
        return float("nan"), False
    dense, excess, copied = hosts.of_steps[:, place].tolist()
    share = (control_ns - excess - copied) / dense if dense else 1.0
    if share < NOTHING_IS_EXCESS:
        return min(control_ns / _profiled_ns(hosts.course, place), MOST_SHARE), True
    return float(np.clip(share, LEAST_SHARE, MOST_SHARE)), False


def _profiled_ns(course: Course, place: int) -> float:
    """Return a typical step of a rank's host, from the launch of its first activity to that of the next one's."""
    steps = course.graph.parts[place].steps
    lengths = dict(zip(steps.number[:-1].tolist(), np.diff(steps.cut_ns).tolist(), strict=True))
    known = [lengths[step] for step in course.steps if step in lengths]
    return float(np.median(known)) if known else 1.0


def _blocking_copies(part: RankGraph) -> Int64:
    """Return for each of a rank's edges that is a blocking copy how long it takes, 0 for all others."""
    edges = part.edges
    activity = np.maximum((edges.source - 2 * len(part.calls)) // 2, 0)
    blocking = np.zeros(len(part.activities) + 1, dtype=bool)
    blocks = np.flatnonzero(edges.kind == EdgeKind.BLOCK)
    call = edges.target[blocks] // 2
    source = activity[blocks]
    blocking[source[part.activities.call[source] == call]] = True
    is_run = (edges.kind == EdgeKind.RUN) & blocking[activity]
    return np.where(is_run, np.where(edges.light_ns >= 0, edges.light_ns, edges.lag_ns), 0)
