"""What is true of every simulated run, found again from what was written down of it and not from its own reckoning."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise

from tests.support.simulation.device import GAP_NS, JITTER_NS, REACH_NS, Activity
from tests.support.simulation.host import QUEUE, Host, Row
from tests.support.simulation.simulation import Simulated

WINDOWS = ("light", "full")


def violations(simulated: Simulated) -> list[str]:
    """Return what contradicts physics, in words; nothing where all is well."""
    found = [*_of_collectives(simulated)]
    for host in simulated.hosts:
        for window in WINDOWS:
            activities = simulated.activities(host.rank, window)
            found += [*_of_streams(activities), *_of_launches(activities), *_of_the_queue(activities)]
        found += [
            *_of_threads(host.rows),
            *_of_synchronizing_calls(simulated, host),
            *_of_reduced_gradients(simulated, host),
        ]
    return found


def _by_stream(activities: list[Activity]) -> dict[int, list[Activity]]:
    streams = defaultdict(list)
    for activity in activities:
        streams[activity.stream].append(activity)
    return streams


def _of_streams(activities: list[Activity]) -> Iterator[str]:
    """A stream runs what was launched on it in order, one after the other."""
    for stream in _by_stream(activities).values():
        for before, after in pairwise(sorted(stream, key=lambda activity: activity.correlation)):
            if after.start_ns < before.end_ns + GAP_NS:
                yield f"{after} begins before {before} has ended"


def _of_launches(activities: list[Activity]) -> Iterator[str]:
    """Nothing begins before its launch has reached the device, nor before what its stream was told to wait for."""
    for activity in activities:
        if activity.start_ns < max(activity.launched_ns + REACH_NS, activity.waited_ns):
            yield f"{activity} begins too early"
        if activity.end_ns < activity.start_ns + (activity.dur_ns if activity.transfer is None else 0):
            yield f"{activity} is too short"


def _of_collectives(simulated: Simulated) -> Iterator[str]:
    """Each member ends when what it takes part in has been moved since the last of those it needs began, and jitter."""
    for members in simulated.network.instances:
        transfers = [member.transfer for member in members if member.transfer is not None]
        longest_ns = max(transfer.ns for transfer in transfers)
        if len({member.rank for member in members}) != len(transfers[0].ranks):
            yield f"{members[0]} lacks members"
        for member in members:
            needed = {member.rank, transfers[0].ranks[0]} if transfers[0].is_buffered else set(transfers[0].ranks)
            done_ns = max(each.start_ns for each in members if each.rank in needed) + longest_ns
            if not done_ns <= member.end_ns <= done_ns + JITTER_NS:
                yield f"{member} ends {member.end_ns - done_ns} ns after its data"


def _of_the_queue(activities: list[Activity]) -> Iterator[str]:
    """So many launches are pending and no more."""
    ends: list[int] = []
    for activity in sorted(activities, key=lambda each: each.launched_ns):
        while ends and ends[0] <= activity.launched_ns:
            heappop(ends)
        heappush(ends, activity.end_ns)
        if len(ends) > QUEUE + 1:
            yield f"{len(ends)} launches are pending at {activity}"


def _of_threads(rows: list[Row]) -> Iterator[str]:
    """Rows of a thread lie inside one another or apart, and last no negative time."""
    for thread in {row.thread for row in rows}:
        ends: list[int] = []
        for row in sorted((row for row in rows if row.thread == thread), key=lambda row: (row.start_ns, -row.end_ns)):
            while ends and ends[-1] <= row.start_ns:
                ends.pop()
            if row.end_ns < row.start_ns or (ends and row.end_ns > ends[-1]):
                yield f"{row} crosses another"
            ends.append(row.end_ns)


def _of_synchronizing_calls(simulated: Simulated, host: Host) -> Iterator[str]:
    """A call that synchronizes ends after what was launched before it on the compute stream, and nothing before it."""
    activities = simulated.activities(host.rank, "full")
    for row in host.rows:
        if row.name in ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaFree"):
            before = [activity for activity in activities if activity.launched_ns <= row.start_ns]
            awaited = [activity for activity in before if row.name != "cudaStreamSynchronize" or activity.stream == 7]
            if row.end_ns < max((activity.end_ns for activity in awaited), default=0):
                yield f"{row} ends too early"


def _of_reduced_gradients(simulated: Simulated, host: Host) -> Iterator[str]:
    """The optimizer begins when all reductions of its step have ended."""
    activities = simulated.activities(host.rank, "full")
    reductions: dict[int, int] = defaultdict(int)
    for activity in activities:
        if activity.transfer is not None and activity.transfer.kind in ("all_reduce", "reduce_scatter"):
            reductions[activity.step] = max(reductions[activity.step], activity.end_ns)
    for activity in activities:
        if "multi_tensor_apply" in activity.name and activity.start_ns < reductions[activity.step]:
            yield f"{activity} begins before gradients are reduced"
