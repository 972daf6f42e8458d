r"""Steps replayed with gradients in other buckets, over other links.

recorded    gradients 1 2 3 | 4 5 6 |                      what reduced them goes, with its calls
layout      gradients 1 2 | 3 4 5 6 |                      places behind 2 and 6 reduce
copies out                             |1|2|..|3|4|5|6|    each waits for the place that its gradient goes with
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Mask, rows_by, sorted_set, values_at
from analyzers.causes import DROPPED, Course, CourseEdges, Lags
from analyzers.intervals import union_of
from analyzers.rank import EdgeKind, PointKind, Points
from analyzers.scenarios import relieved, strain, transferring, without_activities, without_host_time
from analyzers.settings.link_model import LinkModel
from analyzers.settings.places import Places
from analyzers.trace import Kind


@dataclass(frozen=True, eq=False)
class Layout:
    """Which gradients are reduced together, and over what.

    `lasts` is each bucket's last gradient, `nbytes` what each bucket transfers over `links` among `gpus`; these say all
    where they are `as_given`. `base` is what all else takes.
    """

    lasts: Int64
    nbytes: Float64
    links: LinkModel
    gpus: int
    base: Lags
    as_given: bool = False


@dataclass(frozen=True, eq=False)
class Rebucketed:
    """Replays of a run under several layouts side by side; `own` is how it was recorded: over its own links."""

    places: Places
    own_links: LinkModel
    own_gpus: int
    layouts: Sequence[Layout]

    @cached_property
    def unreduced(self) -> list[Lags]:
        """Return each layout's lags without the recorded reductions, and without their strain on what is computed."""
        return [self._without(layout.base) for layout in self.layouts]

    def _without(self, base: Lags) -> Lags:
        gone = self.places.is_reduction
        lags = relieved(base, transferring(base.facts, gone))
        return without_host_time(without_activities(lags, gone), self.places.calls_share)

    @cached_property
    def ends(self) -> Int64:
        """Return the gradients behind which any layout reduces."""
        return sorted_set(np.concatenate([layout.lasts for layout in self.layouts]))

    def place_of(self, layout: Layout, gradient: Int64) -> Int64:
        """Return the number of the place at which each gradient is reduced."""
        bucket = np.searchsorted(layout.lasts, gradient)
        return np.searchsorted(self.ends, layout.lasts[bucket])

    @cached_property
    def built(self) -> _Built:
        """Return the course with its places."""
        return _build(self)

    def lags(self) -> list[Float64]:
        """Return what the edges of the longer course take under each layout, a column for each variant."""
        edge, found = self.built.course.edges.edge, []
        for layout, unreduced in zip(self.layouts, self.unreduced, strict=True):
            base = self._with_calls(layout, unreduced)
            found.append(np.concatenate([base.ns, self._of_places(layout, base)])[edge])
        return found

    def _with_calls(self, layout: Layout, base: Lags) -> Lags:
        """Return the lags with the hosts' calls for a layout's reductions."""
        edge = self.places.host_edge[:, :, layout.lasts]
        rank = np.broadcast_to(np.arange(edge.shape[1])[None, :, None], edge.shape)[edge >= 0]
        ns = base.ns.copy()
        np.add.at(ns, edge[edge >= 0], self.places.call_ns[rank])
        return replace(base, ns=ns)

    def _of_places(self, layout: Layout, base: Lags) -> Float64:
        """Return what the edges of places take under a layout."""
        places, built, delays = self.places, self.built, self.places.delays
        steps, ranks, _ = places.taken.shape
        shape = (steps, ranks, len(self.ends), base.ns.shape[1])
        bucket = np.searchsorted(layout.lasts, self.ends)
        active = np.isin(self.ends, layout.lasts)
        share = np.stack([np.r_[variant.hosts.share] for variant in base.calibrated.variants], axis=1)
        dropped = np.full(shape, DROPPED)

        def where_active(ns: Float64) -> Float64:
            return np.where(active[None, None, :, None], np.broadcast_to(ns, shape), dropped)

        host_ns = (places.after_ns[:, :, self.ends] + delays.host_ns[None, :, None])[..., None] * share[None, :, None]
        stream = np.where(active[None, None, :, None], delays.next_ns[None, :, None, None], 0.0)
        stream = np.broadcast_to(stream, shape).copy()
        stream[:, :, 0] = 0
        transfer = self._transfer_ns(layout)[:, :, np.minimum(bucket, len(layout.lasts) - 1)]
        columns = {
            "stream": stream,
            "ready": where_active(delays.begin_ns[None, :, None, None]),
            "launch": where_active(host_ns + delays.launch_ns[None, :, None, None]),
            "arrive": where_active(np.zeros(1)),
            "transfer": where_active(transfer),
            "run": np.zeros(shape),
        }
        ns = np.empty((built.count, base.ns.shape[1]))
        for name, rows in built.numbers.items():
            ns[rows[rows >= 0]] = columns[name][rows >= 0]
        waits = built.waits
        at = self.place_of(layout, waits.gradient)
        ns[waits.number] = np.where(at == waits.place, 0.0, DROPPED)[:, None]
        return ns

    def _transfer_ns(self, layout: Layout) -> Float64:
        """Return how long each bucket takes, by step, rank, bucket and variant.

        What its gradients' recorded reductions took, over what their links have it, is left as it was.
        """
        places = self.places
        model_ns = layout.links.collective_ns(layout.nbytes, layout.gpus)
        (steps, ranks, _), variants = places.taken.shape, places.lags.ns.shape[1]
        if not len(places.own_lasts) or layout.as_given:
            return np.broadcast_to(model_ns[None, None, :, None], (steps, ranks, len(model_ns), variants))
        own_ns = self.own_links.collective_ns(places.nbytes, self.own_gpus)
        ratio = places.transfer_ns / own_ns[None, None, :, None]
        weight = places.elements.astype(np.float64)
        of_gradient = ratio[:, :, np.maximum(places.reduction[0, 0], 0)] * weight[None, None, :, None]
        first = np.r_[0, layout.lasts[:-1] + 1]
        mean = np.add.reduceat(of_gradient, first, axis=2) / np.add.reduceat(weight, first)[None, None, :, None]
        return mean * model_ns[None, None, :, None]

    def step_lengths(self) -> Float64:
        """Return how long each typical step takes: by step, layout and variant."""
        course = self.built.course
        columns = np.concatenate([course.contracted.sums(lags) for lags in self._strained], axis=1)
        return course.step_lengths(columns).reshape(len(course.steps), len(self.layouts), -1)

    @cached_property
    def _strained(self) -> list[Float64]:
        """Return the lags with kernels beside reductions as much longer as the run's own are.

        What is beside them says a replay without that, of the likeliest variant.
        """
        lags, slower = self.lags(), strain(self.places.lags)
        if slower == 1:
            return lags
        for each, times in zip(lags, self._replayed(lags), strict=True):
            each[self._kernels] *= 1 + (slower - 1) * times.beside[:, None]
        return lags

    def exposed_ns(self) -> list[float]:
        """Return by layout how long a step's reductions have no kernel beside them that computes: the mean of ranks."""
        steps, ranks, _ = self.places.taken.shape
        return [times.exposed_ns / (steps * ranks) for times in self._replayed(self._strained)]

    @cached_property
    def _kernels(self) -> Int64:
        """Return the course's edges that are kernels that compute."""
        facts, edge = self.places.lags.facts, self.built.course.edges.edge
        return np.flatnonzero(values_at(facts.kind, np.where(edge < len(facts.kind), edge, UNKNOWN)) == Kind.COMPUTE)

    def _replayed(self, lags: Sequence[Float64]) -> Iterator[_Beside]:
        """Yield what is beside what under each layout, in the likeliest variant."""
        built, course, own = self.built, self.built.course, self._kernels
        kernels = [course.edges.source[own], course.edges.target[own]]
        asked = [*kernels, built.meets.ravel(), built.start.ravel() + 1]
        times = course.times(np.stack([each[:, 0] for each in lags], axis=1), np.concatenate(asked))
        begin, end, met, stop = np.split(np.rint(times).astype(np.int64), np.cumsum([len(of) for of in asked])[:-1])
        steps, ranks, _ = built.start.shape
        window = self.places.lags.graph.rank[kernels[0]] * steps + course.edges.step[own]
        of_window = rows_by(window)
        for column, layout in enumerate(self.layouts):
            # Nobody comes to places that a layout does not reduce at.
            reduces = np.isin(self.ends, layout.lasts)
            share, exposed_ns = np.zeros(len(own)), 0
            met_at, stop_at = (of[:, column].reshape(built.start.shape)[:, :, reduces] for of in (met, stop))
            for number in range(steps * ranks):
                rank, step = divmod(number, steps)
                transfers = union_of(met_at[step, rank], np.maximum(stop_at[step, rank], met_at[step, rank]))
                rows = of_window.get(number, own[:0])
                first, last = begin[rows, column], end[rows, column]
                share[rows] = transfers.length_within(first, last) / np.maximum(last - first, 1)
                exposed_ns += (transfers - union_of(first, np.maximum(last, first))).length_ns()
            yield _Beside(share, float(exposed_ns))


