"""A run of which the cache keeps three ranks, what a command says of it, and the cache's entries."""

from pathlib import Path
from typing import Any

from tests.support.generator import Run
from tracer.cli import main

RUN = Run(ranks=3, steps=3, compute="aabb..c.", comm=".xx.yy..", copy="......zz")
HOUR_S = 3600


def told(capsys: Any, *arguments: object) -> str:
    """The report as JSON."""
    assert main(["report", *map(str, arguments), "--json"]) == 0
    text: str = capsys.readouterr().out
    return text


def entries(folder: Path) -> list[Path]:
    """What is kept, by name."""
    return sorted(folder.glob("*.rank"))
