"""The modules of both packages as syntax trees, each parsed once for all tests of a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(file): file for package in ("analyzers", "tracer") for file in (ROOT / package).rglob("*.py")}


@cache
def tree(module: str) -> ast.Module:
    """A module, by its dotted name."""
    return ast.parse(MODULES[module].read_text())


def trees() -> dict[str, ast.Module]:
    """All modules, by name."""
    return {module: tree(module) for module in MODULES}
