"""Progress on stderr: a bar on a terminal, else lines per phase."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from tracer.recording import Progress


# Progress of reading that takes less is gone before it is read.
PATIENCE_S = 2.0
REFRESH_S = 0.1


def say(text: str) -> None:
    """Print one line on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def progress(noun: str) -> Iterator[Progress]:
    """Yield what ranks report to; `noun` is what they count."""
    if not _can_draw():
        yield _phase_lines(noun)
        return
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    with _bar(MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("starting ranks", total=None)
        yield lambda label, done, total: bar.update(task, description=label, completed=done, total=total)


@contextmanager
def reading(done: Callable[[], int], total: int) -> Iterator[None]:
    """Show bytes read, rate and time left, once it has taken PATIENCE_S; only on a terminal."""
    if not _can_draw():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(done, total, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(done: Callable[[], int], total: int, ended: threading.Event) -> None:
    began = time.monotonic()
    if ended.wait(PATIENCE_S):
        return
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    with _bar(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("reading", total=total)
        bar.tasks[0].start_time = began
        while not ended.wait(REFRESH_S):
            bar.update(task, completed=done())


def _can_draw() -> bool:
    """Whether stderr is a terminal on which a bar can be drawn again and again."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _bar(*columns: ProgressColumn) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    shown = (TextColumn("{task.description}"), BarColumn(), *columns)
    return Bar(*shown, console=Console(stderr=True), transient=True, get_time=lambda: time.monotonic())


def _phase_lines(noun: str) -> Progress:
    phases: list[str] = []

    def line(label: str, done: int, total: int) -> None:
        if label not in phases[-1:]:
            phases.append(label)
            say(f"{noun} {done} of {total}: {label}")

    return line
