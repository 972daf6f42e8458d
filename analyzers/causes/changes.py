"""`Lags` of a run, and what scenarios need to know of edges.

A scenario is a function from lags to lags. A variant is a way to reckon what is not known for certain: unknown
remainders kept or released, hosts at the lower or upper ends of their controls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np

from analyzers.arrays import UNKNOWN, Float64, Int64, Mask, values_at
from analyzers.causes.calibrated import Calibrated
from analyzers.causes.joining import RunGraph
from analyzers.causes.likes import Likes, likes
from analyzers.causes.replay import DROPPED
from analyzers.rank import Cause, EdgeKind, Phase, PointKind, RankGraph, Stretches
from analyzers.trace import Category, Kind

# What several changes replayed side by side take of chains' lags. One after the other they take as long; but
# what stands beside a change rounds its last digits, so that another bound gives other ones.
MOST_BYTES = 48_000_000


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of each of a run's edges; names are numbers that all ranks share."""

    graph: RunGraph
    names: tuple[str, ...]
    stages: Mapping[int, Collection[int]]  # the places of the ranks of each stage of a pipeline, where they are known

    @cached_property
    def activity(self) -> Int64:
        """Return for each edge of how long something runs its place among all ranks' activities, -1 for others."""
        own = self.activity_of_point[self.graph.edges.source]
        return np.where(self.graph.edges.kind == EdgeKind.RUN, own, UNKNOWN)

    def of_activities(self, column: str) -> Int64:
        """Return a column over all ranks' activities."""
        return np.concatenate([getattr(part.activities, column).astype(np.int64) for part in self.graph.parts])

    def of_calls(self, column: str) -> Int64:
        """Return a column over all ranks' calls."""
        return np.concatenate([getattr(part.calls, column).astype(np.int64) for part in self.graph.parts])

    @cached_property
    def activity_of_point(self) -> Int64:
        """Return for each point the place of its activity among all ranks', -1 for calls and meetings."""
        graph = self.graph
        first = np.cumsum([0, *(len(part.activities) for part in graph.parts)])
        return np.where(graph.activity >= 0, graph.activity + first[np.maximum(graph.rank, 0)], UNKNOWN)

    @cached_property
    def start_of_activity(self) -> Int64:
        """Return for each of all ranks' activities the point at which it starts."""
        own = [2 * len(part.calls) + 2 * np.arange(len(part.activities)) for part in self.graph.parts]
        return np.concatenate([first + of for first, of in zip(self.graph.first_point.tolist(), own, strict=False)])

    @cached_property
    def rank_of_activity(self) -> Int64:
        """Return for each of all ranks' activities its rank's place."""
        return np.repeat(np.arange(len(self.graph.parts)), [len(part.activities) for part in self.graph.parts])

    @cached_property
    def first_call(self) -> Int64:
        """Return by rank's place where its calls begin among all ranks'."""
        return np.cumsum([0, *(len(part.calls) for part in self.graph.parts)])

    @cached_property
    def name_of_activity(self) -> Int64:
        """Return the name of each of all ranks' activities."""
        return self._codes("activities")

    @cached_property
    def kind(self) -> Int64:
        """Return the kind of what runs on each edge, HOST for edges of nothing that runs."""
        return values_at(self.of_activities("kind"), self.activity, Kind.HOST)

    @cached_property
    def step(self) -> Int64:
        """Return the step of each edge: its target's."""
        return self.graph.points.step[self.graph.edges.target]

    @cached_property
    def call(self) -> Int64:
        """Return for each edge that ends at a call its place among all ranks' calls, -1 for others."""
        graph, first = self.graph, self.first_call
        target = graph.edges.target
        is_call = np.isin(graph.points.kind[target], (PointKind.BEGIN, PointKind.END))
        rank = np.maximum(graph.rank[target], 0)
        return np.where(is_call, (target - graph.first_point[rank]) // 2 + first[rank], UNKNOWN)

    @cached_property
    def call_name(self) -> list[str]:
        """Return the name of each call of all ranks."""
        return [part.names[code] for part in self.graph.parts for code in part.calls.name.tolist()]

    @cached_property
    def is_own_part_of_waiting(self) -> Mask:
        """Return which edges are a synchronizing call's own part."""
        waits = np.array(["Synchronize" in name for name in self.call_name], dtype=bool)
        is_call = (self.graph.edges.kind == EdgeKind.CALL) & (self.call >= 0)
        own: Mask = is_call & values_at(waits, self.call, 0).astype(bool) if len(waits) else is_call
        return own

    @cached_property
    def name(self) -> Int64:
        """Return the name of what runs on each edge, or of the call that it ends at, -1 for neither."""
        runs = values_at(self.name_of_activity, self.activity)
        return np.where(runs >= 0, runs, values_at(self._codes("calls"), self.call))

    @cached_property
    def stretches(self) -> Stretches:
        """Return what threads were in on the run's edges, by edge."""
        first, parts = 0, []
        for part in self.graph.parts:
            own = part.stretches
            place = np.where(own.place >= 0, self._shared(part)[own.place], UNKNOWN)
            parts.append(replace(own, edge=own.edge + first, place=place))
            first += len(part.edges)
        joined = Stretches.joined(parts)
        of_run = np.full(first, UNKNOWN)
        known = self.graph.origin >= 0
        of_run[self.graph.origin[known]] = np.flatnonzero(known)
        joined = replace(joined, edge=of_run[joined.edge])
        order = np.argsort(joined.edge, kind="stable")
        return joined.take(order[np.searchsorted(joined.edge[order], 0) :])

    @cached_property
    def phase(self) -> Int64:
        """Return the phase of each edge's target; not known of what joins ranks."""
        return self._of_target("phase", int(Phase.NOT_KNOWN))

    @cached_property
    def device(self) -> Int64:
        """Return the device of each edge's target; of a call its rank's, where it has but one, else -1."""
        graph, values = self.graph, []
        for part in graph.parts:
            devices = np.unique(part.activities.device)
            of_calls = int(devices[0]) if len(devices) == 1 else UNKNOWN
            values += [np.full(2 * len(part.calls), of_calls), np.repeat(part.activities.device, 2)]
        return np.concatenate([*values, np.full(len(graph.meetings), UNKNOWN)])[graph.edges.target]

    @cached_property
    def place(self) -> Int64:
        """Return the operator or range around each edge's target, -1 for none."""
        return self._of_target("place", UNKNOWN)

    def _of_target(self, column: str, otherwise: int) -> Int64:
        """Return a column of activities or calls for the target of each edge."""
        values = []
        for part in self.graph.parts:
            for of in (part.calls, part.activities):
                own = getattr(of, column)
                if column == "place":
                    own = np.where(own >= 0, self._shared(part)[own], UNKNOWN)
                values.append(np.repeat(own, 2))
        values.append(np.full(len(self.graph.meetings), otherwise))
        return np.concatenate(values)[self.graph.edges.target]

    def _shared(self, part: RankGraph) -> Int64:
        """Return the number that all ranks share of each of a rank's names."""
        number = self._numbers
        return np.array([number[name] for name in part.names], dtype=np.int64)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.names)}

    def _codes(self, of: str) -> Int64:
        """Return names of all ranks' activities or calls as numbers that all ranks share."""
        return np.concatenate([self._shared(part)[getattr(part, of).name] for part in self.graph.parts])

    def covered_ns(self, cause: Cause) -> Float64:
        """Return what of each edge a host's thread was in one state, ns as recorded."""
        own = self.stretches.cause == cause
        covered = np.bincount(self.stretches.edge[own], self.stretches.ns[own], len(self.graph.edges))
        return covered.astype(np.float64)


