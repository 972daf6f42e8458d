"""`PathLane`: the critical path of a recorded step, to draw.

rank 0   |####copy####|                                        back from the step's end, over the edge that binds each
rank 1                |=transfer=|                             point in the recorded times
rank 2                           |##compute##|..launch..|#|
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Mask, begins, distinct, places_since
from analyzers.causes.charges import Charge, causes_of_edges, causes_of_states
from analyzers.causes.joining import RunGraph
from analyzers.causes.model import Model
from analyzers.collectives import Exchange, line_names, lines_of
from analyzers.rank import EdgeKind, PointKind


@dataclass(frozen=True, eq=False)
class PathLane(Columns):
    """Segments in order of time, ns from the run's earliest event on the common clock: none overlap, most touch.

    `rank` is a rank's number, -1 for transfers and what is unresolved; `cause` a Charge; `group` indexes `groups`, the
    names of transfers' groups, -1 for all else.
    """

    rank: Int64
    start_ns: Int64
    end_ns: Int64
    cause: Int64
    group: Int64
    groups: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Pieces(Columns):
    """Parts of a path's edges in order: the edge's place on the path, what it is, and how long in the graph."""

    of: Int64
    cause: Int64
    ns: Int64


class RecordedPaths:
    """Critical paths of the recorded steps of a model; `drawn` is the communication of the windows that are drawn.

    Those may be light windows, which have no host: a call that the device waited for is placed before what it launched,
    what lies between two places that are known in proportion, and who came last to a collective is who did so there.
    """

    def __init__(self, model: Model, full: Exchange, drawn: Exchange) -> None:
        """Find what binds each point; `full` is the communication that the model is made from."""
        self._facts, self._full = model.recorded, full
        self._graph = graph = self._facts.graph
        drawn_ns, is_drawn = _with_meetings(graph, *_drawn_times(graph, drawn))
        self._binding = _binding(graph, drawn_ns, is_drawn)
        self._drawn_ns, self._is_drawn = _with_launches(graph, self._binding, drawn_ns, is_drawn)

    def lane(self, step: int) -> PathLane | None:
        """Return the path of one step, from its first activity on any rank to the last rank's of the next one.

        None where the graph does not have the step, or no time of its path is drawn.
        """
        marks, ends = _marks(self._graph, step), _ends(self._graph, step)
        marks, ends = marks[self._is_drawn[marks]], ends[self._is_drawn[ends]]
        if not len(marks) or not len(ends):
            return None
        # Its beginning is where it is drawn first: in a light window ranks lie otherwise beside one another.
        before = _marks(self._graph, step - 1)
        since_ns = self._graph.points.time_ns[before if len(before) else marks].min()
        edges = self._walk(int(ends[self._drawn_ns[ends].argmax()]), int(since_ns))
        if not len(edges):
            return None
        points = np.r_[self._graph.edges.source[edges[:1]], self._graph.edges.target[edges]]
        return self._segments(edges, np.maximum(self._placed(points), self._drawn_ns[marks].min()))

    def _walk(self, point: int, since_ns: int) -> Int64:
        """Return the edges that bind, from a time to a point."""
        binding, source, time_ns = self._binding, self._graph.edges.source, self._graph.points.time_ns
        edges: list[int] = []
        while time_ns[point] > since_ns and binding[point] != UNKNOWN:
            edges.append(int(binding[point]))
            point = int(source[edges[-1]])
        return np.array(edges[::-1], dtype=np.int64)

    def _placed(self, points: Int64) -> Float64:
        """Return where points of a path are drawn, of which the last is: others in proportion, never back in time.

        Until the path comes to an activity it is on one host, whose place the beginnings of its rank's steps tell.
        """
        graph = self._graph
        graph_ns = np.maximum.accumulate(graph.points.time_ns[points])
        known = np.flatnonzero(self._is_drawn[points])
        begun = self._step_begins[graph.rank[self._step_begins] == graph.rank[points[0]]]
        begun = begun[graph.points.time_ns[begun] < graph_ns[known[0]]]
        at_graph = np.r_[graph.points.time_ns[begun], graph_ns[known]]
        at_drawn = np.maximum.accumulate(np.r_[self._drawn_ns[begun], self._drawn_ns[points[known]]])
        asked, at_graph = (values.astype(np.float64) for values in (graph_ns - at_graph[0], at_graph - at_graph[0]))
        placed = np.interp(asked, at_graph, at_drawn.astype(np.float64)) + np.minimum(asked, 0)
        ordered: Float64 = np.maximum.accumulate(placed)
        return ordered

    @cached_property
    def _step_begins(self) -> Int64:
        """Return the first activities of all ranks' steps that are drawn, in order of time."""
        steps = np.unique(self._graph.points.step).tolist()
        begins_ = np.concatenate([_marks(self._graph, step) for step in steps])
        begins_ = begins_[self._is_drawn[begins_]]
        ordered: Int64 = begins_[np.argsort(self._graph.points.time_ns[begins_], kind="stable")]
        return ordered

    def _segments(self, edges: Int64, at: Float64) -> PathLane:
        """Return the segments of a path: its edges by what they consist of, neighbours that are alike as one."""
        graph, pieces = self._graph, self._pieces(edges)
        done = np.cumsum(pieces.ns)
        # Where each piece ends within its edge, as a share of it.
        base = (done - pieces.ns)[np.searchsorted(pieces.of, pieces.of)]
        whole = np.maximum(np.bincount(pieces.of, pieces.ns, len(edges))[pieces.of], 1)
        length = (at[1:] - at[:-1])[pieces.of]
        start = np.rint(at[pieces.of] + length * (done - pieces.ns - base) / whole).astype(np.int64)
        end = np.rint(at[pieces.of] + length * (done - base) / whole).astype(np.int64)
        place, shared = graph.edge_rank[edges[pieces.of]], np.isin(pieces.cause, (Charge.TRANSFER, Charge.UNRESOLVED))
        rank = np.where(shared, UNKNOWN, np.r_[np.array(graph.ranks, dtype=np.int64), UNKNOWN][place])
        group, groups = self._groups(
            np.where(pieces.cause == Charge.TRANSFER, graph.instance[edges[pieces.of]], UNKNOWN)
        )
        lane = PathLane(rank, start, end, pieces.cause, group, groups)
        return _merged(lane.take(end > start))

    def _pieces(self, edges: Int64) -> _Pieces:
        """Return what each edge of a path consists of; what nothing explains comes last."""
        graph, facts = self._graph, self._facts
        kind, order = graph.edges.kind[edges].astype(np.int64), np.arange(len(edges))
        is_stretch = kind == EdgeKind.STRETCH
        unknown = np.where(is_stretch, 0, np.minimum(graph.edges.unknown_ns[edges], graph.edges.lag_ns[edges]))
        lag = np.maximum(graph.edges.lag_ns[edges], 0)
        stretches = facts.stretches
        first = np.searchsorted(stretches.edge, edges)
        counts = np.where(is_stretch, np.searchsorted(stretches.edge, edges, side="right") - first, 0)
        of = np.repeat(order, counts)
        row = np.repeat(first, counts) + places_since(begins(of))
        host = _Pieces(of, causes_of_states(facts)[stretches.cause[row]], stretches.ns[row])
        bare = np.flatnonzero(is_stretch & (counts == 0))
        own = np.flatnonzero(~is_stretch)
        parts = _Pieces.joined(
            [
                _Pieces(own, causes_of_edges(facts, edges[own]), lag[own] - np.maximum(unknown[own], 0)),
                host,
                _Pieces(bare, np.full(len(bare), Charge.PYTHON, dtype=np.int64), lag[bare]),
                _Pieces(own, np.full(len(own), Charge.UNKNOWN, dtype=np.int64), np.maximum(unknown[own], 0)),
            ]
        )
        return parts.take(np.argsort(parts.of, kind="stable"))

    def _groups(self, instance: Int64) -> tuple[Int64, tuple[str, ...]]:
        """Return the group of each collective, as the report's groups are named, by its place among their names."""
        asked = np.flatnonzero(instance >= 0)
        group = np.full(len(instance), UNKNOWN, dtype=np.int64)
        if not len(asked):
            return group, ()
        matching = self._full.matching
        lines = lines_of(matching.table)
        names = line_names(lines.known)
        line = lines.of_row[matching.instances.members[matching.instances.first[instance[asked]]]]
        known = distinct(line)
        group[asked] = known.index
        return group, tuple(names[lines.known[one]] if one >= 0 else "unknown" for one in known.columns[0].tolist())


