"""Take away work on devices, host time, and strain beside it.

launch        |call|            the call's time goes by itself, and what it launched keeps its place on its stream:
stream     ####XXXX#####   ->   #########        no time, no launch, no waits, nothing that other ranks wait for
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from analyzers.arrays import Float64, Int64, Mask, distinct, rows_by, values_at
from analyzers.causes import Common, Facts, Lags, Likes
from analyzers.intervals import union_of
from analyzers.rank import EdgeKind, PointKind, Section
from analyzers.trace import Kind


def without_activities(lags: Lags, gone: Mask) -> Lags:
    """Return the lags without some of all ranks' activities."""
    graph = lags.graph
    kind, source, target = graph.edges.kind, graph.edges.source, graph.edges.target
    of_point = lags.facts.activity_of_point
    from_gone, to_gone = (values_at(gone, of_point[points], False) for points in (source, target))
    starts = graph.points.kind[source] == PointKind.START
    no_time = (kind == EdgeKind.RUN) & from_gone
    no_time |= (kind == EdgeKind.STREAM) & (to_gone | (from_gone & starts))
    dropped = np.isin(kind, (EdgeKind.LAUNCH, EdgeKind.WAIT, EdgeKind.TRANSFER)) & to_gone
    dropped |= (kind == EdgeKind.ARRIVE) & from_gone
    return lags.at(no_time, 0).without(dropped)


def without_host_time(lags: Lags, share: Float64) -> Lags:
    """Return the lags without a share of each edge that is a host's own time."""
    hosts = np.flatnonzero(lags.calibrated.hosts.is_host & (share > 0))
    return lags.at(hosts, lags.ns[hosts] * (1 - share[hosts, None]))


def share_in(facts: Facts, section: Section) -> Float64:
    """Return what share of each edge that is a host's own time lies in a section of its host."""
    graph = facts.graph
    covered = np.zeros(len(graph.edges))
    first = 0
    of_parts = []
    for part in graph.parts:
        time_ns, edges = part.points.time_ns, part.edges
        end_ns = time_ns[edges.target]
        of_parts.append(part.ranges.of(section).length_within(end_ns - edges.lag_ns, end_ns))
        first += len(edges)
    known = graph.origin >= 0
    covered[known] = np.concatenate(of_parts)[graph.origin[known]]
    lag_ns = graph.edges.lag_ns
    share: Float64 = np.clip(np.divide(covered, lag_ns, out=np.zeros(len(covered)), where=lag_ns > 0), 0, 1)
    return share


def launched_in(facts: Facts, section: Section) -> Mask:
    """Return which of all ranks' activities are launched in a section of their host."""
    launched = []
    for part in facts.graph.parts:
        inside = part.ranges.of(section)
        begin_ns = part.calls.begin_ns
        in_section = inside.length_within(begin_ns, begin_ns + 1) > 0
        launched.append(values_at(in_section, part.activities.call, False))
    return np.concatenate(launched)


# Strain: compute is slower beside communication.

LEAST_STRAIN, MOST_STRAIN = 1.05, 1.6
# Of less time than this nothing tells how much slower it is.
LEAST_TOLD_NS = 4_000_000
# A kernel has communication beside it for half of its time at least, and none for a twentieth at most.
BESIDE, ALONE = 0.5, 0.05


@dataclass(frozen=True, eq=False)
class Beside:
    """Time on devices beside which compute is slower: of activities, from when to when."""

    activity: Int64
    start_ns: Int64
    end_ns: Int64


def running(facts: Facts, chosen: Mask) -> Beside:
    """Return when some activities run."""
    rows = np.flatnonzero(chosen)
    start_ns = _starts(facts)[rows]
    return Beside(rows, start_ns, start_ns + _durations(facts)[rows])


def waiting_for(facts: Facts, place: int) -> Beside:
    """Return when collectives of other ranks wait for a rank that comes last."""
    met = _met(facts)
    awaited = np.zeros(len(facts.graph.meetings), dtype=bool)
    came_last = (met.start_ns == met.end_ns) & (facts.rank_of_activity[met.activity] == place)
    awaited[met.meeting[came_last]] = True
    waits = awaited[met.meeting] & (met.start_ns < met.end_ns)
    return Beside(met.activity[waits], met.start_ns[waits], met.end_ns[waits])


def transferring(facts: Facts, chosen: Mask) -> Beside:
    """Return when some activities transfer: from when the last member of each has come."""
    ran = running(facts, chosen)
    met = _met(facts)
    begin_ns = np.full(len(chosen), np.iinfo(np.int64).min)
    begin_ns[met.activity] = met.end_ns
    return Beside(ran.activity, np.clip(begin_ns[ran.activity], ran.start_ns, ran.end_ns), ran.end_ns)


@dataclass(frozen=True, eq=False)
class _Met:
    """Members of collectives on their ranks' clocks: from when each has come until all have."""

    activity: Int64
    meeting: Int64
    start_ns: Int64
    end_ns: Int64


