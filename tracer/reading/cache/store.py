"""What ranks and runs say, kept: an entry each.

    key = places, options            -> name of the entry
    maker = version, sources         -> name of the entry, head
    identity = the files' contents   -> head, compared

A hit is what reading would give: the same files, options, program, and at least the memory that reading needs.
An entry is a head and sections, each with a digest of its own, so that one that is not asked for is not read:

    |mark|length, digest|head ....|    |base ......|tracks ...|graph .......|
                                       ^ offsets in the head count from here
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np

from analyzers import paths
from analyzers.memory import budget_of, cores
from analyzers.paths import open_file
from analyzers.rank import RankSummary, ReadRanks, RunSummary, summarize_file
from analyzers.reporting import Report
from analyzers.run import Calibration, RankFile, RunLayout
from tracer.reading.cache.folder import MOST_BYTES, OF_RANKS, OF_REPORT, clean, new_entry, renew, why_unusable
from tracer.reading.cache.identity import Identity, identity_of, key_of, key_of_run
from tracer.reading.cache.packing import BASE, CAUSES, LANES, PARTS, Chunks, NotPacked, pack, unpack
from tracer.reading.cache.report_packing import REPORT_SECTIONS, Fields, pack_report, unpack_report
from tracer.second_reading import note_taken
from tracer.version import VERSION

T = TypeVar("T")

FORMAT = 2
_MARK = b"tracer-%02d" % FORMAT + b"\n\0\0\0\0\0\0"
_DIGEST_BYTES = 16
_PREFIX_BYTES = len(_MARK) + 8 + _DIGEST_BYTES
_LONGEST_HEAD = 1 << 16


class NoEntry(Exception):
    """A file that holds no entry, or only parts of one."""


class Section(msgspec.Struct, array_like=True, frozen=True):
    """Where a section begins, how long it is, and its digest."""

    offset: int
    length: int
    digest: bytes


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Whose an entry is: the program's version, the rank's files and options, and which contents they had.

    `peak_bytes` is a budget of memory with which they read the same.
    """

    maker: bytes
    key: bytes
    identity: bytes
    peak_bytes: int
    sections: dict[str, Section]


def read_head(file: BinaryIO) -> Head:
    """Return the head of an open entry, which is left where the sections begin. Raises NoEntry, OSError."""
    prefix = file.read(_PREFIX_BYTES)
    length = int.from_bytes(prefix[len(_MARK) : len(_MARK) + 8], "little")
    if len(prefix) < _PREFIX_BYTES or not prefix.startswith(_MARK) or length > _LONGEST_HEAD:
        raise NoEntry("no entry of this format")
    text = file.read(length)
    if _digest([text]) != prefix[-_DIGEST_BYTES:]:
        raise NoEntry("a damaged head")
    try:
        return msgspec.msgpack.decode(text, type=Head)
    except (msgspec.MsgspecError, ValueError) as error:
        raise NoEntry("a head of another sort") from error


def read_sections(file: BinaryIO, head: Head, wanted: Collection[str]) -> dict[str, bytearray]:
    """Return sections of an open entry whose head has just been read, as they were written. Raises NoEntry, OSError."""
    begin, size = file.tell(), os.fstat(file.fileno()).st_size
    sections = {}
    for name in wanted:
        section = head.sections[name]
        if min(section.offset, section.length) < 0 or begin + section.offset + section.length > size:
            raise NoEntry("an entry cut short")
        data = bytearray(section.length)
        file.seek(begin + section.offset)
        if file.readinto(data) != section.length or _digest([data]) != section.digest:  # type: ignore[attr-defined]
            raise NoEntry(f"a damaged section: {name}")
        sections[name] = data
    return sections


def write_entry(file: BinaryIO, whose: Head, sections: Mapping[str, Chunks]) -> None:
    """Write a whole entry; the sections that `whose` has are replaced by those that follow. Raises OSError."""
    places, offset = {}, 0
    for name, chunks in sections.items():
        length = sum(map(len, chunks))
        places[name] = Section(offset, length, _digest(chunks))
        offset += length
    text = msgspec.msgpack.encode(msgspec.structs.replace(whose, sections=places))
    file.write(_MARK + len(text).to_bytes(8, "little") + _digest([text]) + text)
    for chunks in sections.values():
        file.writelines(chunks)


def _digest(chunks: Collection[bytes | bytearray | memoryview]) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


# Whoever imports this has imported `analyzers`.
_IMPORTED_NS = time.time_ns()
_DAMAGED = (OSError, NoEntry, NotPacked)


