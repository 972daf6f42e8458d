"""Members of each collective that was matched, by which tests compare them with what is known."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from analyzers.collectives.matching import Matching


def together(matching: Matching) -> Iterator[list[tuple[int, int, int]]]:
    """The members of each instance as (rank, device, correlation)."""
    table, rows = matching.table, matching.instances.members
    columns = (table.rank, table.device, table.correlation)
    kernels = list(zip(*(column[rows].tolist() for column in columns), strict=True))
    first = matching.instances.first.tolist()
    for begin, end in pairwise(first):
        yield kernels[begin:end]