@dataclass(frozen=True, eq=False)
class _Beside:
    """What share of each kernel is beside a reduction, and how long all reductions are beside none, ns."""

    beside: Float64
    exposed_ns: float


@dataclass(frozen=True, eq=False)
class _Waits:
    """Edges from places to what waits for the reduction of a gradient: a row each."""

    number: Int64
    place: Int64
    gradient: Int64


@dataclass(frozen=True, eq=False)
class _Built:
    """The longer course: `count` edges more, of which `numbers` has those of each kind by step, rank and place."""

    course: Course
    count: int
    numbers: dict[str, Int64]
    waits: _Waits
    start: Int64
    meets: Int64


def _build(of: Rebucketed) -> _Built:
    places, ends = of.places, of.ends
    graph, course = places.lags.graph, _without_early_waits(places)
    steps, ranks, _ = places.taken.shape
    shape, size = (steps, ranks, len(ends)), len(graph.points)
    start = size + 2 * np.arange(np.prod(shape)).reshape(shape)
    stop = start + 1
    groups = places.groups
    group_of = np.zeros(ranks, dtype=np.int64)
    for place, members in enumerate(groups):
        group_of[members] = place
    meeting = (
        size
        + 2 * int(np.prod(shape))
        + np.arange(steps * len(groups) * len(ends)).reshape(steps, len(groups), len(ends))
    )
    meets = meeting[:, group_of]
    taken, ready = places.taken[:, :, ends], places.ready[:, :, ends]
    before = np.concatenate([_first_reduction(places)[:, :, None], stop[:, :, :-1]], axis=2)
    kinds = {
        "stream": (before, start),
        "ready": (ready, start),
        "launch": (taken, start),
        "arrive": (start, meets),
        "transfer": (meets, stop),
        "run": (start, stop),
    }
    step_of = np.broadcast_to(np.arange(steps)[:, None, None], shape)
    numbers: dict[str, Int64] = {}
    parts, count = [], 0
    first_number = len(graph.edges)
    for name, (source, target) in kinds.items():
        known = source >= 0
        number = np.full(shape, UNKNOWN)
        number[known] = count + np.arange(int(known.sum()))
        count += int(known.sum())
        numbers[name] = number
        parts.append(_edges(first_number + number[known], source[known], target[known], step_of[known]))
    waits, more = _waits(of, stop, count, first_number)
    count += len(waits.number)
    time_ns = np.maximum.accumulate(
        np.maximum(graph.points.time_ns[taken], np.where(ready >= 0, graph.points.time_ns[ready], 0)), axis=2
    )
    points, rank = _points(of, time_ns, groups)
    return _Built(
        course.extended(points, rank, CourseEdges.joined([*parts, more])),
        count,
        numbers,
        waits,
        start,
        np.ascontiguousarray(meets),
    )


