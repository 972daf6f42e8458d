"""The causal model without one of its rules: each has to matter to some run whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from analyzers.arrays import Float64, Int64
from analyzers.causes import calibrated, joining, model, pace
from analyzers.causes.calibrated import Variant
from analyzers.causes.changes import Facts
from analyzers.causes.hosts import Hosts, Shares
from analyzers.causes.joining import RunGraph
from analyzers.causes.pace import CourseEdges
from analyzers.rank.dependencies import Edges, building, host_calls
from analyzers.rank.dependencies.device_order import Device
from analyzers.rank.dependencies.points import EdgeKind

Patch = Callable[[pytest.MonkeyPatch], None]
NOWHERE = np.zeros(0, dtype=np.int64)
NO_EDGES = Edges.of(NOWHERE, NOWHERE, NOWHERE, EdgeKind.WAIT)


def _stream_waits(patch: pytest.MonkeyPatch) -> None:
    """No stream waits for another."""
    patch.setattr(building, "stream_waits", lambda device, host: NO_EDGES)
    patch.setattr(building, "soon_after", lambda device, starts: NO_EDGES)


def _recorded_waits(patch: pytest.MonkeyPatch) -> None:
    """What streams wait for is told by times alone."""
    patch.setattr(building, "stream_waits", lambda device, host: NO_EDGES)


def _soon_after(patch: pytest.MonkeyPatch) -> None:
    """What streams wait for is told by calls alone."""
    patch.setattr(building, "soon_after", lambda device, starts: NO_EDGES)


def _launches_of_blocking_calls(patch: pytest.MonkeyPatch) -> None:
    """What blocks its call would start behind it: times contradict that, and nothing launches it."""
    launches = Device.launches

    def from_ends(device: Device) -> Edges:
        edges = launches(device)
        return edges.take(edges.source % 2 == 1)

    patch.setattr(Device, "launches", from_ends)


def _blocking_edges(patch: pytest.MonkeyPatch) -> None:
    """A call takes what it takes, whatever it waits for."""

    def own_alone(device: Device) -> Edges:
        rows = np.arange(len(device.calls))
        return Edges.of(2 * rows, 2 * rows + 1, device.calls.end_ns - device.calls.begin_ns, EdgeKind.CALL)

    patch.setattr(Device, "calls_edges", own_alone)


def _full_queue(patch: pytest.MonkeyPatch) -> None:
    """A launch never waits for room."""
    patch.setattr(Device, "_finds_queue_full", lambda device: np.zeros(len(device.calls), dtype=bool))


def _hand_over(patch: pytest.MonkeyPatch) -> None:
    """Nothing passes between the main thread and autograd's."""

    def none(*_: object) -> Iterator[tuple[Int64, Int64, Int64]]:
        yield NOWHERE, NOWHERE, NOWHERE

    patch.setattr(host_calls, "_bursts", none)


def _light_durations(patch: pytest.MonkeyPatch) -> None:
    """Everything takes what it takes in the full window."""

    def as_in_full(graph: RunGraph, facts: Facts, typical: Collection[int]) -> RunGraph:
        return replace(graph, edges=replace(graph.edges, light_ns=np.full(len(graph.edges), -1)))

    patch.setattr(model, "without_odd", as_in_full)


def _odd_light_steps(patch: pytest.MonkeyPatch) -> None:
    """What an odd light step has is taken as it is."""
    patch.setattr(model, "without_odd", lambda graph, facts, typical: graph)


def _scaled_hosts(patch: pytest.MonkeyPatch) -> None:
    """Hosts take what they take under the profiler."""

    def whole(hosts: Hosts, host_ns: object) -> Shares:
        ranks = len(hosts.course.graph.ranks)
        return Shares(np.ones(ranks), np.zeros(ranks, dtype=bool))

    patch.setattr(calibrated, "shares_of", whole)
    patch.setattr(Shares, "times", lambda shares, factor: shares)


def _excess(patch: pytest.MonkeyPatch) -> None:
    """All of the hosts' time is scaled, sleeps too."""
    of = calibrated.hosts_of

    def dense(course: pace.Course) -> Hosts:
        hosts = of(course)
        return replace(hosts, dense_ns=hosts.dense_ns + hosts.excess_ns, excess_ns=np.zeros(len(hosts.excess_ns)))

    patch.setattr(calibrated, "hosts_of", dense)


def _common_factor(patch: pytest.MonkeyPatch) -> None:
    """The unprofiled step scales nothing."""
    patch.setattr(Shares, "times", lambda shares, factor: shares)


def _released(patch: pytest.MonkeyPatch) -> None:
    """What no dependency explains is kept."""
    weighed = calibrated._weighed

    def kept(rank: Int64, parts: Float64, variants: Sequence[Variant]) -> Float64:
        return weighed(rank, parts, [replace(variant, kept=1.0) for variant in variants])

    patch.setattr(calibrated, "_weighed", kept)


def _meetings(patch: pytest.MonkeyPatch) -> None:
    """No rank waits for another."""
    patch.setattr(joining, "_with_meetings", lambda graph, members, exchanged, shifts_ns: graph)


def _seams(patch: pytest.MonkeyPatch) -> None:
    """Typical steps that are not neighbours follow one another without edges."""

    def none(graph: RunGraph, between: Int64, lanes: object, steps: object, place: int) -> CourseEdges:
        return CourseEdges(NOWHERE, NOWHERE, NOWHERE, np.zeros(0, dtype=bool), NOWHERE)

    patch.setattr(pace, "_like", none)


RULES: dict[str, Patch] = {
    "stream waits": _stream_waits,
    "recorded waits": _recorded_waits,
    "soon after": _soon_after,
    "launches of blocking calls": _launches_of_blocking_calls,
    "blocking edges": _blocking_edges,
    "full queue": _full_queue,
    "hand-over": _hand_over,
    "light durations": _light_durations,
    "odd light steps": _odd_light_steps,
    "scaled hosts": _scaled_hosts,
    "excess": _excess,
    "common factor": _common_factor,
    "released": _released,
    "meetings": _meetings,
    "seams": _seams,
}
