"""The communication of all ranks in one table, each row with the group that it belongs to.

A group comes from the row's call; from the only group that a rank knows; from the whole run where no trace names any
group; and for nn.DataParallel, whose kernels carry nothing, it is the devices that one process drives. Kernels that
were launched before the profiler opened carry nothing either: they are the end of a step such as the later ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.calls import SYNCHRONIZING, UNEVEN_MEMBERS, UNSAID, Call, Collective, Group, kind_of_kernel
from analyzers.communication import Communication
from analyzers.events import UNKNOWN
from analyzers.run import world_size
from analyzers.summary import RunSummary

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


# The elements of an all-to-all that says how they are split: they differ between members, but no even one is meant.
SPLIT = -2


@dataclass(frozen=True, order=True)
class Member:
    """One device of one rank."""

    rank: int
    device: int


@dataclass(frozen=True)
class Key:
    """A group whose kernels form one sequence: its name and ranks, the members that are in the run, how many there are.

    `is_batch`: each kernel carries out several messages at once.
    """

    name: str
    ranks: tuple[int, ...]
    members: tuple[Member, ...]
    size: int
    is_batch: bool = False

    @property
    def is_partial(self) -> bool:
        """Whether members are missing from the run."""
        return len(self.members) < self.size


@dataclass(frozen=True, eq=False)
class Table:
    """All communication of a run, a row each kernel or copy, rank by rank and by start.

    `family` is the kind that the kernel's name tells, `said_kind` what its call says, -1 for nothing; `elements` and
    `dtype` are -1 where they are unknown or may differ between members. `group` indexes `groups`, -1 for none; `place`
    is the member's place in its group.
    """

    rank: Int64
    device: Int64
    start_ns: Int64
    end_ns: Int64
    correlation: Int64
    step: Int64
    window: Int64
    sequence: Int64
    family: Int64
    kind: Int64
    said_kind: Int64
    elements: Int64
    dtype: Int64
    call: Int64
    group: Int64
    place: Int64
    calls: tuple[Call, ...]
    groups: tuple[Key, ...]
    names: NDArray[np.object_]
    peer: Int64
    nbytes: Int64
    purpose: Int64
    exposed_ns: Int64
    peer_exposed_ns: Int64
    computed_ns: Int64
    busy_ns: Int64
    launched_ns: Int64
    input_ns: Int64

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def is_copy(self) -> Mask:
        """Rows that are copies from one device of a process to another, `peer`."""
        copies: Mask = self.peer != UNKNOWN
        return copies

    @cached_property
    def synchronizes(self) -> Mask:
        """Rows of kinds that nobody leaves before all have come."""
        return np.isin(self.kind, SYNCHRONIZING)

    @cached_property
    def _by_group(self) -> tuple[Int64, Int64]:
        order = np.argsort(self.group, kind="stable")
        return order, np.searchsorted(self.group[order], np.arange(len(self.groups) + 1))

    def rows_of(self, group: int) -> Int64:
        """The rows of one group."""
        order, first = self._by_group
        return order[first[group] : first[group + 1]]

    def call_of(self, row: int) -> Call | None:
        """What a row's call says, None for nothing."""
        return self.calls[self.call[row]] if self.call[row] >= 0 else None

    @cached_property
    def _devices(self) -> dict[int, int]:
        """How many devices take part in groups, by rank."""
        places = {(member.rank, member.device) for key in self.groups for member in key.members}
        return Counter(rank for rank, _ in places)

    def is_alone_in_file(self, member: Member) -> bool:
        """Whether a rank has one device, so that naming the rank is enough."""
        return self._devices[member.rank] == 1


# Columns that are as the ranks have them.
_TAKEN_OVER = (
    *("correlation", "step", "window", "sequence", "kind", "peer", "nbytes", "purpose"),
    *("exposed_ns", "peer_exposed_ns", "computed_ns", "busy_ns", "launched_ns", "input_ns"),
)


def table_of(run: RunSummary) -> Table:
    """The table of a run."""
    parts = [measured.communication for measured in run.measured]
    ranks = [summary.rank for summary in run.ranks]
    codes: dict[Call, int] = {}
    call = np.concatenate([_recoded(part, codes) for part in parts])
    calls = tuple(codes)

    def column(name: str) -> Int64:
        return np.concatenate([getattr(part, name) for part in parts]).astype(np.int64)

    rank = np.repeat(ranks, [len(part) for part in parts])
    names = np.concatenate([np.array(part.names, dtype=object)[part.name] for part in parts])
    family = np.concatenate([_families(part) for part in parts])
    is_copy = column("peer") != UNKNOWN
    said_kind, elements, dtype = (_looked_up(call, fact) for fact in _call_facts(calls))
    grouping = Grouping(run, calls)
    device = column("device")
    group, place = grouping.assign(rank, device, call, column("kind"), is_copy)
    heads = _heads(rank, column("step"), family, np.where(is_copy, UNKNOWN, group))
    group[heads[0]], place[heads[0]] = group[heads[1]], place[heads[1]]
    return Table(
        rank=rank,
        device=device,
        start_ns=column("start_ns"),
        end_ns=column("start_ns") + column("dur_ns"),
        family=family,
        said_kind=said_kind,
        elements=elements,
        dtype=dtype,
        call=call,
        group=group,
        place=place,
        calls=calls,
        groups=tuple(grouping.keys),
        names=names,
        **{name: column(name) for name in _TAKEN_OVER},
    )


