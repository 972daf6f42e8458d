r"""`Places`: where gradients may be reduced, a place behind each gradient.

gradients       1   2   3   4   5   6            of one step, the same on all ranks
recorded        -------->a  -------->b           two reductions, behind 3 and 6
place           s~t s~t s~t s~t s~t s~t          each starts after the one before has stopped; one that nothing goes
                                                 with takes no time and waits for nobody
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Float64, Int64, Mask, values_at
from analyzers.causes import Lags, Model
from analyzers.errors import NotReplayable
from analyzers.rank import EdgeKind, Section
from analyzers.scenarios import launched_in, share_in
from analyzers.settings.assumption import NEXT_DELAY_NS, START_DELAY_NS

# Bytes of an element where nothing says its dtype: torch.get_default_dtype() is float32.
FLOAT = 4
# A device goes on behind another reduction so soon, at most, if it had to wait for that.
SOON_NS = 60_000


@dataclass(frozen=True, eq=False)
class Places:
    """The gradients of a run's typical steps: arrays by step, rank and gradient.

    Points are the graph's: `taken` the end of the call behind which a gradient is taken, `ready` the end of the kernel
    that makes it (UNKNOWN on a CPU run), `copied` the start of what copies it out of its bucket (UNKNOWN: nothing
    does). `reduction` counts the step's reductions that gradients went with, UNKNOWN for none; `activity` is that one's
    place among all ranks' activities. `elements` is by gradient.
    """

    model: Model
    taken: Int64
    after_ns: Int64
    ready: Int64
    copied: Int64
    reduction: Int64
    activity: Int64
    elements: Int64

    @property
    def lags(self) -> Lags:
        """Return what edges take as they are."""
        return self.model.lags

    @cached_property
    def own_lasts(self) -> Int64:
        """Return each recorded reduction's last gradient; empty where none are."""
        went: Int64 = self.reduction[0, 0]
        if (went < 0).all():
            return went[:0]
        last = np.zeros(int(went.max()) + 1, dtype=np.int64)
        np.maximum.at(last, went[went >= 0], np.flatnonzero(went >= 0))
        return last

    @cached_property
    def reduced(self) -> Int64:
        """Return the activity of each recorded reduction by step, rank and number among all ranks' activities."""
        reduced: Int64 = self.activity[:, :, self.own_lasts]
        return reduced

    @cached_property
    def is_reduction(self) -> Mask:
        """Whether each of all ranks' activities is a recorded reduction in a typical step."""
        found = np.zeros(len(self.lags.facts.rank_of_activity), dtype=bool)
        found[self.reduced.ravel()] = True
        return found

    @cached_property
    def groups(self) -> list[Int64]:
        """Return the places of ranks that reduce together: each rank by itself where nothing is reduced."""
        ranks = np.arange(self.taken.shape[1])
        if not len(self.own_lasts):
            return [ranks]
        facts, graph = self.lags.facts, self.lags.graph
        arrive = np.flatnonzero(graph.edges.kind == EdgeKind.ARRIVE)
        meeting_of = np.full(len(facts.rank_of_activity), UNKNOWN)
        meeting_of[facts.activity_of_point[graph.edges.source[arrive]]] = graph.edges.target[arrive]
        meeting = meeting_of[self.reduced[0, :, 0]]
        # Ranks whose partners are missing meet nobody.
        alone = -1 - ranks
        key = np.where(meeting >= 0, meeting, alone)
        return [ranks[key == each] for each in np.unique(key)]

    @cached_property
    def transfer_ns(self) -> Float64:
        """Return how long recorded reductions take: by step, rank, number and variant."""
        graph, facts = self.lags.graph, self.lags.facts
        own = np.full(len(facts.rank_of_activity), UNKNOWN)
        runs = np.flatnonzero(graph.edges.kind == EdgeKind.RUN)
        own[facts.activity[runs]] = runs
        rows = np.flatnonzero(graph.edges.kind == EdgeKind.TRANSFER)
        own[facts.activity_of_point[graph.edges.target[rows]]] = rows
        taken: Float64 = np.maximum(self.lags.ns[own[self.reduced]], 0)
        return taken

    @cached_property
    def nbytes(self) -> Int64:
        """Return the bytes of each recorded reduction, by its gradients where nothing tells."""
        graph, facts = self.lags.graph, self.lags.facts
        instance = np.full(len(facts.rank_of_activity), UNKNOWN)
        rows = np.flatnonzero(graph.edges.kind == EdgeKind.TRANSFER)
        instance[facts.activity_of_point[graph.edges.target[rows]]] = graph.instance[rows]
        told = values_at(self.model.exchanged.transfers.nbytes, instance[self.reduced[0, 0]])
        went = self.reduction[0, 0]
        elements = np.bincount(went[went >= 0], self.elements[went >= 0], len(self.own_lasts)).astype(np.int64)
        return np.where(told > 0, told, FLOAT * elements)

    @cached_property
    def call_ns(self) -> Float64:
        """Return what a call that reduces takes each rank's host: by rank and variant."""
        lags = self.lags
        ranks, count = len(lags.graph.ranks), self.reduced.shape[0] * self.reduced.shape[2]
        own = np.flatnonzero(lags.calibrated.hosts.is_host & lags.common.in_course & (self.calls_share > 0))
        taken = lags.ns[own] * self.calls_share[own, None]
        rank = lags.graph.edge_rank[own]
        sums = np.stack([np.bincount(rank, column, ranks) for column in taken.T], axis=1)
        each: Float64 = sums / max(count, 1)
        return each

    @cached_property
    def calls_share(self) -> Float64:
        """Return what share of each edge is calls for recorded reductions.

        0 where hosts are known under the profiler alone: what one more call costs without it nothing tells.
        """
        if not self.model.knows_hosts:
            return np.zeros(len(self.lags.graph.edges))
        return share_in(self.lags.facts, Section.REDUCTIONS)

    @cached_property
    def delays(self) -> Delays:
        """Return what comes between a gradient and its reduction's start, as recorded."""
        return _delays(self)

    @cached_property
    def host_edge(self) -> Int64:
        """Return the host's edge from where each gradient is taken to its next call, UNKNOWN for none."""
        edges = self.lags.graph.edges
        edge_of = np.full(len(self.lags.graph.points), UNKNOWN)
        rows = np.flatnonzero((edges.kind == EdgeKind.STRETCH) & self.lags.common.in_course)
        edge_of[edges.source[rows[::-1]]] = rows[::-1]
        return edge_of[self.taken]

    @cached_property
    def ends_of_steps(self) -> Int64:
        """Return the first point of each step's optimizer by step and rank, UNKNOWN where nothing tells."""
        facts, graph = self.lags.facts, self.lags.graph
        chosen = np.flatnonzero(launched_in(facts, Section.OPTIMIZER))
        start = facts.start_of_activity[chosen]
        found = np.full(self.taken.shape[:2], UNKNOWN)
        steps = self.lags.calibrated.course.steps
        order = np.argsort(-graph.points.time_ns[start], kind="stable")
        for place, step in enumerate(steps):
            own = order[graph.points.step[start[order]] == step]
            found[place, facts.rank_of_activity[chosen[own]]] = start[own]
        return found


