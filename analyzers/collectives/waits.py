"""Waits of each device, and what the others waited for it.

rank 0   wwwwww####      rank 2 came last: the 6 and the 3 that others waited are charged to it
rank 1   ...www####
rank 2   ......####

Why it came last the graph of causes says (the room `analyzers.causes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analyzers.arrays import Columns, Int64, distinct
from analyzers.collectives.matching import Matching
from analyzers.collectives.measured import Exchange
from analyzers.collectives.transfer import Transfers
from analyzers.intervals import owned
from analyzers.ranks import RankNumber


@dataclass(frozen=True, eq=False)
class Waiting(Columns):
    """A row for each rank, device and step (-1: outside of steps), times in ns.

    `waited_ns` is when the device's communication only waited, as a union; `caused_ns` what all others waited for it,
    added over them.
    """

    rank: Int64
    device: Int64
    step: Int64
    waited_ns: Int64
    caused_ns: Int64


def waiting(matching: Matching, transfers: Transfers) -> Waiting:
    """Return what each device waited and caused in each step. Partial instances count among the members present.

    Both are one arithmetic: each instant at which a device waited is charged to the member that it waited for then, of
    several the one whose collective began first, so that in a step what all caused is what all waited.
    """
    table, rows = matching.table, matching.instances.members
    alike = distinct(*np.stack([table.rank, table.device, table.window]))
    cells, cell = alike.lines, alike.index
    # Until another's profile began nobody is known to have waited for anybody.
    wait = np.maximum(transfers.wait_ns, 0) - transfers.unprofiled_ns
    charge = _apart(table.start_ns[rows] + transfers.unprofiled_ns, wait, cell[rows])
    waited, caused = np.zeros((2, cells.shape[1]), dtype=np.int64)
    np.add.at(waited, cell[rows], charge)
    np.add.at(caused, cell[rows[transfers.waits_for]], charge)
    return Waiting(rank=cells[0], device=cells[1], step=cells[2], waited_ns=waited, caused_ns=caused)


def _apart(start: Int64, wait: Int64, cell: Int64) -> Int64:
    """Return for each wait the time in which none that began earlier in its cell goes on: they add up to the union."""
    order = np.lexsort((start, cell))
    start, end, cell = start[order], (start + wait)[order], cell[order]
    own = np.zeros(len(order), dtype=np.int64)
    for low, high in pairwise(np.searchsorted(cell, np.arange(int(cell.max(initial=-1)) + 2)).tolist()):
        if high > low:
            before = np.r_[start[low], np.maximum.accumulate(end[low:high])[:-1]]
            own[low:high] = np.maximum(end[low:high] - np.maximum(start[low:high], before), 0)
    apart = np.empty(len(order), dtype=np.int64)
    apart[order] = own
    return apart


# In so many of its steps others wait for a rank that is late.
MOST_STEPS, FEWEST_STEPS = 0.8, 3
# A step in which they wait for less than this share of what they usually do says nothing of it.
QUARTER = 0.25


def awaited(exchanged: Exchange) -> frozenset[RankNumber]:
    """Return the ranks for which the others wait longest in four of five steps, and never much less than usual.

    Who came last may have waited meanwhile: such waiting is passed on. Ranks begin to profile one after the other, and
    whoever is first waits in its first step for that: where three steps are left without it, it does not count.
    """
    instances, transfers = exchanged.matching.instances, exchanged.transfers
    of_member = instances.step[instances.of_member]
    steps = np.unique(of_member[of_member >= 0])
    counted = of_member > steps[0] if len(steps) > FEWEST_STEPS else of_member >= 0
    counted |= not len(steps)
    counted &= (transfers.wait_ns > 0) & (transfers.waits_for >= 0)
    if not counted.any():
        return frozenset()
    waits, rank, wait_ns = _passed_on(exchanged, np.flatnonzero(counted))
    numbers, of_step = np.unique(of_member[waits], return_inverse=True)
    ranks, of_rank = np.unique(rank, return_inverse=True)
    waited = np.bincount(of_step * len(ranks) + of_rank, wait_ns, len(numbers) * len(ranks))
    by_step = waited.reshape(len(numbers), -1)
    is_longest = by_step == by_step.max(axis=1, keepdims=True)
    share = (is_longest & (by_step >= QUARTER * np.median(by_step, axis=0))).mean(axis=0)
    return frozenset(RankNumber(int(each)) for each in ranks[share >= MOST_STEPS])


def _passed_on(exchanged: Exchange, waits: Int64) -> tuple[Int64, Int64, Int64]:
    """Return waits in parts: the wait, the rank it is in the end for, and how long.

    rank 0   CCCCCCCCCs        each instant of rank 2's wait is for rank 0, for which rank 1 waits by then;
    rank 1   rrrrrrrrr#CCs     only what is left of it is for rank 1
    rank 2   rrrrrrrrrrrrr#    a wait beside which a rank computes does not hold it up, and passes nothing on
    """
    table, instances, transfers = exchanged.matching.table, exchanged.matching.instances, exchanged.transfers
    rank = table.rank[instances.members].astype(np.int64)
    origin_ns = int(transfers.start_ns.min())
    width = int((transfers.start_ns + transfers.wait_ns).max()) - origin_ns + 1
    start = transfers.start_ns - origin_ns
    blocked = waits[(table.exposed_ns >= table.end_ns - table.start_ns)[instances.members[waits]]]
    # Times of different ranks do not meet: each rank's are as far behind the others' as the run is long.
    key = rank[blocked] * width + start[blocked]
    begin, end, row = owned(key, key + transfers.wait_ns[blocked])
    held_by = rank[transfers.waits_for[blocked[row]]]
    done: list[tuple[Int64, Int64, Int64]] = []
    wait, low, high = waits, start[waits], start[waits] + transfers.wait_ns[waits]
    holder = rank[transfers.waits_for[waits]]
    for _ in range(len(np.unique(rank))):  # beyond, clocks have ranks wait for one another in a circle
        first = np.searchsorted(end, holder * width + low, side="right")
        count = np.maximum(np.searchsorted(begin, holder * width + high) - first, 0)
        part = np.repeat(np.arange(len(wait)), count)
        piece = np.arange(len(part)) - np.repeat(np.cumsum(count) - count, count) + first[part]
        since = np.maximum(begin[piece] - holder[part] * width, low[part])
        until = np.minimum(end[piece] - holder[part] * width, high[part])
        held_ns = np.bincount(part, until - since, len(wait)).astype(np.int64)
        done.append((wait, holder, high - low - held_ns))
        wait, low, high, holder = wait[part], since, until, held_by[piece]
    done.append((wait, holder, high - low))
    columns = [np.concatenate(column) for column in zip(*done, strict=True)]
    return columns[0], columns[1], columns[2]
