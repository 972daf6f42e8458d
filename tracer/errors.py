"""Errors of commands: one clear line, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from analyzers.errors import TracerError, install_hint

# Whose torch it is that trains is not ours to say.
INSTALL_TORCH = f"install tracer in the environment that trains, or {install_hint('workload')}"
NEEDS_TORCH = f"needs torch: {INSTALL_TORCH}"


def refuse_windows(what: str) -> None:
    """Raise TracerError on Windows, where nothing can be recorded."""
    if sys.platform == "win32":
        raise TracerError(f"{what}: recording needs Linux (WSL is one); Windows reads what was recorded elsewhere")


class UsageError(TracerError):
    """Options that contradict one another."""

    exit_code = 2


class NotWritten(TracerError):
    """A file that the system did not let us write."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: cannot be written ({error.strerror or error})")
        self.path = path


class SessionIncomplete(TracerError):
    """The training loop ended before the recording had all its steps."""


class IncompleteRecording(UserWarning):
    """The same, where the training goes on: the text says what was kept."""


class RankFailed(TracerError):
    """A rank of a recording ended badly; the command ends with that rank's own exit code.

    Its text is the message, in one line, and below it the last lines that the rank said. `out_of_memory`: the kernel
    killed it for that.
    """

    def __init__(
        self,
        message: str,
        exit_code: int,
        brief: str | None = None,
        last_lines: Sequence[str] = (),
        out_of_memory: bool = False,
    ) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory
        self.message = message
        self.exit_code = exit_code
        self.brief = message if brief is None else brief  # of the ranks alone, whatever became of the recording
        self.last_lines = tuple(last_lines)

    def __str__(self) -> str:
        return "\n".join([self.message, *self.last_lines])


class Stopped(RankFailed):
    """A signal asked the launcher to end: nothing more is to be tried."""
