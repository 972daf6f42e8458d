"""CPU seconds of a command and of all that it starts: `python -m tests.support.cpu_seconds pytest ...`.

A process's are told to whoever waits for it; on Linux this one is the heir of all below it, so that those whose parents
ended without waiting are told to it. Of what is running still when the command has ended, /proc tells.

The same core takes 300 seconds for a suite on one day and 740 on another, by what else its host does. So that the most
that a command may take (`MOST_CPU_S` in the environment) means the same each time, a fixed piece of work is timed again
and again meanwhile, and seconds are counted as those of a core that takes `PIECE_S` for it.

`Rooms` is what a session of pytest knows by itself: what the tests of each folder took.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

MOST = "MOST_CPU_S"
PR_SET_CHILD_SUBREAPER = 36
# What a piece of work takes on the core whose seconds are counted: it has 330 of them for the first tier of e746295c.
PIECE_S = 0.0048
BETWEEN_PIECES_S = 2


def spent_s() -> float:
    """CPU seconds of this process and of those that it waited for."""
    import resource  # not on Windows

    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in of)


class Rooms:
    """CPU seconds of the tests in each folder, in this process and, in the end, in all workers."""

    def __init__(self) -> None:
        self.by_room: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = spent_s()
        try:
            return (yield)
        finally:
            self.by_room[room_of(item.path)] += spent_s() - before

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cpu_seconds"] = dict(self.by_room)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add what a worker took; one that crashed does not say it."""
        self.by_room.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each room; workers have ended, so that all of them count as children."""
        terminalreporter.section("CPU seconds of tests, processes that they start included", sep="-")
        rest = {"start, collection, end": spent_s() - self.by_room.total()}
        for name, seconds in [*sorted(self.by_room.items()), *rest.items(), ("sum", spent_s())]:
            terminalreporter.write_line(f"{name:24}{seconds:8.1f}")


def room_of(file: Path) -> str:
    """The folder in tests/ that a test is in."""
    inside = file.relative_to(Path(__file__).resolve().parents[1]).parts
    return inside[0] if len(inside) > 1 else "tests"


class Pace(threading.Thread):
    """How long this machine's cores take for a piece of work, while something else runs."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        work_a_piece()  # what the first one loads is not of the pace
        self._took_s = [work_a_piece()]

    def run(self) -> None:
        """Time pieces until it is told to end."""
        while not self._ended.wait(BETWEEN_PIECES_S):
            self._took_s.append(work_a_piece())

    def end(self) -> float:
        """End, and return the mean seconds of a piece."""
        self._ended.set()
        self.join()
        return fmean(self._took_s)


def work_a_piece() -> float:
    """Do what tests do most, JSON, objects and columns, and return the CPU seconds of this thread."""
    begin = time.thread_time()
    rows = json.loads(json.dumps([{"ts": place * 1.5, "name": f"n{place % 97}"} for place in range(4_000)]))
    starts = np.array([row["ts"] for row in rows])
    np.cumsum(starts[np.argsort(-starts, kind="stable")])
    return time.thread_time() - begin


def measured(command: list[str]) -> tuple[int, float]:
    """Run a command: its exit status, and its CPU seconds with those of all that it started."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    started = subprocess.Popen(command)
    # The command is interrupted, too, and ends as it sees fit.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seconds, code = 0.0, None
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0 if code is None else os.WNOHANG)
        except ChildProcessError:
            return code or 0, seconds
        if pid == 0:
            return code or 0, seconds + running_s()
        seconds += usage.ru_utime + usage.ru_stime
        if pid == started.pid:
            code = started.returncode = os.waitstatus_to_exitcode(status)


def running_s() -> float:
    """CPU seconds of this process's children that nobody waited for yet, with those that they waited for."""
    ticks = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, *fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(parent) == os.getpid():
            ticks += sum(map(int, fields[9:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def main(command: list[str]) -> int:
    """Run a command, print what it took, and fail where that is more than it may be."""
    pace = Pace()
    pace.start()
    code, seconds = measured(command)
    slower = pace.end() / PIECE_S
    counted, most = seconds / slower, os.environ.get(MOST)
    sys.stdout.write(f"{counted:.1f} CPU seconds in all{f', of at most {most}' if most else ''}")
    sys.stdout.write(f" ({seconds:.1f} of this machine's cores, which took {slower:.2f} times as long for the same)\n")
    if most and counted > float(most):
        sys.stdout.write("too many: see above which room got slower; what the second tier can hold is marked slow\n")
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
