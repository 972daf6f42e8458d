"""Archives of one trace: ZIP, Zstandard, and others that are named.

ZIP        |head, name|data ......|sizes|  |head, name|data ......|sizes|  |directory
Zstandard  |frame ......|frame ......|     by Python 3.14's own library, or the program `zstd`

Both are read as they come, in blocks, from a pipe too.
"""

from __future__ import annotations

import posixpath
import struct
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from analyzers.errors import UnreadableTrace
from analyzers.paths import Place
from analyzers.texts import typed

ZIP, ZSTD = b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
# What other packings begin with, and what unpacks them.
_OTHERS = {
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"BZh": ("bzip2", "bunzip2"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x"),
    b"Rar!\x1a\x07": ("RAR", "unrar x"),
    b"\x04\x22\x4d\x18": ("LZ4", "unlz4"),
    b"LZIP": ("lzip", "lzip -d"),
    b"\x1f\x9d": ("compress", "uncompress"),
}
_TAR, _TAR_AT = b"ustar", 257
_HEAD = struct.Struct("<4sHHHHHIIIHH")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _SIZES_BEHIND = 1, 8
_LONG = 0xFFFFFFFF
_DIRECTORY = (b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06")
# Traces by their names; what else an archive holds is passed over.
_TRACES = (".json", ".json.gz", ".json.zst")
# So many bytes are read at once, and inflated at once.
_BLOCK, _INFLATED = 1 << 15, 1 << 19
# As zstd's own default: a window of 2^27 bytes is what a frame may take of memory.
_WINDOW_LOG = 27
_CUT = "the end of the {} (cut short, or still being written)"

Read = Callable[[int], bytes]


def other_packing(path: Place, block: bytes) -> str | None:
    """Return what a file is packed with that is not read here, and how to unpack it; None for all else."""
    name = typed(path.name)
    if block[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        return f"a tar archive: unpack it (tar xf {name}), and give the trace files in it"
    for mark, (packing, command) in _OTHERS.items():
        if block.startswith(mark):
            return f"packed with {packing}: unpack it ({command} {name})"
    return None


class Buffered:
    """Bytes of blocks, as many at a time as are asked for."""

    def __init__(self, blocks: Iterator[bytes], front: bytes = b"") -> None:
        self._blocks, self._front = blocks, front

    def read(self, size: int) -> bytes:
        """Return at most so many bytes, none only at the end."""
        if not self._front:
            self._front = next((block for block in self._blocks if block), b"")
        data, self._front = self._front[:size], self._front[size:]
        return data

    def exactly(self, size: int) -> bytes:
        """Return so many bytes, or what is left of them."""
        parts = []
        while size and (part := self.read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def unread(self, data: bytes) -> None:
        """Put bytes back in front."""
        self._front = data + self._front


def unzipped(path: Place, source: Buffered, lost: list[str]) -> Iterator[bytes]:
    """Yield the bytes of the one trace in a ZIP archive. Raises UnreadableTrace for none, several, or damage.

    An archive that ends early is read as far as it goes, which `lost` says then.
    """
    traces: list[str] = []
    while (mark := source.exactly(4)) == ZIP:
        head = _HEAD.unpack(mark + source.exactly(_HEAD.size - 4).ljust(_HEAD.size - 4, b"\0"))
        name = source.exactly(head[9]).decode("utf-8", errors="replace")
        extra = source.exactly(head[10])
        is_trace = name.endswith(_TRACES) and not name.startswith("__MACOSX/")
        traces += [name] if is_trace else []
        _check_named(path, name, traces)
        for block in _member(path, head, extra, source, lost):
            if is_trace:
                yield block
        if lost:
            return
    if mark not in _DIRECTORY:
        lost.append(_CUT.format("ZIP archive"))
    if not traces:
        raise UnreadableTrace(f"{path}: a ZIP archive without a trace (*.json, *.json.gz) in it")


def _check_named(path: Place, name: str, traces: list[str]) -> None:
    # Whoever packs a folder has its name before each trace's.
    inside = posixpath.commonpath([posixpath.dirname(trace.lstrip("/")) for trace in traces or [name]])
    report = typed("tracer", "report", posixpath.join("traces", inside).rstrip("/"))
    unpack = f"unzip {typed(path.name)} -d traces, then `{report}`"
    if name.endswith(".pftrace"):
        text = "an archive that `tracer export` wrote, of a timeline and its traces: report the run that it is of"
        raise UnreadableTrace(f"{path}: {text}, or unpack it: {unpack}")
    if len(traces) > 1:
        raise UnreadableTrace(f"{path}: a ZIP archive of several traces ({', '.join(traces)}): unpack it: {unpack}")


def _member(path: Place, head: tuple[Any, ...], extra: bytes, source: Buffered, lost: list[str]) -> Iterator[bytes]:
    """Yield the bytes of one file in an archive, whose checksum they must have."""
    _, _, flags, method, _, _, checksum, packed, _, _, _ = head
    if flags & _ENCRYPTED or method not in (_STORED, _DEFLATED) or (method == _STORED and flags & _SIZES_BEHIND):
        raise UnreadableTrace(
            f"{path}: a ZIP archive of a kind that is not read (encrypted, or method {method}): unpack it"
        )
    if method == _STORED:
        blocks = _stored(source, _long_size(extra) if packed == _LONG else packed, lost)
    else:
        blocks = _deflated(path, source, lost)
    crc = 0
    for block in blocks:
        crc = zlib.crc32(block, crc)
        yield block
    if lost:
        return
    if flags & _SIZES_BEHIND:
        checksum = _checksum_behind(source)
    if crc != checksum:
        raise UnreadableTrace(f"{path}: damaged ZIP archive (checksum); nothing in it can be trusted: copy it again")


def _checksum_behind(source: Buffered) -> int:
    """Return the checksum that follows the data, behind a mark or without one, and pass over the two sizes."""
    mark = source.exactly(4)
    checksum = int.from_bytes(source.exactly(4) if mark == b"PK\x07\x08" else mark, "little")
    source.exactly(8)
    following = source.exactly(4)
    source.unread(following)
    if following not in (ZIP, *_DIRECTORY):  # sizes of 8 bytes each
        source.exactly(8)
    return checksum


def _long_size(extra: bytes) -> int:
    """Return the packed size in the field of ZIP64."""
    while len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        if kind == 1:
            return int.from_bytes(extra[12:20], "little")
        extra = extra[4 + size :]
    return 0


def _stored(source: Buffered, size: int, lost: list[str]) -> Iterator[bytes]:
    while size and (block := source.read(min(size, _INFLATED))):
        size -= len(block)
        yield block
    lost += [_CUT.format("ZIP archive")] * bool(size)


def _deflated(path: Place, source: Buffered, lost: list[str]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    while not inflater.eof and (block := inflater.unconsumed_tail or source.read(_BLOCK)):
        try:
            yield inflater.decompress(block, _INFLATED)
        except zlib.error as error:
            raise UnreadableTrace(
                f"{path}: damaged ZIP archive ({error}); nothing in it can be trusted: copy it again"
            ) from error
    source.unread(inflater.unused_data)
    lost += [_CUT.format("ZIP archive")] * (not inflater.eof)


def unpacked_zstd(path: Place, read: Read, lost: list[str]) -> Iterator[bytes]:
    """Yield the bytes of a Zstandard file. Raises UnreadableTrace for damage, and where nothing here unpacks it."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # from Python 3.14 on
    except ImportError:
        yield from _by_program(path, read, lost)
        return
    bound = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    frame, block = zstd.ZstdDecompressor(options=bound), read(_BLOCK)
    while block or not (frame.needs_input or frame.eof):
        try:
            yield frame.decompress(block, _INFLATED)
        except zstd.ZstdError as error:
            raise _damaged(path, str(error)) from error
        block = b"" if not frame.needs_input and not frame.eof else frame.unused_data or read(_BLOCK)
        if frame.eof and block:
            frame = zstd.ZstdDecompressor(options=bound)
    if not frame.eof:
        lost.append(_CUT.format("Zstandard stream"))


def _damaged(path: Place, why: str) -> UnreadableTrace:
    return UnreadableTrace(f"{path}: damaged Zstandard ({why}); nothing in it can be trusted: copy or record it again")


def _by_program(path: Place, read: Read, lost: list[str]) -> Iterator[bytes]:
    command = ["zstd", "-dcq", f"--memory={1 << (_WINDOW_LOG - 20)}MB"]
    try:
        # Its input, its output, and what it says.
        process = subprocess.Popen(command, -1, None, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)
    except OSError as error:
        unpack = f"zstd -d {typed(path.name)}"
        text = "packed with Zstandard, which Python 3.14 or the program zstd unpacks: install one of them"
        raise UnreadableTrace(f"{path}: {text}, or unpack it elsewhere ({unpack})") from error
    failures: list[OSError] = []
    feeder = threading.Thread(target=_feed, args=(read, process.stdin, failures), daemon=True)
    with process:
        feeder.start()
        try:
            while block := process.stdout.read(_INFLATED):  # type: ignore[union-attr]  # it is a pipe
                yield block
            said = process.stderr.read().decode(errors="replace")  # type: ignore[union-attr]
        finally:
            process.kill()
            feeder.join()
    if failures:
        raise failures[0]
    if "premature" in said or "truncated" in said:
        lost.append(_CUT.format("Zstandard stream"))
    elif process.returncode > 0 or said:
        raise _damaged(path, " ".join(said.split())[-200:])


def _feed(read: Read, pipe: Any, failures: list[OSError]) -> None:
    try:
        with pipe:
            while block := read(_BLOCK):
                pipe.write(block)
    except BrokenPipeError:  # it has seen enough
        return
    except OSError as error:
        failures.append(error)
