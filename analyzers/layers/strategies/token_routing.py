"""Tokens that each rank sends to each, from an all-to-all's splits.

    rank 0 sends [3, 1]      tokens_to    3  1      a row each sender; what rank 0 receives is the first column,
    rank 1 sends [4, 0]                   4  0      so that its experts have seven tokens, and rank 1's have one

Splits count rows of a tensor's first dimension (torch.distributed.all_to_all_single), which are tokens where a row has
more than one element. Splits that are cut short leave element counts, from which a load still tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analyzers.arrays import UNKNOWN
from analyzers.collectives import Exchange
from analyzers.trace import Call, Collective, itemsize

# These carry tokens one way, whatever they are called in: the backward of a gather is a scatter, and turns round too.
_OUTWARD, _BACK = (Collective.DISPATCH, Collective.ALL_GATHER), (Collective.COMBINE, Collective.REDUCE_SCATTER)

# How a call's splits look to all its members, in the order of their group: each one's (in, out), None where unsaid.
Splits = tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, ...]
Matrix = list[list[int] | None]


@dataclass(frozen=True)
class Sent:
    """One exchange of tokens: its instance, kind, and each member's call in the group's order; None where unsaid."""

    number: int
    kind: Collective
    calls: tuple[Call | None, ...]

    @property
    def splits(self) -> Splits | None:
        """Return all members' splits, None where nobody says any."""
        said = tuple((call.split_in, call.split_out) if call is not None else None for call in self.calls)
        return said if any(one is not None and one != ((), ()) for one in said) else None

    @property
    def row_elements(self) -> int:
        """Return the elements of one row, of which splits count; -1 where they do not say, or contradict it."""
        sides = [
            (sum(splits), elements)
            for call in self.calls
            if call is not None
            for splits, elements in ((call.split_in, call.elements_in), (call.split_out, call.elements_out))
            if splits
        ]
        lengths = {elements // rows for rows, elements in sides if rows > 0 and elements >= 0}
        agrees = len(lengths) == 1 and all(elements == rows * min(lengths) for rows, elements in sides)
        return lengths.pop() if agrees else UNKNOWN


def sent(exchanged: Exchange, number: int) -> Sent:
    """Return an instance as an exchange of tokens."""
    table, instances = exchanged.matching.table, exchanged.matching.instances
    key = table.groups[instances.group[number]]
    calls: list[Call | None] = [None] * key.size
    for row in instances.members[instances.first[number] : instances.first[number + 1]].tolist():
        place = _place(key.ranks, int(table.rank[row]), int(table.place[row]))
        if 0 <= place < key.size:
            calls[place] = table.call_of(row)
    return Sent(number, Collective(int(instances.kind[number])), tuple(calls))


def _place(ranks: tuple[int, ...], rank: int, place: int) -> int:
    """Return a member's place among all ranks of its group, as splits count them; its place among those that are here.

    Ranks of one process stand once for all its devices, and say nothing of splits.
    """
    return ranks.index(rank) if ranks.count(rank) == 1 else place


def are_outward(exchanges: Sequence[Sent], known: set[Splits]) -> list[bool]:
    """Return which exchanges carry tokens to experts, in order: the first does, and what turns its splits does not.

    `known` holds the splits of those that went outward before, and takes what is new: a forward tells of its backward.
    Splits that look the same both ways tell nothing: of these every other one goes back.
    """
    outward, even = [], 0
    for exchange in exchanges:
        splits = exchange.splits
        turned = tuple(one and (one[1], one[0]) for one in splits) if splits is not None else None
        if exchange.kind in _OUTWARD or exchange.kind in _BACK:
            outward.append(exchange.kind in _OUTWARD)
        elif splits is None or turned is None or splits == turned:
            outward.append(even % 2 == 0)
            even += 1
        else:
            goes_out = splits in known or turned not in known
            outward.append(goes_out)
            if goes_out:
                known.add(splits)
    return outward


def routed(exchanges: Sequence[Sent], outward: Sequence[bool]) -> list[Sent]:
    """Return outward exchanges, each token once: some send weights beside tokens, split alike, in shorter rows."""
    kept: list[Sent] = []
    before: Sent | None = None
    for exchange, goes_out in zip(exchanges, outward, strict=True):
        if goes_out and before is not None and exchange.splits is not None and exchange.splits == before.splits:
            kept[-1] = max(kept[-1], exchange, key=lambda one: one.row_elements)
        elif goes_out:
            kept.append(exchange)
        before = exchange if goes_out else None
    return kept


@dataclass(frozen=True)
class Routing:
    """Tokens over several exchanges, by place in the group; None where unknown.

    `tokens_to`: a row each sender, None for one that does not say. `received` are tokens that each rank's experts have,
    `received_bytes` the same in bytes.
    """

    tokens_to: Matrix | None
    received: list[int | None]
    received_bytes: list[int | None]

    @property
    def imbalance(self) -> float | None:
        """Return the most that a rank receives over the mean; None unless all are known."""
        known = [nbytes for nbytes in self.received_bytes if nbytes is not None]
        if len(known) < len(self.received_bytes) or not sum(known):
            return None
        return max(known) * len(known) / sum(known)

    @property
    def busiest(self) -> int | None:
        """Return the place of the rank that receives most, None where that is not known, or no rank alone does."""
        if self.imbalance is None or self.imbalance == 1:
            return None
        most = max(nbytes for nbytes in self.received_bytes if nbytes is not None)
        return self.received_bytes.index(most) if self.received_bytes.count(most) == 1 else None


def routing(exchanges: Sequence[Sent], size: int) -> Routing:
    """Return what all exchanges together send within a group of `size` ranks."""
    parts = [_routing(exchange) for exchange in exchanges]
    if not parts or any(part is None for part in parts):
        nothing: list[int | None] = [None] * size
        return Routing(None, nothing, nothing)
    known = [part for part in parts if part is not None]
    matrices = [part.tokens_to for part in known]
    summed: Matrix | None = None
    if all(matrix is not None for matrix in matrices):
        rows = zip(*(matrix for matrix in matrices if matrix is not None), strict=True)
        summed = [_added([row for row in sender if row is not None], len(matrices)) for sender in rows]
    received = [_total(column) for column in zip(*(part.received for part in known), strict=True)]
    nbytes = [_total(column) for column in zip(*(part.received_bytes for part in known), strict=True)]
    return Routing(summed if summed is None or any(summed) else None, received, nbytes)


def _added(rows: Sequence[list[int]], wanted: int) -> list[int] | None:
    return [sum(column) for column in zip(*rows, strict=True)] if len(rows) == wanted else None


def _total(values: Iterable[int | None]) -> int | None:
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if len(known) == len(listed) else None


def _routing(exchange: Sent) -> Routing | None:
    """Return what one exchange says; None where its members contradict one another."""
    size, length = len(exchange.calls), exchange.row_elements
    is_told = exchange.kind == Collective.ALL_TO_ALL
    received_bytes = [_bytes(call) if is_told else None for call in exchange.calls]
    nothing: list[int | None] = [None] * size
    if not is_told or length <= 1:
        return Routing([None] * size, nothing, received_bytes)
    rows: Matrix = [
        list(call.split_in) if call is not None and len(call.split_in) == size else None for call in exchange.calls
    ]
    received = [sum(call.split_out) if call is not None and call.split_out else None for call in exchange.calls]
    columns = [call.split_out if call is not None and len(call.split_out) == size else None for call in exchange.calls]
    for sender, row in enumerate(rows):
        for receiver, column in enumerate(columns):
            if row is not None and column is not None and row[receiver] != column[sender]:
                return None
    return Routing(rows, received, received_bytes)


def _bytes(call: Call | None) -> int | None:
    if call is None or call.elements_out < 0 or not itemsize(call.dtype):
        return None
    return call.elements_out * itemsize(call.dtype)
