"""Waiting and transfer time of each instance and its members.

    rank 0   wwwwwtttt     members that share a clock: each waits until the last has started, and the transfer is what
    rank 1   ..wwwtttt     is left of the longest: the last to come finds data buffered, so that its own duration may
    rank 2   .....ttt.     be shorter

Elsewhere the shortest member, which waits least, shows the transfer: no clock is needed. In one-way kinds a member may
leave before all have come, so that a wait is at most what a member takes longer than the shortest. The root of a gather
or a scatter takes part in every message: its kernel shows the transfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask, values_at
from analyzers.collectives.clocks import Clocks
from analyzers.collectives.matching import Matching
from analyzers.trace import KINDS, Collective, bus_factor, itemsize, plausible_count

# Ends of one synchronizing collective, on one clock, lie no farther apart; else nothing tells what its members did.
MOST_APART_NS = 1_000_000


@dataclass(frozen=True, eq=False)
class Transfers:
    """Transfer, size and bandwidth for each instance, waiting and times for each of the instances' members.

    `transfer_ns` is -1 where ends on one clock lie too far apart, by `apart_ns`, 0 elsewhere. `bound` says that it is
    an upper bound or an estimate: one-way kinds, and instances some of whose members are not in the run. `nbytes` is -1
    and `algbw_gbps`, `busbw_gbps` are NaN where unknown.

    For each member: `wait_ns`, -1 for a lone member of a partial instance, and without a transfer; `unprofiled_ns`,
    what of it was before another member's profile began; `waits_for`, the entry of the member whose arrival ended the
    wait (its own where it did not wait); `start_ns`, `end_ns` on the common clock.
    """

    transfer_ns: Int64
    bound: Mask
    apart_ns: Int64
    nbytes: Int64
    group_size: Int64
    algbw_gbps: NDArray[np.float64]
    busbw_gbps: NDArray[np.float64]
    wait_ns: Int64
    unprofiled_ns: Int64
    waits_for: Int64
    start_ns: Int64
    end_ns: Int64


def transfers(matching: Matching, clock: Clocks, began_ns: Mapping[int, int]) -> Transfers:
    """Measure waiting, transfer and bandwidth for every instance, as docs/measuring.md defines them.

    `began_ns` is when each rank's profile begins on the common clock.
    """
    instances, table = matching.instances, matching.table
    rows, number, first = instances.members, instances.of_member, instances.first
    shift = clock.shift_ns(table.rank[rows])
    start, end = table.start_ns[rows] - shift, table.ended_ns[rows] - shift
    end = _ends(start, end, table.cut[rows], instances.first)
    one_way = ~matching.synchronizes
    shared = clock.are_shared(matching, _fold_members(np.minimum, end - start, first))
    wait, waits_for, transfer = divide(start, end, first, shared, one_way)
    _by_roots(matching, end - start, shared, wait, transfer)
    last_ns, first_ns = _fold_members(np.maximum, end, first), _fold_members(np.minimum, end, first)
    apart = np.where(shared & ~one_way, last_ns - first_ns, 0)
    apart[apart <= MOST_APART_NS] = 0
    lone = instances.partial & (np.diff(first) == 1)
    wait = np.where((lone | (apart > 0))[number], UNKNOWN, wait)
    transfer = np.where(apart > 0, UNKNOWN, transfer)
    begun = np.array([began_ns[rank] for rank in table.rank[rows].tolist()], dtype=np.int64)
    unprofiled = np.clip(_fold_members(np.maximum, begun, first)[number] - start, 0, np.maximum(wait, 0))
    unprofiled[~clock.are_comparable(matching)[number]] = 0
    nbytes, factor, size = _find_sizes(matching)
    measurable = (transfer > 0) & (nbytes >= 0) & ~instances.partial
    algbw = np.divide(nbytes, transfer, out=np.full(len(transfer), np.nan), where=measurable)
    return Transfers(
        transfer_ns=transfer,
        bound=one_way | instances.partial,
        apart_ns=apart,
        nbytes=nbytes,
        group_size=size,
        algbw_gbps=algbw,
        busbw_gbps=algbw * factor,
        wait_ns=wait,
        unprofiled_ns=unprofiled,
        waits_for=waits_for,
        start_ns=start,
        end_ns=end,
    )


def _ends(start: Int64, end: Int64, cut: Mask, first: Int64) -> Int64:
    """Return when members end, those of which no end is known (`cut`) with the last of the others, if there is one."""
    if not cut.any():
        return end
    number = np.repeat(np.arange(len(first) - 1), np.diff(first))
    others = _fold_members(np.maximum, np.where(cut, np.iinfo(np.int64).min, end), first)[number]
    return np.where(cut & (others > start), others, end)


def _by_roots(matching: Matching, dur: Int64, shared: Mask, wait: Int64, transfer: Int64) -> None:
    """Let the root of each gather and scatter say its transfer, elsewhere by its whole kernel.

    Where no call says who the root is, it is the member that is left with most.
    """
    instances = matching.instances
    for number in np.flatnonzero(np.isin(instances.kind, (Collective.GATHER, Collective.SCATTER))).tolist():
        entries = np.arange(instances.first[number], instances.first[number + 1])
        left = dur[entries] - (wait[entries] if shared[number] else 0)
        call = instances.call[number]
        is_root = np.isin(matching.table.rank[instances.members[entries]], call.root if call is not None else ())
        root = int((is_root if is_root.any() else left).argmax())
        transfer[number] = left[root]
        if not shared[number]:
            wait[entries[root]] = 0


def divide(start: Int64, end: Int64, first: Int64, shared: Mask, one_way: Mask) -> tuple[Int64, Int64, Int64]:
    """Divide members [start, end), instance k's at `first[k]:first[k + 1]`, into waiting and what is left of each.

    Returns for each member its wait and the entry of the member that it waited for, and for each instance its transfer.
    """
    number, dur = np.repeat(np.arange(len(first) - 1), np.diff(first)), end - start
    longer = dur - _fold_members(np.minimum, dur, first)[number]
    last = _latest_before_end(start, end, number)
    by_starts = start[last] - start
    by_starts = np.where(one_way[number], np.minimum(by_starts, longer), by_starts)
    wait = np.where(shared[number], by_starts, longer)
    waits_for = np.where(shared[number], last, _least_waiting(wait, start, number))
    return wait, waits_for, _fold_members(np.maximum, dur - wait, first)


def _fold_members(fold: np.ufunc, values: Int64, first: Int64) -> Int64:
    return fold.reduceat(values, first[:-1]) if len(first) > 1 else np.zeros(0, dtype=np.int64)


def _latest_before_end(start: Int64, end: Int64, number: Int64) -> Int64:
    """Return for each member the entry of its instance that started last before the member ended; at least itself."""
    count = len(start)
    entry = np.tile(np.arange(count), 2)
    begins = np.repeat([True, False], count)
    # At one instant an end comes first: who starts there started no earlier.
    order = np.lexsort((begins, np.r_[start, end], number[entry]))
    place = np.where(begins[order], np.arange(2 * count), 0)
    latest = np.empty(2 * count, dtype=np.int64)
    latest[order] = entry[order][np.maximum.accumulate(place)]
    before_end, itself = latest[count:], np.arange(count)
    is_later = (number[before_end] == number) & (start[before_end] > start)
    return np.where(is_later, before_end, itself)


def _least_waiting(wait: Int64, start: Int64, number: Int64) -> Int64:
    """Return for each member the entry of its instance that waited least, among equals the latest to start."""
    order = np.lexsort((-start, wait, number))
    instances, first = np.unique(number[order], return_index=True)
    least = np.zeros(int(instances.max(initial=-1)) + 1, dtype=np.int64)
    least[instances] = order[first]
    return least[number]


def _find_sizes(matching: Matching) -> tuple[Int64, NDArray[np.float64], Int64]:
    """Return bytes, bus factor (NaN for a kind that has none) and group size for every instance."""
    count = len(matching.instances)
    nbytes, size = np.full(count, UNKNOWN, dtype=np.int64), np.full(count, 2, dtype=np.int64)
    factor = np.ones(count)
    for number in range(count):
        nbytes[number], factor[number], size[number] = _find_size(matching, number)
    return nbytes, factor, size


def _find_size(matching: Matching, number: int) -> tuple[int, float, int]:
    instances = matching.instances
    group, call, kind = int(instances.group[number]), instances.call[number], Collective(int(instances.kind[number]))
    rows = instances.members[instances.first[number] : instances.first[number + 1]]
    if group < 0:
        # A copy: a message, or a part of what copy engines do for a collective, whose whole no single copy measures.
        return int(matching.table.nbytes[rows[0]]), 1.0 if kind == Collective.SEND_RECV else np.nan, 2
    size = matching.table.groups[group].size
    if kind == Collective.ALL_TO_ALL and not all(call.is_even for call in map(matching.table.call_of, rows) if call):
        return _find_uneven_bytes(matching, rows), 1.0, size
    factor = bus_factor(kind.label, size) if kind.label in KINDS else np.nan
    return call.nbytes_among(size) if call is not None else UNKNOWN, factor, size


def _find_uneven_bytes(matching: Matching, rows: Int64) -> int:
    """Return an uneven all-to-all's bytes: the most that any rank exchanges with others; -1 without splits."""
    table = matching.table
    moved = [UNKNOWN]
    for row in rows.tolist():
        call = table.call_of(row)
        elements = call.moved(int(table.rank[row])) if call is not None else UNKNOWN
        if call is not None and elements >= 0:
            moved.append(plausible_count(elements * itemsize(call.dtype)))
    return max(moved)


def moving_since(matching: Matching, measured: Transfers) -> Int64:
    """Return for each table row when its waiting ended, on its rank's own clock: its start where none is known."""
    table = matching.table
    begun = table.start_ns.copy()
    begun[matching.instances.members] += np.maximum(measured.wait_ns, 0)
    return begun


def moving_until(matching: Matching, measured: Transfers) -> Int64:
    """Return for each table row until when it moved data: to its end, or the other members' where that is not known."""
    table, members = matching.table, matching.instances.members
    until, cut = table.end_ns.copy(), table.cut[members]
    until[members[cut]] -= (table.end_ns[members] - table.start_ns[members] - measured.end_ns + measured.start_ns)[cut]
    return np.minimum(until, table.end_ns)


def is_resolved(matching: Matching, measured: Transfers) -> Mask:
    """Whether what a table row takes after its waiting is transfer, rather than unresolved.

    So it is for members of complete instances with a transfer, and for copies between devices, which wait for nobody.
    """
    resolved = ~matching.instances.partial & (measured.transfer_ns >= 0)
    return values_at(resolved, matching.instance, False) | matching.table.is_copy
