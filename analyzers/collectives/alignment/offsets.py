"""Clock and step-number offsets learnt while groups are aligned.

0 -- 1    a group shows 0 and 1 apart by 5 us
     1 -- 2    another 1 and 2 by 3 us: then 0 and 2 are known against one another, too
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, firsts
from analyzers.collectives.alignment.common_offset import find_offsets, refine_offsets
from analyzers.collectives.alignment.pairing import Apart, match_at, match_in_order
from analyzers.collectives.alignment.sequences import Kernels, Offset, renumber
from analyzers.ranks import RankNumber


class _ClockPlace(NamedTuple):
    """A rank among those whose clocks and step numbers are known against one another, its `component`."""

    component: int
    ns: int = 0
    deviation_ns: int = 0
    higher: int = 0


class Offsets:
    """Offsets between ranks' clocks as groups reveal them, so that a group with few kernels learns from larger ones."""

    def __init__(self, hosts: Mapping[RankNumber, str]) -> None:
        self._hosts = hosts
        self._place: dict[int, _ClockPlace] = {}
        self._members: dict[int, list[int]] = {}  # of each component
        self._unclear: set[tuple[int, int]] = set()

    def between(self, a: int, b: int) -> Offset | None:
        """Return how much later b's clock is than a's, if both are known to one another."""
        if a == b:
            return Offset(0, 0, 0)
        place_a, place_b = self._place.get(a), self._place.get(b)
        if place_a is None or place_b is None or place_a.component != place_b.component:
            return None
        deviation_ns = max(place_a.deviation_ns, place_b.deviation_ns)
        return Offset(place_b.ns - place_a.ns, deviation_ns, 0, place_b.higher - place_a.higher)

    def are_one(self, a: int, b: int) -> bool:
        """Whether two ranks are known to share a host, and its clock."""
        host = self._hosts.get(RankNumber(a))
        return host is not None and host == self._hosts.get(RankNumber(b))

    def are_unclear(self, a: int, b: int) -> bool:
        """Whether two ranks share synchronizing collectives, and these align in no clear way."""
        return (min(a, b), max(a, b)) in self._unclear and self.between(a, b) is None

    def renumbered_by(self) -> dict[int, int]:
        """Return ranks whose steps have higher numbers than most of those known against them, and by how much."""
        renumbered: dict[int, int] = {}
        for members in self._members.values():
            higher = [self._place[rank].higher for rank in members]
            usual = Counter(higher).most_common(1)[0][0]
            renumbered |= {
                rank: number - usual for rank, number in zip(members, higher, strict=True) if number != usual
            }
        return dict(sorted(renumbered.items()))

    def learn(self, a: int, b: int, offset: Offset | None) -> None:
        """Put two ranks, and all that are known to either, on one clock; without an offset they are unclear."""
        if offset is None:
            self._unclear.add((min(a, b), max(a, b)))
            return
        if a == b or self.between(a, b) is not None:
            return
        place_a, place_b = (self._place.setdefault(rank, _ClockPlace(rank)) for rank in (a, b))
        shift_ns, higher = place_a.ns + offset.ns - place_b.ns, place_a.higher + offset.higher - place_b.higher
        joining = self._members.pop(place_b.component, [b])
        for rank in joining:
            place = self._place[rank]
            deviation_ns = max(place.deviation_ns, offset.deviation_ns)
            self._place[rank] = _ClockPlace(place_a.component, place.ns + shift_ns, deviation_ns, place.higher + higher)
        self._members.setdefault(place_a.component, [place_a.component]).extend(joining)


@dataclass(frozen=True, eq=False)
class Sides:
    """All members of a group: rank and `rows` of the table member by member, and what alignment needs of them.

    Each pair of `kernels` is the `reference`, a place among the members, with one of the `others`.
    """

    ranks: tuple[int, ...]
    rows: tuple[Int64, ...]
    reference: int
    others: Int64
    a: Kernels
    b: Kernels


