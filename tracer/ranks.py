"""What every module that runs as a rank needs: its device, and a voice that the launching process hears.

Rank 0 writes how far it is into PROGRESS, and into NOTES what the user should know of a run that went well. A rank that
must give up for a reason the user can mend leaves that reason in REFUSAL.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tracer.config import DeviceType
from tracer.errors import TracerError
from tracer.recorder import Progress

# The environment variable in which ranks of ours find the process that launched them.
LAUNCHER = "TRACER_LAUNCHER"
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
# Where in the folder that ranks fill everything lies that is none of the recording.
WORK = "work"
PROGRESS = f"{WORK}/progress"
NOTES = f"{WORK}/notes"
REASON = f"{WORK}/{{process}}.out"
# In a recording's own folder: what its rank said that ran out of memory.
OUT_OF_MEMORY = "out-of-memory"
CLAIM = f"{WORK}/rank{{rank}}.taken"
REFUSAL = f"{WORK}/rank{{rank}}.refusal"


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent does, however that ends; on Linux alone."""
    if sys.platform == "linux" and os.getppid() == parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def pick_device(kind: DeviceType) -> torch.device:
    """This rank's device, made current."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def progress_of(rank: int, folder: Path) -> Progress:
    """Rank 0 says how far it is in a file that the launcher reads; the others say nothing."""
    if rank != 0:
        return lambda label, done, total: None
    file = (folder / PROGRESS).open("w", buffering=1, encoding="utf-8")
    return lambda label, done, total: print(label, done, total, sep="\t", file=file)


def leave_notes(folder: Path, notes: list[str]) -> None:
    """Leave lines for the user, who sees them when all ranks have ended."""
    (folder / NOTES).write_text("".join(f"{note}\n" for note in notes), encoding="utf-8")


def take_notes(folder: Path) -> list[str]:
    """The lines that a rank left, which are then gone."""
    file = folder / NOTES
    if not file.exists():
        return []
    notes = file.read_text(encoding="utf-8").splitlines()
    file.unlink()
    return notes


def claim(folder: Path, rank: int) -> bool:
    """Whether this process is the first that records as this rank."""
    try:
        (folder / CLAIM.format(rank=rank)).open("x").close()
    except FileExistsError:
        return False
    return True


def leave_reason(folder: Path, why: str) -> None:
    """Leave for the launcher why this process of a script is not recorded, or no longer."""
    (folder / REASON.format(process=os.getpid())).write_text(why, encoding="utf-8")


def reasons(folder: Path) -> list[str]:
    """The reasons that processes left, each once."""
    files = sorted(folder.glob(REASON.format(process="*")))
    return list(dict.fromkeys(file.read_text(encoding="utf-8") for file in files))


@contextmanager
def refusing(rank: int, folder: Path) -> Iterator[None]:
    """End this rank without a traceback, its reason left for the launcher, where the block raises TracerError."""
    try:
        yield
    except TracerError as error:
        (folder / REFUSAL.format(rank=rank)).write_text(str(error), encoding="utf-8")
        sys.exit(str(error))
