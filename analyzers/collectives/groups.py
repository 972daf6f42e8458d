"""Process groups of kernels: members, names and ranks, resolved across ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask, distinct
from analyzers.rank import RunSummary
from analyzers.ranks import RankNumber
from analyzers.run import world_size
from analyzers.trace import GLOO, UNEVEN_MEMBERS, Call, Collective, Group, is_description, library_kernel, ranks_in_name

# The elements of an all-to-all that says how they are split: they differ between members, but no even one is meant.
SPLIT = -2


@dataclass(frozen=True, order=True)
class Member:
    """One device of one rank."""

    rank: int
    device: int


@dataclass(frozen=True)
class Communicator:
    """A process group as its program made it: name, description (empty where it has none), ranks (empty: unknown)."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Key:
    """A group whose kernels form one sequence: its name and ranks, the members that are in the run, how many there are.

    `is_batch`: each kernel carries out several messages at once. `communicator` is the process group that it is of:
    messages between any two of its ranks are a sequence of their own.
    """

    name: str
    ranks: tuple[int, ...]
    members: tuple[Member, ...]
    size: int
    communicator: Communicator
    is_batch: bool = False

    @property
    def is_partial(self) -> bool:
        """Whether members are missing from the run."""
        return len(self.members) < self.size


class Grouping:
    """Finds each row's group; keys are made as rows need them."""

    def __init__(self, run: RunSummary, calls: Sequence[Call]) -> None:
        self.keys: list[Key] = []
        self._codes: dict[tuple[Any, ...], int] = {}
        self._places: list[dict[Member, int]] = []  # of each key's members
        self._calls = calls
        self._present = {summary.rank for summary in run.ranks}
        self._world_size = world_size(run.manifest, run.ranks)
        self._configured = _all_configured(run)
        # Only some ranks' headers may say what a group is called.
        self._described: dict[Group, str] = {}
        for configured in {id(one): one for one in self._configured.values()}.values():
            for group in configured.values():
                if is_description(group.description):
                    self._described.setdefault(group, group.description)

    def assign(
        self, rank: Int64, device: Int64, call: Int64, kernel: Int64, kernels: Sequence[str], is_known: Mask
    ) -> tuple[Int64, Int64]:
        """Assign every row that `is_known` its group and its place in that, -1 for none.

        `kernel` is each row's name as an index of `kernels`.
        """
        group, place = np.full(len(rank), -1, dtype=np.int64), np.full(len(rank), -1, dtype=np.int64)
        rows = np.flatnonzero(is_known)
        library, libraries = _find_libraries(kernels, set(kernel[rows[call[rows] < 0]].tolist()))
        facts = np.stack([rank[rows], device[rows], call[rows], library[kernel[rows]]])
        alike = distinct(*facts)
        unlike, which = alike.lines, alike.index
        groups_by_rank = self._known(unlike)
        ranks, first = np.unique(unlike[0], return_index=True)
        of_rank = np.split(unlike[1], first)[1:]
        devices = {RankNumber(one): np.unique(used) for one, used in zip(ranks.tolist(), of_rank, strict=True)}
        assigned = [
            self._of(
                Member(one, dev), code, libraries[other], groups_by_rank[RankNumber(one)], devices[RankNumber(one)]
            )
            for one, dev, code, other in unlike.T.tolist()
        ]
        pairs = np.array(assigned, dtype=np.int64).reshape(-1, 2)
        group[rows], place[rows] = pairs[which, 0], pairs[which, 1]
        return group, place

    def _known(self, unlike: NDArray[np.int64]) -> dict[RankNumber, set[Group]]:
        """Return the groups of more than one rank that each rank knows of."""
        by_rank = {rank: set(configured.values()) for rank, configured in self._configured.items()}
        told = [(RankNumber(rank), self._calls[code].group) for rank, code in unlike[[0, 2]].T.tolist() if code >= 0]
        for rank, group in told:
            if group is not None and group.name:
                by_rank[rank].add(self._whole(rank, group))
        for rank, group in told:
            if group is not None and _is_size(group) and not self._is_size_of(group.size, by_rank[rank]):
                by_rank[rank].add(group)
        return by_rank

    def _is_size_of(self, size: int, groups: set[Group]) -> bool:
        """Whether a group of which only the size is said may be one that is known, or the whole run where none is."""
        return size in ({group.size for group in groups} or {self._world_size})

    def _whole(self, rank: RankNumber, group: Group) -> Group:
        """Return the group with its ranks, which long lists leave out and the header has."""
        if group.ranks is not None:
            return group
        same = self._configured[rank].get(group.name)
        if same is not None and group.size in (same.size, 0):
            return same
        return Group(group.name, group.size, tuple(range(group.size))) if group.size == self._world_size else group

    def _of(
        self, member: Member, code: int, library: _Library, groups: set[Group], devices: NDArray[np.int64]
    ) -> tuple[int, int]:
        rank, device = RankNumber(member.rank), member.device
        call = self._calls[code] if code >= 0 else None
        if len(devices) > 1 and (call is None or call.group is None or not call.group.name):
            members = tuple(Member(rank, int(number)) for number in devices)
            key = Key("", (rank,), members, len(devices), Communicator("", "", (rank,)))
            return self._key(("devices", rank), key, Member(rank, device))
        call_group = call.group if call is not None else None
        if library.kernel and call_group is None:
            ranks = self._fitting(rank, library.size, groups)
            # No other library's kernels are in one sequence with these, on whatever stream they run.
            own_group = Group(library.kernel.rpartition("::")[0] or library.kernel, len(ranks), ranks)
            return self._of_ranks(rank, device, own_group, library.kernel, ranks) if ranks else (-1, -1)
        group = self._only(groups) if call_group is None or _is_size(call_group) else self._whole(rank, call_group)
        if group is None or group.ranks is None or rank not in group.ranks:
            return -1, -1
        if call is not None and call.kind == Collective.SEND_RECV:
            return self._of_message(rank, device, call, group)
        sequence = _own_sequence(call) if library.is_unordered and call is not None else ""
        return self._of_ranks(rank, device, group, group.name, group.ranks, sequence=sequence)

    def _fitting(self, rank: RankNumber, size: int, groups: set[Group]) -> tuple[int, ...]:
        """Return the ranks of the only groups that a rank knows of such a size (0: any), or of the whole run."""
        ranks = {group.ranks for group in groups if group.ranks is not None and rank in group.ranks}
        fitting = {one for one in ranks if size in (0, len(one))}
        if not fitting and size in ((0, self._world_size) if not groups else (self._world_size,)):
            return tuple(range(self._world_size))
        return next(iter(fitting)) if len(fitting) == 1 else ()

    def _only(self, groups: set[Group]) -> Group | None:
        """Return the one group that a rank knows; the whole run where no group is named anywhere."""
        if len(groups) == 1:
            return next(iter(groups))
        if groups or any(self._configured.values()):
            return None
        return Group("", self._world_size, tuple(range(self._world_size)))

    def _of_message(self, rank: RankNumber, device: int, call: Call, group: Group) -> tuple[int, int]:
        """Return group and place for a message: its two peers, or for a batch its one other rank or the whole group."""
        peers = sorted({*call.sent_to, *call.received_from})
        if not peers:
            return -1, -1
        batch = len(call.sent_to) + len(call.received_from) > 1
        if len(peers) > 1:
            return self._of_ranks(rank, device, group, f"{group.name} batch", group.ranks or (), batch)
        (peer,) = peers
        pair: tuple[int, int] = (rank, peer) if call.sent_to else (peer, rank)
        if batch:
            pair = (min(pair), max(pair))
        return self._of_ranks(rank, device, group, f"{group.name} {'batch' if batch else 'message'}", pair, batch)

    def _of_ranks(
        self,
        rank: int,
        device: int,
        group: Group,
        name: str,
        ranks: tuple[int, ...],
        batch: bool = False,
        sequence: str = "",
    ) -> tuple[int, int]:
        code = self._codes.get((name, ranks, batch, sequence))
        if code is None:
            members = tuple(Member(other, UNKNOWN) for other in ranks if other in self._present)
            key = Key(name, ranks, members, len(ranks), self._communicator(group), batch)
            code = self._add((name, ranks, batch, sequence), key)
        return code, self._places[code][Member(rank, UNKNOWN)]

    def _communicator(self, group: Group) -> Communicator:
        """Return the process group; its description as its kernels have it, else any header."""
        described = group.description if is_description(group.description) else self._described.get(group, "")
        return Communicator(group.name, described, group.ranks or ())

    def of_calls(self, rank: Int64, call: Int64) -> list[Communicator | None]:
        """Return the process group that each call of a rank names; None where it names none."""
        named = []
        for one, code in zip(rank.tolist(), call.tolist(), strict=True):
            group = self._calls[code].group if code >= 0 else None
            whole = self._whole(RankNumber(one), group) if group is not None and group.name else None
            named.append(None if whole is None else self._communicator(whole))
        return named

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


