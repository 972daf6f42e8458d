"""Waiting against transfer: how long each instance's bytes were on their way, and how long each member only waited.

    rank 0   wwwwwtttt     a synchronizing collective: all leave together, so that the last to arrive, which waits least,
    rank 1   ..wwwtttt     shows the transfer; no clock is needed
    rank 2   .....tttt

Of the other kinds a member can leave before all have come: from the last start to the last end, on the common clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.calls import UNSAID, Collective, itemsize
from analyzers.clocks import Clocks
from analyzers.collectives import Matching
from analyzers.intervals import Intervals, union_of

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Transfers:
    """Of each instance `transfer_ns`, whether that is but an upper bound, `nbytes`, `algbw_gbps` and `busbw_gbps`.

    `wait_ns` has an entry for each of the instances' members. Times and bytes are -1, bandwidths NaN, where unknown.
    """

    transfer_ns: Int64
    bound: Mask
    nbytes: Int64
    group_size: Int64
    algbw_gbps: NDArray[np.float64]
    busbw_gbps: NDArray[np.float64]
    wait_ns: Int64
    start_ns: Int64
    end_ns: Int64


def transfers(matching: Matching, clock: Clocks) -> Transfers:
    """Waiting, transfer and bandwidth of every instance. `start_ns` and `end_ns` are the members' on the common clock."""
    instances, table = matching.instances, matching.table
    rows, first = instances.members, instances.first[:-1]
    shift = clock.shift_ns(table.rank[rows])
    start, end = table.start_ns[rows] - shift, table.end_ns[rows] - shift
    synchronizes = instances.synchronizes
    number = instances.of_member

    def over(fold: np.ufunc, values: Int64) -> Int64:
        return fold.reduceat(values, first) if len(first) else np.zeros(0, dtype=np.int64)

    shortest, last_start, last_end = over(np.minimum, end - start), over(np.maximum, start), over(np.maximum, end)
    transfer = np.where(synchronizes, shortest, last_end - last_start)
    wait = np.where(
        synchronizes[number],
        end - start - shortest[number],
        np.maximum(np.minimum(end, last_start[number]) - start, 0),
    )
    unknown = ~synchronizes & _is_blurred(matching, clock, transfer)
    transfer, wait = np.where(unknown, UNSAID, transfer), np.where(unknown[number], UNSAID, wait)
    nbytes, factor, size = _sizes(matching)
    known = (transfer > 0) & (nbytes >= 0)
    algbw = np.divide(nbytes, transfer, out=np.full(len(transfer), np.nan), where=known)
    return Transfers(
        transfer_ns=transfer,
        bound=~synchronizes | instances.partial,
        nbytes=nbytes,
        group_size=size,
        algbw_gbps=algbw,
        busbw_gbps=algbw * factor,
        wait_ns=wait,
        start_ns=start,
        end_ns=end,
    )


def _is_blurred(matching: Matching, clock: Clocks, transfer_ns: Int64) -> Mask:
    """Where the members' clocks agree no better than to a tenth of the transfer, or nothing is known of one of them."""
    instances, table = matching.instances, matching.table
    ranks, first = table.rank[instances.members], instances.first[:-1]
    if not len(first):
        return np.zeros(0, dtype=bool)
    several = np.minimum.reduceat(ranks, first) < np.maximum.reduceat(ranks, first)
    spread = clock.spread_ns(ranks)
    widest = np.where(
        np.minimum.reduceat(spread, first) < 0, np.iinfo(np.int64).max // 10, np.maximum.reduceat(spread, first)
    )
    blurred: Mask = several & (10 * widest > transfer_ns)
    return blurred


def _sizes(matching: Matching) -> tuple[Int64, NDArray[np.float64], Int64]:
    """Bytes, bus factor and group size of every instance."""
    instances, table = matching.instances, matching.table
    found = []
    for number, (kind, group, call) in enumerate(
        zip(instances.kind.tolist(), instances.group.tolist(), instances.call, strict=True)
    ):
        if group < 0:
            row = instances.members[instances.first[number]]
            found.append((int(table.nbytes[row]), 1.0, 2))
            continue
        size = matching.groups[group].size
        nbytes = call.nbytes if call is not None else UNSAID
        factor = bus_factor(Collective(kind).label, size)
        if call is not None and kind == Collective.ALL_TO_ALL and (call.split_in or call.split_out):
            rows = instances.members[instances.first[number] : instances.first[number + 1]]
            nbytes, factor = _uneven(matching, rows), 1.0
        found.append((nbytes, factor, size))
    nbytes, factor, size = zip(*found, strict=True) if found else ((), (), ())
    return np.array(nbytes, dtype=np.int64), np.array(factor, dtype=np.float64), np.array(size, dtype=np.int64)


def _uneven(matching: Matching, rows: Int64) -> int:
    """Bytes of an uneven all-to-all: the most that any rank sends to or receives from others."""
    table = matching.table
    moved = [UNSAID]
    for row in rows.tolist():
        call = table.call_of(row)
        elements = call.moved(int(table.rank[row])) if call is not None else UNSAID
        if call is not None and elements >= 0:
            moved.append(elements * itemsize(call.dtype))
    return max(moved)


def in_transfer(matching: Matching, found: Transfers, rank: int, device: int) -> tuple[Intervals, Intervals]:
    """When one device's communication was transfer, waiting left out, on the rank's own clock; and what is unmatched.

    Members of synchronizing instances count from their end back to the transfer's length; everything else whole.
    """
    table, instances = matching.table, matching.instances
    transfer = np.full(len(table), np.iinfo(np.int64).max, dtype=np.int64)
    synchronized = instances.synchronizes[instances.of_member]
    transfer[instances.members[synchronized]] = found.transfer_ns[instances.of_member[synchronized]]
    rows = np.flatnonzero((table.rank == rank) & ((table.device == device) | (table.peer == device)))
    start, end = table.start_ns[rows], table.end_ns[rows]
    begun = np.maximum(start, end - np.minimum(transfer[rows], end - start))
    alone = matching.instance[rows] < 0
    return union_of(begun, end), union_of(start[alone], end[alone])
