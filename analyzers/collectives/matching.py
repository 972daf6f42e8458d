"""Matching of kernels across ranks into collective instances.

    rank 0   ....####....      one instance: everybody waits for rank 2, whose kernel is the shortest,
    rank 1   ..######....      and leaves together
    rank 2   ......##....

Each group's sequence is aligned member by member with that of one of them, and its kernels are paired (the room
`alignment`). An instance stands where every member that is in the run has its kernel; what is left over
is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask, distinct
from analyzers.collectives.alignment import Kernels, Offset, Offsets, Sides, align
from analyzers.collectives.groups import SPLIT, Key
from analyzers.collectives.table import KernelTable, table_of
from analyzers.rank import RunSummary
from analyzers.run import hosts
from analyzers.texts import brief
from analyzers.trace import SYNCHRONIZING, Call, Collective

# A synchronizing collective ends nowhere before it has begun everywhere, but for what clocks and rings differ by.
OVERLAP_NOISE_NS = 500_000
# So many steps and members must agree on how often a signature occurs before that number is trusted.
WITNESSES = 3
NOT_APART = Offset(0, 0, 0)
UNLIKE = np.iinfo(np.int64).max // 2

NO_GROUP = "the trace does not say between which ranks"
AMBIGUOUS = "two alignments with the other members are about as good"
INCONSISTENT = "its members contradict one another"


@dataclass(frozen=True, eq=False)
class Instances:
    """Instances by start, a row each; `members` are rows of the table, instance k's at `first[k]:first[k + 1]`.

    `call` is the members' common call (of a root or an uneven member the largest), None where nothing says. `step` is
    -1 for what was launched outside of the profiler's steps, `window` the same, but 0 where devices have no other.
    `partial`: members that are not in the run.
    """

    kind: NDArray[np.int8]
    group: Int64
    step: Int64
    window: Int64
    partial: Mask
    call: tuple[Call | None, ...]
    first: Int64
    members: Int64

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def of_member(self) -> Int64:
        """Return the instance of each entry of `members`."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    @property
    def synchronizes(self) -> Mask:
        """Whether nobody leaves before all have come."""
        return np.isin(self.kind, SYNCHRONIZING)


@dataclass(frozen=True, eq=False)
class Matching:
    """All communication of a run: its kernels, which of them are one collective, and why others are in none.

    `instance` is the instance of each row of the table, -1 for none; `why` gives the reason, by row. `renumbered_by`:
    ranks whose steps have higher numbers than most others', and by how much.
    """

    table: KernelTable
    instances: Instances
    instance: Int64
    why: dict[int, str]
    renumbered_by: dict[int, int] = field(default_factory=dict)

    __repr__ = brief

    @cached_property
    def synchronizes(self) -> Mask:
        """Whether nobody leaves an instance before all have come.

        An all-to-all in which some pair sends nothing one way, or whose splits nothing tells, is not of these.
        """
        synchronizes = self.instances.synchronizes.copy()
        for number in np.flatnonzero(self.instances.kind == Collective.ALL_TO_ALL).tolist():
            rows = self.instances.members[self.instances.first[number] : self.instances.first[number + 1]]
            calls = ((int(self.table.rank[row]), self.table.call_of(row)) for row in rows.tolist())
            synchronizes[number] = all(call is None or call.sends_both_ways(rank) for rank, call in calls)
        return synchronizes


def match_run(run: RunSummary) -> Matching:
    """Match the communication of all ranks of a run."""
    table = table_of(run)
    why: dict[int, str] = dict.fromkeys(np.flatnonzero((table.group < 0) & ~table.is_copy).tolist(), NO_GROUP)
    clocks = Offsets(hosts(run.manifest, run.ranks))
    # A recording opens every rank's window at one step; a manifest written by hand says nothing of a profiler.
    opened_together = run.manifest is not None and bool(run.manifest.profiler)
    extents = {int(number): _Extent(measured.earliest_ns, measured.latest_ns) for _, number, measured in run.numbered()}
    matches: list[_GroupMatch] = [_GroupMatch(-1, np.flatnonzero(table.is_copy)[:, None])]
    for code in _by_evidence(table):
        matches.append(_of_group(table, code, clocks, why, extents, opened_together))
    renumbered_by = clocks.renumbered_by()
    instances = _join_instances(table, matches, _common_steps(table, renumbered_by))
    instance = np.full(len(table), -1, dtype=np.int64)
    instance[instances.members] = instances.of_member
    return Matching(table, instances, instance, why, renumbered_by)


