"""Time of one rank's windows by kernel and by operator, and FLOPs.

windows          |3         |4         |
kernels     aaa aaa   bb  ccc     aaa ddddd        a of the first is left out, d counts 3 of its 5
operator        mm    mm  copy    mm  mm           the innermost around each launch
ranking         aaa 2 calls, bb 1 call, ...        the longest first
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, begins, distinct, values_at
from analyzers.rank.kernels.counted_operators import CountedOperators, Precision, on_tensor_cores
from analyzers.statistics import ratio
from analyzers.trace import Events, Kind

# What stands for the operator where none was running on the thread of the launch, and where no launch was recorded.
NO_OPERATOR = "(no operator)"
NO_LAUNCH = "(launch not recorded)"
# So many of each list are kept.
MOST_RANKED = 50


class Extents(NamedTuple):
    """The time that the windows of each device tile, ns on the epoch, half-open."""

    device: Int64
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, eq=False)
class Launched(Columns):
    """Events of one rank's devices, or on a CPU run the pieces in which each operator itself ran.

    `name` is the kernel's code among the names (-1 on a CPU run), `launch` the row of the host call that launched it,
    `operator` the innermost operator around that, `counted` the operator with a count around it; -1 where there is
    none. `line` is what it is attributed to, `region` the same of what compiled code or a CUDA graph launched, -1 of
    all else, and `place` where it stands among its graph's kernels, by start, -1 outside of graphs.
    """

    device: Int64
    start_ns: Int64
    end_ns: Int64
    kind: Int64
    name: Int64
    launch: Int64
    operator: Int64
    counted: Int64
    line: Int64
    region: Int64
    place: Int64

    @property
    def ns(self) -> Int64:
        """Return the length of every event."""
        return self.end_ns - self.start_ns

    def within(self, extents: Extents) -> Launched:
        """Return the events that run in the windows of their device, clipped to these."""
        order = np.argsort(extents.device)
        place = order[np.searchsorted(extents.device[order], self.device)]
        start, end = extents.start_ns[place], extents.end_ns[place]
        runs = (self.start_ns < end) & ((self.end_ns > start) | (self.start_ns >= start))
        clipped = {"start_ns": np.maximum(self.start_ns, start), "end_ns": np.minimum(self.end_ns, end)}
        columns = {field.name: getattr(self, field.name) for field in fields(self)} | clipped
        return Launched(**columns).take(runs)


class InRegion(msgspec.Struct, frozen=True):
    """One kernel of a compiled region, or at one place of a CUDA graph's order (-1 outside of graphs)."""

    region: str
    place: int
    kernel: Ranked


@dataclass(frozen=True)
class FlopCount:
    """What the counted operators of one device came to, at one precision."""

    device: int
    precision: Precision
    flops: int


@dataclass(frozen=True, eq=False)
class Usage:
    """What one rank's windows went to, durations added up: the longest kernels and operators, and FLOPs.

    `regions` are the longest kernels of compiled regions and CUDA graphs.

    `compute_ns` is the time of all compute, `counted_ns` of what operators with a count launched.
    """

    kernels: tuple[Ranked, ...]
    operators: tuple[Ranked, ...]
    compute_ns: int
    counted_ns: int
    counts: tuple[FlopCount, ...]
    regions: tuple[InRegion, ...] = ()


def usage(counted: CountedOperators, launched: Launched, extents: Extents, lines: Sequence[str] = ()) -> Usage:
    """Return what ran in one rank's windows; `lines` are the names of what events are attributed to."""
    events, inside = counted.events, launched.within(extents)
    compute = inside.kind == Kind.COMPUTE
    return Usage(
        kernels=first_of_ranking(kernel_ranking(events, inside)),
        operators=first_of_ranking(operator_ranking(events, inside)),
        regions=_in_regions(events, inside, lines),
        compute_ns=int(inside.ns[compute].sum()),
        counted_ns=int(inside.ns[compute & (inside.counted >= 0)].sum()),
        counts=_flop_counts(counted, launched, extents),
    )


def kernel_ranking(events: Events, inside: Launched, layers: Sequence[str] | None = None) -> list[Ranked]:
    """Return kernels and copies by name and kind, the longest first; with names of lines also by layer."""
    named = inside.take(inside.name != UNKNOWN)
    line = named.line if layers is not None else np.full(len(named.ns), UNKNOWN)
    groups = ranking((named.name, named.kind, line), named.ns, int(named.ns.sum()))
    return [_name_ranked(row, events.names[name], kind, line, layers) for (name, kind, line), row in groups]


def operator_ranking(events: Events, inside: Launched, layers: Sequence[str] | None = None) -> list[Ranked]:
    """Return the same by the operator that launched, and its calls: what a call launched is added up first."""
    line = inside.line if layers is not None else np.full(len(inside.ns), UNKNOWN)
    # What no operator launched is a call each.
    call = np.where(inside.operator >= 0, inside.operator, -2 - np.arange(len(inside.ns)))
    calls = distinct(call, inside.kind, line)
    call, kind_of_call, line = calls.columns
    launch = np.zeros(len(calls), dtype=np.int64)
    launch[calls.index] = inside.launch
    # Two names beyond those of the trace.
    outside = np.where(launch >= 0, len(events.names), len(events.names) + 1)
    name = np.where(call >= 0, values_at(events.name, call), outside)
    names = (*events.names, NO_OPERATOR, NO_LAUNCH)
    groups = ranking((name, kind_of_call, line), calls.summed(inside.ns), int(inside.ns.sum()))
    return [_name_ranked(row, names[name], kind, line, layers) for (name, kind, line), row in groups]


