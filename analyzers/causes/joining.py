r"""`RunGraph`: ranks' graphs, joined where their collectives meet.

rank 0   s####t      s: starts, t: stops           s......t
rank 1      s#t      each member arrives, and all       \ /|
                     stop after the last one, M          M |
                                                        / \|
                                                       s...t
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, find, keys_by_part, values_at
from analyzers.collectives import Exchange
from analyzers.rank import EdgeKind, Edges, PointKind, Points, RankGraph
from analyzers.ranks import RankNumber
from analyzers.texts import brief
from analyzers.trace import Kind

# Ends of one collective lie so little before its last member's start at most, else they did not wait for it.
BEFORE_MEETING_NS = 30_000


@dataclass(frozen=True, eq=False)
class Meetings(Columns):
    """Collectives whose members are all known: the instance's number, and the point at which the last has come."""

    instance: Int64
    point: Int64


@dataclass(frozen=True, eq=False)
class RunGraph:
    """Points and edges of all ranks on one clock; the points of rank i begin at `first_point[i]`.

    `rank` is each point's place among the ranks, UNKNOWN for meetings, which come last, as do their edges. `step`, in
    the points, is the number of the step. Of each edge, `origin` is its place among those of all `parts`, UNKNOWN where
    it joins ranks, `instance` its collective, UNKNOWN for all but transfers; `unresolved` ones are communication that
    no other rank is known to have taken part in. Of each instance, `like_instance` is a number that those of one kind,
    bytes and kind of group share.
    """

    ranks: tuple[RankNumber, ...]
    parts: tuple[RankGraph, ...]
    points: Points
    rank: Int64
    edges: Edges
    first_point: Int64
    origin: Int64
    meetings: Meetings
    instance: Int64
    like_instance: Int64
    unresolved: Mask

    __repr__ = brief

    @cached_property
    def edge_rank(self) -> Int64:
        """Return the rank's place of each edge: its target's, of arrivals the source's."""
        of_target = self.rank[self.edges.target]
        return np.where(of_target == UNKNOWN, self.rank[self.edges.source], of_target)

    def of_parts(self, column: Callable[[RankGraph], Int64]) -> Int64:
        """Return a column over the edges of all parts as one over the run's edges, 0 for those that join ranks."""
        return values_at(np.concatenate([column(part) for part in self.parts]), self.origin, 0)

    def of_edges(self, chosen: Int64) -> RunGraph:
        """Return the graph with some of its edges alone, numbered anew."""
        return replace(
            self,
            edges=self.edges.take(chosen),
            origin=self.origin[chosen],
            instance=self.instance[chosen],
            unresolved=self.unresolved[chosen],
        )

    @cached_property
    def activity(self) -> Int64:
        """Return for each point the place of its activity among its rank's, UNKNOWN for calls and meetings."""
        parts = [
            np.r_[np.full(2 * len(part.calls), UNKNOWN), np.repeat(np.arange(len(part.activities)), 2)]
            for part in self.parts
        ]
        return np.concatenate([*parts, np.full(len(self.meetings), UNKNOWN)])


def join(parts: Sequence[tuple[RankNumber, RankGraph]], exchanged: Exchange) -> RunGraph:
    """Join ranks' graphs; `exchanged` is the communication of full windows."""
    ranks = [rank for rank, _ in parts]
    graphs = tuple(graph for _, graph in parts)
    shift = {rank: _shift_ns(exchanged, rank, ranks[0]) for rank in ranks}
    renumbered = exchanged.matching.renumbered_by
    first_point = np.cumsum([0, *(len(graph.points) for graph in graphs)])
    points = Points.joined(
        [_of_run(graph, shift[rank], renumbered.get(rank, 0)) for rank, graph in zip(ranks, graphs, strict=True)]
    )
    edges = Edges.joined(
        [_moved(graph.edges, first) for graph, first in zip(graphs, first_point.tolist(), strict=False)]
    )
    rank = np.repeat(np.arange(len(graphs)), np.diff(first_point))
    members = _members(ranks, graphs, first_point, exchanged)
    return _with_meetings(
        RunGraph(
            tuple(ranks),
            graphs,
            points,
            rank,
            edges,
            first_point,
            np.arange(len(edges)),
            Meetings(rank[:0], rank[:0]),
            np.full(len(edges), UNKNOWN),
            _likeness(exchanged),
            np.zeros(len(edges), dtype=bool),
        ),
        members,
        exchanged,
        [shift[rank] for rank in ranks],
    )


