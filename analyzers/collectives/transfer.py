"""Waiting and transfer time of each instance and its members.

    rank 0   wwwwwtttt     a synchronizing collective: all leave together, so that the last to arrive,
    rank 1   ..wwwtttt     which waits least, shows the transfer; no clock is needed
    rank 2   .....tttt

Of the other kinds a member can leave before all have come: from the last start to the last end, on the common clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.collectives.clocks import Clocks
from analyzers.collectives.matching import Matching
from analyzers.trace import KINDS, Collective, bus_factor, itemsize, plausible_count


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
    """Measure instances' waiting, transfer and bandwidth; `start_ns`, `end_ns` are members' on the common clock."""
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
    transfer, wait = np.where(unknown, UNKNOWN, transfer), np.where(unknown[number], UNKNOWN, wait)
    nbytes, factor, size = _sizes(matching)
    measurable = (transfer > 0) & (nbytes >= 0)
    algbw = np.divide(nbytes, transfer, out=np.full(len(transfer), np.nan), where=measurable)
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
    """Whether members' clocks agree no better than to a tenth of the transfer, or one of them is unknown."""
    instances, table = matching.instances, matching.table
    ranks, first = table.rank[instances.members], instances.first[:-1]
    if not len(first):
        return np.zeros(0, dtype=bool)
    several = np.minimum.reduceat(ranks, first) < np.maximum.reduceat(ranks, first)
    reference = clock.references(ranks)
    unrelated = np.minimum.reduceat(reference, first) < np.maximum.reduceat(reference, first)
    widest = np.maximum.reduceat(clock.spread_ns(ranks), first)
    blurred: Mask = several & (unrelated | (10 * widest > transfer_ns))
    return blurred


def _sizes(matching: Matching) -> tuple[Int64, NDArray[np.float64], Int64]:
    """Return bytes, bus factor (NaN for a kind that has none) and group size for every instance."""
    count = len(matching.instances)
    nbytes, size = np.full(count, UNKNOWN, dtype=np.int64), np.full(count, 2, dtype=np.int64)
    factor = np.ones(count)
    for number in range(count):
        nbytes[number], factor[number], size[number] = _size(matching, number)
    return nbytes, factor, size


def _size(matching: Matching, number: int) -> tuple[int, float, int]:
    instances = matching.instances
    group, call, kind = int(instances.group[number]), instances.call[number], Collective(int(instances.kind[number]))
    rows = instances.members[instances.first[number] : instances.first[number + 1]]
    if group < 0:
        return int(matching.table.nbytes[rows[0]]), 1.0, 2
    size = matching.table.groups[group].size
    if kind == Collective.ALL_TO_ALL and not all(call.is_even for call in map(matching.table.call_of, rows) if call):
        return _uneven(matching, rows), 1.0, size
    factor = bus_factor(kind.label, size) if kind.label in KINDS else np.nan
    return call.nbytes_among(size) if call is not None else UNKNOWN, factor, size


def _uneven(matching: Matching, rows: Int64) -> int:
    """Return an uneven all-to-all's bytes: the most that any rank exchanges with others; -1 without splits."""
    table = matching.table
    moved = [UNKNOWN]
    for row in rows.tolist():
        call = table.call_of(row)
        elements = call.moved(int(table.rank[row])) if call is not None else UNKNOWN
        if call is not None and elements >= 0:
            moved.append(plausible_count(elements * itemsize(call.dtype)))
    return max(moved)


def in_transfer(matching: Matching, measured: Transfers) -> Int64:
    """Return for each table row when its transfer began, waiting left out, on its rank's own clock.

    Members of synchronizing instances count from their end back to the transfer's length; everything else whole.
    """
    table, instances = matching.table, matching.instances
    chosen = instances.synchronizes[instances.of_member]
    rows = instances.members[chosen]
    begun = table.start_ns.copy()
    begun[rows] = np.maximum(
        table.start_ns[rows], table.end_ns[rows] - measured.transfer_ns[instances.of_member[chosen]]
    )
    return begun