def _in_regions(events: Events, inside: Launched, lines: Sequence[str]) -> tuple[InRegion, ...]:
    """Return the longest kernels of compiled regions and graphs, each graph's by place."""
    named = inside.take((inside.name != UNKNOWN) & (inside.region != UNKNOWN))
    keys = (named.name, named.kind, named.region, named.place)
    groups = ranking(keys, named.ns, int(inside.ns.sum()))[:MOST_RANKED]
    rows = [
        InRegion(lines[region], place, _name_ranked(row, events.names[name], kind, region, lines))
        for (name, kind, region, place), row in groups
    ]
    return tuple(sorted(rows, key=lambda row: (row.region, row.place)))


def _name_ranked(row: Ranked, name: str, kind: int, line: int, layers: Sequence[str] | None) -> Ranked:
    layer = layers[line] if layers is not None else None
    return msgspec.structs.replace(row, name=name, kind=Kind(kind).name.lower(), layer=layer)


def _flop_counts(counted: CountedOperators, launched: Launched, extents: Extents) -> tuple[FlopCount, ...]:
    """Add up the FLOPs of the calls whose first kernel starts in a window: all of a call's, or none."""
    computes = launched.take((launched.kind == Kind.COMPUTE) & (launched.counted >= 0))
    computes = computes.take(np.lexsort((computes.start_ns, computes.counted)))
    calls, first, index = np.unique(computes.counted, return_index=True, return_inverse=True)
    is_tensor = np.zeros(len(calls), dtype=bool)
    np.logical_or.at(is_tensor, index, on_tensor_cores(counted.events.names, computes.name))
    device, start = computes.device[first], computes.start_ns[first]
    counts: list[FlopCount] = []
    for number, begin, end in zip(*(column.tolist() for column in extents), strict=True):
        mine = (device == number) & (start >= begin) & (start < end)
        sums = counted.flops(calls[mine], is_tensor[mine])
        counts += [FlopCount(number, precision, total) for precision, total in sums.items()]
    return tuple(counts)


class Ranked(msgspec.Struct, frozen=True):
    """All calls of one name and kind: their time in the windows added up, the median call's, and the share of all."""

    name: str
    kind: str
    calls: int
    total_ns: int
    median_ns: float
    share: float | None
    layer: str | None = None  # null where layers are not told apart


def ranking(keys: Sequence[Int64], ns: Int64, whole_ns: int) -> list[tuple[tuple[int, ...], Ranked]]:
    """Return the groups of calls that have equal keys, columns with a row each call, the longest first.

    Each comes with its keys, and without a name. Shares are of `whole_ns`.
    """
    if not len(ns):
        return []
    groups = distinct(*keys)
    order = np.lexsort((ns, groups.index))
    ordered = ns[order]
    first = np.flatnonzero(begins(groups.index[order]))
    counts = np.diff(np.r_[first, len(ns)])
    totals = np.add.reduceat(ordered, first)
    medians = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) / 2
    columns = (column.tolist() for column in (counts, totals, medians))
    rows = [
        Ranked("", "", calls, total_ns, median_ns, ratio(total_ns, whole_ns))
        for calls, total_ns, median_ns in zip(*columns, strict=True)
    ]
    keys_of = list(zip(*(column.tolist() for column in groups.columns), strict=True))
    return [(keys_of[index], rows[index]) for index in np.argsort(-totals, kind="stable").tolist()]


def first_of_ranking(rows: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Return the longest of a ranking; of two alike the one that comes first in the alphabet."""
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name, row.kind))[:MOST_RANKED])


@dataclass(frozen=True, eq=False)
class KernelTrack:
    """Kernels and copies of one device by start, which may overlap; on a CPU run operators, while they themselves ran.

    `name` and `operator` index `names`: the kernel, and the innermost operator around its launch, UNKNOWN for none
    known. `layer` is the line that it is attributed to, a layer or another, by its place among the rank's lines.
    """

    start_ns: Int64
    end_ns: Int64
    is_copy: NDArray[np.bool_]
    name: NDArray[np.int32]
    operator: NDArray[np.int32]
    layer: NDArray[np.int32]
    names: tuple[str, ...]

    @cached_property
    def longest_ns(self) -> int:
        """Return how long the longest takes: what runs at an instant began no longer before it."""
        return int((self.end_ns - self.start_ns).max(initial=0))

    def moved(self, by_ns: int) -> KernelTrack:
        """Return the same kernels later by so much."""
        return replace(self, start_ns=self.start_ns + by_ns, end_ns=self.end_ns + by_ns)


def kernel_track(events: Events, launched: Launched, device: int) -> KernelTrack:
    """Return what ran on one device, named as the trace names it."""
    mine = launched.take((launched.device == device) & (launched.kind != Kind.COMM))
    mine = mine.take(np.argsort(mine.start_ns, kind="stable"))
    operator = values_at(events.name, mine.operator)
    # On a CPU run there are no kernels: operators are what runs.
    runs_operators = mine.name == UNKNOWN
    name = np.where(runs_operators, operator, mine.name)
    operator = np.where(runs_operators, UNKNOWN, operator)
    codes, index = np.unique(np.r_[UNKNOWN, name, operator], return_inverse=True)
    # The first code is UNKNOWN, which stays what it is.
    place = (index[1:] - 1).astype(np.int32)
    return KernelTrack(
        start_ns=mine.start_ns,
        end_ns=mine.end_ns,
        is_copy=mine.kind == Kind.COPY,
        name=place[: len(name)],
        operator=place[len(name) :],
        layer=mine.line.astype(np.int32),
        names=tuple(events.names[code] for code in codes[1:].tolist()),
    )