@dataclass(frozen=True, eq=False)
class _GroupMatch:
    """Instances of one group: a line of table rows each, a column for each member."""

    group: int
    rows: NDArray[np.int64]


def _by_evidence(table: KernelTable) -> list[int]:
    """Return groups in the order in which clocks are best learnt: those with most synchronizing kernels first."""
    grouped = table.group >= 0
    evidence = np.bincount(table.group[grouped], weights=table.synchronizes[grouped], minlength=len(table.groups))
    order: list[int] = np.argsort(-evidence, kind="stable").tolist()
    return order


class _Extent(NamedTuple):
    """The first and the last instant of a rank's rows of any kind, on its own clock."""

    first_ns: int
    last_ns: int


def _of_group(
    table: KernelTable, code: int, clocks: Offsets, why: dict[int, str], extents: Mapping[int, _Extent], together: bool
) -> _GroupMatch:
    """Align every member with one of them; instances are where all are aligned."""
    key, rows = table.groups[code], table.rows_of(code)
    signature, compatible = _encode_signatures(table, rows)
    complete, sure = _is_complete(table.place[rows], table.step[rows], signature)
    places = _by_place(table, rows, len(key.members))
    sure = complete if together else sure
    facts = _RowFacts(signature, complete, sure, together)
    sides = _divide_sides(table, key, rows, facts, places)
    partner, offsets, unclear = align(clocks, sides, compatible)
    later = [NOT_APART if offset is None else offset for offset in offsets]
    for place, is_unclear, partners, offset in zip(sides.others.tolist(), unclear, partner, later, strict=True):
        if (partners < 0).any() or len(partners) < len(sides.rows[place]):
            for row, reason in _explain(table, key, sides, (place, partners, offset), extents):
                why.setdefault(row, AMBIGUOUS if is_unclear else reason)
    lines = np.insert(partner, sides.reference, np.arange(len(sides.rows[sides.reference])), axis=0).T
    lines = lines[(lines >= 0).all(axis=1)]
    matched = np.stack([rows_of[lines[:, column]] for column, rows_of in enumerate(sides.rows)], axis=1)
    sound = _is_sound(table, key, matched, [*later[: sides.reference], NOT_APART, *later[sides.reference :]])
    why |= dict.fromkeys(matched[~sound].ravel().tolist(), INCONSISTENT)
    return _GroupMatch(code, matched[sound])


class _RowFacts(NamedTuple):
    """What is known of a group's rows: see `Kernels`."""

    signature: Int64
    complete: Mask
    sure: Mask
    opened_together: bool


def _by_place(table: KernelTable, rows: Int64, members: int) -> list[Int64]:
    """Return for each member of a group which of the group's rows are its own, in order."""
    order = np.lexsort((table.correlation[rows], table.start_ns[rows], table.place[rows]))
    return np.split(order, np.searchsorted(table.place[rows][order], np.arange(1, members)))


def _divide_sides(table: KernelTable, key: Key, rows: Int64, facts: _RowFacts, places: Sequence[Int64]) -> Sides:
    indices = np.concatenate(places)
    mine, count = rows[indices], np.array([len(place) for place in places])
    of_pair = np.repeat(np.arange(len(places)), count)
    beside_lost = _beside_lost(table.lost_before[mine], table.lost_after[mine], of_pair)
    kernels = Kernels(
        end_ns=table.ended_ns[mine],
        dur_ns=table.ended_ns[mine] - table.start_ns[mine],
        step=table.step[mine],
        sequence=table.sequence[mine],
        signature=facts.signature[indices],
        synchronizes=table.synchronizes[mine],
        complete=facts.complete[indices],
        sure=facts.sure[indices],
        opened_together=facts.opened_together,
        beside_lost=beside_lost,
        of_pair=of_pair,
        pairs=len(places),
    )
    reference = int(count.argmax())
    others = np.delete(np.arange(len(places)), reference)
    a, b = kernels.of_pairs(np.full(len(others), reference)), kernels.of_pairs(others)
    return Sides(
        tuple(member.rank for member in key.members), tuple(rows[place] for place in places), reference, others, a, b
    )


