"""One table of all ranks' communication kernels, each row with its group.

A group comes from the row's call; from the only group that a rank knows; from the whole run where no trace names any
group; and for nn.DataParallel, whose kernels carry nothing, it is the devices that one process drives. Kernels that
were launched before the profiler opened carry nothing either: they are the end of a step such as the later ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, distinct, medians
from analyzers.collectives.groups import SPLIT, Communicator, Grouping, Key, Member
from analyzers.rank import Communication, RunSummary
from analyzers.trace import SYNCHRONIZING, UNEVEN_MEMBERS, Call, Collective, kind_of_kernel


@dataclass(frozen=True, eq=False)
class KernelTable(Columns):
    """All communication of a run, a row each kernel or copy, rank by rank and by start; -1 where unknown."""

    rank: Int64
    device: Int64
    start_ns: Int64
    end_ns: Int64
    ended_ns: Int64  # the same, but where no end is known (`cut`): as if it had taken what its like take
    cut: Mask
    correlation: Int64
    step: Int64
    window: Int64
    sequence: Int64
    family: Int64  # the kind that the kernel's name tells
    kind: Int64
    said_kind: Int64  # the kind that the call says, -1 for nothing
    elements: Int64  # -1 where members may differ, too
    dtype: Int64  # as elements
    call: Int64  # indexes `calls`
    group: Int64  # indexes `groups`, -1 for none
    place: Int64  # the member's place in its group
    communicator: Int64  # indexes `communicators`, the process groups; -1 for none that is known
    strategy: Int64  # indexes STRATEGIES
    calls: tuple[Call, ...]
    groups: tuple[Key, ...]
    communicators: tuple[Communicator, ...]
    names: NDArray[np.object_]
    is_copy: Mask  # from one device of a process to another, or what copy engines do for a collective
    peer: Int64  # the other device of a copy between two
    nbytes: Int64
    purpose: Int64
    exposed_ns: Int64
    peer_exposed_ns: Int64
    busy_ns: Int64
    lost_before: Int64  # launches of kernels on this rank before the row's own that left no event
    lost_after: Int64

    @cached_property
    def synchronizes(self) -> Mask:
        """Whether rows have a kind that nobody leaves before all have come."""
        return np.isin(self.kind, SYNCHRONIZING)

    @cached_property
    def _by_group(self) -> tuple[Int64, Int64]:
        order = np.argsort(self.group, kind="stable")
        return order, np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))

    def rows_of(self, group: int) -> Int64:
        """Return the rows of one group."""
        order, first = self._by_group
        return order[first[group] : first[group + 1]]

    def call_of(self, row: int) -> Call | None:
        """Return what a row's call says, None for nothing."""
        return self.calls[self.call[row]] if self.call[row] >= 0 else None

    @cached_property
    def _devices(self) -> dict[int, int]:
        """Return how many devices take part in groups, by rank."""
        pairs = {(member.rank, member.device) for key in self.groups for member in key.members}
        return Counter(rank for rank, _ in pairs)

    def is_alone_in_file(self, member: Member) -> bool:
        """Whether a rank has one device, so that naming the rank is enough."""
        return self._devices[member.rank] == 1


# Columns that are as the ranks have them.
_TAKEN_OVER = (
    *("correlation", "step", "window", "sequence", "kind", "peer", "nbytes", "purpose", "strategy"),
    *("exposed_ns", "peer_exposed_ns", "busy_ns"),
    *("lost_before", "lost_after"),
)


def table_of(run: RunSummary) -> KernelTable:
    """Build the table of a run."""
    parts = [measured.communication for measured in run.measured]
    ranks = [summary.rank for summary in run.ranks]
    codes: dict[Call, int] = {}
    call = np.concatenate([_recode_calls(part, codes) for part in parts])
    calls = tuple(codes)

    def column(name: str) -> Int64:
        return np.concatenate([getattr(part, name) for part in parts]).astype(np.int64)

    rank = np.repeat(ranks, [len(part) for part in parts])
    kernels = {name: code for code, name in enumerate(dict.fromkeys(name for part in parts for name in part.names))}
    kernel = np.concatenate([np.array([*map(kernels.get, part.names)], dtype=np.int64)[part.name] for part in parts])
    family = np.concatenate([_find_kinds(part) for part in parts])
    is_copy = np.concatenate([part.is_copy for part in parts])
    said_kind, elements, dtype = (np.array([*fact, UNKNOWN], dtype=np.int64)[call] for fact in _call_facts(calls))
    grouping = Grouping(run, calls)
    device = column("device")
    # Between whom a message goes only its call says.
    is_known = ~is_copy & ((call >= 0) | (column("kind") != Collective.SEND_RECV))
    group, place = grouping.assign(rank, device, call, kernel, [*kernels], is_known)
    heads = _find_heads(rank, column("step"), family, np.where(is_copy, UNKNOWN, group))
    group[heads[0]], place[heads[0]] = group[heads[1]], place[heads[1]]
    communicator, communicators = _find_communicators(grouping, rank, call, np.where(is_copy, UNKNOWN, group))
    start_ns, dur_ns = column("start_ns"), column("dur_ns")
    cut = np.concatenate([part.cut if len(part.cut) else np.zeros(len(part), dtype=bool) for part in parts])
    return KernelTable(
        rank=rank,
        device=device,
        start_ns=start_ns,
        end_ns=start_ns + dur_ns,
        ended_ns=start_ns + _usual(dur_ns, cut, rank, device, family, call),
        cut=cut,
        family=family,
        said_kind=said_kind,
        elements=elements,
        dtype=dtype,
        call=call,
        group=group,
        place=place,
        communicator=communicator,
        communicators=communicators,
        calls=calls,
        groups=tuple(grouping.keys),
        names=np.array([*kernels], dtype=object)[kernel],
        is_copy=is_copy,
        **{name: column(name) for name in _TAKEN_OVER},
    )


