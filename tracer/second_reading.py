"""Second reading, without cache entries that made a command fail.

A digest tells a damaged entry. One that is whole and false, which somebody wrote or forged, only shows where what it
says contradicts itself, anywhere in the analysis. So no place there doubts it: the command begins once more without.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from analyzers.errors import AnalysisError
from tracer.errors import TracerError

T = TypeVar("T")

# Entries of this process's caches that ranks were taken from.
_taken: set[Path] = set()


def note_taken(entry: Path) -> None:
    """Remember an entry that a rank is taken from."""
    _taken.add(entry)


def read_twice(act: Callable[[], T]) -> T:
    """Call a function; where it fails on entries that it took, remove them and call it again.

    Errors that say what to do are no such failure; and a fault of this program's own is met again. What the first call
    has written stays, and is refused to the second as any file that exists.
    """
    try:
        return act()
    except (AnalysisError, TracerError, OSError):
        raise
    except Exception:
        if not _taken:
            raise
    for entry in _taken:
        with suppress(OSError):
            entry.unlink()
    _taken.clear()
    return act()