def _beside_lost(lost_before: Int64, lost_after: Int64, member: Int64) -> Mask:
    """Whether launches lost their kernels between each row and the one before, or behind, on its member."""
    first = np.diff(member, prepend=UNKNOWN) != 0
    before = np.where(first, lost_before, np.diff(lost_before, prepend=0)) != 0
    last = np.diff(member, append=UNKNOWN) != 0
    behind = np.where(last, lost_after, np.diff(lost_before, append=0)) != 0
    beside: Mask = before | behind
    return beside


def _encode_signatures(table: KernelTable, rows: Int64) -> tuple[Int64, Mask]:
    """Return what is known about each row as a code, and which codes may be one collective."""
    said = distinct(table.said_kind[rows], table.elements[rows], table.dtype[rows])
    # Names count only where no call does: of one size members may choose another algorithm each.
    first = np.unique(said.index, return_index=True)[1]
    family = np.where(table.said_kind[rows] >= 0, table.family[rows][first][said.index], table.family[rows])
    alike = distinct(family, table.said_kind[rows], table.elements[rows], table.dtype[rows])
    unlike, code = alike.lines, alike.index
    compatible = np.ones((unlike.shape[1],) * 2, dtype=bool)
    for fact, unknown in zip(unlike, (int(Collective.OTHER), UNKNOWN, UNKNOWN, UNKNOWN), strict=True):
        compatible &= (fact[:, None] == fact) | (fact[:, None] == unknown) | (fact == unknown)
    return code, compatible