def _without_early_waits(places: Places) -> Course:
    """Return the course without what was seen to follow a reduction before its step's last gradient was taken.

    DDP waits for nothing until then: a CPU run's thread that goes on just when a reduction ends does so by chance.
    """
    graph, course = places.lags.graph, places.lags.calibrated.course
    if not len(places.own_lasts):
        return course
    stop = places.lags.facts.start_of_activity[places.reduced] + 1
    until_ns = np.full(len(graph.points), np.iinfo(np.int64).min)
    until_ns[stop] = (graph.points.time_ns[places.taken[:, :, -1]] + places.after_ns[:, :, -1])[:, :, None]
    edges = course.edges
    early = ~edges.earlier & (graph.edges.kind[edges.edge] == EdgeKind.BLOCK)
    early &= graph.points.time_ns[edges.target] < until_ns[edges.source]
    return replace(course, edges=edges.take(~early))


def _edges(number: Int64, source: Int64, target: Int64, step: Int64) -> CourseEdges:
    return CourseEdges(number, source, target, np.zeros(len(number), dtype=bool), step)


def _first_reduction(places: Places) -> Int64:
    """Return the start of each step's first recorded reduction, which comes in the order of its stream."""
    if not len(places.own_lasts):
        return np.full(places.taken.shape[:2], UNKNOWN)
    return places.lags.facts.start_of_activity[places.reduced[:, :, 0]]


