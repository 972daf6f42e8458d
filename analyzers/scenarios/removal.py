"""Take away work on devices, host time, and strain beside it.

launch        |call|            the call's time goes by itself, and what it launched keeps its place on its stream:
stream     ####XXXX#####   ->   #########        no time, no launch, no waits, nothing that other ranks wait for
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays import Float64, Int64, Mask, values_at
from analyzers.causes import Facts, Lags
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


def strain(facts: Facts) -> float:
    """Return how much longer kernels take beside communication: like ones in steps, of equal name, grid and rank."""
    beside = beside_share(facts, facts.of_activities("kind") == Kind.COMM)
    dur_ns, is_compute = _durations(facts), facts.of_activities("kind") == Kind.COMPUTE
    key = np.stack([facts.name_of_activity, facts.of_activities("grid"), facts.rank_of_activity])
    _, like = np.unique(key, axis=1, return_inverse=True)
    like = like.ravel()
    slow, free = (is_compute & chosen for chosen in (beside >= BESIDE, beside <= ALONE))
    count = int(like.max(initial=-1)) + 1
    mean = np.bincount(like[free], dur_ns[free], count) / np.maximum(np.bincount(like[free], minlength=count), 1)
    known = slow & (mean[like] > 0)
    took_ns, alone_ns = float(dur_ns[known].sum()), float(mean[like[known]].sum())
    if min(took_ns, alone_ns) < LEAST_TOLD_NS:
        return 1.0
    ratio = took_ns / alone_ns
    return ratio if LEAST_STRAIN <= ratio <= MOST_STRAIN else 1.0


def relieved(lags: Lags, gone: Mask) -> Lags:
    """Return the lags with kernels as long as they are without the communication that goes."""
    slower = strain(lags.facts)
    if slower == 1:
        return lags
    is_compute = lags.facts.kind == Kind.COMPUTE
    runs = np.flatnonzero(is_compute)
    less = values_at(beside_share(lags.facts, gone), lags.facts.activity[runs], 0) * (1 - 1 / slower)
    return lags.at(runs, lags.ns[runs] * (1 - less[:, None]))


def beside_share(facts: Facts, others: Mask) -> Float64:
    """Return what share of each activity some others of its device are beside it."""
    start_ns, dur_ns = _starts(facts), _durations(facts)
    device = facts.rank_of_activity * (int(facts.of_activities("device").max(initial=0)) + 2)
    device = device + facts.of_activities("device") + 1
    share = np.zeros(len(start_ns))
    for number in np.unique(device[others]).tolist():
        own = device == number
        chosen = own & others
        times = union_of(start_ns[chosen], start_ns[chosen] + dur_ns[chosen])
        length = times.length_within(start_ns[own], start_ns[own] + dur_ns[own])
        share[own] = length / np.maximum(dur_ns[own], 1)
    return share


def _starts(facts: Facts) -> Int64:
    """Return when activities start: in light windows where all have them."""
    light, full = facts.of_activities("light_start_ns"), facts.of_activities("start_ns")
    return np.where(facts.of_activities("light_ns") >= 0, light, full)


def _durations(facts: Facts) -> Int64:
    light = facts.of_activities("light_ns")
    return np.where(light >= 0, light, facts.of_activities("stop_ns") - facts.of_activities("start_ns"))
