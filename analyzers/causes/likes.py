"""Edges that are alike on several ranks, and what others take.

Like are the k-th of a name in a step. They take the others' median, rescaled so that their sum is the median of the
others' sums.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Columns, Float64, Int64, Mask, begins, distinct, joint, middles, places_since

# Ranks are alike that have so much of each other's work.
ALIKE = 0.9


@dataclass(frozen=True, eq=False)
class Likes(Columns):
    """Edges that have their like on other ranks.

    Like ones share a `key` in their step, and one that is the same in all steps (`in_any_step`); `rank` is a rank's
    place.
    """

    edge: Int64
    key: Int64
    in_any_step: Int64
    rank: Int64
    step: Int64

    def alike(self, ranks: int) -> Mask:
        """Return which of so many ranks do the same in the same order, nine of ten of both at least: a square."""
        held = np.zeros((int(self.key.max(initial=-1)) + 1, ranks))
        held[self.key, self.rank] = 1
        common = held.T @ held
        count = np.diag(common)
        alike: Mask = common >= ALIKE * np.maximum(count[:, None], count[None, :])
        return alike

    def as_others(self, ns: Float64, places: Collection[int], others_places: Collection[int]) -> tuple[Int64, Float64]:
        """Return the edges of some ranks, and what each would take as others'; `ns` is what edges take now."""
        values = ns[self.edge]
        own = np.isin(self.rank, list(places))
        others = np.flatnonzero(np.isin(self.rank, list(others_places)))
        others = others[np.lexsort((values[others], self.key[others]))]
        key = self.key[others]
        first, past = np.searchsorted(key, self.key[own]), np.searchsorted(key, self.key[own], side="right")
        median = middles(values[others], first, past)
        known = ~np.isnan(median)
        rows = np.flatnonzero(own)[known]
        taken = median[known] * self._rescaled(values, rows, median[known], others)
        return self.edge[rows], taken

    def of_one_alone(self, place: int, others_places: Collection[int]) -> Int64:
        """Return the edges of a rank that none of the others has the like of."""
        others = np.isin(self.rank, list(others_places))
        alone: Int64 = self.edge[(self.rank == place) & ~np.isin(self.key, self.key[others])]
        return alone

    def _rescaled(self, values: Float64, rows: Int64, taken: Float64, others: Int64) -> Float64:
        """Return by how much to rescale each of some rows, so that a step's sum is the others' median sum."""
        steps = int(self.step.max(initial=0)) + 1
        own_place = self.rank[rows] * steps + self.step[rows]
        sums = np.bincount(own_place, taken)
        # Of the others what those ranks have their like of.
        like = others[np.isin(self.key[others], self.key[rows])]
        theirs = distinct(self.rank[like] * steps + self.step[like])
        their_sums = np.bincount(theirs.index, values[like], len(theirs))
        step_of = theirs.columns[0] % steps
        order = np.lexsort((their_sums, step_of))
        first = np.searchsorted(step_of[order], np.arange(steps))
        past = np.searchsorted(step_of[order], np.arange(steps), side="right")
        wanted = middles(their_sums[order], first, past)[self.step[rows]]
        factor: Float64 = np.where(sums[own_place] > 0, wanted / np.maximum(sums[own_place], 1), 1.0)
        return factor


def likes(edge: Int64, name: Int64, rank: Int64, step: Int64, time_ns: Int64) -> Likes:
    """Return edges by what they are alike in: the k-th of a name in a step. All columns have a row for each edge."""
    order = np.lexsort((time_ns, step, name, rank))
    group = joint(rank[order], name[order], step[order])
    ordinal = np.empty(len(order), dtype=np.int64)
    ordinal[order] = places_since(begins(group))
    return Likes(edge, distinct(name, ordinal, step).index, distinct(name, ordinal).index, rank, step)