def _points(of: Rebucketed, time_ns: Int64, groups: Sequence[Int64]) -> tuple[Points, Int64]:
    graph, course = of.places.lags.graph, of.places.lags.calibrated.course
    _, ranks, count = time_ns.shape
    of_groups = np.stack([time_ns[:, members].max(axis=1) for members in groups], axis=1)
    times = np.r_[np.repeat(time_ns.ravel(), 2), of_groups.ravel()]
    own, met = 2 * time_ns.size, of_groups.size
    number = np.array(course.steps)
    step = np.r_[np.repeat(number, 2 * ranks * count), np.repeat(number, len(groups) * count)]
    kind = np.full(own + met, PointKind.MEETING, dtype=np.int8)
    kind[:own] = np.tile(np.array([PointKind.START, PointKind.STOP], dtype=np.int8), own // 2)
    lane = np.full(own + met, int(graph.points.lane.max(initial=0)) + 1)
    rank = np.full(own + met, UNKNOWN)
    rank[:own] = np.broadcast_to(np.arange(ranks)[None, :, None, None], (*time_ns.shape, 2)).ravel()
    return Points(times, kind, np.full(own + met, UNKNOWN), step, lane), rank


def _waits(of: Rebucketed, stop: Int64, first: int, first_number: int) -> tuple[_Waits, CourseEdges]:
    """Return the edges from places to what waits, of which each layout has those from its own places."""
    waiting = _waiting(of.places)
    pairs = [np.stack((np.arange(len(waiting)), of.place_of(layout, waiting.gradient))) for layout in of.layouts]
    row, place = np.unique(np.concatenate(pairs, axis=1), axis=1)
    asked = waiting.take(row)
    number = first + np.arange(len(asked))
    source = stop[asked.step, asked.rank, place]
    edges = CourseEdges(first_number + number, source, asked.target, asked.earlier, asked.into_step)
    return _Waits(number, place, asked.gradient), edges


@dataclass(frozen=True, eq=False)
class _Waiting(Columns):
    """Points that wait for the reduction of a gradient in a step of a rank; `earlier`: they are of the next step."""

    step: Int64
    rank: Int64
    gradient: Int64
    target: Int64
    earlier: Mask
    into_step: Int64


def _waiting(places: Places) -> _Waiting:
    """Return what waits for reductions: copies out of buckets, else whatever waited for a recorded one.

    What follows the last one on its stream waits for all; without reductions on record the optimizer does.
    """
    last = places.taken.shape[2] - 1
    if not len(places.own_lasts):
        step, rank = np.nonzero(places.ends_of_steps >= 0)
        return _within(step, rank, np.full(len(step), last), places.ends_of_steps[step, rank])
    starts = places.lags.facts.start_of_activity[places.reduced]
    firsts = np.r_[0, places.own_lasts[:-1] + 1]
    step, rank, number = (each.ravel() for each in np.indices(starts.shape))
    is_copied = places.copied[step, rank, firsts[number]] >= 0
    gradient = np.where(is_copied, firsts[number], places.own_lasts[number])
    reductions = _within(step, rank, gradient, starts[step, rank, number] + 1)
    step, rank, gradient = np.nonzero(places.copied >= 0)
    copies = _within(step, rank, gradient, places.copied[step, rank, gradient])
    edges, kinds = places.lags.calibrated.course.edges, places.lags.graph.edges.kind
    ended = np.full((len(places.lags.graph.points), 2), UNKNOWN)
    windows = np.indices(starts.shape[:2])
    ended[starts[:, :, -1] + 1] = np.moveaxis(windows, 0, 2)
    follow = edges.take((kinds[edges.edge] == EdgeKind.STREAM) & (ended[edges.source, 0] >= 0))
    step, rank = ended[follow.source].T
    followers = _Waiting(step, rank, np.full(len(step), last), follow.target, follow.earlier, follow.step)
    return _Waiting.joined([reductions, copies, followers])


def _within(step: Int64, rank: Int64, gradient: Int64, target: Int64) -> _Waiting:
    return _Waiting(step, rank, gradient, target, np.zeros(len(step), dtype=bool), step)
