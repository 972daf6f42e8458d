"""Exposed communication of each process group, alone and several at once.

    mesh_tp     ####......
    mesh_fsdp   ..####....
    compute     #.........      mesh_tp: 1 exposed alone, several: 2, mesh_fsdp: 2

A group without a description may serve several strategies: there each has a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.collectives.measured import Exchange, Exposed
from analyzers.collectives.table import KernelTable
from analyzers.intervals import EMPTY, Intervals, union_of
from analyzers.rank import STRATEGIES, Breakdown, role_of

# Stand in the place of a group: where more than one communicates at once, and where none is known.
SEVERAL = "several"
NO_GROUP = "unknown"
# The same among indices of lines; none known is UNKNOWN.
_SEVERAL = -2


class GroupWindow(msgspec.Struct, frozen=True):
    """One line's communication in a step of one rank, over its devices, ns; exposed while it alone was exposed.

    `group` is the process group's name, `description` what its maker called it, null for none. `role` is the strategy
    that calls, else the group's ranks and stride; null for the lines `several` and `unknown`, whose `ranks` are empty.
    `comm_ns` is the line's own communication, of `several` the time of more than one line at once.
    """

    group: str
    description: str | None
    role: str | None
    ranks: list[int]
    rank: int
    step: int
    comm_ns: int
    exposed_wait_ns: int
    exposed_transfer_ns: int
    exposed_unresolved_ns: int

    @property
    def exposed_ns(self) -> int:
        """Return all that is exposed while this line alone is."""
        return self.exposed_wait_ns + self.exposed_transfer_ns + self.exposed_unresolved_ns


@dataclass(frozen=True, order=True)
class Line:
    """What a line of the table is: a communicator, or one strategy's part of one that nobody described."""

    group: str
    description: str
    role: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Lines:
    """The line of each row of the table of kernels, -1 where no group is known."""

    of_row: Int64
    known: tuple[Line, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return a short name for each line: its description or role, with its ranks where these would be alike."""
        plain = [line.description or line.role for line in self.known]
        return tuple(
            name if plain.count(name) == 1 else f"{name} {','.join(map(str, line.ranks))}"
            for name, line in zip(plain, self.known, strict=True)
        )


def lines_of(table: KernelTable) -> Lines:
    """Return the line of each row: of a group that is described one, else one for each strategy that calls."""
    roles = [asked.name for asked in STRATEGIES]
    pairs = np.stack([table.communicator, table.strategy])
    distinct, which = np.unique(pairs, axis=1, return_inverse=True)
    callers: dict[int, set[int]] = {}
    for code, strategy in distinct.T.tolist():
        callers.setdefault(code, set()).add(strategy)
    lines: dict[Line, int] = {}
    of_pair = []
    for code, strategy in distinct.T.tolist():
        if code == UNKNOWN:
            of_pair.append(UNKNOWN)
            continue
        group = table.communicators[code]
        if group.description:
            (only,) = callers[code] if len(callers[code]) == 1 else (UNKNOWN,)
            role = roles[only] if only != UNKNOWN else role_of(group.description)
        else:
            role = roles[strategy] if strategy != UNKNOWN else None
        line = Line(group.name, group.description, role or spread(group.ranks), group.ranks)
        of_pair.append(lines.setdefault(line, len(lines)))
    return Lines(np.array([*of_pair, UNKNOWN], dtype=np.int64)[which], tuple(lines))


def spread(ranks: Sequence[int]) -> str:
    """Return ranks in words: `4 ranks, stride 2`; without a stride where they have none."""
    if not ranks:
        return "ranks unknown"
    strides = set(np.diff(ranks).tolist())
    count = f"{len(ranks)} ranks" if len(ranks) > 1 else "1 rank"
    return f"{count}, stride {strides.pop()}" if len(strides) == 1 else count


@dataclass(frozen=True, eq=False)
class LineTimes:
    """When one line of a device communicated, and when it alone was exposed, in the three parts."""

    comm: Intervals
    exposed: Exposed


def line_times(exchanged: Exchange, lines: Lines, rows: Int64, exposed: Exposed) -> Mapping[int, LineTimes]:
    """Return the times of each line among a device's rows: its index, -1 unknown, -2 several."""
    table = exchanged.matching.table
    of_row = lines.of_row[rows]
    comm = {
        int(line): union_of(table.start_ns[rows[of_row == line]], table.end_ns[rows[of_row == line]])
        for line in np.unique(of_row).tolist()
    }
    several = _covered_twice([*comm.values()])
    times = {line: LineTimes(own, _within(exposed, own - several)) for line, own in comm.items()}
    return times | ({_SEVERAL: LineTimes(several, _within(exposed, several))} if len(several) else {})


def _within(exposed: Exposed, when: Intervals) -> Exposed:
    return Exposed(exposed.waiting & when, exposed.transfer & when, exposed.unresolved & when)


def _covered_twice(sets: Sequence[Intervals]) -> Intervals:
    """Return when more than one of several sets is at once."""
    if len(sets) < 2:
        return EMPTY
    edges = np.concatenate([edge for one in sets for edge in (one.start, one.end)])
    change = np.concatenate([np.repeat([1, -1], len(one)) for one in sets])
    order = np.argsort(edges, kind="stable")
    at, depth = edges[order], np.cumsum(change[order])
    return union_of(at[:-1][depth[:-1] > 1], at[1:][depth[:-1] > 1])


def group_rows(exchanged: Exchange, windows: Breakdown) -> list[GroupWindow]:
    """Return for each rank and step its lines, `several` and `unknown` last: they add up to what is exposed."""
    lines = lines_of(exchanged.matching.table)
    index_of = {number: index for index, number, _ in exchanged.run.numbered()}
    totals: dict[tuple[int, int, int], Int64] = {}
    for (number, device), chosen in windows.by_device():
        index, start = index_of[number], windows.start_ns[chosen]
        rows, end = exchanged.rows_of(index, device), start + windows.span_ns[chosen]
        for line, times in line_times(exchanged, lines, rows, exchanged.exposed(index, device)).items():
            lengths = np.stack([part.length_within(start, end) for part in _parts(times)])
            for step, column in zip(windows.step[chosen].tolist(), lengths.T, strict=True):
                if column[0]:
                    key = (int(number), step, line)
                    totals[key] = totals.get(key, np.zeros(4, dtype=np.int64)) + column
    return list(_rows(lines.known, totals))


def _parts(times: LineTimes) -> tuple[Intervals, ...]:
    return times.comm, times.exposed.waiting, times.exposed.transfer, times.exposed.unresolved


def _rows(known: Sequence[Line], totals: Mapping[tuple[int, int, int], Int64]) -> Iterator[GroupWindow]:
    others = {_SEVERAL: Line(SEVERAL, "", "", ()), UNKNOWN: Line(NO_GROUP, "", "", ())}

    def placed(key: tuple[int, int, int]) -> tuple[int, int, bool, Line]:
        rank, step, code = key
        return rank, step, code < 0, others[code] if code < 0 else known[code]

    for key in sorted(totals, key=placed):
        rank, step, is_other, line = placed(key)
        lengths = totals[key].tolist()
        role = None if is_other else line.role
        yield GroupWindow(line.group, line.description or None, role, list(line.ranks), rank, step, *lengths)
