"""Ranks for which the others wait, step after step."""

from __future__ import annotations

import numpy as np

from analyzers.collectives.measured import Exchange
from analyzers.ranks import RankNumber

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