def facts_of(graph: RunGraph, stages: Mapping[int, Collection[int]]) -> Facts:
    """Return what is known of a run's edges, and which ranks are a stage."""
    return Facts(graph, tuple(dict.fromkeys(name for part in graph.parts for name in part.names)), stages)


def of_any_step(facts: Facts) -> Mask:
    """Whether edges tell of the run in whatever step they are: waits for the device, copies, unexplained time."""
    edges = facts.graph.edges
    is_copy = values_at(facts.of_activities("category"), facts.activity) == Category.MEMCPY
    told: Mask = (edges.kind == EdgeKind.BLOCK) | (edges.unknown_ns > 0) | is_copy
    return told


@dataclass(frozen=True, eq=False)
class Common:
    """What all lags of a run share, whatever scenarios make of them: the course, facts, what is alike on ranks."""

    calibrated: Calibrated
    facts: Facts

    @property
    def graph(self) -> RunGraph:
        """Return the run's graph."""
        return self.calibrated.course.graph

    @cached_property
    def host_shares(self) -> Float64:
        """Return what is left of dense time on each edge, a column for each variant."""
        shares: Float64 = self.calibrated.host_shares()
        return shares

    @cached_property
    def in_course(self) -> Mask:
        """Whether edges are part of the course."""
        used = np.zeros(len(self.graph.edges), dtype=bool)
        used[self.calibrated.course.edges.edge] = True
        return used

    @cached_property
    def times_in_course(self) -> Int64:
        """Return how often each edge is part of the course: the first step begins as the next one does."""
        return np.bincount(self.calibrated.course.edges.edge, minlength=len(self.graph.edges))

    def _likes(self, chosen: Mask) -> Likes:
        facts, graph = self.facts, self.graph
        rows = np.flatnonzero(chosen & self.in_course)
        # What two steps share belongs to the one that it ends in.
        step = np.searchsorted(np.array(sorted(self.calibrated.course.steps)), facts.step[rows])
        name = facts.name[rows] * (max(EdgeKind) + 1) + graph.edges.kind[rows]
        return likes(rows, name, graph.edge_rank[rows], step, graph.points.time_ns[graph.edges.target[rows]])

    @cached_property
    def kernels(self) -> Likes:
        """Return the edges of kernels that compute."""
        return self._likes(self.facts.kind == Kind.COMPUTE)

    @cached_property
    def transfers(self) -> tuple[Int64, Int64]:
        """Return the edges of transfers, and a number that those of one kind, size and group share."""
        graph = self.graph
        rows = np.flatnonzero((graph.edges.kind == EdgeKind.TRANSFER) & self.in_course)
        return rows, graph.like_instance[graph.instance[rows]]

    def like_ranks(self, place: int) -> list[int]:
        """Return the places of the other ranks of its stage that run the same kernels in the same order."""
        alike = self._alike[place].copy()
        alike[place] = False
        # Stages may have equal layers, and the first one alone its input: like are ranks of one stage.
        own = next((places for places in self.facts.stages.values() if place in places), None)
        return [other for other in np.flatnonzero(alike).tolist() if own is None or other in own]

    @cached_property
    def _alike(self) -> Mask:
        likes = self.kernels if len(self.kernels) else self.host_time
        return likes.alike(len(self.graph.ranks))

    @cached_property
    def host_time(self) -> Likes:
        """Return the edges of hosts' own time."""
        return self._likes(np.isin(self.graph.edges.kind, (EdgeKind.STRETCH, EdgeKind.CALL)))