def _met(facts: Facts) -> _Met:
    graph = facts.graph
    arrive = np.flatnonzero(graph.edges.kind == EdgeKind.ARRIVE)
    member = facts.activity_of_point[graph.edges.source[arrive]]
    meeting = graph.edges.target[arrive] - (len(graph.points) - len(graph.meetings))
    shift_ns = np.array(
        [
            int(part.points.time_ns[0] - graph.points.time_ns[first])
            for part, first in zip(graph.parts, graph.first_point.tolist(), strict=False)
        ]
    )[facts.rank_of_activity[member]]
    start_ns = _starts(facts)[member]
    met_ns = np.full(len(graph.meetings), np.iinfo(np.int64).min)
    np.maximum.at(met_ns, meeting, start_ns - shift_ns)
    return _Met(member, meeting, start_ns, met_ns[meeting] + shift_ns)


def strain(lags: Lags) -> float:
    """Return how much longer kernels take beside communication, whatever a scenario has made of the lags."""
    return _strain(lags.common)


# Each scenario of a run asks for it.
@lru_cache(maxsize=1)
def _strain(common: Common) -> float:
    """Return how much longer kernels take beside communication.

    By like kernels of two ranks of which one has communication beside it, else by those of one rank, layer and grid.
    1 where these are too few to tell, or where they say what strain never is.
    """
    facts, likes = common.facts, common.kernels
    beside = _share_beside(facts, running(facts, facts.of_activities("kind") == Kind.COMM))
    dur_ns = _durations(facts).astype(np.float64)
    of_ranks = facts.activity[likes.edge]
    paces = _paces(dur_ns[of_ranks], beside[of_ranks], likes)
    own = np.flatnonzero(facts.of_activities("kind") == Kind.COMPUTE)
    of = (facts.name_of_activity, facts.of_activities("grid"), facts.of_activities("line"), facts.rank_of_activity)
    alike = distinct(*(column[own] for column in of)).index
    of_two = _slower(dur_ns[of_ranks] / paces[likes.rank], beside[of_ranks], likes.key) if paces is not None else None
    ratio = of_two if of_two is not None else _slower(dur_ns[own], beside[own], alike)
    return ratio if ratio is not None and LEAST_STRAIN <= ratio <= MOST_STRAIN else 1.0


def _paces(dur_ns: Float64, beside: Float64, likes: Likes) -> Float64 | None:
    """Return how long ranks take for what has nothing beside it on any, over their mean; None where that is little."""
    ranks = int(likes.rank.max(initial=-1)) + 1
    free = np.bincount(likes.key, beside <= ALONE)[likes.key] == ranks
    sums = np.bincount(likes.rank[free], dur_ns[free], ranks)
    return sums / sums.mean() if ranks > 1 and sums.min() >= LEAST_TOLD_NS else None


def _slower(dur_ns: Float64, beside: Float64, like: Int64) -> float | None:
    """Return how much longer what has others beside it takes than its like without; None where these are too few."""
    slow, free = beside >= BESIDE, beside <= ALONE
    count = int(like.max(initial=-1)) + 1
    mean = np.bincount(like[free], dur_ns[free], count) / np.maximum(np.bincount(like[free], minlength=count), 1)
    known = slow & (mean[like] > 0)
    took_ns, alone_ns = float(dur_ns[known].sum()), float(mean[like[known]].sum())
    return took_ns / alone_ns if min(took_ns, alone_ns) >= LEAST_TOLD_NS else None


def relieved(lags: Lags, gone: Beside) -> Lags:
    """Return the lags with kernels as long as they are without what they have beside them, where that goes."""
    slower = strain(lags)
    if slower == 1 or not len(gone.activity):
        return lags
    runs = np.flatnonzero(lags.facts.kind == Kind.COMPUTE)
    less = _share_beside(lags.facts, gone)[lags.facts.activity[runs]] * (1 - 1 / slower)
    return lags.at(runs, lags.ns[runs] * (1 - less[:, None]))


def _share_beside(facts: Facts, others: Beside) -> Float64:
    """Return what share of each activity others of its device are beside it."""
    start_ns, dur_ns = _starts(facts), _durations(facts)
    device = distinct(facts.rank_of_activity, facts.of_activities("device")).index
    share = np.zeros(len(start_ns))
    on = rows_by(device)
    for number, rows in rows_by(device[others.activity]).items():
        times = union_of(others.start_ns[rows], others.end_ns[rows])
        own = on[number]
        length = times.length_within(start_ns[own], start_ns[own] + dur_ns[own])
        share[own] = length / np.maximum(dur_ns[own], 1)
    return share


def _starts(facts: Facts) -> Int64:
    """Return when activities start: in light windows where these have them."""
    light, full = facts.of_activities("light_start_ns"), facts.of_activities("start_ns")
    return np.where(facts.of_activities("light_ns") >= 0, light, full)


def _durations(facts: Facts) -> Int64:
    light = facts.of_activities("light_ns")
    return np.where(light >= 0, light, facts.of_activities("stop_ns") - facts.of_activities("start_ns"))
