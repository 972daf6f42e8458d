"""`HostTrack`: what launching threads did, to draw beside devices.

main      |launch|~python~|conv2d~|launch|.................|sync|      one line: the main thread, and autograd's while
autograd                                  ~|launch|~|launch|           the main thread waits for it
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, begins, values_at
from analyzers.rank.dependencies.points import EdgeKind, RankGraph
from analyzers.rank.idle import Cause
from analyzers.trace import NODE

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class HostTrack(Columns):
    """Stretches in order of time, none of which overlap, on the epoch.

    `cause` is the Cause that idle time would have: calls that launch are `launch_latency`, calls that wait
    `synchronize`. `name` indexes `names`: the call, operator, function or range, UNKNOWN for none. `by_proportion`: the
    window has no host rows; only launches that a device waited for are placed, and all else in proportion.
    """

    start_ns: Int64
    end_ns: Int64
    cause: Int64
    name: Int64
    names: tuple[str, ...]
    by_proportion: bool

    def moved(self, by_ns: int) -> HostTrack:
        """Return the same stretches later by so much."""
        return replace(self, start_ns=self.start_ns + by_ns, end_ns=self.end_ns + by_ns)


def host_track(graph: RankGraph, *, is_light: bool) -> HostTrack | None:
    """Return the track at the times of the light window, or of the full one; None where the window places no launch."""
    edges = _chain(graph)
    points = np.r_[graph.edges.source[edges[:1]], graph.edges.target[edges]]
    at = _light_times(graph, points) if is_light else graph.points.time_ns[points]
    if not len(at):
        return None
    of, cause, name, ns = _pieces(graph, edges)
    done = np.cumsum(ns)
    before = (done - ns)[np.searchsorted(of, of)]
    whole = np.maximum(np.bincount(of, ns, len(edges))[of], 1)
    length = (at[1:] - at[:-1])[of]
    start_ns = at[of] + np.rint(length * (done - ns - before) / whole).astype(np.int64)
    end_ns = at[of] + np.rint(length * (done - before) / whole).astype(np.int64)
    names = tuple(each.removeprefix(NODE) for each in graph.names)
    return _merged(HostTrack(start_ns, end_ns, cause, name, names, is_light))


def _chain(graph: RankGraph) -> Int64:
    """Return the edges of the launching threads one behind the other, back from the main thread's last call."""
    own = np.flatnonzero((graph.edges.kind == EdgeKind.STRETCH) | (graph.edges.kind == EdgeKind.CALL))
    own = own[np.argsort(graph.points.time_ns[graph.edges.source[own]], kind="stable")]
    into = np.full(len(graph.points), UNKNOWN, dtype=np.int64)
    into[graph.edges.target[own]] = own  # of several the one that comes last
    calls = np.flatnonzero(graph.calls.thread == graph.main_thread)
    edges: list[int] = []
    edge = int(into[2 * calls[-1] + 1]) if len(calls) else UNKNOWN
    while edge != UNKNOWN:
        edges.append(edge)
        edge = int(into[graph.edges.source[edge]])
    return np.array(edges[::-1], dtype=np.int64)


def _pieces(graph: RankGraph, edges: Int64) -> tuple[Int64, Int64, Int64, Int64]:
    """Return what edges consist of, in order: the place of the edge, cause, name, and how long in the full window."""
    calls, order = graph.calls, np.arange(len(edges))
    is_call = graph.edges.kind[edges] == EdgeKind.CALL
    call = graph.edges.target[edges[is_call]] // 2
    of_calls = (
        order[is_call],
        np.where(calls.blocks[call], Cause.SYNCHRONIZE, Cause.LAUNCH_LATENCY).astype(np.int64),
        calls.name[call],
        np.ones(len(call), dtype=np.int64),
    )
    place = np.full(len(graph.edges), UNKNOWN, dtype=np.int64)
    place[edges] = order
    stretches = graph.stretches.take(place[graph.stretches.edge] >= 0)
    of_stretches = (place[stretches.edge], stretches.cause, stretches.place, stretches.ns)
    of, cause, name, ns = (np.concatenate(pair) for pair in zip(of_calls, of_stretches, strict=True))
    by_edge = np.argsort(of, kind="stable")
    return of[by_edge], cause[by_edge], name[by_edge], ns[by_edge]


def _light_times(graph: RankGraph, points: Int64) -> Int64:
    """Return where points of the host lie in the light window, in proportion between those that its devices place.

    No launch is later than what it launched. Empty where none is placed.
    """
    edges, ran, first = graph.edges, graph.activities, 2 * len(graph.calls)
    known = np.flatnonzero((ran.light_start_ns != UNKNOWN) & (ran.light_ns >= 0))
    placed = np.full(len(graph.points), UNKNOWN, dtype=np.int64)
    placed[first + 2 * known] = ran.light_start_ns[known]
    placed[first + 2 * known + 1] = ran.light_start_ns[known] + ran.light_ns[known]
    latest = np.full(len(graph.points), _LATEST)
    launches = np.flatnonzero((edges.kind == EdgeKind.LAUNCH) & (placed[edges.target] != UNKNOWN))
    np.minimum.at(latest, edges.source[launches], placed[edges.target[launches]])
    late_ns = graph.points.time_ns[edges.target] - graph.points.time_ns[edges.source] - edges.lag_ns
    order = np.lexsort((late_ns, edges.target))
    binding = order[begins(edges.target[order])]
    launched = np.intersect1d(binding, launches)
    returned = binding[(edges.kind[binding] == EdgeKind.BLOCK) & (placed[edges.source[binding]] != UNKNOWN)]
    placed[edges.source[launched]] = placed[edges.target[launched]] - edges.lag_ns[launched]
    placed[edges.target[returned]] = placed[edges.source[returned]] + edges.lag_ns[returned]
    anchors = points[placed[points] != UNKNOWN]
    if not len(anchors):
        return np.zeros(0, dtype=np.int64)
    between = _in_proportion(graph.points.time_ns[points], graph.points.time_ns[anchors], placed[anchors])
    earliest = np.minimum.accumulate(latest[points][::-1])[::-1]
    light: Int64 = np.minimum(np.maximum.accumulate(np.rint(between).astype(np.int64) + placed[anchors[0]]), earliest)
    return light


def _in_proportion(asked_ns: Int64, full_ns: Int64, light_ns: Int64) -> Float64:
    """Return light times, since the first anchor's, for full ones; outside of all anchors as far from the next one."""
    since, anchors = (asked_ns - full_ns[0]).astype(np.float64), (full_ns - full_ns[0]).astype(np.float64)
    there = (np.maximum.accumulate(light_ns) - light_ns[0]).astype(np.float64)
    outside = np.minimum(since, 0) + np.maximum(since - anchors[-1], 0)
    light: Float64 = np.interp(since, anchors, there) + outside
    return light


def _merged(track: HostTrack) -> HostTrack:
    """Return the track without what has no length, neighbours that are alike as one."""
    track = track.take(track.end_ns > track.start_ns)
    alike = (np.diff(track.cause) == 0) & (np.diff(track.name) == 0)
    first = np.flatnonzero(np.r_[True, ~(alike & (track.start_ns[1:] == track.end_ns[:-1]))][: len(track)])
    last = np.r_[first[1:], len(track)][: len(first)] - 1
    return replace(track.take(first), end_ns=values_at(track.end_ns, last))