def align(clocks: Offsets, sides: Sides, compatible: Mask) -> tuple[Int64, list[Offset | None], list[bool]]:
    """Return the partner of each of the reference's kernels among each other member's, a line for each; -1 for none.

    And each other member's offset, and whether it is unclear. `compatible`: which signatures may be one collective.
    """
    offsets, unclear = _learnt_offsets(clocks, sides, compatible)
    return _find_partners(sides, compatible, offsets, np.array(unclear, dtype=bool)), offsets, unclear


def _learnt_offsets(clocks: Offsets, sides: Sides, compatible: Mask) -> tuple[list[Offset | None], list[bool]]:
    """Return the offset of each other member: as larger groups have it, refined by this one, else as this one has it.

    And whether the ends of other groups do not bear out its step numbers, which then say nothing here either.
    """
    reference, others = sides.ranks[sides.reference], [sides.ranks[place] for place in sides.others.tolist()]
    learnt = [clocks.between(reference, rank) for rank in others]
    new = np.array([pair for pair, offset in enumerate(learnt) if offset is None], dtype=np.int64)
    one_clock = np.array([clocks.are_one(reference, others[pair]) for pair in new.tolist()], dtype=bool)
    found = dict(
        zip(
            new.tolist(), find_offsets(sides.a.of_pairs(new), sides.b.of_pairs(new), compatible, one_clock), strict=True
        )
    )
    synchronize = _synchronizing_pairs(sides)
    offsets: list[Offset | None] = []
    unclear: list[bool] = []
    for pair, rank in enumerate(others):
        # A member before this one may have shown it: two that others know against one another.
        learnt[pair] = clocks.between(reference, rank)
        if learnt[pair] is None and (found[pair] is not None or synchronize[pair]):
            clocks.learn(reference, rank, found[pair])
        offsets.append(learnt[pair] or found[pair])
        unclear.append(clocks.are_unclear(reference, rank))
    return _refine_offsets(sides, compatible, learnt, offsets, reference), unclear


def _synchronizing_pairs(sides: Sides) -> list[bool]:
    """Whether both members of each pair have synchronizing kernels."""
    counts = [np.bincount(one.pair[one.synchronizes], minlength=one.pairs) > 0 for one in (sides.a, sides.b)]
    return [*np.logical_and(*counts).tolist()]


def _refine_offsets(
    sides: Sides, compatible: Mask, learnt: Sequence[Offset | None], offsets: list[Offset | None], reference: int
) -> list[Offset | None]:
    """Refine what larger groups say, but of devices of one rank, which have one clock."""
    of_others = [sides.ranks[place] != reference for place in sides.others.tolist()]
    rough = {pair: offset for pair, offset in enumerate(learnt) if offset is not None and of_others[pair]}
    chosen = np.array([*rough], dtype=np.int64)
    refined = refine_offsets(sides.a.of_pairs(chosen), sides.b.of_pairs(chosen), compatible, [*rough.values()])
    for pair, offset in zip(rough, refined, strict=True):
        offsets[pair] = offset or offsets[pair]
    return offsets


def _find_partners(sides: Sides, compatible: Mask, offsets: Sequence[Offset | None], unclear: Mask) -> Int64:
    partner = np.full((len(offsets), len(sides.rows[sides.reference])), UNKNOWN, dtype=np.int64)
    known = np.array([offset is not None for offset in offsets], dtype=bool)
    for chosen in (np.flatnonzero(known & ~unclear), np.flatnonzero(~known & ~unclear)):
        some = [offset for offset in map(offsets.__getitem__, chosen.tolist()) if offset is not None]
        a, b = sides.a.of_pairs(chosen), sides.b.of_pairs(chosen)
        if some:
            higher, ns, deviation_ns = (
                np.array([getattr(offset, name) for offset in some], dtype=np.int64)
                for name in ("higher", "ns", "deviation_ns")
            )
            matched = match_at(*renumber(a, b, higher), compatible, Apart(ns, deviation_ns))
        else:
            matched = match_in_order(a, b, compatible)
        first = firsts(b.pair, b.pairs)[:-1]
        local = np.where(matched >= 0, matched - first[a.pair], UNKNOWN)
        partner[chosen] = local.reshape(len(chosen), partner.shape[1])
    return partner
