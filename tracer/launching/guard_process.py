"""Guard process: ends what a killed launcher leaves running.

    launcher ──pipe──▶ guard   RELEASED through the pipe: what was started has ended, and so does the guard
       │                       KILL: somebody waits for no more, and the guard kills all that was started
       │                       the pipe's end alone: the launcher was killed, and the guard ends all it had started
       └─▶ torchrun, shells, ranks, their workers: all have the guard's token in their environment

No rank can know of its launcher's end at any moment: the launcher may go before the rank has run any of our code, or
stand behind a shell, and the rank may be in native code that does not return. This file is run by itself, and imports
little, to be there at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

RELEASED, KILL = b"released", b"kill"
# What was asked to end has this long to do so before it is killed.
GRACE_S = 10.0
# A process that its parent is just starting has the token a moment later.
QUIET_S = 1.0
LOOK_S = 0.1
PROC = "/proc"


def main(variable: str) -> None:
    """Wait for the launcher's word, or its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        # A scheduler sends these to all processes of a job.
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        # Whoever reads the launcher's output is not to wait for this process.
        os.dup2(nowhere, stream)
    word = sys.stdin.buffer.read()
    if word != RELEASED:
        end_all(variable.encode(), 0 if word == KILL else GRACE_S)


def end_all(variable: bytes, grace_s: float) -> None:
    """End all processes that have this in their environment, and their children, until there are none for a moment."""
    asked: set[int] = set()
    began = last_seen = time.monotonic()
    while (now := time.monotonic()) - last_seen < QUIET_S:
        running = marked(variable)
        last_seen = now if running else last_seen
        is_late = now - began > grace_s
        for pid in running if is_late else running - asked:
            with suppress(OSError):  # it has ended by itself
                os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
                # One that is stopped would not hear of it.
                os.kill(pid, signal.SIGCONT)
        asked |= running
        time.sleep(LOOK_S)


def marked(variable: bytes) -> set[int]:
    """Return the processes that run with this in their environment, and all that descend from them.

    One that names itself (as setproctitle does) overwrites what it shows of its environment.
    """
    parents = _parents()
    found = {pid for pid in parents if variable in _environment(pid)}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def started_by(pid: int) -> set[int]:
    """Return a process's children that run."""
    return {child for child, parent in _parents().items() if parent == pid}


def _parents() -> dict[int, int]:
    """The parent of each process that runs."""
    pids: list[str] = []
    with suppress(OSError):  # no /proc: not Linux
        pids = [entry.name for entry in os.scandir(PROC) if entry.name.isdigit()]
    return {int(pid): parent for pid in pids if (parent := _running_parent(int(pid))) is not None}


def _running_parent(pid: int) -> int | None:
    """The parent of a process, None where it has ended: proc(5), stat."""
    with suppress(OSError), open(f"{PROC}/{pid}/stat", "rb") as file:  # noqa: PTH123  # pathlib takes long to import
        state, parent = file.read().rpartition(b")")[2].split()[:2]
        return None if state in b"ZX" else int(parent)
    return None


def _environment(pid: int) -> list[bytes]:
    with suppress(OSError), open(f"{PROC}/{pid}/environ", "rb") as file:  # noqa: PTH123
        return file.read().split(b"\0")
    return []


if __name__ == "__main__":
    main(sys.argv[1])
