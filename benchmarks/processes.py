"""What whole processes take: seconds, processor time, memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Linux counts what the parent holds into a process's peak: the parent is an interpreter that has imported nothing.
LAUNCH = """
import os, sys, time
silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
began = time.perf_counter()
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=silent)
_, status, usage = os.wait4(process, 0)
wall_s = time.perf_counter() - began
print(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Cost:
    """What a process took, with all that it started and waited for."""

    wall_s: float
    cpu_s: float  # user and system
    peak_bytes: int  # resident, of the largest process


class Failed(Exception):
    """A process ended with an error; the message is its last line on stderr."""


def cost(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Run a command whose output nobody reads. Raises Failed."""
    launch = [sys.executable, "-I", "-S", "-c", LAUNCH, *command]
    launched = subprocess.run(launch, env=environment, capture_output=True, text=True, errors="replace", check=False)
    errors = launched.stderr.strip().rpartition("\n")[2]
    if launched.returncode:
        raise Failed(errors)
    wall_s, cpu_s, peak_bytes, code = launched.stdout.split()
    if int(code):
        raise Failed(errors or f"exit code {code}")
    return Cost(float(wall_s), float(cpu_s), int(peak_bytes))
