"""Clock and step-number offsets learnt while groups are aligned.

0 -- 1    a group shows 0 and 1 apart by 5 us
     1 -- 2    another 1 and 2 by 3 us: then 0 and 2 are known against one another, too
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from analyzers.collectives.sequences import Offset
from analyzers.ranks import RankNumber


class _Place(NamedTuple):
    """A rank among those whose clocks and step numbers are known against one another, its `component`."""

    component: int
    ns: int = 0
    deviation_ns: int = 0
    higher: int = 0


class Offsets:
    """Offsets between ranks' clocks as groups reveal them, so that a group with few kernels learns from larger ones."""

    def __init__(self, hosts: Mapping[RankNumber, str]) -> None:
        self._hosts = hosts
        self._place: dict[int, _Place] = {}
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
        place_a, place_b = (self._place.setdefault(rank, _Place(rank)) for rank in (a, b))
        shift_ns, higher = place_a.ns + offset.ns - place_b.ns, place_a.higher + offset.higher - place_b.higher
        joining = self._members.pop(place_b.component, [b])
        for rank in joining:
            place = self._place[rank]
            deviation_ns = max(place.deviation_ns, offset.deviation_ns)
            self._place[rank] = _Place(place_a.component, place.ns + shift_ns, deviation_ns, place.higher + higher)
        self._members.setdefault(place_a.component, [place_a.component]).extend(joining)
