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

    Ranks begin to profile one after the other, and whoever is first waits in its first step for that: where three
    steps are left without it, it does not count.
    """
    table, instances, transfers = exchanged.matching.table, exchanged.matching.instances, exchanged.transfers
    of_member = instances.step[instances.of_member]
    steps = np.unique(of_member[of_member >= 0])
    counted = of_member > steps[0] if len(steps) > FEWEST_STEPS else of_member >= 0
    counted |= not len(steps)
    waits = np.flatnonzero((transfers.wait_ns > 0) & (transfers.waits_for >= 0) & counted)
    if not len(waits):
        return frozenset()
    step = of_member[waits]
    rank = table.rank[instances.members[transfers.waits_for[waits]]]
    numbers, of_step = np.unique(step, return_inverse=True)
    ranks, of_rank = np.unique(rank, return_inverse=True)
    waited = np.bincount(of_step * len(ranks) + of_rank, transfers.wait_ns[waits], len(numbers) * len(ranks))
    by_step = waited.reshape(len(numbers), -1)
    is_longest = by_step == by_step.max(axis=1, keepdims=True)
    share = (is_longest & (by_step >= QUARTER * np.median(by_step, axis=0))).mean(axis=0)
    return frozenset(RankNumber(int(each)) for each in ranks[share >= MOST_STEPS])
