"""Exports of a package, imported when somebody asks for them.

`import analyzers` must be cheap, since everything in the package passes through it, and its exports are all there is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def export_lazily(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562) for the names that its modules define.

    A name of another in its module is written `Options as WhatIfOptions`. Type checkers see none of this: the package
    imports the same names under TYPE_CHECKING, and tests/test_rules.py compares the two.
    """
    places = {_known_as(name): (module, name.partition(" as ")[0]) for module in names for name in names[module]}

    def exported(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = places[name]
        return getattr(import_module(module), original)

    def listed() -> list[str]:
        there = vars(sys.modules[package])
        return sorted({*there["__all__"], *(name for name in there if name.startswith("__"))})

    return exported, listed


def _known_as(name: str) -> str:
    return name.rpartition(" as ")[2]
