"""Clock offsets of ranks against the lowest rank, and which are applied.

Synchronizing collectives end together, so that the median difference of ends is the clocks' offset. Ends differ by the
ring's progress too, which is no clock's doing: an offset is applied only where it exceeds its own spread and every
transfer it was computed from, never between ranks known to share a host; ranks of another host are shifted alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.collectives.matching import Matching
from analyzers.rank import RunSummary
from analyzers.ranks import RankNumber
from analyzers.run import hosts
from analyzers.statistics import quartiles

UNBOUNDED = int(np.iinfo(np.int64).max) // 16


@dataclass(frozen=True)
class RankClock:
    """One rank's clock: later than the reference's by `offset_ns`, known to within `spread_ns` (interquartile range).

    Where two ranks share no synchronizing collective the offset is led over others, and their spreads are added.
    `reference` is the lowest rank that is reached so, `shift_ns` what is taken off the rank's times, and `error_ns` how
    far these may be off the reference's then: UNBOUNDED where another host's offset is too small to be applied.
    """

    offset_ns: int
    spread_ns: int
    shortest_transfer_ns: int
    reference: RankNumber
    shift_ns: int = 0
    error_ns: int = 0

    @property
    def applied(self) -> bool:
        """Whether the rank's times are shifted."""
        return self.shift_ns != 0


@dataclass(frozen=True)
class Clocks:
    """The clocks of all ranks; only those of one reference can be compared."""

    reference: RankNumber
    all: dict[RankNumber, RankClock] = field(default_factory=dict)
    hosts: dict[RankNumber, str] = field(default_factory=dict)

    @cached_property
    def by_rank(self) -> dict[RankNumber, RankClock]:
        """Return the clocks that can be compared with the lowest rank's."""
        return {rank: clock for rank, clock in self.all.items() if clock.reference == self.reference}

    def shift_ns(self, ranks: Int64) -> Int64:
        """Return what to take off each rank's times, 0 where nothing is known of its clock."""
        return self._looked_up(ranks, "shift_ns", 0)

    def shift_of(self, rank: RankNumber) -> int:
        """Return what to take off one rank's times."""
        return self.all[rank].shift_ns if rank in self.all else 0

    def are_shared(self, matching: Matching, shortest_ns: Int64) -> Mask:
        """Whether the members of each instance share a clock; `shortest_ns` is each instance's shortest member.

        Devices of one process and ranks on one host do. Ranks of several hosts do where the offset of every host but
        the reference's was applied, and is known to less than a tenth of the shortest member.
        """
        ranks, first = matching.table.rank[matching.instances.members], matching.instances.first[:-1]
        if not len(first):
            return np.zeros(0, dtype=bool)
        error = np.maximum.reduceat(self._looked_up(ranks, "error_ns", UNBOUNDED), first)
        is_told = ~_differ(self._looked_up(ranks, "reference", UNKNOWN), first) & (10 * error < shortest_ns)
        shared: Mask = ~_differ(self._host_numbers(ranks), first) | is_told
        return shared

    def are_comparable(self, matching: Matching) -> Mask:
        """Whether something ties the clocks of the members of each instance: a host, or collectives."""
        ranks, first = matching.table.rank[matching.instances.members], matching.instances.first[:-1]
        if not len(first):
            return np.zeros(0, dtype=bool)
        references = self._looked_up(ranks, "reference", UNKNOWN)
        comparable: Mask = ~_differ(self._host_numbers(ranks), first) | ~_differ(references, first)
        return comparable

    def _host_numbers(self, ranks: Int64) -> Int64:
        """Return a number for each rank's host; ranks whose host nothing tells have one each."""
        distinct, which = np.unique(ranks, return_inverse=True)
        numbers: dict[str | int, int] = {}
        names = [self.hosts.get(rank, rank) for rank in distinct.tolist()]
        return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)[which]

    def _looked_up(self, ranks: Int64, name: str, otherwise: int) -> Int64:
        distinct, which = np.unique(ranks, return_inverse=True)
        values = [getattr(self.all[rank], name) if rank in self.all else otherwise for rank in distinct.tolist()]
        return np.array(values, dtype=np.int64)[which]


def _differ(values: Int64, first: Int64) -> Mask:
    """Whether the values of each part, which begins at `first`, differ."""
    different: Mask = np.minimum.reduceat(values, first) < np.maximum.reduceat(values, first)
    return different


