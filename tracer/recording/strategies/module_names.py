"""Names of modules that are alike: numbers as `*`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from analyzers.run import ShardedModules, StyledModules

Row = TypeVar("Row", ShardedModules, StyledModules)

# Rows of one kind; a model whose modules are all different has more.
MOST_ROWS = 64


def pattern(name: str) -> str:
    """Return a module's name with `*` for each number in it: `layers.*.attention`."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def grouped(rows: Iterable[Row]) -> list[Row]:
    """Return rows of single modules, those that are alike as one with their count, in order of their first."""
    counts: dict[bytes, int] = {}
    firsts: dict[bytes, Row] = {}
    for row in rows:
        alike = msgspec.structs.replace(row, modules=pattern(row.modules), count=0)
        key = msgspec.json.encode(alike)
        counts[key] = counts.get(key, 0) + row.count
        firsts.setdefault(key, alike)
    return [msgspec.structs.replace(row, count=counts[key]) for key, row in firsts.items()]
