"""Collectives by brute force: docs/measuring.md's waiting, transfer and bandwidth, straight from the raw documents.

    expected = collectives(read_run(folder), clock)     by the kernels' places: (rank, device, start on its own clock)

Plain Python and Fractions, no code of the project; which kernels belong together `tests.support.pairs.oracle` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.support import damage as perturb
from tests.support.damage import Document, Event, Member
from tests.support.pairs import oracle

ITEMSIZE = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Double": 8, "Int": 4, "Byte": 1, "Char": 1, "Bool": 1}
KINDS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all",
    **{kind: kind for kind in ("barrier", "broadcast", "reduce", "gather", "scatter")},
    **dict.fromkeys(("send", "recv"), "send_recv"),
}
Place = tuple[int, int, int]
ONE_WAY = ("broadcast", "reduce", "gather", "scatter", "send_recv")
SHARED = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


@dataclass(frozen=True)
class Expected:
    """One collective. Times in ns; `algbw` and `busbw` exact, None where bytes are or nothing is transferred."""

    kind: str
    group: tuple[int, ...]
    bytes: int | None
    transfer_ns: int
    bound: bool
    wait_ns: dict[Place, int]
    algbw: Fraction | None
    busbw: Fraction | None


@dataclass(frozen=True)
class Clock:
    """What is known of ranks' clocks: their hosts, and of each other host's ranks the offset that is taken off.

    `spread` is how well each rank's offset is known; a rank that is not in `offset` is not moved.
    """

    host: dict[int, str]
    reference: int
    offset: dict[int, int]
    spread: dict[int, int]

    def host_of(self, rank: int) -> str:
        return self.host.get(rank, f"rank {rank}")

    def is_shared(self, ranks: Iterable[int], shortest_ns: int) -> bool:
        """Whether ranks are on one host, or on hosts whose offsets are applied and known to a tenth of the shortest."""
        ranks = list(ranks)
        if len({self.host_of(rank) for rank in ranks}) == 1:
            return True
        others = [rank for rank in ranks if self.host_of(rank) != self.host_of(self.reference)]
        return all(
            rank in self.offset and 10 * self._spread_of_host(self.host_of(rank)) < shortest_ns for rank in others
        )

    def _spread_of_host(self, host: str) -> int:
        return max(spread for rank, spread in self.spread.items() if self.host_of(rank) == host)


def collectives(documents: Sequence[Document], clock: Clock) -> dict[frozenset[Place], Expected]:
    """Every instance whose kernels carry metadata."""
    kernels = {member: event for document in documents for member, event in _kernels(document)}
    bases = {perturb.rank_of(document): int(document.get("baseTimeNanoseconds", 0)) for document in documents}
    roots = {perturb.rank_of(document): _roots(document) for document in documents}
    found = {}
    for together in oracle(documents):
        events = {_place(member, kernels[member], bases): kernels[member] for member in together}
        if all("Collective name" in event["args"] for event in events.values()):
            told = [roots[place[0]].get(event["args"].get("External id")) for place, event in events.items()]
            found[frozenset(events)] = _expected(events, clock, next(filter(None, told), None))
    return found


def _roots(document: Document) -> dict[Any, int]:
    """The root of each gather and scatter, one higher than its place in the group, by its operator's id."""
    operators = (event for event in document["traceEvents"] if event.get("name") == "record_param_comms")
    said = (event["args"] for event in operators if event["args"].get("Collective name") in ("gather", "scatter"))
    return {args.get("External id"): args["Rank"] + 1 for args in said if "Rank" in args}


def _kernels(document: Document) -> Iterable[tuple[Member, Event]]:
    for event in filter(perturb.is_nccl, document["traceEvents"]):
        yield (perturb.rank_of(document), event["args"]["device"], event["args"]["correlation"]), event


def _place(member: Member, event: Event, bases: dict[int, int]) -> Place:
    return *member[:2], bases[member[0]] + perturb.start_ns(event)