def clocks(run: RunSummary, matching: Matching) -> Clocks:
    """Return the clocks of a run whose collectives are matched."""
    ranks = [summary.rank for summary in run.ranks]
    shared = _Shared(matching)
    by_rank: dict[RankNumber, RankClock] = {}
    for reference in ranks:
        if reference not in by_rank:
            by_rank |= _reach_ranks(reference, shared, len(ranks) - len(by_rank))
    of_host = hosts(run.manifest, run.ranks)
    return Clocks(ranks[0], _shift_clocks(dict(sorted(by_rank.items())), of_host), of_host)


def _reach_ranks(reference: RankNumber, shared: _Shared, most: int) -> dict[RankNumber, RankClock]:
    """Return the clocks of all ranks that share collectives with one, directly or by way of others."""
    reached = {reference: RankClock(0, 0, 0, reference)}
    queue = deque([reference])
    while queue and len(reached) < most:
        rank = queue.popleft()
        for other, direct in shared.clocks_against(rank).items():
            if other not in reached:
                reached[other] = _chain_clocks(reached[rank], direct)
                queue.append(other)
    return reached


def _chain_clocks(before: RankClock, direct: RankClock) -> RankClock:
    return RankClock(
        before.offset_ns + direct.offset_ns,
        before.spread_ns + direct.spread_ns,
        max(before.shortest_transfer_ns, direct.shortest_transfer_ns),
        before.reference,
    )


def _shift_clocks(clocks: dict[RankNumber, RankClock], hosts: dict[RankNumber, str]) -> dict[RankNumber, RankClock]:
    """Return the clocks with what is taken off each: a host's ranks have one clock, and one shift."""
    of_host: dict[tuple[RankNumber, str | int], list[RankNumber]] = {}
    for rank, clock in clocks.items():
        of_host.setdefault((clock.reference, hosts.get(rank, rank)), []).append(rank)
    shifted: dict[RankNumber, RankClock] = {}
    for (reference, host), ranks in of_host.items():
        is_reference = host == hosts.get(reference, reference)
        shift_ns = 0 if is_reference else _shift_ns([clocks[rank] for rank in ranks])
        spread_ns = max(clocks[rank].spread_ns for rank in ranks) if shift_ns else UNBOUNDED
        error_ns = 0 if is_reference else spread_ns
        shifted |= {rank: replace(clocks[rank], shift_ns=shift_ns, error_ns=error_ns) for rank in ranks}
    return dict(sorted(shifted.items()))


def _shift_ns(clocks: list[RankClock]) -> int:
    """Return the median offset of a host's ranks, if it exceeds their spreads and the transfers it comes from."""
    offset_ns, _ = _find_middle([clock.offset_ns for clock in clocks])
    doubt_ns = max(max(clock.spread_ns, clock.shortest_transfer_ns) for clock in clocks)
    return offset_ns if abs(offset_ns) > doubt_ns else 0


class _Shared:
    """The synchronizing instances of a run, by rank."""

    def __init__(self, matching: Matching) -> None:
        instances, table = matching.instances, matching.table
        chosen = matching.synchronizes[instances.of_member]
        rows, number = instances.members[chosen], instances.of_member[chosen]
        self._rank, self._end_ns, self._number = table.rank[rows], table.end_ns[rows], number
        self._shortest = np.full(len(instances), np.iinfo(np.int64).max)
        np.minimum.at(self._shortest, number, table.end_ns[rows] - table.start_ns[rows])

    def clocks_against(self, rank: RankNumber) -> dict[RankNumber, RankClock]:
        """Return the clock of every rank that shares an instance with this one, against this one's."""
        of_rank = self._rank == rank
        end = np.zeros(len(self._shortest), dtype=np.int64)
        held = np.zeros(len(self._shortest), dtype=bool)
        end[self._number[of_rank]], held[self._number[of_rank]] = self._end_ns[of_rank], True
        others = np.flatnonzero(held[self._number] & ~of_rank)
        others = others[np.argsort(self._rank[others], kind="stable")]
        if not len(others):
            return {}
        ranks, first = np.unique(self._rank[others], return_index=True)
        return {
            RankNumber(other): self._clock(rows, end[self._number[rows]])
            for other, rows in zip(ranks.tolist(), np.split(others, first[1:]), strict=True)
        }

    def _clock(self, rows: Int64, end_ns: Int64) -> RankClock:
        later = self._end_ns[rows] - end_ns
        median_ns, spread_ns = _find_middle(later.tolist())
        shortest = int(self._shortest[self._number[rows]].min())
        return RankClock(median_ns, spread_ns, shortest, RankNumber(-1))


def _find_middle(values: Sequence[int]) -> tuple[int, int]:
    """Return median and interquartile range, also where float64 tells no values apart: a clock may lack its epoch."""
    low, median, high = quartiles(np.array([value - values[0] for value in values]))
    return values[0] + round(median), round(high - low)
