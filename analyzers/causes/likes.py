"""Edges that are alike on several ranks, and what others take.

Like are the k-th of a name in a step. They take the others' median, rescaled so that their sum is the median of the
others' sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Columns, Float64, Int64, begins, distinct, joint, middles, places_since


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

    def as_others(self, ns: Float64, place: int) -> tuple[Int64, Float64]:
        """Return the edges of one rank, and what each would take as the others'; `ns` is what edges take now."""
        values = ns[self.edge]
        own = self.rank == place
        others = np.flatnonzero(~own)
        others = others[np.lexsort((values[others], self.key[others]))]
        key = self.key[others]
        first, past = np.searchsorted(key, self.key[own]), np.searchsorted(key, self.key[own], side="right")
        median = middles(values[others], first, past)
        known = ~np.isnan(median)
        rows = np.flatnonzero(own)[known]
        taken = median[known] * self._rescaled(values, rows, median[known], place)
        return self.edge[rows], taken

    def _rescaled(self, values: Float64, rows: Int64, taken: Float64, place: int) -> Float64:
        """Return by how much to rescale each of a rank's rows, so that a step's sum is the others' median sum."""
        step, ranks = self.step, max(int(self.rank.max(initial=0)), place) + 1
        # Sums of what the rank has its like of.
        is_like = np.isin(self.key, self.key[rows])
        steps = int(step.max(initial=0)) + 1
        place_and_step = self.rank[is_like] * steps + step[is_like]
        sums = np.bincount(place_and_step, values[is_like], ranks * steps).reshape(ranks, steps)
        # Ranks without the step come last, and count not.
        others = np.sort(np.where(np.delete(sums, place, axis=0) > 0, np.delete(sums, place, axis=0), np.inf), axis=0)
        having = np.isfinite(others).sum(axis=0)
        wanted = middles(others.T.ravel(), np.arange(steps) * len(others), np.arange(steps) * len(others) + having)
        own = np.bincount(step[rows], taken, steps)
        factor = np.where((own > 0) & ~np.isnan(wanted), wanted / np.where(own > 0, own, 1), 1.0)
        return factor[step[rows]]


def likes(edge: Int64, name: Int64, rank: Int64, step: Int64, time_ns: Int64) -> Likes:
    """Return edges by what they are alike in: the k-th of a name in a step. All columns have a row for each edge."""
    order = np.lexsort((time_ns, step, name, rank))
    group = joint(rank[order], name[order], step[order])
    ordinal = np.empty(len(order), dtype=np.int64)
    ordinal[order] = places_since(begins(group))
    return Likes(edge, distinct(name, ordinal, step).index, distinct(name, ordinal).index, rank, step)
