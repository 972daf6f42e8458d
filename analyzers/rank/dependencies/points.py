r"""`RankGraph`: points in time of one rank, and dependencies between them.

host      |b launch e|~~~~~~~~~|b  launch  e|~~~~~~~|b sync        e|      ~ stretch: a thread's own time between calls
                 \                     \                         /
device            s###########t---------s######t-----------------        s: activity starts, t: it stops

Each edge says that its target comes at least `lag_ns` after its source; the latest one binds the point.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, values_at
from analyzers.intervals import Intervals, union_of
from analyzers.texts import brief


class PointKind(IntEnum):
    """What happens at an instant."""

    BEGIN = 0  # a call of the runtime begins
    END = 1
    START = 2  # an activity of the device starts
    STOP = 3
    MEETING = 4  # the last member of a collective has come


class EdgeKind(IntEnum):
    """Why a point cannot come sooner."""

    STRETCH = 0  # a thread's own time from one call to the next
    CALL = 1  # a call's own part
    LAUNCH = 2  # from a call to what it launched
    STREAM = 3  # the order of a stream
    WAIT = 4  # a stream waits for another one's work
    RUN = 5  # how long an activity takes
    BLOCK = 6  # a call returns when an activity has ended, or the queue of launches has room
    ARRIVE = 7  # a collective waits for its members
    TRANSFER = 8  # from the last member's arrival to an end


# How far a point may lie behind what binds it without another dependency (found on H100 and H200).
SCATTER_NS = {EdgeKind.LAUNCH: 20_000, EdgeKind.STREAM: 50_000}
OTHER_SCATTER_NS = 20_000
# Host and device are on one clock to within so much.
CLOCK_ERROR_NS = 30_000


@dataclass(frozen=True, eq=False)
class Points(Columns):
    """Instants: `row` is the event's, `step` the place of its step among the rank's (-1: before the first one).

    `lane` is a thread's or a stream's number; points of one kind and lane come in the order in which they happened.
    """

    time_ns: Int64
    kind: NDArray[np.int8]
    row: Int64
    step: Int64
    lane: Int64


@dataclass(frozen=True, eq=False)
class Edges(Columns):
    """Dependencies: the target comes at least `lag_ns` after the source.

    Of a binding edge `lag_ns` is all of the time between; `unknown_ns` is what of it no dependency explains, and
    `light_ns` how long an activity takes in the light window, UNKNOWN where that does not have it.
    """

    source: Int64
    target: Int64
    lag_ns: Int64
    kind: NDArray[np.int8]
    unknown_ns: Int64
    light_ns: Int64

    @classmethod
    def of(cls, source: Int64, target: Int64, lag_ns: Int64, kind: EdgeKind) -> Edges:
        """Return edges of one kind."""
        count = len(source)
        known, not_known = np.zeros(count, dtype=np.int64), np.full(count, UNKNOWN)
        return cls(source, target, lag_ns, np.full(count, kind, dtype=np.int8), known, not_known)


@dataclass(frozen=True, eq=False)
class Stretches(Columns):
    """What threads were in on edges of the host: parts whose lengths add up to their edges'.

    `cause` is a `Cause`, `phase` a `Phase`, `place` the name of the operator or range around it, -1 for none.
    """

    edge: Int64
    cause: Int64
    phase: Int64
    place: Int64
    ns: Int64


@dataclass(frozen=True, eq=False)
class Activities(Columns):
    """What ran on devices: rows of events by start, times as recorded, in the light window, and what they are.

    `light_start_ns` and `light_ns` are UNKNOWN where the light window does not have the activity. `call` is the place
    of its launch among the calls, -1 for none, `place` the name of the operator that launched it, `phase` a `Phase`,
    `line` the layer or another line of layers.
    """

    row: Int64
    device: Int64
    stream: Int64
    correlation: Int64
    start_ns: Int64
    stop_ns: Int64
    light_start_ns: Int64
    light_ns: Int64
    kind: NDArray[np.int8]
    category: Int64
    name: Int64
    grid: Int64
    nbytes: Int64
    call: Int64
    place: Int64
    phase: Int64
    line: Int64
    packing: Mask


@dataclass(frozen=True, eq=False)
class Calls(Columns):
    """Calls of the runtime that launch or wait, by their beginning; `blocks`: it returns when the device is done.

    `place` is the name of the operator or range around it, -1 for none, `phase` a `Phase`.
    """

    row: Int64
    name: Int64
    thread: Int64
    begin_ns: Int64
    end_ns: Int64
    blocks: Mask
    place: Int64
    phase: Int64


@dataclass(frozen=True, eq=False)
class CutSteps(Columns):
    """Profiled steps in order: their numbers, and in which cycle of the profiler each is.

    `cut_ns` is when the host launches the first activity of each, `first_start_ns` when that starts; on a CPU run both
    are when the step is marked. `end_ns` is when its mark ends.
    """

    number: Int64
    cut_ns: Int64
    first_start_ns: Int64
    cycle: Int64
    end_ns: Int64

    def at(self, instant_ns: Int64) -> Int64:
        """Return the place of the step at each instant, -1 before the first one, and behind the last of a cycle."""
        place = np.searchsorted(self.cut_ns, instant_ns, side="right") - 1
        ends_cycle = np.r_[np.diff(self.cycle) != 0, True][: len(self.cycle)]
        behind = (place >= 0) & values_at(ends_cycle, place, 0).astype(bool)
        behind &= instant_ns >= values_at(self.end_ns, place)
        return np.where(behind, UNKNOWN, place)


class Section(IntEnum):
    """What a range is."""

    BUFFERS = 0
    EARLY = 1
    COPIES_OUT = 2
    OPTIMIZER = 3
    SEARCH = 4  # DDP's search for parameters that took part in no forward, from the model's last operator on
    REDUCTIONS = 5  # the calls that reduce gradients
    # FSDP2's ranges.
    GATHERS = 6  # parameters are copied together and gathered
    GATHERED = 7  # and copied out
    GATHERED_AGAIN = 8  # both, in the backward, of modules that the forward gathered
    REDUCES = 9  # gradients are copied together and reduced


@dataclass(frozen=True, eq=False)
class Ranges(Columns):
    """Ranges by section, on the rank's own clock."""

    section: Int64
    start_ns: Int64
    end_ns: Int64

    def of(self, section: Section) -> Intervals:
        """Return when the host is in a section."""
        own = self.section == section
        return union_of(self.start_ns[own], self.end_ns[own])