def _shift_ns(exchanged: Exchange, rank: RankNumber, reference: RankNumber) -> int:
    """Return what to take off a rank's times: nothing on the reference's host, elsewhere the offset of its clock."""
    clocks = exchanged.clocks
    if rank not in clocks.all or clocks.hosts.get(rank, rank) == clocks.hosts.get(reference, reference):
        return 0
    return clocks.all[rank].offset_ns


def _of_run(graph: RankGraph, shift_ns: int, renumbered_by: int) -> Points:
    points = graph.points
    step = values_at(graph.steps.number - renumbered_by, points.step)
    return replace(points, time_ns=points.time_ns - shift_ns, step=step)


def _moved(edges: Edges, by: int) -> Edges:
    return replace(edges, source=edges.source + by, target=edges.target + by)


def _likeness(exchanged: Exchange) -> Int64:
    """Return a number for each instance that those of one kind, bytes, members and description of group share."""
    instances, table = exchanged.matching.instances, exchanged.matching.table
    number: dict[str, int] = {}
    codes = [number.setdefault(group.description, len(number)) for group in table.communicators]
    first = instances.members[instances.first[:-1]]
    described = values_at(np.array(codes, dtype=np.int64), table.communicator[first])
    transfers = exchanged.transfers
    return distinct(instances.kind.astype(np.int64), transfers.nbytes, transfers.group_size, described).index


@dataclass(frozen=True, eq=False)
class _Members(Columns):
    """Members of instances: the instance, and the points at which each one starts (UNKNOWN: not in the graph)."""

    instance: Int64
    start: Int64


def _members(
    ranks: Sequence[RankNumber], graphs: Sequence[RankGraph], first_point: Int64, exchanged: Exchange
) -> _Members:
    table, instances = exchanged.matching.table, exchanged.matching.instances
    rows = instances.members
    start = np.full(len(rows), UNKNOWN)
    for place, (rank, graph) in enumerate(zip(ranks, graphs, strict=True)):
        asked = np.flatnonzero(table.rank[rows] == rank)
        ran = graph.activities
        of_row = (table.correlation[rows[asked]], table.start_ns[rows[asked]])
        # One call may launch many, and several may start at once.
        key, wanted = keys_by_part((ran.correlation, ran.start_ns), of_row)
        order = np.argsort(key, kind="stable")
        activity = values_at(order, find(key[order], wanted))
        points = first_point[place] + 2 * len(graph.calls) + 2 * activity
        start[asked] = np.where(activity >= 0, points, UNKNOWN)
    return _Members(instances.of_member, start)


@dataclass(frozen=True, eq=False)
class _Meeting:
    """Where members of instances meet.

    `kept` are the members of the instances `numbers`, whose members are all known, `point` is each instance's meeting.
    Members that `leave` end after it, by `ends_after_ns`; one that leaves before all have come counts as arriving, but
    its own end waits for nobody.
    """

    kept: _Members
    leave: _Members
    ends_after_ns: Int64
    numbers: Int64
    point: Int64
    points: Points


def _with_meetings(graph: RunGraph, members: _Members, exchanged: Exchange, shifts_ns: Sequence[int]) -> RunGraph:
    """Return the graph with a point at which each instance's last member has come, from which its ends follow."""
    met = _meet(graph, members, exchanged)
    run_of = np.full(len(graph.points) + 1, UNKNOWN)
    runs = np.flatnonzero(graph.edges.kind == EdgeKind.RUN)
    run_of[graph.edges.source[runs]] = runs
    lag_ns, light_ns = graph.edges.lag_ns.copy(), graph.edges.light_ns.copy()
    # How long a member takes says the meeting; it is left to say that it ends no sooner than it starts.
    lag_ns[run_of[met.leave.start]], light_ns[run_of[met.leave.start]] = 0, UNKNOWN
    alone = np.concatenate([_communicates(part) for part in graph.parts])
    alone[run_of[met.kept.start]] = False
    arrivals, transfers = _edges_of_meetings(graph, met, shifts_ns)
    count = len(arrivals) + len(transfers)
    none = np.full(count, UNKNOWN)
    return replace(
        graph,
        points=Points.joined([graph.points, met.points]),
        rank=np.r_[graph.rank, np.full(len(met.points), UNKNOWN)],
        edges=Edges.joined([replace(graph.edges, lag_ns=lag_ns, light_ns=light_ns), arrivals, transfers]),
        origin=np.r_[graph.origin, none],
        meetings=Meetings(met.numbers, met.point[met.numbers]),
        instance=np.r_[graph.instance, none[: len(arrivals)], met.leave.instance],
        unresolved=np.r_[alone, np.zeros(count, dtype=bool)],
    )