@dataclass(frozen=True)
class Cache:
    """What ranks say, kept in a folder of the user's; where that cannot be used, nothing is found and nothing kept."""

    folder: Path

    def look_up(self, file: RankFile, parts: Collection[str]) -> tuple[RankSummary, ...] | None:
        """Return what reading a file would give, with these parts; None where it has to be read."""
        return self._look_up(
            key_of(file), OF_RANKS, [file], (BASE, *parts), lambda sections: unpack(sections, file.path)
        )

    def look_up_report(self, layout: RunLayout, links: Calibration | None) -> Fields | None:
        """Return what is known of a run's report, with these links; None where it has to be made."""
        key = key_of_run(layout, links)
        if key is None:
            return None
        return self._look_up(key, OF_REPORT, layout.files, REPORT_SECTIONS, unpack_report)

    def _look_up(
        self,
        key: bytes,
        suffix: str,
        files: Sequence[RankFile],
        sections: Collection[str],
        unpacked: Callable[[Mapping[str, bytearray]], T],
    ) -> T | None:
        """Return what an entry says of files; None where it lacks a section, or is of other contents."""
        path = self._entry(key, suffix)
        limit = min(budget_of(file.memory, cores() if file.memory is None else 1) for file in files)
        try:
            with open_file(path, most_bytes=MOST_BYTES) as entry:
                head = read_head(entry)
                if limit < head.peak_bytes or not head.sections.keys() >= {*sections}:
                    return None
                identity = identity_of(*files)
                if identity is None or not _is_of(head, key, identity):
                    return None
                note_taken(path)
                found = unpacked(read_sections(entry, head, sections))
                modified_s = os.fstat(entry.fileno()).st_mtime
        except _DAMAGED:
            return None
        renew(path, modified_s)
        return found

    def reading(self, read: ReadRanks | None = None) -> ReadRanks:
        """Return what reads a rank as `read` does, by default `summarize_file`, and keeps what it says."""
        return partial(self._read, read or summarize_file)

    def _read(
        self, read: ReadRanks, file: RankFile, *, lanes: bool, causes: bool, **more: Any
    ) -> tuple[RankSummary, ...]:
        before = identity_of(file)
        settled = before is not None and before.is_settled()
        ranks = read(file, lanes=lanes, causes=causes, **more)
        if before is not None and settled:
            self.keep(file, before, ranks, wanted(lanes=lanes, causes=causes))
        return ranks

    def keep(self, file: RankFile, before: Identity, ranks: Sequence[RankSummary], parts: Collection[str]) -> None:
        """Keep what a file's ranks say, which had an identity before, if it still has that; else do nothing.

        Parts that are kept of the same contents already stay.
        """
        head = _head(key_of(file), before, ranks)
        if head is None or identity_of(file) != before:
            return
        path = self._entry(head.key)
        with suppress(*_DAMAGED, MemoryError):
            sections = pack(ranks, parts)
            for part, data in self._others(path, head, parts).items():
                sections[part] = [data]
            with new_entry(path) as entry:
                write_entry(entry, head, sections)

    def keep_report(
        self, layout: RunLayout, links: Calibration | None, before: Identity, run: RunSummary, report: Report
    ) -> None:
        """Keep what is known of the report on a run whose files had an identity before, if they all still have that.

        A file that could not be read may be another time: then nothing is kept.
        """
        key = key_of_run(layout, links)
        head = _head(key, before, run.ranks) if key is not None else None
        whole = {file.path for file in layout.files} == {rank.path for rank in run.ranks}
        if head is None or not whole or identity_of(*layout.files) != before:
            return
        with suppress(*_DAMAGED, MemoryError):
            sections = pack_report(report)
            with new_entry(self._entry(head.key, OF_REPORT)) as entry:
                write_entry(entry, head, sections)

    def clean(self) -> None:
        """Remove what is over the folder's bound, and what nobody will use."""
        clean(self.folder, _version_name())

    def _others(self, path: Path, head: Head, parts: Collection[str]) -> dict[str, bytearray]:
        """The sections of an entry of the same contents that are none of these parts."""
        try:
            with open_file(path, most_bytes=MOST_BYTES) as entry:
                known = read_head(entry)
                if (known.maker, known.key, known.identity) != (head.maker, head.key, head.identity):
                    return {}
                others = [part for part in PARTS if part in known.sections and part not in parts]
                return read_sections(entry, known, others)
        except _DAMAGED:
            return {}

    def _entry(self, key: bytes, suffix: str = OF_RANKS) -> Path:
        return self.folder / f"{key.hex()}-{_version_name()}{suffix}"


def open_cache(folder: Path) -> Cache | None:
    """Return the cache in a folder, None where that cannot be made, or is not this user's alone to write to.

    None, too, where the program was edited since it began: what it says is of neither version.
    """
    edited = any(changed_ns > _IMPORTED_NS for sources in _list_program() for _, _, changed_ns in sources)
    return Cache(folder) if not edited and why_unusable(folder) is None else None


def wanted(*, lanes: bool, causes: bool) -> tuple[str, ...]:
    """Return the parts of a summary that are asked for."""
    return tuple(part for part, asked in ((LANES, lanes), (CAUSES, causes)) if asked)


def _head(key: bytes, identity: Identity, ranks: Sequence[RankSummary]) -> Head | None:
    """Return the head of an entry on ranks, yet without sections; None where it is not known what reading them took."""
    peaks = [rank.peak_bytes for rank in ranks if rank.peak_bytes is not None]
    return Head(_digest_program(), key, identity.digest, max(peaks), {}) if len(peaks) == len(ranks) else None


def _is_of(head: Head, key: bytes, identity: Identity) -> bool:
    return (head.maker, head.key, head.identity) == (_digest_program(), key, identity.digest)


def _version_name() -> str:
    return _digest_program()[:4].hex()


@cache
def _digest_program() -> bytes:
    """A digest of the program: its version, the libraries', and its sources, which may be edited in a checkout."""
    versions = (FORMAT, VERSION, sys.version_info[:2], np.__version__, msgspec.__version__)
    said = repr((versions, [sorted(sources) for sources in _list_program()]))
    return blake2b(said.encode("utf-8", "backslashreplace"), digest_size=16).digest()


@cache
def _list_program() -> tuple[list[tuple[str, int, int]], ...]:
    """The modules of what computes summaries, and of what keeps them."""
    folders = Path(paths.__file__).parent, Path(__file__).parent.parent
    return tuple(_list_sources(str(folder)) for folder in folders)


def _list_sources(folder: str, below: str = "") -> list[tuple[str, int, int]]:
    """Names, sizes and times of a package's modules; none where it is no folder."""
    sources: list[tuple[str, int, int]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = f"{below}/{entry.name}"
            if entry.is_dir():
                sources += _list_sources(entry.path, name)
            elif name.endswith(".py"):
                status = entry.stat()
                sources.append((name, status.st_size, status.st_mtime_ns))
    return sources
