"""What every module that runs as a rank needs: its device, and a voice that the launching process hears.

Rank 0 writes how far it is into PROGRESS, and into NOTES what the user should know of a run that went well. A rank that
must give up for a reason the user can mend leaves that reason in REFUSAL.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from tracer.config import DeviceType
from tracer.errors import TracerError
from tracer.session import Progress

PROGRESS = "progress"
NOTES = "notes"
REFUSAL = "rank{rank}.refusal"


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


@contextmanager
def refusing(rank: int, folder: Path) -> Iterator[None]:
    """End this rank without a traceback, its reason left for the launcher, where the block raises TracerError."""
    try:
        yield
    except TracerError as error:
        (folder / REFUSAL.format(rank=rank)).write_text(str(error), encoding="utf-8")
        sys.exit(str(error))
