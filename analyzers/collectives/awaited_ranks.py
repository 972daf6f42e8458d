"""Ranks for which the others wait, step after step."""

from __future__ import annotations

import numpy as np

from analyzers.arrays import Int64
from analyzers.collectives.measured import Exchange
from analyzers.ranks import RankNumber

# In so many of its steps others wait for a rank that is late.
MOST_STEPS = 0.8


def awaited(exchanged: Exchange) -> frozenset[RankNumber]:
    """Return the ranks for which the others wait longest in four of five steps, where they wait at all."""
    table, instances, transfers = exchanged.matching.table, exchanged.matching.instances, exchanged.transfers
    waits = np.flatnonzero((transfers.wait_ns > 0) & (transfers.waits_for >= 0))
    if not len(waits):
        return frozenset()
    step = instances.step[instances.of_member[waits]]
    rank = table.rank[instances.members[transfers.waits_for[waits]]]
    numbers, of_step = np.unique(step, return_inverse=True)
    ranks, of_rank = np.unique(rank, return_inverse=True)
    waited = np.bincount(of_step * len(ranks) + of_rank, transfers.wait_ns[waits], len(numbers) * len(ranks))
    longest: Int64 = waited.reshape(len(numbers), -1).argmax(axis=1)
    share = np.bincount(longest, minlength=len(ranks)) / len(numbers)
    return frozenset(RankNumber(int(each)) for each in ranks[share >= MOST_STEPS])