def _usual(dur_ns: Int64, cut: Mask, *like: Int64) -> Int64:
    """Return durations, of those that were cut the median of the others like them, if that is less."""
    if not cut.any():
        return dur_ns
    alike = distinct(*like)
    whole = ~cut
    usual_ns = medians(dur_ns[whole], alike.index[whole], len(alike))[alike.index]
    return np.where(cut & (usual_ns < dur_ns), np.nan_to_num(usual_ns), dur_ns).astype(np.int64)


def _find_communicators(
    grouping: Grouping, rank: Int64, call: Int64, group: Int64
) -> tuple[Int64, tuple[Communicator, ...]]:
    """Return each row's process group, and these: that of its sequence, else the one that its call names."""
    alike = distinct(rank, call)
    unlike, which = alike.lines, alike.index
    by_call = grouping.of_calls(unlike[0], unlike[1])
    by_key = [key.communicator for key in grouping.keys]
    named = [one for one in by_call if one is not None]
    codes = {one: code for code, one in enumerate(dict.fromkeys([*by_key, *named]))}
    of_key = np.array([*(codes[one] for one in by_key), UNKNOWN], dtype=np.int64)[group]
    of_call = np.array([*(UNKNOWN if one is None else codes[one] for one in by_call), UNKNOWN], dtype=np.int64)[which]
    return np.where(of_key >= 0, of_key, of_call), tuple(codes)


def _find_heads(rank: Int64, step: Int64, family: Int64, group: Int64) -> tuple[Int64, Int64]:
    """Return rows before a rank's first step with unknown group, and the rows in a step that they take it from.

    The step's last kernels must be of the same kinds in the same order, and the rank's steps all alike. Messages are
    left out: between whom they go only their call says.
    """
    pairs: list[Int64] = [np.zeros((2, 0), dtype=np.int64)]
    for one in np.unique(rank[(group < 0) & (step < 0)]).tolist():
        # Rows lie rank by rank, in order.
        rank_rows = np.arange(*np.searchsorted(rank, [one, one + 1]))
        stepped = rank_rows[step[rank_rows] >= 0]
        head = rank_rows[: np.searchsorted(rank_rows, stepped[0])] if len(stepped) else rank_rows[:0]
        steps = [stepped[step[stepped] == number] for number in np.unique(step[stepped])]
        alike = len({(tuple(family[rows].tolist()), tuple(group[rows].tolist())) for rows in steps}) == 1
        if len(steps) < 2 or not alike or len(head) > len(steps[0]) or (group[head] >= 0).any():
            continue
        tail = steps[0][len(steps[0]) - len(head) :]
        if (family[head] == family[tail]).all():
            sure = (family[head] != Collective.SEND_RECV) & (group[tail] >= 0)
            pairs.append(np.stack([head[sure], tail[sure]]))
    heads = np.concatenate(pairs, axis=1)
    return heads[0], heads[1]


def _recode_calls(part: Communication, codes: dict[Call, int]) -> Int64:
    """Return a rank's call codes as codes of the run."""
    table = np.array([*(codes.setdefault(call, len(codes)) for call in part.calls), UNKNOWN], dtype=np.int64)
    return table[part.call]


def _find_kinds(part: Communication) -> Int64:
    return np.array([kind_of_kernel(name) for name in part.names], dtype=np.int64)[part.name]


def _call_facts(calls: Sequence[Call]) -> list[list[int]]:
    """Return kind, elements and dtype for each call, -1 if unknown or members may differ; SPLIT for one with splits."""
    dtypes = {name: code for code, name in enumerate(dict.fromkeys(call.dtype for call in calls if call.dtype))}
    judged = [(call, _is_even(call)) for call in calls]
    return [
        [int(call.kind) for call in calls],
        [call.elements if same else SPLIT if call.split_in or call.split_out else UNKNOWN for call, same in judged],
        [UNKNOWN if _is_told_apart(call) else dtypes.get(call.dtype, UNKNOWN) for call in calls],
    ]


def _is_told_apart(call: Call) -> bool:
    """Whether tensors may be told of the root alone (gloo), or of all others alone (NCCL's ranges)."""
    return call.kind in (Collective.GATHER, Collective.SCATTER) and (call.is_part or call.elements < 0)


def _is_even(call: Call) -> bool:
    """Whether all members of the collective say the same of its elements."""
    if call.kind == Collective.ALL_TO_ALL:
        return not call.split_in and not call.split_out and call.is_even
    return call.kind not in UNEVEN_MEMBERS or bool(call.sent_to) != bool(call.received_from)