def _expected(events: dict[Place, Event], clock: Clock, root: int | None) -> Expected:
    said = {place: event["args"] for place, event in events.items()}
    one = next(iter(said.values()))
    name = one["Collective name"]
    group = tuple(map(int, re.findall(r"\d+", one["Process Group Ranks"])))
    duration = {place: perturb.end_ns(event) - perturb.start_ns(event) for place, event in events.items()}
    one_way = KINDS[name] in ONE_WAY or _leaves_a_pair_out(said, group)
    wait = _waits(duration, clock, one_way)
    transfer = max(duration[place] - wait[place] for place in duration)
    if KINDS[name] in ("gather", "scatter"):
        transfer = _by_root(duration, wait, clock, None if root is None else group[root - 1])
    nbytes, factor = _bytes(KINDS[name], said, group)
    algbw = Fraction(nbytes, transfer) if nbytes is not None and transfer else None
    busbw = algbw * factor if algbw is not None else None
    return Expected(KINDS[name], group, nbytes, transfer, one_way, wait, algbw, busbw)


def _by_root(duration: dict[Place, int], wait: dict[Place, int], clock: Clock, root: int | None) -> int:
    """What the root's kernel takes less its wait, all of it without a common clock; of none that is told the longest's.

    It takes its wait away there, too.
    """
    is_shared = clock.is_shared((rank for rank, _, _ in duration), min(duration.values()))
    left = {place: duration[place] - is_shared * wait[place] for place in sorted(duration)}
    (place, *_) = [place for place in left if place[0] == root] or [max(left, key=left.__getitem__)]
    wait[place] *= is_shared
    return left[place]


def _waits(duration: dict[Place, int], clock: Clock, one_way: bool) -> dict[Place, int]:
    shortest = min(duration.values())
    longer = {place: own - shortest for place, own in duration.items()}
    if not clock.is_shared((rank for rank, _, _ in duration), shortest):
        return longer
    start = {place: place[2] - clock.offset.get(place[0], 0) for place in duration}
    wait = {}
    for place, own in duration.items():
        ends = start[place] + own
        wait[place] = max([begun for begun in start.values() if begun < ends], default=start[place]) - start[place]
    return {place: min(wait[place], longer[place]) for place in wait} if one_way else wait


def _leaves_a_pair_out(said: dict[Place, dict[str, Any]], group: tuple[int, ...]) -> bool:
    """Whether in an all-to-all some rank sends nothing to another, or nobody says what it sends to whom."""
    if not all(args["Collective name"].startswith("all_to_all") for args in said.values()):
        return False
    for (rank, _, _), args in said.items():
        splits = [re.findall(r"\d+", args.get(f"{side} split size", "")) for side in ("In", "Out")]
        uneven = args["In msg nelems"] != args["Out msg nelems"] or any(len(set(split)) > 1 for split in splits)
        own = group.index(rank)
        to_others = [split[:own] + split[own + 1 :] for split in splits]
        if uneven and any(len(split) < len(group) - 1 or "0" in split for split in to_others):
            return True
    return False


def _bytes(kind: str, said: dict[Place, dict[str, Any]], group: tuple[int, ...]) -> tuple[int | None, Fraction]:
    """Bytes, and bus bandwidth over algorithm bandwidth."""
    one, size = next(iter(said.values())), len(group)
    item = ITEMSIZE[one["dtype"]]
    if kind == "barrier":
        return None, Fraction(1)
    splits = {
        place[0]: [
            [int(part) for part in re.findall(r"\d+", args.get(f"{side} split size", ""))] for side in ("In", "Out")
        ]
        for place, args in said.items()
        if kind == "all_to_all"
    }
    if any(len(set(split)) > 1 for sides in splits.values() for split in sides):
        nelems = {place[0]: [args[f"{side} msg nelems"] for side in ("In", "Out")] for place, args in said.items()}
        # Splits count rows.
        moved = [
            Fraction(sum(split) - split[group.index(rank)], sum(split) or 1) * nelems[rank][side]
            for rank, sides in splits.items()
            for side, split in enumerate(sides)
        ]
        return int(max(moved)) * item, Fraction(1)
    elements = max(args[f"{side} msg nelems"] for args in said.values() for side in ("In", "Out"))
    share = Fraction(size - 1, size)
    return elements * item, 2 * share if kind == "all_reduce" else share if kind in SHARED else Fraction(1)
