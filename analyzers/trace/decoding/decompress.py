"""Decompression of trace files in blocks: plain, gzip, or in an archive."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from analyzers.errors import UnreadableTrace
from analyzers.paths import Place, open_file
from analyzers.trace.decoding.archives import ZIP, ZSTD, Buffered, Read, other_packing, unpacked_zstd, unzipped

# Blocks of this size beat larger ones by half: what is decoded from them stays in the processor's cache.
BLOCK = 1 << 19
# Deflate expands at most 1032 times, so that no input, however hostile, inflates to more than 33 MB at once.
_COMPRESSED_BLOCK = 1 << 15
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's wbits for a gzip header and trailer, checked


@dataclass
class Blocks:
    """The bytes of one file, once. `lost` says, when they are spent, what could not be had of them.

    With `piped` it may be a FIFO, which the user named.
    """

    path: Place
    on_bytes: Callable[[int], None] | None = None
    piped: bool = False
    lost: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[bytes]:
        """Blocks of at most BLOCK bytes.

        Raises UnreadableTrace where the file cannot be read, or where a packing's own checks fail: bytes that a damaged
        stream yielded before it was noticed cannot be told from right ones.
        """
        try:
            with open_file(self.path, piped=self.piped) as file:
                yield from _gather_blocks(self._unpacked(partial(self._read, file)))
        except IsADirectoryError as error:
            raise UnreadableTrace(f"{self.path}: a folder, not a trace file") from error
        except OSError as error:
            raise UnreadableTrace(f"{self.path}: cannot be read ({error.strerror or error})") from error

    def _read(self, file: BinaryIO, size: int) -> bytes:
        block = file.read(size)
        if self.on_bytes is not None:
            self.on_bytes(len(block))
        return block

    def _unpacked(self, read: Read) -> Iterator[bytes]:
        """Yield what stands in a file, packed as its first bytes say; a ZIP's may be packed once more."""
        first = read(_COMPRESSED_BLOCK)
        if first.startswith(ZIP):
            source = Buffered(_blocks(read), first)
            yield from self._unpacked(Buffered(unzipped(self.path, source, self.lost)).read)
            return
        if first.startswith(ZSTD):
            blocks = unpacked_zstd(self.path, Buffered(_blocks(read), first).read, self.lost)
        else:
            blocks = self._inflated(first, read) if first.startswith(_GZIP) else self._plain(first, read)
        block = next(blocks, b"")
        if packing := other_packing(self.path, block):
            raise UnreadableTrace(f"{self.path}: {packing}")
        yield block
        yield from blocks

    def _plain(self, block: bytes, read: Read) -> Iterator[bytes]:
        while block:
            yield block
            block = read(BLOCK)

    def _inflated(self, block: bytes, read: Read) -> Iterator[bytes]:
        """Every member of a gzip file; zeros between and behind members are padding."""
        member, damaged = _make_decompressor()
        while block:
            try:
                inflated = member.decompress(block)
            except damaged as error:
                raise UnreadableTrace(
                    f"{self.path}: damaged gzip ({error}); nothing in it can be trusted: copy or record it again"
                ) from error
            yield from (inflated[start : start + BLOCK] for start in range(0, len(inflated), BLOCK))
            if not member.eof:
                block = read(_COMPRESSED_BLOCK)
                continue
            block = self._behind(member.unused_data, read)
            if block and not block.startswith(_GZIP):
                self.lost.append("bytes behind the gzip stream that are no gzip")
                return
            if block:
                member, damaged = _make_decompressor()
        if not member.eof:
            self.lost.append("the end of the gzip stream (cut short, or still being written)")

    def _behind(self, block: bytes, read: Read) -> bytes:
        """What follows a member, without padding; empty at the end of the file."""
        block = block.lstrip(b"\0")
        while len(block) < len(_GZIP) and (more := read(_COMPRESSED_BLOCK)):
            block = (block + more).lstrip(b"\0")
        return block


def _blocks(read: Read) -> Iterator[bytes]:
    while block := read(_COMPRESSED_BLOCK):
        yield block


def _gather_blocks(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of a useful size from blocks of any, such as those of a million gzip members."""
    small: list[bytes] = []
    size = 0
    for block in blocks:
        small.append(block)
        size += len(block)
        if size >= BLOCK // 2:
            yield b"".join(small) if len(small) > 1 else block
            small, size = [], 0
    if small:
        yield b"".join(small)


def _make_decompressor() -> tuple[Any, type[Exception]]:
    """A fresh decompressor of one gzip member, through isal where it is installed, and the error it raises."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj(_GZIP_WINDOW), zlib.error
    return isal_zlib.decompressobj(_GZIP_WINDOW), isal_zlib.error  # type: ignore[return-value]  # its stub has an instance