@dataclass(frozen=True)
class _Library:
    """A kernel of another library than NCCL, empty for NCCL's, and the ranks that it was compiled for, 0: unknown.

    `is_unordered`: what is issued back to back may run in any order, and calls say which is which.
    """

    kernel: str
    size: int
    is_unordered: bool


def _find_libraries(kernels: Sequence[str], without_call: set[int]) -> tuple[Int64, list[_Library]]:
    """Return for each kernel's name an index of distinct libraries' kernels; of some names not all rows have a call."""
    each = [
        _Library(library_kernel(name), ranks_in_name(name), name.startswith(GLOO) and code not in without_call)
        for code, name in enumerate(kernels)
    ]
    codes = {library: code for code, library in enumerate(dict.fromkeys(each))}
    return np.array([codes[library] for library in each], dtype=np.int64), list(codes)


def _own_sequence(call: Call) -> str:
    """Return what tells apart collectives that gloo's threads may run in any order, as far as members say the same."""
    return str(call.kind) if call.kind in UNEVEN_MEMBERS else f"{call.kind} {call.elements} {call.dtype}"


def _is_size(group: Group) -> bool:
    """Whether nothing but its size is said of a group."""
    return not group.name and group.ranks is None


def _all_configured(run: RunSummary) -> dict[RankNumber, dict[str, Group]]:
    """Return the groups that each rank's header lists; ranks that list the same share one object."""
    by_rank: dict[RankNumber, dict[str, Group]] = {}
    listed: Any = None
    configured: dict[str, Group] = {}
    for summary in run.ranks:
        # Thousands of ranks list one another: most of them as the rank before does.
        if listed is None or summary.header.distributed.get("pg_config") != listed:
            listed, configured = (summary.header.distributed.get("pg_config"), _read_groups(summary.header.distributed))
        by_rank[summary.rank] = configured
    return by_rank


def _read_groups(distributed: dict[str, Any]) -> dict[str, Group]:
    """Return the groups of more than one rank that a trace's header lists, by name."""
    listed = distributed.get("pg_config")
    groups = {}
    for entry in listed if isinstance(listed, list) else []:
        ranks = entry.get("ranks") if isinstance(entry, dict) else None
        if isinstance(ranks, list) and all(isinstance(rank, int) and not isinstance(rank, bool) for rank in ranks):
            name = str(entry.get("pg_name", ""))
            size = entry.get("pg_size")
            whole = size == len(ranks) or not isinstance(size, int)
            if len(ranks) > 1 or (isinstance(size, int) and size > 1):
                description = entry.get("pg_desc")
                groups[name] = Group(
                    name,
                    size if isinstance(size, int) else len(ranks),
                    tuple(ranks) if whole else None,
                    description if isinstance(description, str) else "",
                )
    return groups
