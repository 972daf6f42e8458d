"""How far a command is, on stderr: a bar on a terminal, a line for each phase elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.recorder import Progress


def say(words: str) -> None:
    """One line on stderr."""
    print(words, file=sys.stderr, flush=True)


@contextmanager
def progress(noun: str) -> Iterator[Progress]:
    """What ranks report to; `noun` is what they count."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _phase_lines(noun)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting ranks", total=None)
        yield lambda label, done, total: bar.update(task, description=label, completed=done, total=total)


def _phase_lines(noun: str) -> Progress:
    said: list[str] = []

    def line(label: str, done: int, total: int) -> None:
        if label not in said[-1:]:
            said.append(label)
            say(f"{noun} {done} of {total}: {label}")

    return line
