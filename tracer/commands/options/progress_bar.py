"""Progress on stderr: a bar, or lines, also among a script's own."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from analyzers.units import rough_time
from tracer.views import plain_lines

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

    from tracer.recording import Progress


# Progress of reading that takes less is gone before it is read.
PATIENCE_S = 2.0
REFRESH_S = 0.1
# Lines about a script's recording come no more often.
LINE_EVERY_S = 5.0
# So many reports make the pace: the first steps, which are slow, are soon forgotten.
REPORTS = 20
# What ends the bar that is drawn.
_drawn: list[Callable[[], None]] = []


def say(text: str) -> None:
    """Print lines on stderr, as `plain_lines` gives them: a job's stderr is a file that others read."""
    print("\n".join(plain_lines(text)), file=sys.stderr, flush=True)


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


def reading(done: Callable[[], int], total: int) -> AbstractContextManager[None]:
    """Show bytes read, rate and time left while the block runs."""
    return _beside(partial(_follow, done, total))


def working(at: str) -> AbstractContextManager[None]:
    """Show for how long something has been worked at while the block runs; how much is left of it is not known."""
    return _beside(partial(_spin, at))


@contextmanager
def _beside(draw: Callable[[float, threading.Event], None]) -> Iterator[None]:
    """Draw beside a block, once it has taken PATIENCE_S and until it ends or one in it begins; only on a terminal.

    `draw` takes when the block began.
    """
    if not _can_draw():
        yield
        return
    while _drawn:  # of blocks around this one: a terminal has one bar at a time
        _drawn.pop()()
    ended = threading.Event()

    def wait_and_draw(began: float) -> None:
        if not ended.wait(PATIENCE_S):
            draw(began, ended)

    thread = threading.Thread(target=wait_and_draw, args=(time.monotonic(),), daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    _drawn.append(end)
    try:
        yield
    finally:
        end()
        _drawn.clear()


@dataclass
class ProgressRate:
    """How fast steps go, from the newest reports of how many are done."""

    total: int = 0
    reports: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=REPORTS))

    def left_s(self, now_s: float, done: int, total: int) -> float | None:
        """Take one more report, and return the seconds left; None where nothing is known of the pace yet."""
        if total != self.total:
            self.total = total
            self.reports.clear()
        self.reports.append((now_s, done))
        first_s, first = self.reports[0]
        return (now_s - first_s) / (done - first) * (total - done) if done > first else None


def script_progress(line: Callable[[str], object], now_s: Callable[[], float] = time.monotonic) -> Progress:
    """Return what ranks of a script report to: a line now and then on a terminal, nothing elsewhere.

    There is no bar: the script writes on the same terminal, and may have a bar of its own.
    """
    if not _can_draw():
        return lambda label, done, total: None
    pace, last_s = ProgressRate(), now_s()

    def heard(label: str, done: int, total: int) -> None:
        nonlocal last_s
        now = now_s()
        left_s = pace.left_s(now, done, total)
        if done == total:
            text = f"step {done} of {total}: recorded; the script goes on"
        elif left_s is not None and now - last_s >= LINE_EVERY_S:
            text = f"recording, step {done} of {total}, about {rough_time(left_s)} left"
        else:
            return
        last_s = now
        # The thread that hears this also takes what is recorded, stderr or not.
        with suppress(OSError):
            line(text)

    return heard


def begin_line() -> None:
    """On a terminal, begin a line anew where a script has left one unfinished, such as its own progress bar.

    As zsh does it (PROMPT_SP): spaces go to the end of an empty line, and beyond that of one that is not.
    """
    if _can_draw():
        sys.stderr.write(" " * (shutil.get_terminal_size().columns - 1) + "\r")


def _follow(done: Callable[[], int], total: int, began: float, ended: threading.Event) -> None:
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    with _bar(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("reading", total=total)
        bar.tasks[0].start_time = began
        while not ended.wait(REFRESH_S):
            bar.update(task, completed=done())


def _spin(at: str, began: float, ended: threading.Event) -> None:
    from rich.progress import TimeElapsedColumn

    with _bar(TimeElapsedColumn()) as bar:
        bar.add_task(at, total=None)
        bar.tasks[0].start_time = began
        ended.wait()


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
