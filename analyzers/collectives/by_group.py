"""Exposed communication of each process group, alone and several at once.

    mesh_tp     ####......
    mesh_fsdp   ..####....
    compute     #.........      mesh_tp: 1 exposed alone, several: 2, mesh_fsdp: 2

A group without a description may serve several strategies: there each has a line of its own. In the summary groups of
one description and role stand together where no rank is in two of them: they are what each rank calls by that name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.collectives.bandwidth import purposes
from analyzers.collectives.measured import Exchange, Exposed
from analyzers.collectives.table import KernelTable
from analyzers.intervals import EMPTY, Intervals, union_of
from analyzers.rank import STRATEGIES, Breakdown, Purpose, role_of
from analyzers.statistics import Spread, row_columns, spreads
from analyzers.step_parts import EXPOSED, fields_of

# Stand in the place of a group: where more than one communicates at once, and where none is known.
SEVERAL = "several"
NO_GROUP = "unknown"
# A description is a program's text, and may be of any length.
_LONGEST_NAME = 60
# The same among indices of lines; none known is UNKNOWN.
_SEVERAL = -2
# What a line is measured by, in a summary.
OF_GROUPS = ("comm_ns", "exposed_ns", *fields_of(EXPOSED))
_TITLES = {asked.name: asked.title for asked in STRATEGIES}


class GroupWindow(msgspec.Struct, frozen=True):
    """One process group's communication in a step of one rank: docs/measuring.md, By process group.

    `group`: its name, `several` or `unknown`. `description`: PyTorch's. `exposed_wait_ns`, `exposed_transfer_ns`,
    `exposed_unresolved_ns`: while it alone communicates.
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

    @property
    def line(self) -> Line:
        """Return the line that this is a step of."""
        return Line(self.group, self.description or "", self.role or "", tuple(self.ranks))


class GroupSummary(msgspec.Struct, frozen=True):
    """A process group, or disjoint ones of one description and role, over steps of its ranks."""

    name: str
    description: str | None
    role: str | None
    groups: list[OneGroup]
    purposes: list[str]
    measures: dict[str, Spread]


class OneGroup(msgspec.Struct, frozen=True):
    """One process group of a line."""

    group: str
    ranks: list[int]
    comm_ns: float
    exposed_ns: float
    exposed_wait_ns: float
    exposed_transfer_ns: float
    exposed_unresolved_ns: float


@dataclass(frozen=True, order=True)
class Line:
    """What a line of the table is: a communicator, or one strategy's part of one that nobody described."""

    group: str
    description: str
    role: str
    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the description, else the strategy in words, else ranks and stride; of no group what stands for it."""
        return self.description or _TITLES.get(self.role, self.role) or self.group


@dataclass(frozen=True, eq=False)
class Lines:
    """The line of each row of the table of kernels, -1 where no group is known."""

    of_row: Int64
    known: tuple[Line, ...]

    @cached_property
    def places(self) -> list[int]:
        """Return where each line's name stands among the run's, by first use; that of no group last, at index -1."""
        names: dict[str, int] = {}
        places = [names.setdefault(line.name, len(names)) for line in self.known]
        return [*places, len(names)]


def lines_of(table: KernelTable) -> Lines:
    """Return the line of each row: of a group that is described one, else one for each strategy that calls."""
    roles = [asked.name for asked in STRATEGIES]
    # One number for both, which sorts faster than pairs; the lowest code of each is UNKNOWN.
    codes, which = np.unique(
        (table.communicator - UNKNOWN) * (len(roles) + 1) + table.strategy - UNKNOWN, return_inverse=True
    )
    distinct = np.stack(np.divmod(codes, len(roles) + 1)) + UNKNOWN
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
    times = {line: LineTimes(own, _cut_exposed(exposed, own - several)) for line, own in comm.items()}
    return times | ({_SEVERAL: LineTimes(several, _cut_exposed(exposed, several))} if len(several) else {})


def _cut_exposed(exposed: Exposed, when: Intervals) -> Exposed:
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
    return list(_build_rows(lines.known, totals))


def _parts(times: LineTimes) -> tuple[Intervals, ...]:
    return times.comm, times.exposed.waiting, times.exposed.transfer, times.exposed.unresolved


def _build_rows(known: Sequence[Line], totals: Mapping[tuple[int, int, int], Int64]) -> Iterator[GroupWindow]:
    others = {_SEVERAL: Line(SEVERAL, "", "", ()), UNKNOWN: Line(NO_GROUP, "", "", ())}

    def placed(key: tuple[int, int, int]) -> tuple[int, int, bool, Line]:
        rank, step, code = key
        return rank, step, code < 0, others[code] if code < 0 else known[code]

    for key in sorted(totals, key=placed):
        rank, step, is_other, line = placed(key)
        lengths = totals[key].tolist()
        role = None if is_other else line.role
        yield GroupWindow(line.group, line.description or None, role, list(line.ranks), rank, step, *lengths)


def line_names(lines: Iterable[Line]) -> dict[Line, str]:
    """Return the name under which each line stands in the summary, those that belong together under one.

    Groups of one description and role are parts of one whole where no rank is in two of them: `mesh_tp` over ranks 0, 1
    and over 2, 3. Where names would be alike their groups stand before them.
    """
    together: list[list[Line]] = []
    for _, alike in groupby(sorted(set(lines), key=_order_alike), key=lambda line: (line.name, line.role)):
        disjoint: list[tuple[list[Line], set[int]]] = []
        for line in alike:
            # Of a group whose ranks are not known nobody can say that it shares none.
            fitting = next((one for one in disjoint if line.ranks and one[1] and one[1].isdisjoint(line.ranks)), None)
            if fitting is None:
                disjoint.append(([line], set(line.ranks)))
            else:
                fitting[0].append(line)
                fitting[1].update(line.ranks)
        together += [one for one, _ in disjoint]
    names = _make_distinct([one[0] for one in together])
    return {line: name for name, one in zip(names, together, strict=True) for line in one}


def _make_distinct(lines: Sequence[Line]) -> list[str]:
    """Return a name for each line that no other has, nor what stands for no group."""
    plain = [line.name if len(line.name) <= _LONGEST_NAME else f"{line.name[: _LONGEST_NAME - 3]}..." for line in lines]
    times, names = Counter(plain), dict[str, None]()
    # How many names are so far this one, or this one with something in brackets behind it.
    alike = Counter[str]()
    for name, line in zip(plain, lines, strict=True):
        is_taken = times[name] > 1 or name in (SEVERAL, NO_GROUP)
        if line.role and is_taken:
            name = f"group {line.group or ','.join(map(str, line.ranks))}: {name}"
        # Programs may give two groups one name and one description.
        name = f"{name} ({alike[name] + 1})" if name in names else name
        names[name] = None
        alike.update([name, *(name[: found.start()] for found in re.finditer(r" \(", name))])
    return [*names]


def _order_alike(line: Line) -> tuple[str, str, int, str, tuple[int, ...]]:
    """Order lines of one name and role by their groups' names, whose numbers are counted."""
    return line.name, line.role, len(line.group), line.group, line.ranks