def _heads(rank: Int64, step: Int64, family: Int64, group: Int64) -> tuple[Int64, Int64]:
    """Rows from before a rank's first step whose group is unknown, and the rows of a step that they take it from.

    The step's last kernels must be of the same kinds in the same order, and the rank's steps all alike. Messages are
    left out: between whom they go only their call says.
    """
    found: list[Int64] = [np.zeros((2, 0), dtype=np.int64)]
    for one in np.unique(rank[(group < 0) & (step < 0)]).tolist():
        # Rows lie rank by rank, in order.
        own = np.arange(*np.searchsorted(rank, [one, one + 1]))
        stepped = own[step[own] >= 0]
        head = own[: np.searchsorted(own, stepped[0])] if len(stepped) else own[:0]
        steps = [stepped[step[stepped] == number] for number in np.unique(step[stepped])]
        alike = len({(tuple(family[rows].tolist()), tuple(group[rows].tolist())) for rows in steps}) == 1
        if len(steps) < 2 or not alike or len(head) > len(steps[0]) or (group[head] >= 0).any():
            continue
        tail = steps[0][len(steps[0]) - len(head) :]
        if (family[head] == family[tail]).all():
            sure = (family[head] != Collective.SEND_RECV) & (group[tail] >= 0)
            found.append(np.stack([head[sure], tail[sure]]))
    heads = np.concatenate(found, axis=1)
    return heads[0], heads[1]


def _recoded(part: Communication, codes: dict[Call, int]) -> Int64:
    """A rank's call codes as codes of the run."""
    table = np.array([*(codes.setdefault(call, len(codes)) for call in part.calls), UNKNOWN], dtype=np.int64)
    return table[part.call]


def _families(part: Communication) -> Int64:
    return np.array([kind_of_kernel(name) for name in part.names], dtype=np.int64)[part.name]


def _call_facts(calls: Sequence[Call]) -> list[list[int]]:
    """Kind, elements and dtype of each call, -1 where unknown or members may differ; SPLIT for one with splits."""
    dtypes = {name: code for code, name in enumerate(dict.fromkeys(call.dtype for call in calls if call.dtype))}
    said = [(call, _is_even(call)) for call in calls]
    return [
        [int(call.kind) for call in calls],
        [call.elements if same else SPLIT if call.split_in or call.split_out else UNSAID for call, same in said],
        [UNSAID if _is_told_apart(call) else dtypes.get(call.dtype, UNSAID) for call in calls],
    ]


def _is_told_apart(call: Call) -> bool:
    """Whether tensors may be told of the root alone (gloo), or of all others alone (NCCL's ranges)."""
    return call.kind in (Collective.GATHER, Collective.SCATTER) and (call.is_part or call.elements < 0)


def _is_even(call: Call) -> bool:
    """Whether all members of the collective say the same of its elements."""
    if call.kind == Collective.ALL_TO_ALL:
        return not call.split_in and not call.split_out and call.is_even
    return call.kind not in UNEVEN_MEMBERS or bool(call.sent_to) != bool(call.received_from)


def _looked_up(call: Int64, facts: list[int]) -> Int64:
    return np.array([*facts, UNSAID], dtype=np.int64)[call]


