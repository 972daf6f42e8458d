"""Folder that entries are kept in, its bound, its cleaning.

Entries appear under their names whole, and may go at any time. Nothing here fails a command: a folder that cannot be
used is as an empty one.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

# What all entries may take; then those go first that were not used for longest, until so much of it is left free.
MOST_BYTES = 2_000_000_000
KEPT_SHARE = 0.9
# A hit renews an entry's time no more often than this.
RENEWED_S = 86_400.0
# Entries that another version of this program made go when they were not used for so long.
OTHERS_KEPT_S = 7 * 86_400.0
# What a command that was killed was writing.
PARTIAL_KEPT_S = 3_600.0
OF_RANKS, OF_REPORT, PARTIAL = ".rank", ".report", ".partial"
# The folder may be one that the user has other files in: what has no such name is none of ours.
_OURS = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}(\.rank|\.report|\.[0-9a-f]{16}\.partial)")


def why_unusable(folder: Path) -> str | None:
    """Make the folder where there is none, and say why it cannot be used, if so."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"cannot be made ({error.strerror or error})"
    owner = getattr(os, "geteuid", lambda: status.st_uid)()
    if status.st_uid != owner:
        return "another user's"
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it"
    return None if os.access(folder, os.W_OK | os.X_OK) else "cannot be written to"


@contextmanager
def new_entry(path: Path) -> Iterator[BinaryIO]:
    """A file to fill that takes its name when the block ends well. Raises OSError."""
    partial = path.with_name(f"{path.stem}.{token_hex(8)}{PARTIAL}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def renew(path: Path, modified_s: float) -> None:
    """Note that an entry was used, where that was last noted a while ago."""
    if time.time() - modified_s > RENEWED_S:
        with suppress(OSError):
            os.utime(path)


def clean(folder: Path, version: str, most_bytes: int = MOST_BYTES) -> None:
    """Remove what was left half written, other versions' entries that nobody uses, and what is over the bound."""
    now_s = time.time()
    kept: list[tuple[float, int, str]] = []
    for entry in _list_entries(folder):
        with suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            age_s = now_s - status.st_mtime
            if age_s > _kept_s(entry.name, version):
                Path(entry.path).unlink()
            elif not entry.name.endswith(PARTIAL):
                kept.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in kept)
    if total <= most_bytes:
        return
    for _, size, path in sorted(kept):
        if total <= most_bytes * KEPT_SHARE:
            return
        with suppress(OSError):
            Path(path).unlink(missing_ok=True)
        total -= size


def _list_entries(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry for entry in entries if _OURS.fullmatch(entry.name)]
    return []


def _kept_s(name: str, version: str) -> float:
    """How long a file of ours stays that nobody uses."""
    if name.endswith(PARTIAL):
        return PARTIAL_KEPT_S
    return float("inf") if name.endswith((version + OF_RANKS, version + OF_REPORT)) else OTHERS_KEPT_S