def _binding(graph: RunGraph, drawn_ns: Int64, is_drawn: Mask) -> Int64:
    """Return for each point the edge that comes last to it in the recorded times, UNKNOWN where none does.

    Of those who arrive at a collective it is the last as they are drawn.
    """
    time_ns, edges = graph.points.time_ns, graph.edges
    late_ns = time_ns[edges.target] - time_ns[edges.source] - edges.lag_ns
    arrive = np.flatnonzero((edges.kind == EdgeKind.ARRIVE) & is_drawn[edges.target])
    late_ns[arrive] = drawn_ns[edges.target[arrive]] - drawn_ns[edges.source[arrive]]
    order = np.lexsort((late_ns, edges.target))
    first = order[begins(edges.target[order])]
    binding = np.full(len(graph.points), UNKNOWN, dtype=np.int64)
    binding[edges.target[first]] = first
    return binding


def _inside(graph: RunGraph, step: int, kind: PointKind) -> Int64:
    """Return the points of a kind in a step; of a run in which none is marked, step 0 is all of it."""
    steps = graph.points.step
    inside = steps == step if step or (steps >= 0).any() else np.ones(len(steps), dtype=bool)
    return np.flatnonzero(inside & (graph.points.kind == kind))


def _marks(graph: RunGraph, step: int) -> Int64:
    """Return each rank's first activity of a step."""
    starts = _inside(graph, step, PointKind.START)
    starts = starts[np.lexsort((graph.points.time_ns[starts], graph.rank[starts]))]
    return starts[begins(graph.rank[starts])]


