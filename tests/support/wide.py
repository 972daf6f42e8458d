"""A run too large for documents: 1,024 ranks as plain columns, simulated all ranks at once.

    run = wide(ranks=1024, steps=5)
    run.columns[17]["start_ns"], run.groups[run.columns[17]["group"][0]], run.truth[17]

`truth[rank]` is the instance of each row of that rank: kernels of one number belong together. Physics as in
synthetic_runs.py, with synchronizing kinds only: rows of `width` ranks, columns of the mesh, and the world.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.physics import ITEMSIZE, Collective, Ranks, columns, rows
from tests.support.synthetic_runs import START_NS

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
DTYPES = ("Float", "BFloat16")

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Wide:
    """Columns by rank; `kind`, `dtype` and `group` are indices into KINDS, DTYPES and `groups` (name, ranks)."""

    columns: list[Columns]
    truth: list[NDArray[np.int64]]
    groups: list[tuple[str, Ranks]]


@dataclass(frozen=True)
class Level:
    """One way to divide the ranks into teams, as a table: a line of ranks for each team."""

    name: str
    teams: tuple[Ranks, ...]
    first_group: int

    @property
    def table(self) -> NDArray[np.int64]:
        return np.array(self.teams, dtype=np.int64)


def levels(ranks: int, width: int) -> list[Level]:
    """The world, the rows and the columns of a mesh."""
    along, across = rows(ranks, width), columns(ranks, width)
    world = (tuple(range(ranks)),)
    return [Level("0", world, 0), Level("rows", along, 1), Level("columns", across, 1 + len(along))]


def ops(count: int, seed: int) -> list[tuple[int, Collective]]:
    """A step's collectives, each with its level; runs of equal ones, as layers make them."""
    random = np.random.default_rng(seed)
    found: list[tuple[int, Collective]] = []
    while len(found) < count:
        level, kind = int(random.choice(3, p=[0.15, 0.6, 0.25])), KINDS[random.integers(len(KINDS))]
        op = Collective(kind, 1 << int(random.integers(12, 23)), DTYPES[random.integers(len(DTYPES))])
        found += [(level, op)] * int(random.integers(1, 5))
    return found[:count]


def wide(
    ranks: int = 1024,
    steps: int = 5,
    collectives: int = 40,
    *,
    width: int = 8,
    seed: int = 0,
    missing: float = 0.0,
    offset_ns: int = 0,
    late_us: float = 150.0,
    noise_us: float = 6.0,
) -> Wide:
    """Every rank's kernels; a share of them lost, each host of eight's clock off by up to `offset_ns`."""
    random = np.random.default_rng(seed)
    divided, program = levels(ranks, width), ops(collectives, seed)
    compute = np.full(ranks, START_NS, dtype=np.int64)
    streams = np.full((len(divided), ranks), START_NS, dtype=np.int64)
    table = _empty(steps * collectives, ranks)
    counted = 0
    for row in range(steps * collectives):
        level, op = program[row % collectives]
        teams = divided[level].table
        late = random.exponential(1000 * late_us, ranks).astype(np.int64)
        start = np.maximum(compute + late, streams[level] + 1000)
        transfer = op.transfer_ns(teams.shape[1], 150.0)
        noise = random.integers(0, int(1000 * noise_us) + 1, ranks)
        end = np.empty(ranks, dtype=np.int64)
        end[teams] = start[teams].max(axis=1, keepdims=True) + transfer
        end += noise
        streams[level], compute = end, start + 120_000
        if row % collectives == collectives - 1:
            compute = np.maximum(compute, streams.max(axis=0))
        _fill(table, row, op, divided[level], (row // collectives, level), (start, end), counted)
        counted += len(teams)
    return _by_rank(table, divided, random, missing, offset_ns)


def _empty(length: int, ranks: int) -> Columns:
    """A table for all ranks: a line for each place in the program."""
    names = ("start_ns", "dur_ns", "launch_ns", "step", "kind", "dtype", "elements_in", "elements_out")
    more = ("group", "group_size", "stream", "correlation", "instance")
    return {name: np.zeros((length, ranks), dtype=np.int64) for name in (*names, *more)}


def _fill(
    table: Columns,
    row: int,
    op: Collective,
    level: Level,
    where: tuple[int, int],
    span: tuple[NDArray[np.int64], NDArray[np.int64]],
    counted: int,
) -> None:
    teams, (start, end) = level.table, span
    number = np.arange(len(teams))[:, None]
    table["start_ns"][row], table["dur_ns"][row], table["launch_ns"][row] = start, end - start, start - 60_000
    table["step"][row], table["stream"][row] = where[0], 19 + 4 * where[1]
    table["kind"][row], table["dtype"][row] = KINDS.index(op.kind), DTYPES.index(op.dtype)
    table["elements_in"][row], table["elements_out"][row] = op.messages(0, teams.shape[1])
    table["group_size"][row], table["correlation"][row] = teams.shape[1], 1000 + 7 * row
    table["group"][row][teams] = level.first_group + number
    table["instance"][row][teams] = counted + number


def _by_rank(table: Columns, divided: list[Level], random: np.random.Generator, missing: float, offset_ns: int) -> Wide:
    length, ranks = table["start_ns"].shape
    offsets = random.integers(-offset_ns, offset_ns + 1, -(-ranks // 8)).repeat(8)[:ranks]
    offsets -= offsets[0]
    kept = random.random((length, ranks)) >= missing
    table = table | {"start_ns": table["start_ns"] + offsets, "launch_ns": table["launch_ns"] + offsets}
    found = [
        {name: np.ascontiguousarray(column[kept[:, k], k]) for name, column in table.items()} for k in range(ranks)
    ]
    truth = [one.pop("instance") for one in found]
    groups = [
        (level.name if len(level.teams) == 1 else f"{level.name}{team}", ranks_of)
        for level in divided
        for team, ranks_of in enumerate(level.teams)
    ]
    return Wide(found, truth, groups)


def nbytes(run: Wide, rank: int) -> NDArray[np.int64]:
    """Bytes of each kernel's whole buffer."""
    own = run.columns[rank]
    sizes = np.array([ITEMSIZE[name] for name in DTYPES])
    return np.maximum(own["elements_in"], own["elements_out"]) * sizes[own["dtype"]]