@dataclass(frozen=True)
class Delays:
    """Medians of what was recorded, ns, by rank.

    `begin_ns` from when a reduction could start until it did, `next_ns` from one's end to the start of the next where
    that had to wait, `launch_ns` from a call's end to the start of what it launches, `host_ns` from when a gradient is
    taken until its call for a reduction ends.
    """

    begin_ns: Float64
    next_ns: Float64
    launch_ns: Float64
    host_ns: Float64


def _delays(places: Places) -> Delays:
    graph, facts = places.lags.graph, places.lags.facts
    time_ns, ranks = graph.points.time_ns, len(graph.ranks)
    if not len(places.own_lasts):
        return Delays(*(np.full(ranks, ns) for ns in (START_DELAY_NS, NEXT_DELAY_NS, START_DELAY_NS, 0.0)))
    start = facts.start_of_activity[places.reduced]
    start_ns, stop_ns = time_ns[start], time_ns[start + 1]
    before_ns = np.concatenate(
        [np.full_like(stop_ns[:, :, :1], np.iinfo(np.int64).min // 2), stop_ns[:, :, :-1]], axis=2
    )
    ready, taken = (of[:, :, places.own_lasts] for of in (places.ready, places.taken))
    ready_ns = np.where(ready >= 0, time_ns[ready], np.iinfo(np.int64).min // 2)
    taken_ns = time_ns[taken] + places.after_ns[:, :, places.own_lasts]
    call = facts.of_activities("call")[places.reduced]
    end_ns = np.stack([part.calls.end_ns[call[:, at]] for at, part in enumerate(graph.parts)], axis=1)
    shift = np.array(
        [
            int(part.points.time_ns[0] - time_ns[first])
            for part, first in zip(graph.parts, graph.first_point, strict=False)
        ]
    )
    called_ns = end_ns - shift[None, :, None]
    able_ns = np.maximum(ready_ns, called_ns)
    waits = before_ns > able_ns
    by_rank = [
        [
            _median((start_ns - able_ns)[:, at][~waits[:, at] & (start_ns >= able_ns)[:, at]], START_DELAY_NS),
            _median(
                (start_ns - before_ns)[:, at][waits[:, at] & (start_ns - before_ns < SOON_NS)[:, at]], NEXT_DELAY_NS
            ),
            _median((start_ns - called_ns)[:, at][(called_ns >= ready_ns)[:, at] & ~waits[:, at]], START_DELAY_NS),
            _median((called_ns - taken_ns)[:, at].ravel(), 0.0),
        ]
        for at in range(ranks)
    ]
    return Delays(*np.maximum(np.array(by_rank), 0.0).T)


def _median(values: Int64, otherwise: float) -> float:
    return float(np.median(values)) if len(values) else otherwise


def places_of(model: Model) -> Places:
    """Return where a run's gradients may be reduced. Raises NotReplayable where its steps do not show them."""
    graph, course = model.graph, model.calibrated.course
    first_activity = np.cumsum([0, *(len(part.activities) for part in graph.parts)])
    by_rank = []
    for place, part in enumerate(graph.parts):
        taken, first = part.taken, int(graph.first_point[place])
        end = first + 2 * taken.call + 1
        start = first + 2 * len(part.calls) + 2 * np.arange(len(part.activities))
        columns = (
            end,
            taken.after_ns,
            values_at(start + 1, taken.activity),
            values_at(start, taken.copied),
            taken.elements,
            np.where(taken.reduction >= 0, taken.reduction + first_activity[place], UNKNOWN),
        )
        step = graph.points.step[end]
        rows = [np.flatnonzero(step == number) for number in course.steps]
        if len({len(own) for own in rows}) > 1:
            raise NotReplayable("its steps take different gradients")
        by_rank.append(np.stack([[column[own] for own in rows] for column in columns]))
    if len({of.shape for of in by_rank}) > 1:
        raise NotReplayable("its ranks take different gradients")
    taken, after_ns, ready, copied, elements, activity = np.stack(by_rank, axis=2)
    if not elements.shape[2] or (elements != elements[0, 0]).any():
        raise NotReplayable("its traces do not show the gradients that steps take")
    reduction = _numbered(activity)
    if (reduction != reduction[0, 0]).any():
        raise NotReplayable("its steps reduce gradients in different buckets")
    return Places(model, taken, after_ns, ready, copied, reduction, activity, elements[0, 0])


def _numbered(activity: Int64) -> Int64:
    """Return reductions counted within each step and rank, in the order of their first gradients."""
    numbered = np.full_like(activity, UNKNOWN)
    for of, into in zip(activity.reshape(-1, activity.shape[2]), numbered.reshape(-1, activity.shape[2]), strict=True):
        known = np.flatnonzero(of >= 0)
        _, first, inverse = np.unique(of[known], return_index=True, return_inverse=True)
        into[known] = np.argsort(np.argsort(first))[inverse]
    return numbered
