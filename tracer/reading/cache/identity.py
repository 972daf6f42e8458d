"""Identity of a rank's files, by which a changed one is known.

Of a local file inode, size, times and some blocks, of an object its version.

Whatever writes to a local file, or puts another in its place, sets its ctime, which nobody can set back. Windows' ctime
is when a file was made: there all of its bytes count.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, fields
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from analyzers.memory import machine_memory
from analyzers.paths import Place, Remote, facts_of, open_file, read_block
from analyzers.run import Calibration, RankFile, RunLayout

# Clocks of file systems may stand so long: what is written to a file this new may leave its times as they are.
SETTLED_S = 2.0
_BLOCK = 4096
_DIGEST_BYTES = 16
# What changes with each version of an object; and what may stay where one follows another quickly.
_VERSIONS = ("ETag", "etag", "generation")
_TIMES = ("LastModified", "last_modified", "mtime", "created")


@dataclass(frozen=True)
class Identity:
    """A digest of what tells a rank's files from any others, and when the last of them changed, on their clock."""

    digest: bytes
    changed_s: float

    def is_settled(self, now_s: float | None = None) -> bool:
        """Whether a file that is written to from now on will have another identity."""
        return self.changed_s + SETTLED_S <= (time.time() if now_s is None else now_s)


def key_of(file: RankFile) -> bytes:
    """Return a digest of a rank's places and of all else that decides what is read of it, but for its memory."""
    said = [_spell(getattr(file, field.name)) for field in fields(RankFile) if field.name != "memory"]
    # What is said of a file has its name as it was given, which may be relative.
    return _digest(repr((_current_folder(), said)))


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # as a string
    except OSError:  # it was removed; then no relative place is found either
        return ""


def _spell(value: object) -> object:
    if isinstance(value, Remote):
        return value.url
    return str(value) if isinstance(value, Path) else value


def key_of_run(layout: RunLayout, links: Calibration | None) -> bytes | None:
    """Return a digest of a run's places, and of what else decides on its report: run.json, links, the machine's memory.

    None where that holds what no bytes can.
    """
    beside = (layout.name, layout.manifest, layout.warnings, layout.calibration, links, machine_memory())
    try:
        said = msgspec.msgpack.encode(beside)
    except (UnicodeEncodeError, OverflowError):
        return None
    return _digest(repr((_spell(layout.path), [key_of(file) for file in layout.files], said)))


def identity_of(*files: RankFile) -> Identity | None:
    """Return the identity of ranks' files; None where one is missing, or a remote one's version is not told."""
    held = [place for file in files for place in (file.path, file.light, file.nosync) if place is not None]
    try:
        told = [_identify(place) for place in held]
    except (OSError, ValueError):
        return None
    facts = [facts for facts in told if facts is not None]
    if len(facts) < len(told):
        return None
    return Identity(_digest(repr([what for what, _ in facts])), max(changed for _, changed in facts))


def _identify(place: Place) -> tuple[object, float] | None:
    """What tells one file or object from others, and when it changed; None where nothing tells that."""
    return _of_object(place) if isinstance(place, Remote) else _of_file(place)


def _of_file(path: Path) -> tuple[object, float]:
    with open_file(path) as file:
        # Of the file that is open: a network's file system asks its server when one is opened.
        status = os.fstat(file.fileno())
        digest = blake2b(digest_size=_DIGEST_BYTES)
        size = status.st_size
        for place in range(0, size, _BLOCK) if sys.platform == "win32" else _choose_places(size):
            file.seek(place)
            digest.update(file.read(_BLOCK))
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_ino, status.st_size, times, digest.digest()), max(times) / 1e9


def _choose_places(size: int) -> tuple[int, ...]:
    """Where a file's head, middle and tail begin."""
    return 0, max(0, (size - _BLOCK) // 2), max(0, size - _BLOCK)


def _of_object(remote: Remote) -> tuple[object, float] | None:
    facts = facts_of(remote)
    versions = _pick_facts(facts, _VERSIONS)
    if versions:
        return (facts.get("size"), versions), 0.0
    times = _pick_facts(facts, _TIMES)
    if not times or not isinstance(facts.get("size"), int):
        return None
    size: int = facts["size"]
    blocks = [_digest(read_block(remote, place, _BLOCK)) for place in _choose_places(size)]
    return (size, times, blocks), max(_to_seconds(time) for _, time in times)


def _pick_facts(facts: dict[str, Any], names: tuple[str, ...]) -> list[tuple[str, Any]]:
    return [(name, facts[name]) for name in names if facts.get(name) not in (None, "")]


def _to_seconds(value: object) -> float:
    """A time as seconds since the epoch; infinite where that cannot be told."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, int | float):
        return value / 1000 if value > 1e11 else float(value)  # HDFS counts milliseconds
    return float("inf")


def _digest(data: str | bytes) -> bytes:
    raw = data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data
    return blake2b(raw, digest_size=_DIGEST_BYTES).digest()