def _is_complete(place: Int64, step: Int64, signature: Int64) -> tuple[Mask, Mask]:
    """Whether a row's signature occurs as often in its step, on its member, as anywhere in the group.

    And whether that is so in enough steps and members for the number to be the true one.
    """
    alike = distinct(place, step, signature)
    cells, cell = alike.lines, alike.index
    count = np.where(cells[1] >= 0, np.bincount(cell, minlength=cells.shape[1]), 0)
    most = np.zeros(int(signature.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(most, cells[2], count)
    whole = (cells[1] >= 0) & (count == most[cells[2]])
    witnesses = np.bincount(cells[2][whole], minlength=len(most))
    return whole[cell], (whole & (witnesses[cells[2]] >= WITNESSES))[cell]


def _explain(
    table: KernelTable, key: Key, sides: Sides, pair: tuple[int, Int64, Offset], extents: Mapping[int, _Extent]
) -> Iterator[tuple[int, str]]:
    """Yield every row that the reference or another member has alone, and why that is so.

    `pair` is the other member's place, the partner of each of the reference's rows, and how much later its clock is.
    """
    place, partner, offset = pair
    ours, theirs = partner >= 0, np.zeros(len(sides.rows[place]), dtype=bool)
    theirs[partner[ours]] = True
    lone = sides.rows[sides.reference][~ours], sides.rows[place][~theirs]
    for alone, others, other, later_ns in (
        (lone[0], lone[1], place, offset.ns),
        (lone[1], lone[0], sides.reference, -offset.ns),
    ):
        member = key.members[other]
        who = f"rank {member.rank}" if table.is_alone_in_file(member) else f"device {member.device}"
        like = set(zip(table.kind[others].tolist(), table.step[others].tolist(), strict=True))
        there = _Extent(*(instant - later_ns for instant in extents[member.rank]))
        for row in alone.tolist():
            yield row, _explain_rows(who, table, row, there, (int(table.kind[row]), int(table.step[row])) in like)


def _explain_rows(who: str, table: KernelTable, row: int, there: _Extent, has_like: bool) -> str:
    """Return why a row has no partner, as the other's rows bear out: it was absent, lacks it, or nothing tells."""
    if table.start_ns[row] < there.first_ns:
        return f"{who} has no kernel for it: its trace begins later"
    if table.end_ns[row] > there.last_ns:
        return f"{who} has no kernel for it: its trace ends earlier"
    if has_like:
        return f"not known: {who} has a kernel like it in this step, which may be another"
    return f"{who} has no kernel for it"


def _is_sound(table: KernelTable, key: Key, matched: NDArray[np.int64], offsets: Sequence[Offset]) -> Mask:
    """Whether all members agree, not only each with the reference."""
    sound = np.ones(len(matched), dtype=bool)
    higher, later_ns = (np.array([getattr(offset, name) for offset in offsets]) for name in ("higher", "ns"))
    for column in (table.said_kind, table.elements, table.dtype, table.sequence, table.step):
        values = column[matched]
        has_value = values >= 0
        values = values - higher if column is table.step else values
        low, high = np.where(has_value, values, UNLIKE).min(axis=1), np.where(has_value, values, -UNLIKE).max(axis=1)
        sound &= high <= low
    started, ended = table.start_ns[matched] - later_ns, table.ended_ns[matched] - later_ns
    synchronized = table.synchronizes[matched].all(axis=1)
    sound &= ~synchronized | (started.max(axis=1) <= ended.min(axis=1) + OVERLAP_NOISE_NS)
    if key.is_batch:
        sound &= np.array([_peers_correspond(table, line) for line in matched], dtype=bool)
    split = (table.elements[matched] == SPLIT).any(axis=1) & sound
    sound[split] = [_splits_correspond(table, key, line) for line in matched[split]]
    return sound


def _splits_correspond(table: KernelTable, key: Key, line: Int64) -> bool:
    """Whether what each member of an uneven all-to-all sends to another is what that one receives from it."""
    calls = {int(table.rank[row]): table.call_of(row) for row in line.tolist()}
    position = {rank: number for number, rank in enumerate(key.ranks)}
    for rank, call in calls.items():
        for peer, other in calls.items():
            if call is not None and other is not None and call.split_in and other.split_out:
                sent, received = call.split_in[position[peer] :], other.split_out[position[rank] :]
                if sent[:1] != received[:1]:
                    return False
    return True


def _peers_correspond(table: KernelTable, line: Int64) -> bool:
    """Whether each message of a batch that one member sends to another is one that the other receives."""
    here = set(table.rank[line].tolist())
    sent, received = set(), set()
    for row in line.tolist():
        rank, call = int(table.rank[row]), table.call_of(row)
        if call is not None:
            sent |= {(rank, peer) for peer in call.sent_to if peer in here}
            received |= {(peer, rank) for peer in call.received_from if peer in here}
    return sent == received


def _common_steps(table: KernelTable, renumbered_by: Mapping[int, int]) -> tuple[Int64, Int64]:
    """Return the step and the window of each row as most ranks number them."""
    step, window = table.step.copy(), table.window.copy()
    for rank, higher in renumbered_by.items():
        numbered = (table.rank == rank) & (step >= 0)
        step[numbered] -= higher
        window[numbered] -= higher
    return step, window


def _join_instances(table: KernelTable, matches: Sequence[_GroupMatch], steps: tuple[Int64, Int64]) -> Instances:
    """Join all groups' instances, by the start of their earliest member; `steps` are step and window of each row."""
    step, window = steps
    lines = [line for part in matches for line in part.rows]
    group = np.array([part.group for part in matches for _ in part.rows], dtype=np.int64)
    begun = np.array([table.start_ns[line].min() for line in lines], dtype=np.int64)
    order = np.argsort(begun, kind="stable")
    lines, group = [lines[index] for index in order.tolist()], group[order]
    facts = [_choose_facts(table, line) for line in lines]
    size = np.array([len(line) for line in lines], dtype=np.int64)
    return Instances(
        kind=np.array([kind for kind, _ in facts], dtype=np.int8),
        group=group,
        step=np.array([step[line].max() for line in lines], dtype=np.int64),
        window=np.array([window[line].max() for line in lines], dtype=np.int64),
        partial=np.array([code >= 0 and table.groups[code].is_partial for code in group.tolist()], dtype=bool),
        call=tuple(call for _, call in facts),
        first=np.r_[0, np.cumsum(size)],
        members=np.concatenate(lines) if lines else np.zeros(0, dtype=np.int64),
    )


def _choose_facts(table: KernelTable, line: Int64) -> tuple[int, Call | None]:
    """Return an instance's kind and call: what any member says, among several the one that says most."""
    calls = [call for call in _distinct_calls(table, line) if call is not None]
    best = max(calls, key=lambda call: call.elements, default=None)
    kind = int(best.kind) if best else int(table.kind[line[0]])
    return kind, best


def _distinct_calls(table: KernelTable, line: Int64) -> Iterable[Call | None]:
    return (table.calls[code] for code in np.unique(table.call[line]).tolist() if code >= 0)
