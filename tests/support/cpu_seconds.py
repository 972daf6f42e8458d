"""CPU seconds of a command and of all that it starts: `python -m tests.support.cpu_seconds pytest ...`.

The seconds are the same however busy the machine is. A process's are told to whoever waits for it; on Linux this one
is the heir of all below it, so that those whose parents ended without waiting are told to it. Of what is running still
when the command has ended, /proc tells. `MOST_CPU_S` in the environment is the most that the command may take.

`Rooms` is what a session of pytest knows by itself: what the tests of each folder took.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST = "MOST_CPU_S"
PR_SET_CHILD_SUBREAPER = 36


def spent_s() -> float:
    """CPU seconds of this process and of those that it waited for."""
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
    code, seconds = measured(command)
    most = os.environ.get(MOST)
    sys.stdout.write(f"{seconds:.1f} CPU seconds in all{f', of at most {most}' if most else ''}\n")
    if most and seconds > float(most):
        sys.stdout.write("too many: see above which room got slower; what the second tier can hold is marked slow\n")
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
