"""`Course`: typical steps replayed again and again, and their pace.

recorded      | 3      | 4      | 5  (odd)   | 6      | 7 (last)
course        | 3      | 4      | 6      | 3      | 4      | 6      | ...      each begins where the one before left off

Between steps that did not follow one another stand edges like those between two that did: from the same places, counted
from the end of the one, to the same places, counted from the beginning of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Mask, begins, find, firsts, joint, rows_by
from analyzers.causes.joining import RunGraph
from analyzers.causes.replay import Contracted, Edged, contract
from analyzers.rank import PointKind, Points

# So many steps, at least, let the replay settle, and as many are measured: whole rounds of all typical steps.
SETTLING = 2


@dataclass(frozen=True, eq=False)
class CourseEdges(Columns):
    """Edges of the course, by their edge in the run's graph (`edge`); `earlier`: the source is in the step before."""

    edge: Int64
    source: Int64
    target: Int64
    earlier: Mask
    step: Int64


@dataclass(frozen=True, eq=False)
class Course:
    """The typical steps of a run as a circle.

    `marks` are the points from which steps are counted: a row for each, a column for each rank. A single step runs
    from its sources, which are at their recorded times (`begun_ns`, by point), to its last end: it has no marks.
    """

    graph: RunGraph
    steps: tuple[int, ...]
    edges: CourseEdges
    marks: Int64
    begun_ns: Float64

    @cached_property
    def contracted(self) -> Contracted:
        """Return the course without points that have one edge in and one out."""
        points, edges = self.graph.points, self.edges
        kept = self.begun_ns > 0
        kept[self.marks.ravel()] = True
        edged = Edged(edges.source, edges.target, edges.earlier, edges.step)
        return contract(len(points), edged, kept, points.time_ns, self._tracks)

    @property
    def _tracks(self) -> Int64:
        """Return the track of each point: its rank's host, or its stream; -1 for meetings."""
        points, graph = self.graph.points, self.graph
        on_host = np.isin(points.kind, (PointKind.BEGIN, PointKind.END))
        track = joint(graph.rank, on_host.astype(np.int64), np.where(on_host, 0, points.lane))
        return np.where(points.kind == PointKind.MEETING, UNKNOWN, track)

    @cached_property
    def latest(self) -> Int64:
        """Return the places of ranks by their first recorded mark, the latest first: of equal ranks it counts."""
        latest: Int64 = np.argsort(-self.graph.points.time_ns[self.marks[0]], kind="stable")
        return latest

    @property
    def settling(self) -> int:
        """Return how many rounds let the replay settle; as many are measured."""
        return -(-SETTLING // len(self.steps))

    def over(self, more: Mask) -> Course:
        """Return the course over a graph of its edges and some more alone: changes cost what the graph has edges."""
        kept = more.copy()
        kept[self.edges.edge] = True
        number = np.cumsum(kept) - 1
        edges = replace(self.edges, edge=number[self.edges.edge])
        return replace(self, graph=self.graph.of_edges(np.flatnonzero(kept)), edges=edges)

    def extended(self, points: Points, rank: Int64, edges: CourseEdges) -> Course:
        """Return the course with more points, behind all others, and edges, by numbers behind those of the graph.

        `rank` is the place of each point's rank. What the graph says of edges it does not say of these.
        """
        graph = self.graph
        more = replace(graph, points=Points.joined([graph.points, points]), rank=np.r_[graph.rank, rank])
        begun_ns = np.r_[self.begun_ns, np.zeros(len(points))]
        return replace(self, graph=more, edges=CourseEdges.joined([self.edges, edges]), begun_ns=begun_ns)

    def reordered(self, gone: Mask, edges: CourseEdges) -> Course:
        """Return the course with some of the graph's edges gone, and others, by numbers behind those of the graph."""
        return replace(self, edges=CourseEdges.joined([self.edges.take(~gone[self.edges.edge]), edges]))

    def times(self, lags: Float64, points: Int64) -> Float64:
        """Return when each of some points is, at the last measured visit of its step, ns: a column for each of `lags`.

        `lags` are those of the course's edges, not of chains.
        """
        contracted, edges = self.contracted, self.edges
        order = np.lexsort((contracted.position[edges.target], contracted.chain_of))
        along = np.cumsum(lags[order], axis=0)
        first = firsts(contracted.chain_of[order], len(contracted.chains))
        before = np.concatenate([np.zeros((1, lags.shape[1])), along])[first[contracted.chain_of[order]]]
        reached = np.empty_like(along)
        reached[order] = along - before
        into = np.full(len(self.graph.points), UNKNOWN)
        into[edges.target] = np.arange(len(edges))
        is_kept = contracted.place[points] >= 0
        found = np.empty((len(points), lags.shape[1]))
        head = np.where(is_kept, contracted.place[points], contracted.chains.source[contracted.chain_of[into[points]]])
        offset = np.where(is_kept[:, None], 0.0, reached[into[points]])
        step = edges.step[into[points]]
        visits = range(self.visits - len(self.steps), self.visits) if len(self.marks) else range(1)
        places = [number % len(self.steps) for number in range(self.visits)]
        for number, times in enumerate(contracted.replay(self.begun_ns, contracted.sums(lags), places)):
            if number in visits:
                own = np.flatnonzero(step == places[number])
                found[own] = times[head[own]] + offset[own]
        return found

    def pace(self, chains: Float64) -> Float64:
        """Return the step, ns, of each scenario: `chains` are the lags of the contracted course, a column each."""
        pace: Float64 = self.step_lengths(chains).mean(axis=0)
        return pace

    @property
    def visits(self) -> int:
        """Return how many steps are visited: rounds that settle, as many measured ones, and the first step again."""
        return 2 * self.settling * len(self.steps) + 1 if len(self.marks) else 1

    def step_lengths(self, chains: Float64, kept: dict[int, Float64] | None = None) -> Float64:
        """Return how long each typical step takes (a row each) in each scenario, on the rank that takes longest.

        `kept` has for some numbers of visits the points' times in the first scenario after them: it is filled here.
        """
        at_marks, marks = [], self.contracted.place[self.marks]
        places = [number % len(self.steps) for number in range(self.visits)]
        for number, times in enumerate(self.contracted.replay(self.begun_ns, chains, places)):
            at_marks.append(times[marks[places[number]]] if len(marks) else times.max(axis=0, keepdims=True))
            if kept is not None and number in kept:
                kept[number] = times[:, 0].copy()
        if not len(marks):
            only: Float64 = at_marks[0] - self.begun_ns.min()
            return only
        steps = len(self.steps)
        lengths = np.diff(np.stack(at_marks[steps * self.settling :]), axis=0)
        longest = self.latest[np.rint(lengths.sum(axis=0))[self.latest].argmax(axis=0)]
        of_longest = np.take_along_axis(lengths, longest[None, None, :], axis=1)[:, 0]
        by_step: Float64 = of_longest.reshape(self.settling, steps, -1).mean(axis=0)
        return by_step


def course_of(graph: RunGraph, typical: Sequence[int]) -> Course:
    """Return the course of a run's typical steps; where no two profiled steps follow one another, of one alone."""
    points, edges = graph.points, graph.edges
    # A step that a rank lacks has no length there.
    held = [points.step[_marks_of(graph, place)] for place in range(len(graph.ranks))]
    present = set.intersection(*(set(np.unique(steps).tolist()) for steps in held)) - {UNKNOWN}
    steps = [step for step in typical if step in present]
    template = next((step for step in steps if step + 1 in present), None)
    if template is None:
        return _single(graph, steps[:1])
    source_step, target_step = points.step[edges.source], points.step[edges.target]
    between = np.flatnonzero((source_step == template) & (target_step == template + 1))
    inside = _by_step(np.flatnonzero(source_step == target_step), target_step)
    across = _by_step(np.flatnonzero(source_step + 1 == target_step), target_step)
    lanes = _Lanes(graph)
    parts = []
    for place, step in enumerate(steps):
        parts.append(_course_edges(graph, inside[step], place, earlier=False))
        before = steps[place - 1]
        if before + 1 == step:
            parts.append(_course_edges(graph, across.get(step, between[:0]), place, earlier=True))
        else:
            parts.append(_like(graph, between, lanes, (template, before, step), place))
    return Course(graph, tuple(steps), CourseEdges.joined(parts), _marks(graph, steps), np.zeros(len(points)))


def _by_step(rows: Int64, step: Int64) -> dict[int, Int64]:
    """Return some edges by the step that they end in."""
    return {number: rows[of_step] for number, of_step in rows_by(step[rows]).items()}


def _single(graph: RunGraph, steps: Sequence[int]) -> Course:
    """Return one step alone, or all there is where none is marked."""
    points, edges = graph.points, graph.edges
    inside = points.step == steps[0] if steps else np.ones(len(points), dtype=bool)
    rows = np.flatnonzero(inside[edges.source] & inside[edges.target])
    begun = np.where(inside, points.time_ns - points.time_ns[inside].min(), 0).astype(np.float64)
    # What waits for something comes when that lets it.
    begun[edges.target[rows]] = 0
    course_edges = _course_edges(graph, rows, 0, earlier=False)
    return Course(graph, tuple(steps[:1]) or (0,), course_edges, np.zeros((0, len(graph.ranks)), dtype=np.int64), begun)


def _course_edges(graph: RunGraph, rows: Int64, place: int, *, earlier: bool) -> CourseEdges:
    edges = graph.edges
    return CourseEdges(
        rows, edges.source[rows], edges.target[rows], np.full(len(rows), earlier), np.full(len(rows), place)
    )


def _marks(graph: RunGraph, steps: Sequence[int]) -> Int64:
    """Return each rank's first activity in each step, a row a step; on a CPU run, where the step is marked."""
    points = graph.points
    by_rank = []
    for place in range(len(graph.ranks)):
        marks = _marks_of(graph, place)
        marks = marks[np.lexsort((points.time_ns[marks], points.step[marks]))]
        by_rank.append(marks[np.searchsorted(points.step[marks], steps)])
    return np.stack(by_rank, axis=1)


def _marks_of(graph: RunGraph, place: int) -> Int64:
    """Return the points of a rank from which its steps may be counted."""
    kind = PointKind.BEGIN if graph.parts[place].on_host else PointKind.START
    first, past = graph.first_point[place : place + 2].tolist()
    marks: Int64 = first + np.flatnonzero(graph.points.kind[first:past] == kind)
    return marks


def _like(graph: RunGraph, between: Int64, lanes: _Lanes, steps: tuple[int, int, int], place: int) -> CourseEdges:
    """Return edges between two steps like those that lead out of a template, where both steps have such places."""
    template, before, step = steps
    edges = graph.edges
    source = lanes.same_place(edges.source[between], before - template, from_end=True)
    target = lanes.same_place(edges.target[between], step - (template + 1), from_end=False)
    found = (source >= 0) & (target >= 0)
    count = int(found.sum())
    return CourseEdges(between[found], source[found], target[found], np.ones(count, dtype=bool), np.full(count, place))


class _Lanes:
    """Points by their lane and kind, by step, and by time."""

    def __init__(self, graph: RunGraph) -> None:
        points = graph.points
        step = points.step - points.step.min()
        key = joint(graph.rank, points.kind, points.lane) * (step.max() + 1) + step
        self._order = np.lexsort((points.time_ns, key))
        self._place = np.empty(len(points), dtype=np.int64)
        self._place[self._order] = np.arange(len(points))
        is_first = begins(key[self._order])
        self._keys = key[self._order[is_first]]
        self._first = np.r_[np.flatnonzero(is_first), len(points)]
        self._group = np.cumsum(is_first) - 1

    def same_place(self, asked: Int64, later: int, *, from_end: bool) -> Int64:
        """Return for points those at the same place of another step: the k-th of a kind and lane; UNKNOWN for none."""
        at = self._place[asked]
        group = self._group[at]
        there = find(self._keys, self._keys[group] + later)
        first, past = self._first[there], self._first[there + 1]
        found = past - (self._first[group + 1] - at) if from_end else first + (at - self._first[group])
        inside = (there >= 0) & (found >= first) & (found < past)
        return np.where(inside, self._order[np.where(inside, found, 0)], UNKNOWN)
