"""Ranks' clocks against that of the lowest rank: how far apart they are, and whether to put them on one.

Synchronizing collectives end together, so that the median difference of ends is the clocks' offset. Ends differ by the
ring's progress too, which is no clock's doing: an offset is applied only where it exceeds its own spread and every
transfer it was computed from, and never between ranks known to share a host.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzers.collectives import Matching
from analyzers.summary import RankSummary, RunSummary

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Clock:
    """One rank's clock: later than the reference's by `offset_ns`, known to within `spread_ns` (interquartile range).

    Where two ranks share no synchronizing collective the offset is led over others, and their spreads are added.
    """

    offset_ns: int
    spread_ns: int
    shortest_transfer_ns: int
    applied: bool = False

    @property
    def shift_ns(self) -> int:
        """What to take off the rank's times to have them on the common clock."""
        return self.offset_ns if self.applied else 0


@dataclass(frozen=True)
class Clocks:
    """The clocks of all ranks that share collectives with the reference, directly or by way of others."""

    reference: int
    by_rank: dict[int, Clock] = field(default_factory=dict)

    def shift_ns(self, ranks: Int64) -> Int64:
        """What to take off the times of each rank, 0 where nothing is known of its clock."""
        known = {rank: clock.shift_ns for rank, clock in self.by_rank.items()}
        return np.array([known.get(rank, 0) for rank in ranks.tolist()], dtype=np.int64)

    def spread_ns(self, ranks: Int64) -> Int64:
        """The spread of each rank's clock, -1 where nothing is known of it."""
        known = {rank: clock.spread_ns for rank, clock in self.by_rank.items()}
        return np.array([known.get(rank, -1) for rank in ranks.tolist()], dtype=np.int64)


def clocks(run: RunSummary, matching: Matching) -> Clocks:
    """The clocks of a run whose collectives are matched."""
    hosts = _hosts(run)
    reference = run.ranks[0].rank
    found = {reference: Clock(0, 0, 0)}
    shared = _Shared(matching)
    queue = deque([reference])
    while queue and len(found) < len(run.ranks):
        rank = queue.popleft()
        for other, direct in shared.clocks_against(rank).items():
            if other not in found:
                found[other] = _led(found[rank], direct)
                queue.append(other)
    applied = {rank: _decided(clock, hosts.get(rank), hosts.get(reference)) for rank, clock in found.items()}
    return Clocks(reference, dict(sorted(applied.items())))


def _led(before: Clock, direct: Clock) -> Clock:
    return Clock(
        before.offset_ns + direct.offset_ns,
        before.spread_ns + direct.spread_ns,
        max(before.shortest_transfer_ns, direct.shortest_transfer_ns),
    )


def _decided(clock: Clock, host: str | None, reference: str | None) -> Clock:
    shared = host is not None and host == reference
    size = abs(clock.offset_ns)
    applied = not shared and size > clock.spread_ns and size > clock.shortest_transfer_ns
    return Clock(clock.offset_ns, clock.spread_ns, clock.shortest_transfer_ns, applied)


def _hosts(run: RunSummary) -> dict[int, str]:
    """The host of each rank, where its trace names it or the run was recorded on one."""
    if run.manifest is not None and len(run.manifest.hosts) == 1:
        return {summary.rank: run.manifest.hosts[0] for summary in run.ranks}
    return {summary.rank: host for summary in run.ranks if (host := _host(summary))}


def _host(summary: RankSummary) -> str | None:
    return summary.header.host_name


class _Shared:
    """The synchronizing instances of a run, by rank."""

    def __init__(self, matching: Matching) -> None:
        instances, table = matching.instances, matching.table
        chosen = instances.synchronizes[instances.of_member]
        rows, number = instances.members[chosen], instances.of_member[chosen]
        self._rank, self._end_ns, self._number = table.rank[rows], table.end_ns[rows], number
        self._shortest = np.full(len(instances), np.iinfo(np.int64).max)
        np.minimum.at(self._shortest, number, table.end_ns[rows] - table.start_ns[rows])

    def clocks_against(self, rank: int) -> dict[int, Clock]:
        """The clock of every rank that shares an instance with this one, against this one's."""
        own = self._rank == rank
        end = np.zeros(len(self._shortest), dtype=np.int64)
        held = np.zeros(len(self._shortest), dtype=bool)
        end[self._number[own]], held[self._number[own]] = self._end_ns[own], True
        others = np.flatnonzero(held[self._number] & ~own)
        others = others[np.argsort(self._rank[others], kind="stable")]
        ranks, first = np.unique(self._rank[others], return_index=True)
        return {
            int(other): self._clock(rows, end[self._number[rows]])
            for other, rows in zip(ranks.tolist(), np.split(others, first[1:]), strict=True)
        }

    def _clock(self, rows: Int64, end_ns: Int64) -> Clock:
        later = self._end_ns[rows] - end_ns
        low, median, high = np.percentile(later, [25, 50, 75])
        return Clock(round(float(median)), round(float(high - low)), int(self._shortest[self._number[rows]].min()))