def _ends(graph: RunGraph, step: int) -> Int64:
    """Return where a step may end: at each rank's first activity of the next one, or else with its own activities."""
    marks = _marks(graph, step + 1)
    return marks if len(marks) else _inside(graph, step, PointKind.STOP)


def _drawn_times(graph: RunGraph, drawn: Exchange) -> tuple[Int64, Mask]:
    """Return where each point is drawn, and whether it is: hosts of light windows, and meetings, are not."""
    times, known = [], []
    for number, part in zip(graph.ranks, graph.parts, strict=True):
        shift_ns, ran = drawn.origin_ns + drawn.clocks.shift_of(number), part.activities
        if drawn.run.is_light:
            hosts = np.full(2 * len(part.calls), UNKNOWN, dtype=np.int64)
            own = np.r_[hosts, np.stack([ran.light_start_ns, ran.light_start_ns + ran.light_ns], axis=1).ravel()]
            has = np.r_[hosts != UNKNOWN, np.repeat((ran.light_start_ns != UNKNOWN) & (ran.light_ns >= 0), 2)]
        else:
            own = np.r_[
                np.stack([part.calls.begin_ns, part.calls.end_ns], axis=1).ravel(),
                np.stack([ran.start_ns, ran.stop_ns], axis=1).ravel(),
            ]
            has = np.ones(len(own), dtype=bool)
        times.append(own - shift_ns)
        known.append(has)
    meetings = np.zeros(len(graph.meetings), dtype=np.int64)
    return np.concatenate([*times, meetings]), np.concatenate([*known, meetings > 0])


def _with_meetings(graph: RunGraph, drawn_ns: Int64, is_drawn: Mask) -> tuple[Int64, Mask]:
    """Return the same, with meetings, each where its last member is drawn; not where one of them is not."""
    edges = graph.edges
    arrive = np.flatnonzero(edges.kind == EdgeKind.ARRIVE)
    source, target = edges.source[arrive], edges.target[arrive]
    drawn_ns, is_drawn = drawn_ns.copy(), is_drawn.copy()
    drawn_ns[target] = np.iinfo(np.int64).min
    np.maximum.at(drawn_ns, target, drawn_ns[source])
    is_drawn[target] = True
    is_drawn[target[~is_drawn[source]]] = False
    return drawn_ns, is_drawn


def _with_launches(graph: RunGraph, binding: Int64, drawn_ns: Int64, is_drawn: Mask) -> tuple[Int64, Mask]:
    """Return the same, with calls of which what they launched did not wait for anything else."""
    edges = graph.edges
    launches = binding[binding != UNKNOWN]
    launches = launches[(edges.kind[launches] == EdgeKind.LAUNCH) & is_drawn[edges.target[launches]]]
    launches = launches[~is_drawn[edges.source[launches]]]
    source = edges.source[launches]
    drawn_ns, is_drawn = drawn_ns.copy(), is_drawn.copy()
    drawn_ns[source] = drawn_ns[edges.target[launches]] - edges.lag_ns[launches]
    is_drawn[source] = True
    return drawn_ns, is_drawn


def _merged(lane: PathLane) -> PathLane:
    """Return the lane with neighbours that touch and are alike as one."""
    if not len(lane):
        return lane
    alike = (np.diff(lane.rank) == 0) & (np.diff(lane.cause) == 0) & (np.diff(lane.group) == 0)
    first = np.flatnonzero(np.r_[True, ~(alike & (lane.start_ns[1:] == lane.end_ns[:-1]))])
    last = np.r_[first[1:] - 1, len(lane) - 1]
    return replace(lane.take(first), end_ns=lane.end_ns[last])
