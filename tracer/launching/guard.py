"""Launcher's end of the pipe to its guard process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import IO

from tracer.launching.guard_process import RELEASED

# The environment variable by which the guard process finds what the launcher started.
GUARD = "TRACER_GUARD"
PROGRAM = Path(__file__).with_name("guard_process.py")


@dataclass(frozen=True)
class Guard:
    """A guard process; what is started with `token` in its environment, as GUARD, ends with this process."""

    token: str
    pipe: IO[bytes]

    def release(self) -> None:
        """Say that what was started has ended as it should: what it leaves running may go on."""
        with suppress(OSError):  # somebody has killed the guard
            self.pipe.write(RELEASED)


@contextmanager
def guarded() -> Iterator[Guard]:
    """Have all that is started with the guard's token end with this process, or with the block unless it is released.

    On Linux alone: other systems do not show processes' environments.
    """
    token = token_hex(16)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM), f"{GUARD}={token}"],
        bufsize=0,
        stdin=subprocess.PIPE,
        cwd="/",
        start_new_session=True,  # a terminal's Ctrl-C is not for it
    )
    assert process.stdin is not None
    try:
        yield Guard(token, process.stdin)
    finally:
        process.stdin.close()
        process.wait()
