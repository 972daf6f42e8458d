"""Rank processes: device selection, and files for progress and errors.

Rank 0 writes how far it is into PROGRESS, and into NOTES what the user should know of a run that went well. A rank that
must give up for a reason the user can mend leaves that reason in REFUSAL.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import torch

from analyzers.paths import read_text
from analyzers.texts import utf8
from tracer.atomic_files import has_ended, name_process
from tracer.config import DeviceType
from tracer.errors import TracerError
from tracer.recording.recorder import Progress, silent

# The environment variable in which ranks of ours find the process that launched them.
LAUNCHER = "TRACER_LAUNCHER"
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
# Where in the folder that ranks fill everything lies that is none of the recording.
WORK = "work"
PROGRESS = f"{WORK}/progress"
NOTES = f"{WORK}/notes"
TAKEN_NOTES = f"{NOTES}.taken"
REASON = f"{WORK}/{{process}}.out"
# In a recording's own folder: what its rank said that ran out of memory.
OUT_OF_MEMORY = "out-of-memory"
CLAIM = f"{WORK}/rank{{rank}}.taken{{attempt}}"
RECORDED = f"{WORK}/rank{{rank}}.recorded"
REFUSAL = f"{WORK}/rank{{rank}}.refusal"
# Preallocated: overwriting in place works on a full disk.
ERROR_FILE_BYTES = 1024
REPORT_EVERY_S = 0.5
NO_ERROR_TEXT = "a process could not leave its reason (is the disk full?)"


def die_with(parent: int) -> bool:
    """Have the kernel end this process when its parent does, however that ends; on Linux alone.

    Returns whether it is there still: of one that ended before, the kernel says nothing.
    """
    if sys.platform == "linux" and os.getppid() == parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


def pick_device(kind: DeviceType) -> torch.device:
    """Return this rank's device, made current."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def progress_of(rank: int, folder: Path) -> Progress:
    """Return rank 0's way to write how far it is for the launcher; the others' says nothing."""
    if rank != 0:
        return silent
    file = (folder / PROGRESS).open("wb", buffering=0)

    def write(label: str, done: int, total: int) -> None:
        # A full disk is for those to report who need it.
        with suppress(OSError):
            file.write(_report(label, done, total))

    return write


def seldom_progress_of(rank: int, folder: Path, now_s: Callable[[], float] = time.monotonic) -> Progress:
    """Return the same for a script: a report each REPORT_EVERY_S, and the last; it holds no file open."""
    if rank != 0:
        return silent
    last_s = -REPORT_EVERY_S

    def write(label: str, done: int, total: int) -> None:
        nonlocal last_s
        now = now_s()
        if done < total and now - last_s < REPORT_EVERY_S:
            return
        last_s = now
        with suppress(OSError), (folder / PROGRESS).open("ab") as file:
            file.write(_report(label, done, total))

    return write


def _report(label: str, done: int, total: int) -> bytes:
    return f"{label}\t{done}\t{total}\n".encode()


def leave_notes(folder: Path, notes: Iterable[str]) -> None:
    """Leave lines for the user, behind those that are there; a full disk is for those to report who need it."""
    with suppress(OSError), (folder / NOTES).open("ab") as file:
        file.write(utf8("".join(f"{note}\n" for note in notes)))


def take_notes(folder: Path) -> list[str]:
    """Return the lines that ranks left, and remove them; ranks may go on."""
    taken = folder / TAKEN_NOTES
    with suppress(FileNotFoundError):
        (folder / NOTES).replace(taken)
        return read_text(taken).splitlines()
    return []


def claim(folder: Path, rank: int) -> bool:
    """Whether no process but this one records as this rank: the first, or one after all before it have ended."""
    for attempt in count():
        file = folder / CLAIM.format(rank=rank, attempt=attempt)
        try:
            name_process(file)
            break
        except FileExistsError:
            if not has_ended(file):
                return False
    _take_room(folder / REASON.format(process=os.getpid()))
    return True


def leave_reason(folder: Path, why: str) -> None:
    """Leave for the launcher why this process of a script is not recorded, or no longer."""
    _leave_words(folder / REASON.format(process=os.getpid()), why)


def reasons(folder: Path) -> list[str]:
    """Return the reasons that processes left, each once, and not again what others heard."""
    whys = list(dict.fromkeys(read_errors(folder, REASON.format(process="*"))))
    return [why for why in whys if not any(why != other and why.endswith(other) for other in whys)]


@contextmanager
def refusing(rank: int, folder: Path) -> Iterator[None]:
    """End this rank without a traceback, its reason left for the launcher, where the block raises TracerError."""
    file = folder / REFUSAL.format(rank=rank)
    _take_room(file)
    try:
        yield
    except TracerError as error:
        _leave_words(file, error.for_shell)
        sys.exit(error.for_shell)


def read_errors(folder: Path, pattern: str) -> list[str]:
    """Return what processes left in files that match a pattern, or that they were cut off."""
    texts = [read_text(file) for file in sorted(folder.glob(pattern))]
    return [text.strip() or NO_ERROR_TEXT for text in texts if text.strip() or not text]


def _take_room(file: Path) -> None:
    with suppress(OSError):
        file.write_bytes(b" " * ERROR_FILE_BYTES)


def _leave_words(file: Path, text: str) -> None:
    with suppress(OSError), file.open("r+b" if file.exists() else "wb") as room:
        room.write(text.encode(errors="replace")[:ERROR_FILE_BYTES].ljust(ERROR_FILE_BYTES))


class _Sessions:
    """How many sessions this process has made: a hook from outside stays out of a script that has one."""

    count = 0


def note_session() -> None:
    """Remember that this process has made a session of its own."""
    _Sessions.count += 1


def has_session() -> bool:
    """Whether this process has made a session of its own."""
    return _Sessions.count > 0
