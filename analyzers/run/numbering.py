"""Numbers of ranks, by traces, names and pids, and cycles of processes.

what says it                        example
--rank FILE=N                       --rank a.json=3
the trace's distributedInfo         "rank": 3
its collectives' host rows          "Rank": 1, "Process Group Ranks": "[2, 3]"
a label before its rows' pids       [TP03] 4242
its file's name                     global_rank3, -rank[3], -TP-3-DP-0-, local_rank3, trace_3.json, rank3/trace.json
nothing, of a whole run             the fourth of as many pids on one host as the default group has members

A name's numbers are ranks only where nothing contradicts: a group that has no such rank, a world that is smaller, two
files of one number, one process in several files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, zip_longest

import numpy as np

from analyzers.errors import UnusableRun
from analyzers.notices import Code, Notice
from analyzers.paths import Place
from analyzers.ranks import RankNumber, rank_number
from analyzers.texts import listed, typed
from analyzers.trace import Call, Events, Group, Header, is_description

_NUMBER = r"[-_ =]*\[?(\d{1,6})(?!\d)"
# What a name calls a rank, the surest first: that of the world, that of a rank, that of a host or a group.
_RANKS = tuple(
    re.compile(rf"{word}{_NUMBER}", re.IGNORECASE)
    for word in (r"global[-_ ]?rank", r"(?<![a-z])(?<!local[-_ ])(?<!node[-_ ])(?<!group[-_ ])rank", r"rank")
)
# Places in a mesh, as inference servers name their files, the outermost first.
_PLACE = re.compile(r"(?<![a-z])(pp|dp|tp|ep)[-_ ]?(?:rank)?[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_MESHES = (("tp",), ("dp",), ("pp",), ("ep",), ("dp", "tp"), ("pp", "tp"), ("pp", "dp"), ("pp", "dp", "tp"))
_LABEL = re.compile(r"^\[(\d{1,6})\]")
_LAST = tuple(re.compile(rf"{before}(\d{{1,6}})$") for before in (r"(?:^|[-_.])", r"(?<!\d)"))
_SUFFIX = re.compile(r"(\.pt)?(\.trace)?(\.json)?(\.gz|\.zst|\.zip)?$")
# As torch's handler names a file: the host, the process, milliseconds.
_OF_HANDLER = re.compile(r"(?P<host>.+)_(?P<pid>\d+)\.\d{10,}\.pt\.trace\.json")
# The last number in a name may be a year, a time, a process, a step: one so large needs a world of that size.
_LARGEST_UNSAID = 1_000
_DEFAULT_GROUP = ("0", "default_pg")
_NAMED = 20


class NumberedBy(StrEnum):
    """What says the ranks of a run, as `run.rank_source` has it, the surest first."""

    MANIFEST = "run.json"
    TRACE = "trace"
    FILE = "file"
    GUESSED = "guessed"


@dataclass(frozen=True)
class Owner:
    """The process whose a rank's rows are, and what it and its files say of its rank.

    `calling` is the rank as which it calls collectives, `groups` are the ranks of those that it calls in, `peers` whom
    it sends messages or gets them from; `world_size` counts the members of the default group. Rows on its devices lie
    between `begin_ns` and `end_ns`.
    """

    pid: str = ""
    host: str | None = None
    begin_ns: int = 0
    end_ns: int = 0
    given: int | None = None
    stated: int | None = None
    calling: int | None = None
    world_size: int | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    peers: tuple[int, ...] = ()

    def denies(self, number: int) -> bool:
        """Whether the trace contradicts that this is its rank."""
        is_outside = self.world_size is not None and number >= self.world_size
        return is_outside or number in self.peers or any(number not in ranks for ranks in self.groups)

    @property
    def tells(self) -> bool:
        """Whether the trace has what could contradict a number."""
        return self.world_size is not None or bool(self.groups)

    @property
    def is_of_several(self) -> bool:
        """Whether the trace says that its run has more ranks than this."""
        return max(self.world_size or 1, *map(len, self.groups), 1) > 1

    @property
    def least(self) -> int:
        """Return the least number that nothing denies, 0 where all are denied."""
        likely = {0}.union(*self.groups)
        return min((number for number in likely if not self.denies(number)), default=0)

    def doubts(self, number: int) -> bool:
        """Whether a number that nothing calls a rank is rather the process, or a year, a time or a step."""
        is_another = number >= _LARGEST_UNSAID or str(number) == self.pid
        return self.denies(number) or (is_another and not self.tells)


NOBODY = Owner()


def owner_of(path: Place, header: Header, pid: str, events: Events, *, given: int | None, alone: bool) -> Owner:
    """Return what a file says of one of its processes; only of one that is `alone` in it its header says the rank."""
    calls = [events.calls[code] for code in np.unique(events.call[events.call >= 0]).tolist()]
    groups = [group for group in {call.group for call in calls} if group is not None]
    device = np.flatnonzero(events.on_device) if events.on_device.any() else np.arange(len(events))
    named = _OF_HANDLER.match(path.name)
    size = header.distributed.get("world_size")
    return Owner(
        pid=pid,
        host=header.host_name or (named["host"] if named and named["pid"] == pid else None),
        begin_ns=int(events.start_ns[device].min(initial=np.iinfo(np.int64).max)),
        end_ns=int(events.end_ns[device].max(initial=0)),
        given=given,
        stated=rank_number(header.distributed.get("rank")) if alone else None,
        calling=_calling(calls) if alone else None,
        world_size=size if isinstance(size, int) else _default_size(groups),
        groups=tuple(sorted({group.ranks for group in groups if group.ranks})),
        # A message that names both ends names the process itself.
        peers=tuple(
            sorted(
                {
                    rank
                    for call in calls
                    if not (call.sent_to and call.received_from)
                    for rank in (*call.sent_to, *call.received_from)
                }
            )
        ),
    )


def _default_size(groups: Sequence[Group]) -> int | None:
    """Return the members of the default group, None where the trace does not name one."""
    return max((group.size for group in groups if group.size > 0 and _is_default(group)), default=None)


def _is_default(group: Group) -> bool:
    return group.name in _DEFAULT_GROUP and not is_description(group.description)


def _calling(calls: Sequence[Call]) -> int | None:
    """Return the rank as which a process calls collectives, by its place in each group; None where these differ."""
    said = {
        rank
        for call in calls
        if call.group is not None and call.caller >= 0 and (call.group.ranks is not None or _is_default(call.group))
        for rank in call.group.rank_at(call.caller)
    }
    return said.pop() if len(said) == 1 else None


@dataclass(frozen=True)
class Numbers:
    """The rank of each process, None where nothing says it, what said it, and what is to be known of that."""

    ranks: tuple[RankNumber | None, ...]
    source: NumberedBy
    notices: tuple[Notice, ...] = ()


def numbers_of(owners: Sequence[tuple[Place, Owner]]) -> Numbers:
    """Return which rank each process is, by its file and what it says. Raises UnusableRun for cycles of a process."""
    _check_cycles(owners)
    said = [owner.given if owner.given is not None else owner.stated for _, owner in owners]
    known = {index: number for index, number in enumerate(said) if number is not None}
    is_given = any(owner.given is not None for _, owner in owners)
    source = NumberedBy.TRACE if known and not is_given else NumberedBy.FILE
    for by, called in _callers(owners, alone=len(owners) == 1):
        open_ones = [index for index in range(len(owners)) if index not in known]
        more = called(open_ones)
        if more and len({*known.values(), *more.values()}) == len(known) + len(more):
            source = by if by is NumberedBy.FILE or not known else source
            known = {**known, **more}
    notices: tuple[Notice, ...] = ()
    if not known:
        known = _guessed([owner for _, owner in owners], {path for path, _ in owners})
        # What runs alone is no guess.
        if known and (len(owners) > 1 or owners[0][1].is_of_several):
            source, notices = NumberedBy.GUESSED, (_guess(known, [owner for _, owner in owners]),)
    ranks = tuple(RankNumber(known[index]) if index in known else None for index in range(len(owners)))
    return Numbers(ranks, source, notices)


Called = Callable[[Sequence[int]], Mapping[int, int]]


def _callers(owners: Sequence[tuple[Place, Owner]], *, alone: bool) -> Iterator[tuple[NumberedBy, Called]]:
    """Yield, the surest first, what numbers processes by their calls, their labels or their files' names.

    Nothing that is denied, or that two processes share, is a number of ranks. The name of the only file says which
    rank it is only where it speaks of ranks.
    """
    stems = [_SUFFIX.sub("", path.name) for path, _ in owners]
    folders = [path.parent.name for path, _ in owners]
    pids = ["" if owner.pid.isdecimal() else owner.pid for _, owner in owners]
    tell = all(owner.tells for _, owner in owners)

    def unless(no: Callable[[Owner, int], bool], called: Called) -> Called:
        def numbers(indices: Sequence[int]) -> Mapping[int, int]:
            found = called(indices)
            return {} if any(no(owners[index][1], number) for index, number in found.items()) else found

        return numbers

    def by(texts: Sequence[str], pattern: re.Pattern[str], at: int = 0) -> Called:
        return lambda indices: {
            index: int(numbers[at]) for index in indices if (numbers := pattern.findall(texts[index]))
        }

    def in_mesh(texts: Sequence[str], mesh: Sequence[str]) -> Called:
        return lambda indices: _in_mesh({index: texts[index] for index in indices}, mesh)

    surest = [by(pids, pattern) for pattern in (*_RANKS, _LABEL)]
    surest += [in_mesh(pids, mesh) for mesh in _MESHES]
    surest += [by(stems, pattern, at) for pattern in _RANKS[:-1] for at in (0, -1)]
    # The name of one file may say how large the mesh is.
    surest += [in_mesh(stems, mesh) for mesh in _MESHES if tell or not alone]
    surest += [by(stems, _RANKS[-1], at) for at in (0, -1)]
    calling = {index: owner.calling for index, (_, owner) in enumerate(owners) if owner.calling is not None}
    yield NumberedBy.TRACE, unless(Owner.denies, lambda indices: {i: calling[i] for i in indices if i in calling})
    yield from ((NumberedBy.FILE, unless(Owner.denies, called)) for called in surest)
    if not alone:
        unmarked = ["" if ".pt.trace." in path.name else stem for (path, _), stem in zip(owners, stems, strict=True)]
        last = [unless(Owner.doubts, by(unmarked, pattern)) for pattern in _LAST[: 2 if tell else 1]]
        yield from ((NumberedBy.FILE, called) for called in (*last, unless(Owner.denies, by(folders, _RANKS[-1]))))


def _in_mesh(texts: Mapping[int, str], mesh: Sequence[str]) -> dict[int, int]:
    """Return the number of each text that names places on all axes of a mesh, the last of which counts fastest."""
    places = {index: {axis.lower(): int(at) for axis, at in _PLACE.findall(text)} for index, text in texts.items()}
    named = {index: [at[axis] for axis in mesh] for index, at in places.items() if {*mesh} <= at.keys()}
    sizes = [max(column) + 1 for column in zip(*named.values(), strict=True)]
    numbers = {}
    for index, coordinates in named.items():
        numbers[index] = 0
        for size, at in zip(sizes, coordinates, strict=True):
            numbers[index] = numbers[index] * size + at
    return numbers


def _guessed(owners: Sequence[Owner], files: set[Place]) -> dict[int, int]:
    """Return the places of processes in order of pid, where they are a whole run: nothing says which is which.

    They are where the default group has as many members, and where one file holds them; one alone is rank 0 if it can.
    """
    if len(owners) == 1:
        return {0: owners[0].least}
    pids = [owner.pid for owner in owners]
    sizes = {owner.world_size for owner in owners}
    is_whole = sizes == {len(owners)} or len(files) == 1
    if len({*pids}) < len(pids) or "" in pids or len({owner.host for owner in owners}) > 1 or not is_whole:
        return {}
    order = sorted(range(len(owners)), key=lambda index: (len(pids[index]), pids[index]))
    numbers = {index: number for number, index in enumerate(order)}
    return {} if any(owners[index].denies(number) for index, number in numbers.items()) else numbers


def _guess(numbers: Mapping[int, int], owners: Sequence[Owner]) -> Notice:
    pids = [f"rank {numbers[index]} is pid {owners[index].pid}" for index in sorted(numbers, key=numbers.__getitem__)]
    text = f"no file says which rank it is: they are numbered in order of process id ({listed(pids, _NAMED)})"
    return Notice(Code.RANKS_ARE_GUESSED, text, Code.RANKS_ARE_GUESSED.facts.do)


def _check_cycles(owners: Sequence[tuple[Place, Owner]]) -> None:
    """Raise UnusableRun where several files are of one process, one after the other."""
    files: dict[tuple[str | None, str], list[tuple[int, int, Place]]] = defaultdict(list)
    stated: dict[tuple[str | None, str], set[int | None]] = defaultdict(set)
    for path, owner in owners:
        if owner.pid and owner.given is None:
            files[owner.host, owner.pid].append((owner.begin_ns, owner.end_ns, path))
            stated[owner.host, owner.pid].add(owner.calling if owner.stated is None else owner.stated)
    cycles = [
        parts
        for process, listed in files.items()
        if len(parts := sorted(listed, key=lambda part: part[:2])) > 1
        and len(stated[process]) == 1
        and all(before[1] <= behind[0] for before, behind in pairwise(parts))
    ]
    if not cycles:
        return
    runs = [[part for part in cycle if part is not None] for cycle in zip_longest(*cycles)]
    # What has a file for one cycle alone belongs to that which it was recorded with.
    for begin_ns, end_ns, path in (parts[0] for parts in files.values() if len(parts) == 1):
        for run in runs:
            run += [(begin_ns, end_ns, path)] * any(begin_ns < end and begin < end_ns for begin, end, _ in run)
    commands = [typed("tracer", "report", *(str(path) for _, _, path in run)) for run in runs]
    more = f"; and {len(commands) - _NAMED} more" if len(commands) > _NAMED else ""
    whose = f"{len(cycles)} processes" if len(cycles) > 1 else f"one process (pid {_pid_of(cycles[0][0][2], owners)})"
    raise UnusableRun(
        f"{cycles[0][0][2].parent}: its files are {len(commands)} cycles of {whose}, not ranks: report each by itself: "
        f"{'; '.join(commands[:_NAMED])}{more}"
    )


def _pid_of(file: Place, owners: Sequence[tuple[Place, Owner]]) -> str:
    return next(owner.pid for path, owner in owners if path == file)