@dataclass(frozen=True, eq=False)
class Lags:
    """What each of the run's edges takes, ns, a column for each variant."""

    common: Common
    ns: Float64

    @property
    def calibrated(self) -> Calibrated:
        """Return the course at the step that people train."""
        return self.common.calibrated

    @property
    def facts(self) -> Facts:
        """Return what is known of each edge."""
        return self.common.facts

    @property
    def graph(self) -> RunGraph:
        """Return the run's graph."""
        return self.calibrated.course.graph

    def paces(self, *changed: Lags) -> Float64:
        """Return the step of each of several changes, a row each, in every variant."""
        paces: Float64 = self.step_lengths(*changed).mean(axis=0)
        return paces

    def step_lengths(self, *changed: Lags) -> Float64:
        """Return how long each typical step takes: by step, change and variant."""
        return self.lengths_of(changed)

    def lengths_of(self, changed: Iterable[Lags]) -> Float64:
        """Return the same; so many changes are replayed side by side as take little memory."""
        course, waiting = self.calibrated.course, iter(changed)
        at_once = max(MOST_BYTES // max(self.chains.nbytes, 1), 1)
        lengths: list[Float64] = []
        while chains := [lags.chains for lags in islice(waiting, at_once)]:
            some = course.step_lengths(np.concatenate(chains, axis=1))
            lengths.append(some.reshape(len(course.steps), len(chains), -1))
        return np.concatenate(lengths, axis=1)

    @property
    def chains(self) -> Float64:
        """Return what each chain of the contracted course takes, a column for each variant."""
        course = self.calibrated.course
        return course.contracted.sums(self.ns.take(course.edges.edge, axis=0))

    @property
    def kept(self) -> Float64:
        """Return the share of unknown remainders that each variant keeps."""
        return np.array([variant.kept for variant in self.calibrated.variants])

    def at(self, edges: Int64 | Mask, ns: Float64 | float) -> Lags:
        """Return the same with some edges changed."""
        changed = self.ns.copy()
        changed[edges] = ns
        return replace(self, ns=changed)

    def likened(self, likes: Likes, ns: Float64, places: Collection[int], others: Collection[int]) -> Lags:
        """Return the same with `ns` of some ranks' edges, by edge and variant, as others' take it."""
        changed = self.ns.copy()
        column = ns[:, 0]
        edges, taken = likes.as_others(column, places, others)
        for variant in range(ns.shape[1]):
            # Variants that differ in nothing of it are one.
            if not np.array_equal(column[likes.edge], ns[likes.edge, variant]):
                column = ns[:, variant]
                edges, taken = likes.as_others(column, places, others)
            changed[edges, variant] += taken - column[edges]
        return replace(self, ns=changed)

    def without(self, edges: Int64 | Mask) -> Lags:
        """Return the same without some dependencies."""
        return self.at(edges, DROPPED)


def is_memcpy(lags: Lags) -> Mask:
    """Whether edges are how long a copy takes."""
    is_copy: Mask = values_at(lags.facts.of_activities("category"), lags.facts.activity) == Category.MEMCPY
    return is_copy
