"""Second reading, without cache entries that made a command fail.

A digest tells a damaged entry. One that is whole and false, which somebody wrote or forged, only shows where what it
says contradicts itself, anywhere in the analysis. So no place there doubts it: the command begins once more without.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from analyzers.errors import TracerError

T = TypeVar("T")


@dataclass
class _FilesRead:
    """Entries that ranks were taken from, files that were written; and those of a first reading, which may be again."""

    taken: set[Path] = field(default_factory=set)
    written: set[Path] = field(default_factory=set)
    replaceable: frozenset[Path] = frozenset()


_reading: ContextVar[_FilesRead | None] = ContextVar("_reading", default=None)


def note_taken(entry: Path) -> None:
    """Remember an entry that a rank is taken from."""
    reading = _reading.get()
    if reading is not None:
        reading.taken.add(entry)


def note_written(file: Path) -> None:
    """Remember a file that was written."""
    reading = _reading.get()
    if reading is not None:
        reading.written.add(file.absolute())


def may_replace(file: Path) -> bool:
    """Whether a file is one that the reading which failed has written itself."""
    reading = _reading.get()
    return reading is not None and file.absolute() in reading.replaceable


def read_twice(act: Callable[[], T]) -> T:
    """Call a function; where it fails on entries that it took, remove them and call it again.

    Errors that say what to do are no such failure; and a fault of this program's own is met again. What the first call
    has written the second may replace, and nothing else.
    """
    first = _FilesRead()
    token = _reading.set(first)
    try:
        return act()
    except (TracerError, OSError):
        raise
    except Exception:
        if not first.taken:
            raise
        for entry in first.taken:
            with suppress(OSError):
                entry.unlink()
        _reading.set(_FilesRead(replaceable=frozenset(first.written)))
        return act()
    finally:
        _reading.reset(token)
