"""Times in groups by name, the longest first.

names    a  b  a  c  a        a  3 calls  9 ns  median 3
ns       2  5  3  1  4        b  1 call   5 ns  median 5
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from analyzers.arrays import Int64, begins, distinct
from analyzers.statistics import ratio

# So many of each list are kept.
MOST_RANKED = 50


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