@dataclass(frozen=True, eq=False)
class TakenGradients(Columns):
    """Gradients that steps' last backward passes take, in order.

    Each is taken `after_ns` behind the end of the thread's last `call`, and ready when `activity` has ended too (-1 on
    a CPU run). `elements` is its size, `reduction` the activity that it went with, `copied` what copies it out of its
    bucket; -1 for none.
    """

    call: Int64
    after_ns: Int64
    activity: Int64
    elements: Int64
    reduction: Int64
    copied: Int64

    @classmethod
    def none(cls) -> TakenGradients:
        """Return no gradients."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(nothing, nothing, nothing, nothing, nothing, nothing)


@dataclass(frozen=True, eq=False)
class RankGraph:
    """One rank's points and edges; calls' points come first (begin, end by turns), then those of activities.

    `rows_per_edge` counts the host's recorded rows on each edge, `main_thread` is a thread's number. `dropped` edges
    contradict recorded times. `on_host`: the host computes, a CPU run.
    """

    points: Points
    edges: Edges
    stretches: Stretches
    calls: Calls
    activities: Activities
    names: tuple[str, ...]
    rows_per_edge: Int64
    steps: CutSteps
    ranges: Ranges
    main_thread: int
    taken: TakenGradients = field(default_factory=TakenGradients.none)
    dropped: int = 0
    on_host: bool = False

    __repr__ = brief


def bound(points: Points, edges: Edges) -> tuple[Edges, int]:
    """Return edges that recorded times allow, and how many these contradict.

    What is left of a point's time over its latest edge goes to that edge: as its own scatter, or as unknown.
    """
    slack = points.time_ns[edges.target] - points.time_ns[edges.source] - edges.lag_ns
    # A launch may start before its call by the clocks' error, and no earlier.
    allowed = slack >= np.where(edges.kind == EdgeKind.LAUNCH, 0, -CLOCK_ERROR_NS)
    kept, slack = edges.take(allowed), slack[allowed]
    lag_ns = kept.lag_ns + np.minimum(slack, 0)
    slack = np.maximum(slack, 0)
    order = np.lexsort((slack, kept.target))
    binding = order[np.r_[True, np.diff(kept.target[order]) != 0][: len(order)]]
    lag_ns[binding] += slack[binding]
    scatter = np.full(max(EdgeKind) + 1, OTHER_SCATTER_NS, dtype=np.int64)
    scatter[list(SCATTER_NS)] = list(SCATTER_NS.values())
    unknown = np.zeros(len(kept), dtype=np.int64)
    unknown[binding] = np.where(slack[binding] > scatter[kept.kind[binding]], slack[binding], 0)
    return replace(kept, lag_ns=lag_ns, unknown_ns=unknown), int(np.count_nonzero(~allowed))


def unexplained(points: Points, edges: Edges) -> Int64:
    """Return for each point how long it lies behind the latest of its edges, UNKNOWN where it has none."""
    latest = np.full(len(points), np.iinfo(np.int64).min)
    np.maximum.at(latest, edges.target, points.time_ns[edges.source] + edges.lag_ns)
    return np.where(latest == np.iinfo(np.int64).min, UNKNOWN, np.maximum(points.time_ns - latest, 0))
