"""Entry of one file's ranks in the cache: a head and sections.

|mark|length, digest|head ....|    |base ......|tracks ...|graph .......|
                                   ^ offsets in the head count from here

Each section has a digest of its own, so that one that is not asked for is not read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import BinaryIO

import msgspec

from tracer.reading.cache.packing import Chunks

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