def group_summaries(exchanged: Exchange, windows: Breakdown, rows: Sequence[GroupWindow]) -> list[GroupSummary]:
    """Return the lines of a run, those of most exposed time first, `several` and `unknown` last."""
    names = line_names(row.line for row in rows)
    carried = _list_purposes(exchanged, names)
    steps = _steps_of(windows)
    by_name: dict[str, dict[Line, list[GroupWindow]]] = {}
    for row in rows:
        by_name.setdefault(names[row.line], {}).setdefault(row.line, []).append(row)
    return [
        _build_summary(name, rows_of, steps, carried.get(name, []))
        for name, rows_of in sorted(by_name.items(), key=lambda item: (_is_other(item[1]), -_sum_ns(item[1]), item[0]))
    ]


def _steps_of(windows: Breakdown) -> dict[int, int]:
    """Count the steps of each rank."""
    ranks, counts = np.unique(np.unique(np.stack([windows.rank, windows.step]), axis=1)[0], return_counts=True)
    return dict(zip(ranks.tolist(), counts.tolist(), strict=True))


def _is_other(rows_of: Mapping[Line, Sequence[GroupWindow]]) -> int:
    """Return where a line stands: those of groups first, then several at once, then unknown."""
    (first, *_) = rows_of
    return 0 if first.role else 1 + (first.group == NO_GROUP)


def _sum_ns(rows_of: Mapping[Line, Sequence[GroupWindow]]) -> int:
    return sum(row.exposed_ns for rows in rows_of.values() for row in rows)


def _build_summary(
    name: str, rows_of: Mapping[Line, Sequence[GroupWindow]], steps: Mapping[int, int], carried: list[str]
) -> GroupSummary:
    line = next(iter(rows_of))
    rows = [row for of_line in rows_of.values() for row in of_line]
    groups = [
        OneGroup(
            one.group,
            list(one.ranks),
            **{measure: spread.median or 0.0 for measure, spread in _measure_spreads(own, steps).items()},
        )
        for one, own in sorted(rows_of.items(), key=lambda item: _order_alike(item[0]))
    ]
    measures = _measure_spreads(rows, steps)
    return GroupSummary(
        name, line.description or None, line.role or None, groups if line.role else [], carried, measures
    )


def _measure_spreads(rows: Sequence[GroupWindow], steps: Mapping[int, int]) -> dict[str, Spread]:
    """Return spreads over the steps of the ranks that have rows; where they have none, no time."""
    absent = sum(steps[rank] for rank in {row.rank for row in rows}) - len({(row.rank, row.step) for row in rows})
    return spreads({name: np.r_[values, np.zeros(absent)] for name, values in row_columns(rows, OF_GROUPS).items()})


def _list_purposes(exchanged: Exchange, names: Mapping[Line, str]) -> dict[str, list[str]]:
    """Return what each line of a summary carries, the longest first: as the collectives' table says it."""
    matching = exchanged.matching
    table, lines = matching.table, lines_of(matching.table)
    carried = table.purpose.copy()
    matched = matching.instance >= 0
    carried[matched] = purposes(matching)[matching.instance[matched]]
    known = [*(names.get(line) for line in lines.known), NO_GROUP]
    totals: dict[str, dict[int, int]] = {}
    codes, which = np.unique((lines.of_row - UNKNOWN) * len(Purpose) + carried, return_inverse=True)
    times = np.bincount(which, weights=table.end_ns - table.start_ns, minlength=len(codes))
    for code, ns in zip(codes.tolist(), times.tolist(), strict=True):
        line, purpose = divmod(code, len(Purpose))
        name = known[line + UNKNOWN]
        if name is not None:
            of_line = totals.setdefault(name, {})
            of_line[purpose] = of_line.get(purpose, 0) + int(ns)
    return {
        name: [Purpose(purpose).label for purpose in sorted(of_line, key=lambda one: -of_line[one])]
        for name, of_line in totals.items()
    }
