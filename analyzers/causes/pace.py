"""`Course`: typical steps replayed again and again, and their pace.

recorded      | 3      | 4      | 5  (odd)   | 6      | 7 (last)
course        | 3      | 4      | 6      | 3      | 4      | 6      | ...      each begins where the one before left off

Between steps that did not follow one another stand edges like those between two that did: from the same places, counted
from the end of the one, to the same places, counted from the beginning of the other.
Points with one edge in and one edge out are contracted: their edges' lags add up. All scenarios are replayed at once,
each point a vector over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Mask, begins, find, joint, places_since, values_at
from analyzers.causes.joining import RunGraph
from analyzers.causes.order import in_order
from analyzers.rank import PointKind

# What no lag reaches: an edge that is dropped.
DROPPED = -(2.0**52)
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
class ContractedStep:
    """One step of the course, contracted: what comes into each node, in order.

    An entry is a node, a source and its chain, another source and its chain (-1: none). A node with three chains or
    more has several entries, in all but the first of which it is a source itself, by the chain that takes no time.
    """

    into: list[tuple[int, int, int, int, int]]
    carried_to: Int64
    carried_from: Int64


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
        return _contract(self)

    @property
    def settling(self) -> int:
        """Return how many rounds let the replay settle; as many are measured."""
        return -(-SETTLING // len(self.steps))

    def pace(self, lags: Float64) -> Float64:
        """Return the step, ns, of each scenario: `lags` are those of the course's edges, a column each."""
        pace: Float64 = self.step_lengths(lags).mean(axis=0)
        return pace

    def step_lengths(self, lags: Float64) -> Float64:
        """Return how long each typical step takes (a row each) in each scenario, on the rank that takes longest."""
        if not len(self.marks):
            ((_, times),) = self.replay(lags)
            only: Float64 = (times.max(axis=0) - self.begun_ns.min())[None]
            return only
        at_marks = np.stack([times[self.marks[visit.place]] for visit, times in self.replay(lags)])
        steps = len(self.steps)
        lengths = np.diff(at_marks[steps * self.settling :], axis=0)
        longest = lengths.sum(axis=0).argmax(axis=0)
        of_longest = np.take_along_axis(lengths, longest[None, None, :], axis=1)[:, 0]
        by_step: Float64 = of_longest.reshape(self.settling, steps, -1).mean(axis=0)
        return by_step

    def replay(self, lags: Float64) -> Iterator[tuple[Visit, Float64]]:
        """Replay the course at lags of its edges, a column for each scenario; yield after each step all times."""
        contracted = self.contracted
        chains = list(contracted.sums(lags))
        scratch = np.empty(lags.shape[1])
        times = np.zeros((contracted.size, lags.shape[1]))
        times[: len(self.begun_ns)] = self.begun_ns[:, None]
        rows = list(times)
        visits = 2 * self.settling * len(self.steps) + 1 if len(self.marks) else 1
        for number in range(visits):
            step = contracted.steps[number % len(self.steps)]
            times[step.carried_to] = times[step.carried_from]
            _advance(rows, chains, step, scratch)
            yield Visit(number, number % len(self.steps)), times


@dataclass(frozen=True)
class Visit:
    """One step of the course while it is replayed: how many came before, and its place among the typical steps."""

    number: int
    place: int


def _advance(times: list[Float64], chains: list[Float64], step: ContractedStep, scratch: Float64) -> None:
    """Set the times of a step's points, in order: rows of all scenarios."""
    add, maximum = np.add, np.maximum
    for node, source, chain, other, other_chain in step.into:
        row = times[node]
        add(times[source], chains[chain], out=row)
        if other >= 0:
            add(times[other], chains[other_chain], out=scratch)
            maximum(row, scratch, out=row)


@dataclass(frozen=True, eq=False)
class Contracted:
    """The course's kept points and chains.

    `chain_of` is the chain that each edge is part of, `position` each point's place in an order of all.
    """

    size: int
    steps: list[ContractedStep]
    chain_of: Int64
    chains: int
    position: Int64

    def sums(self, lags: Float64) -> Float64:
        """Return each chain's lag, a column for each scenario; last the one that takes no time."""
        return np.stack([np.bincount(self.chain_of, column, self.chains + 1) for column in lags.T], axis=1)


def _contract(course: Course) -> Contracted:
    edges, points = course.edges, course.graph.points
    size = len(points)
    into = np.bincount(edges.target, minlength=size)
    out = np.bincount(edges.source[~edges.earlier], minlength=size)
    kept = (into != 1) | (out != 1)
    kept[edges.source[edges.earlier]] = True
    kept[course.marks.ravel()] = True
    # The edge into each contracted point's successor, and so on until one that ends at a kept point.
    out_edge = np.full(size, UNKNOWN)
    within = np.flatnonzero(~edges.earlier)
    out_edge[edges.source[within]] = within
    chain = np.where(kept[edges.target], np.arange(len(edges)), out_edge[edges.target])
    while True:
        further = chain[chain]
        if (further == chain).all():
            break
        chain = further
    ends, chain_of = np.unique(chain, return_inverse=True)
    begins_chain = np.flatnonzero(kept[edges.source] | edges.earlier)
    source = np.full(len(ends), UNKNOWN)
    source[chain_of[begins_chain]] = edges.source[begins_chain]
    earlier = np.zeros(len(ends), dtype=bool)
    earlier[chain_of[begins_chain]] = edges.earlier[begins_chain]
    carried, place = np.unique(source[earlier], return_inverse=True)
    source[earlier] = size + place
    inside = edges.take(~edges.earlier)
    order = in_order(points.time_ns, inside.source, inside.target)
    position = np.empty(size, dtype=np.int64)
    position[order] = np.arange(size)
    of_step = edges.step[ends]
    steps = []
    for step in range(len(course.steps)):
        own = np.flatnonzero(of_step == step)
        steps.append(_carried(_contracted_step(own, (source, edges.target[ends]), position, len(ends)), carried, size))
    return Contracted(size + len(carried), steps, chain_of, len(ends), position)