class Grouping:
    """Finds each row's group; keys are made as rows need them."""

    def __init__(self, run: RunSummary, calls: Sequence[Call]) -> None:
        self.keys: list[Key] = []
        self._codes: dict[tuple[Any, ...], int] = {}
        self._places: list[dict[Member, int]] = []  # of each key's members
        self._calls = calls
        self._ranks = [summary.rank for summary in run.ranks]
        self._world_size = world_size(run.manifest, run.ranks)
        self._configured = {summary.rank: _configured(summary.header.distributed) for summary in run.ranks}

    def assign(self, rank: Int64, device: Int64, call: Int64, kind: Int64, is_copy: Mask) -> tuple[Int64, Int64]:
        """Group and place in it of every row, -1 for none."""
        group, place = np.full(len(rank), -1, dtype=np.int64), np.full(len(rank), -1, dtype=np.int64)
        # Between whom a message goes only its call says.
        rows = np.flatnonzero(~is_copy & ((call >= 0) | (kind != Collective.SEND_RECV)))
        facts = np.stack([rank[rows], device[rows], call[rows]])
        distinct, which = np.unique(facts, axis=1, return_inverse=True)
        known = self._known(distinct)
        ranks, first = np.unique(distinct[0], return_index=True)
        of_rank = np.split(distinct[1], first)[1:]
        devices = {one: np.unique(own) for one, own in zip(ranks.tolist(), of_rank, strict=True)}
        found = [
            self._of(int(one), int(dev), int(code), known[int(one)], devices[int(one)]) for one, dev, code in distinct.T
        ]
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        group[rows], place[rows] = pairs[which, 0], pairs[which, 1]
        return group, place

    def _known(self, distinct: NDArray[np.int64]) -> dict[int, set[Group]]:
        """The groups of more than one rank that each rank knows of."""
        known = {rank: set(configured.values()) for rank, configured in self._configured.items()}
        told = [(rank, self._calls[code].group) for rank, code in distinct[[0, 2]].T.tolist() if code >= 0]
        for rank, group in told:
            if group is not None and group.name:
                known[rank].add(self._whole(rank, group))
        for rank, group in told:
            if group is not None and _is_size(group) and not self._is_size_of(group.size, known[rank]):
                known[rank].add(group)
        return known

    def _is_size_of(self, size: int, known: set[Group]) -> bool:
        """Whether a group of which only the size is said may be one that is known, or the whole run where none is."""
        return size in ({group.size for group in known} or {self._world_size})

    def _whole(self, rank: int, group: Group) -> Group:
        """The group with its ranks, which long lists leave out and the header has."""
        if group.ranks is not None:
            return group
        same = self._configured[rank].get(group.name)
        if same is not None and group.size in (same.size, 0):
            return same
        return Group(group.name, group.size, tuple(range(group.size))) if group.size == self._world_size else group

    def _of(self, rank: int, device: int, code: int, known: set[Group], devices: NDArray[np.int64]) -> tuple[int, int]:
        call = self._calls[code] if code >= 0 else None
        if len(devices) > 1 and (call is None or call.group is None or not call.group.name):
            members = tuple(Member(rank, int(each)) for each in devices)
            return self._key(("devices", rank), Key("", (rank,), members, len(devices)), Member(rank, device))
        said = call.group if call is not None else None
        group = self._only(known) if said is None or _is_size(said) else self._whole(rank, said)
        if group is None or group.ranks is None or rank not in group.ranks:
            return -1, -1
        if call is not None and call.kind == Collective.SEND_RECV:
            return self._of_message(rank, device, call, group)
        return self._of_ranks(rank, device, group.name, group.ranks)

    def _only(self, known: set[Group]) -> Group | None:
        """The one group that a rank knows; the whole run where no group is named anywhere."""
        if len(known) == 1:
            return next(iter(known))
        if known or any(self._configured.values()):
            return None
        return Group("", self._world_size, tuple(range(self._world_size)))

    def _of_message(self, rank: int, device: int, call: Call, group: Group) -> tuple[int, int]:
        """A message's two peers; of a batch its one other rank, or the whole group."""
        peers = sorted({*call.sent_to, *call.received_from})
        if not peers:
            return -1, -1
        batch = len(call.sent_to) + len(call.received_from) > 1
        if len(peers) > 1:
            return self._of_ranks(rank, device, f"{group.name} batch", group.ranks or (), batch)
        (peer,) = peers
        pair = (rank, peer) if call.sent_to else (peer, rank)
        if batch:
            pair = (min(pair), max(pair))
        return self._of_ranks(rank, device, f"{group.name} {'batch' if batch else 'message'}", pair, batch)

    def _of_ranks(
        self, rank: int, device: int, name: str, ranks: tuple[int, ...], batch: bool = False
    ) -> tuple[int, int]:
        code = self._codes.get((name, ranks, batch))
        if code is None:
            here = set(self._ranks)
            members = tuple(Member(each, UNKNOWN) for each in ranks if each in here)
            code = self._add((name, ranks, batch), Key(name, ranks, members, len(ranks), batch))
        return code, self._places[code][Member(rank, UNKNOWN)]

    def _key(self, code_of: tuple[Any, ...], key: Key, member: Member) -> tuple[int, int]:
        code = self._codes.get(code_of)
        if code is None:
            code = self._add(code_of, key)
        return code, self._places[code][member]

    def _add(self, code_of: tuple[Any, ...], key: Key) -> int:
        self._codes[code_of] = len(self.keys)
        self.keys.append(key)
        self._places.append({member: place for place, member in enumerate(key.members)})
        return len(self.keys) - 1


def _is_size(group: Group) -> bool:
    """Whether nothing but its size is said of a group."""
    return not group.name and group.ranks is None


def _configured(distributed: dict[str, Any]) -> dict[str, Group]:
    """The groups of more than one rank that a trace's header lists, by name."""
    listed = distributed.get("pg_config")
    found = {}
    for entry in listed if isinstance(listed, list) else []:
        ranks = entry.get("ranks") if isinstance(entry, dict) else None
        if isinstance(ranks, list) and all(isinstance(rank, int) and not isinstance(rank, bool) for rank in ranks):
            name = str(entry.get("pg_name", ""))
            size = entry.get("pg_size")
            whole = size == len(ranks) or not isinstance(size, int)
            if len(ranks) > 1 or (isinstance(size, int) and size > 1):
                found[name] = Group(
                    name, size if isinstance(size, int) else len(ranks), tuple(ranks) if whole else None
                )
    return found