def _meet(graph: RunGraph, members: _Members, exchanged: Exchange) -> _Meeting:
    """Return where the members of instances meet, of which all are known: when the last of them has come."""
    instances = exchanged.matching.instances
    known = np.ones(len(instances), dtype=bool)
    np.logical_and.at(known, members.instance, members.start >= 0)
    known &= ~instances.partial & (np.diff(instances.first) > 1)
    kept, numbers = members.take(known[members.instance]), np.flatnonzero(known)
    time_ns = graph.points.time_ns
    met_ns = np.full(len(instances), np.iinfo(np.int64).min)
    np.maximum.at(met_ns, kept.instance, time_ns[kept.start])
    step = np.full(len(instances), np.iinfo(np.int64).max)
    np.minimum.at(step, kept.instance, graph.points.step[kept.start])
    point = np.full(len(instances), UNKNOWN)
    point[numbers] = len(graph.points) + np.arange(len(numbers))
    ends_after_ns = time_ns[kept.start + 1] - met_ns[kept.instance]
    waited = ends_after_ns >= -BEFORE_MEETING_NS
    kind, none = np.full(len(numbers), PointKind.MEETING, dtype=np.int8), np.full(len(numbers), UNKNOWN)
    points = Points(met_ns[numbers], kind, none, step[numbers], none)
    return _Meeting(kept, kept.take(waited), ends_after_ns[waited], numbers, point, points)


def _edges_of_meetings(graph: RunGraph, met: _Meeting, shifts_ns: Sequence[int]) -> tuple[Edges, Edges]:
    """Return edges from members' starts to their meetings, and from these to their ends."""
    kept, leave = met.kept, met.leave
    arrivals = Edges.of(kept.start, met.point[kept.instance], np.zeros(len(kept), dtype=np.int64), EdgeKind.ARRIVE)
    transfers = Edges.of(met.point[leave.instance], leave.start + 1, met.ends_after_ns, EdgeKind.TRANSFER)
    light_ns = _light_transfers(graph, shifts_ns, kept, leave, len(met.point))
    return arrivals, replace(transfers, light_ns=light_ns)


def _communicates(part: RankGraph) -> Mask:
    """Whether edges of a rank are how long communication takes."""
    edges = part.edges
    activity = (edges.source - 2 * len(part.calls)) // 2
    runs: Mask = (edges.kind == EdgeKind.RUN) & (values_at(part.activities.kind, activity) == Kind.COMM)
    return runs


def _light_transfers(
    graph: RunGraph, shifts_ns: Sequence[int], kept: _Members, leaves: _Members, instances: int
) -> Int64:
    """Return how long after the last arrival each member ends in the light windows, UNKNOWN where one has none.

    `shifts_ns` is what to take off each rank's times.
    """
    start = np.concatenate(
        [
            _by_point(part, np.where(at >= 0, at - shift_ns, UNKNOWN))
            for part, shift_ns in zip(graph.parts, shifts_ns, strict=True)
            for at in [part.activities.light_start_ns]
        ]
    )
    dur = np.concatenate([_by_point(part, part.activities.light_ns) for part in graph.parts])
    met = np.full(instances, np.iinfo(np.int64).min)
    np.maximum.at(met, kept.instance, start[kept.start])
    lacks = np.zeros(instances, dtype=bool)
    np.logical_or.at(lacks, kept.instance, start[kept.start] == UNKNOWN)
    light = start[leaves.start] + dur[leaves.start] - met[leaves.instance]
    known: Int64 = np.where(lacks[leaves.instance] | (light < 0), UNKNOWN, light)
    return known


def _by_point(part: RankGraph, values: Int64) -> Int64:
    by_point: Int64 = np.r_[np.full(2 * len(part.calls), UNKNOWN), np.repeat(values, 2)]
    return by_point