def _contracted_step(own: Int64, chains: tuple[Int64, Int64], position: Int64, no_time: int) -> ContractedStep:
    """Return a step by its chains `own`, of which `chains` has sources and targets; see ContractedStep."""
    source, target = chains
    own = own[np.argsort(position[target[own]], kind="stable")]
    node = target[own]
    place = places_since(begins(node))
    # The first two chains of a node stand in one entry, every further one in an entry of its own.
    heads = np.flatnonzero(place != 1)
    first = place[heads] == 0
    follows = np.r_[heads + 1, 0][: len(heads)]
    has_second = first & (follows < len(own)) & (np.r_[place, 0][follows] == 1)
    other = np.where(first, np.where(has_second, follows, UNKNOWN), heads)
    columns = (
        node[heads],
        np.where(first, source[own[heads]], node[heads]),
        np.where(first, own[heads], no_time),
        np.where(other >= 0, source[own[other]], UNKNOWN),
        np.where(other >= 0, own[other], UNKNOWN),
    )
    nothing = np.zeros(0, dtype=np.int64)
    return ContractedStep(list(zip(*(column.tolist() for column in columns), strict=True)), nothing, nothing)


def _carried(step: ContractedStep, carried: Int64, size: int) -> ContractedStep:
    sources = np.array([(entry[1], entry[3]) for entry in step.into], dtype=np.int64).ravel()
    used = np.unique(sources[sources >= size])
    return ContractedStep(step.into, used, carried[used - size])


def course_of(graph: RunGraph, typical: Sequence[int]) -> Course:
    """Return the course of a run's typical steps; where no two profiled steps follow one another, of one alone."""
    points, edges = graph.points, graph.edges
    present = set(np.unique(points.step).tolist())
    steps = [step for step in typical if step in present]
    template = next((step for step in steps if step + 1 in present), None)
    if template is None:
        return _single(graph, steps[:1])
    between = np.flatnonzero((points.step[edges.source] == template) & (points.step[edges.target] == template + 1))
    parts = []
    for place, step in enumerate(steps):
        inside = np.flatnonzero((points.step[edges.source] == step) & (points.step[edges.target] == step))
        parts.append(_course_edges(graph, inside, place, earlier=False))
        before = steps[place - 1]
        if before + 1 == step:
            across = np.flatnonzero((points.step[edges.source] == before) & (points.step[edges.target] == step))
            parts.append(_course_edges(graph, across, place, earlier=True))
        else:
            parts.append(_like(graph, between, (template, before, step), place))
    marks = np.stack([_marks(graph, step) for step in steps])
    return Course(graph, tuple(steps), CourseEdges.joined(parts), marks, np.zeros(len(points)))


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


def _marks(graph: RunGraph, step: int) -> Int64:
    """Return each rank's first activity in a step; on a CPU run, where the step is marked."""
    points = graph.points
    on_host = np.array([part.on_host for part in graph.parts] + [False])[graph.rank]
    kind = np.where(on_host, PointKind.BEGIN, PointKind.START)
    starts = np.flatnonzero((points.step == step) & (points.kind == kind))
    starts = starts[np.lexsort((points.time_ns[starts], graph.rank[starts]))]
    return starts[begins(graph.rank[starts])]


def _like(graph: RunGraph, between: Int64, steps: tuple[int, int, int], place: int) -> CourseEdges:
    """Return edges between two steps like those that lead out of a template, where both steps have such places."""
    template, before, step = steps
    edges = graph.edges
    source = _same_place(graph, edges.source[between], template, before, from_end=True)
    target = _same_place(graph, edges.target[between], template + 1, step, from_end=False)
    found = (source >= 0) & (target >= 0)
    count = int(found.sum())
    return CourseEdges(between[found], source[found], target[found], np.ones(count, dtype=bool), np.full(count, place))


def _same_place(graph: RunGraph, asked: Int64, of_step: int, in_step: int, *, from_end: bool) -> Int64:
    """Return for points of one step those at the same place of another: the k-th of its kind and lane."""
    points = graph.points
    rows = np.flatnonzero((points.step == of_step) | (points.step == in_step))
    rows = rows[np.argsort(points.time_ns[rows], kind="stable")]
    if from_end:
        rows = rows[::-1]
    lane = joint(graph.rank[rows], points.kind[rows], points.lane[rows], points.step[rows])
    order = np.argsort(lane, kind="stable")
    ordinal = np.empty(len(rows), dtype=np.int64)
    ordinal[order] = places_since(begins(lane[order]))
    place = joint(graph.rank[rows], points.kind[rows], points.lane[rows], ordinal)
    there = np.flatnonzero(points.step[rows] == in_step)
    there = there[np.argsort(place[there])]
    place_of = np.full(len(points), UNKNOWN)
    place_of[rows] = place
    return values_at(rows[there], find(place[there], place_of[asked]))
