"""Local paths and fsspec URLs behind one interface.

    s3://bucket/run    gs://bucket/run    memory://run    and whatever else fsspec has a file system for
    file:///data/run   is a Path

A Remote has of a Path what reading a run needs, under the same names, so that readers do not tell the two apart. What
goes wrong is an OSError whose `strerror` is in words. fsspec is imported when the first URL is used.
"""

from __future__ import annotations

import errno
import io
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from analyzers.errors import UnknownPlace, install_hint
from analyzers.redaction import redacted, redacted_url
from analyzers.units import megabytes

# Bytes asked for ahead of the reader; fsspec's own 50 MB would be most of a worker's memory.
READ_AHEAD = 1 << 22
# The most that is read of a file that is taken whole: a report of a thousand ranks stays below.
MOST_BYTES = 1_000_000_000
_BLOCK = 1 << 20
# Flags of os.open that not every system has: no opened terminal becomes this process's, and no FIFO keeps us waiting.
NO_TERMINAL, NO_WAITING = getattr(os, "O_NOCTTY", 0), getattr(os, "O_NONBLOCK", 0)
# No program that this process starts inherits the file, and Windows changes no byte.
_TO_READ = os.O_RDONLY | NO_TERMINAL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_HTTP_QUERY = re.compile(r"[?#].*", re.DOTALL)
_SIGNED = re.compile(r"[?#][\w.~%-]+=.*", re.DOTALL)
_URL = re.compile(r"((?:[\w.+-]+::)*[A-Za-z][A-Za-z0-9+.-]+)://")
# File systems that only the process sees that filled them.
_PRIVATE = ("memory",)
# What libraries raise where nobody has said who asks: botocore, google.auth, azure.
_NO_CREDENTIALS = re.compile(r"Credential|TokenRetrieval|ProfileNotFound|UnauthorizedSSO")
_LONGEST_REASON = 200
_GIVE = "give a folder of traces, a trace file, a URL, or a list of several hosts' folders"
# Why a server was not reached, by the first of these that is among an error's reasons.
_UNREACHED: dict[type[BaseException], str] = {
    socket.gaierror: "its host is not known: check the name, and this machine's network",
    ConnectionRefusedError: "the server refuses the connection: check that it runs, and its port",
    TimeoutError: "the server does not answer: check its address, and this machine's network",
}
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Remote:
    """A file or folder behind a URL, which ends in no slash. Only the URL crosses to other processes."""

    url: str

    def __str__(self) -> str:
        return redacted_url(self.url)

    def __repr__(self) -> str:
        return f"Remote({str(self)!r})"

    def __truediv__(self, name: str) -> Remote:
        path, query = self._parts
        return Remote(f"{path}/{name}{query}")

    @property
    def _parts(self) -> tuple[str, str]:
        """The URL up to its path's end, and the query behind, which may sign it. Keys of objects may hold a `?` too."""
        pattern = _HTTP_QUERY if self.is_http else _SIGNED
        match = pattern.search(self.url)
        return (self.url[: match.start()], match[0]) if match else (self.url, "")

    @property
    def is_http(self) -> bool:
        """Whether a web server has it."""
        return self.url.partition("://")[0].lower() in ("http", "https")

    @property
    def name(self) -> str:
        """Return what stands behind the last slash; for a whole bucket, its name."""
        return self._parts[0].rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Return the suffix as for a Path: `.gz`."""
        return Path(self.name).suffix

    @property
    def parent(self) -> Remote:
        """Return the folder it lies in; a bucket is its own."""
        path, query = self._parts
        above = path.rpartition("/")[0]
        return self if above.endswith("/") else Remote(f"{above}{query}")

    @property
    def is_private(self) -> bool:
        """Whether no other process sees it."""
        return self.url.partition("://")[0] in _PRIVATE

    def resolve(self) -> Remote:
        """Return itself: a URL is not relative to anything."""
        return self

    def exists(self) -> bool:
        """Whether there is anything. Raises OSError where that cannot be found out, UnknownPlace."""
        return self._info() is not None

    def is_file(self) -> bool:
        """Whether it is a file. Raises as `exists`."""
        return (self._info() or {}).get("type") == "file"

    def is_dir(self) -> bool:
        """Whether it is a folder. Raises as `exists`."""
        return (self._info() or {}).get("type") == "directory"

    def iterdir(self) -> Iterator[Remote]:
        """Yield what lies in the folder, itself. Raises as `exists`."""
        system, path = _opened(self.url)
        listed = _said(self, lambda: system.ls(path, detail=False))
        base = f"{path.rstrip('/')}/"
        for entry in listed:
            name = str(entry).rstrip("/").removeprefix(base)
            # Objects may have any name; one that leads elsewhere is not in this folder.
            if name and "/" not in name and "\\" not in name and name not in (".", ".."):
                yield self / name

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open the file, to be read in pieces. Raises OSError, also from its `read`."""
        system, path = _opened(self.url)
        file = _said(self, lambda: system.open(path, mode, block_size=READ_AHEAD, cache_type="readahead"))
        return _Reading(self, file)  # type: ignore[return-value]  # what of a file reading needs

    def read_bytes(self) -> bytes:
        """Read all of the file. Raises OSError."""
        with self.open() as file:
            return file.read()

    def _info(self) -> dict[str, Any] | None:
        system, path = _opened(self.url)
        try:
            info: dict[str, Any] = _said(self, lambda: system.info(path))
        except FileNotFoundError:
            return None
        return info


Place = Path | Remote
# What a user names: one place, or several.
Where = str | Place | Sequence[str | Place]

# What file systems tell an object's version by.
VERSION_KEYS = ("ETag", "etag", "generation", "LastModified", "mtime", "size")


@dataclass
class _Reading:
    """An open file whose errors are in words."""

    place: Remote
    file: IO[bytes]
    taken: int = 0

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def read(self, size: int = -1) -> bytes:
        """Read up to so many bytes. Raises OSError, at the end also where the object changed."""
        data = _said(self.place, lambda: self.file.read(size))
        self.taken += len(data)
        if size < 0 or (size and not data):
            self._check()
        return data

    def _check(self) -> None:
        length = getattr(self.file, "size", None)
        if length is not None and self.taken != length:
            raise OSError(errno.EIO, f"ended after {self.taken} of {length} bytes; read it again", str(self.place))
        # What was fetched at once is one version of it.
        if self.taken > READ_AHEAD and self._version(getattr(self.file, "details", None)) != self._version(
            self.place._info()
        ):
            raise OSError(errno.EIO, "changed while it was read; read it again", str(self.place))

    def _version(self, details: object) -> list[object]:
        return [details.get(key) for key in VERSION_KEYS] if isinstance(details, dict) else []


def place(where: str | Place) -> Place:
    """Return the place that a user names: a URL, or a path on this machine. Raises UnknownPlace."""
    if not isinstance(where, str) or not (scheme := _URL.match(where)):
        return Path(where) if isinstance(where, str) else where
    if scheme[1].lower() != "file":
        if not where[scheme.end() :].strip("/"):
            raise UnknownPlace(f"{redacted_url(where)}: no folder is named: give {scheme[0]}BUCKET/RUN")
        path, query = Remote(f"{scheme[1].lower()}{where[scheme.end(1) :]}")._parts
        return Remote(f"{path.rstrip('/')}{query}")
    parts = urlsplit(where)
    if parts.netloc not in ("", "localhost"):
        instead = redacted(f"file:///{parts.netloc}{parts.path}", where)
        raise UnknownPlace(
            f"{redacted_url(where)}: file:// URLs name files of this machine, not of another host; did you mean "
            f"{instead}?"
        )
    # It brings what speaks HTTP, which few runs need.
    from urllib.request import url2pathname

    return Path(url2pathname(parts.path))


def local_path(name: str | Path) -> Path:
    """Return the path on this machine that a user names. Raises UnknownPlace for a URL, and for an empty name."""
    if not str(name).strip():
        raise UnknownPlace("'' is empty: give a path on this machine")
    if isinstance(name, str) and _URL.match(name.strip()):
        raise UnknownPlace(f"{redacted_url(name)} is a URL: give a path on this machine")
    return Path(name)


def places(where: Where) -> list[Place]:
    """Return what a user names, one place or several. Raises UnknownPlace, also for what names none."""
    given = list(where) if isinstance(where, Sequence) and not isinstance(where, str | bytes) else [where]
    for each in given:
        if not isinstance(each, str | Place):
            raise UnknownPlace(f"{each!r} names no run: {_GIVE}")
    if not given:
        raise UnknownPlace(f"an empty list names no run: {_GIVE}")
    return [place(each) for each in given]


def is_there(file: Place) -> bool:
    """Whether there is a file; web servers say of what is missing, too, that it may not be seen. Raises OSError."""
    try:
        return file.exists()
    except PermissionError:
        if isinstance(file, Remote) and file.is_http:
            return False
        raise


def open_file(file: Place, *, piped: bool = False, most_bytes: int | None = None) -> BinaryIO:
    """Open an ordinary file of at most so many bytes to be read; with `piped`, for what the user named, a FIFO too.

    All that is read is opened here, because whoever fills a folder may put a FIFO or a device in a file's place, whose
    opening or reading never ends. Raises OSError, at once for all that is no ordinary file.
    """
    if isinstance(file, Remote):
        return file.open()
    # Asked first, since to open a device may do something (a tape is rewound), and once more of what was opened.
    waits = _check_ordinary(file.stat(), file, piped)
    descriptor = os.open(file, _TO_READ if waits else _TO_READ | NO_WAITING)
    try:
        _check_ordinary(os.fstat(descriptor), file, piped, most_bytes)
        return _Answering(io.FileIO(descriptor, "rb"))
    except BaseException:
        os.close(descriptor)
        raise


class _Answering(io.BufferedReader):
    """A file that says where it has nothing to read yet, as files of /proc may, which are regular by name."""

    def read(self, size: int | None = -1, /) -> bytes:
        data: bytes | None = super().read(size)
        if data is None:
            raise OSError(errno.EAGAIN, "has nothing to read now: it is no ordinary file")
        return data


def _check_ordinary(status: os.stat_result, file: Path, piped: bool, most_bytes: int | None = None) -> bool:
    """Return whether a file that may be opened is a FIFO. Raises OSError for one that may not."""
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    is_fifo = stat.S_ISFIFO(status.st_mode)
    if kind is not None and not (is_fifo and piped):
        raise OSError(errno.EINVAL, f"is {kind}, not a regular file", str(file))
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if most_bytes is not None and status.st_size > most_bytes:
        raise _too_large(file, most_bytes)
    return is_fifo


def _too_large(file: Place, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"is larger than {megabytes(most_bytes)}, the most that is read of it", str(file))


def read_file(file: Place, *, piped: bool = False, most_bytes: int = MOST_BYTES) -> bytes:
    """Read all of an ordinary file, as `open_file` opens it. Raises OSError, also for one of more bytes."""
    blocks, nbytes = [], 0
    with open_file(file, piped=piped, most_bytes=most_bytes) as opened:
        while block := opened.read(_BLOCK):
            blocks.append(block)
            nbytes += len(block)
            if nbytes > most_bytes:
                raise _too_large(file, most_bytes)
    return b"".join(blocks)


def read_text(file: Path) -> str:
    """Read all of an ordinary file as UTF-8, what is none of it replaced. Raises OSError."""
    return read_file(file).decode(errors="replace")


def is_pipe(file: Place) -> bool:
    """Whether this is a FIFO on this machine, which can be read once: what a shell makes of `<(zcat rank0.json.gz)`."""
    return isinstance(file, Path) and file.is_fifo()


def size(file: Place) -> int:
    """Return a file's bytes; 0 for what is none. Raises OSError."""
    if isinstance(file, Remote):
        return int((file._info() or {}).get("size") or 0)
    return file.stat().st_size if file.is_file() else 0


def facts_of(file: Remote) -> dict[str, Any]:
    """Return what a file system tells of an object, its version among it; empty where there is none. Raises OSError."""
    return file._info() or {}


def read_block(file: Remote, begin: int, length: int) -> bytes:
    """Read at most so many bytes of an object. Raises OSError."""
    system, path = _opened(file.url)
    block: bytes = _said(file, lambda: system.cat_file(path, start=begin, end=begin + length))
    return block


def names(folder: Place) -> frozenset[str]:
    """Return the names in a folder, none where there is no such folder. Raises OSError."""
    try:
        return frozenset(each.name for each in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        if error.errno != errno.ELOOP:  # a link that goes round in circles is no folder either
            raise
        return frozenset()


def _opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it. Raises UnknownPlace, OSError."""
    scheme, shown = url.partition("://")[0], redacted_url(url)
    if "::" in url:
        raise UnknownPlace(f"{shown}: a chain of file systems is not read: name the folder itself")
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations, registry
    except ImportError as error:
        raise UnknownPlace(
            f"{shown}: URLs are opened by fsspec, which is not installed; {install_hint('remote')}"
        ) from error
    if scheme not in known_implementations and scheme not in registry:
        raise UnknownPlace(f"{shown}: no file system is known for {scheme}://; give s3://, gs://, or a path")
    try:
        system, path = _said(Remote(url), lambda: url_to_fs(url))
    except ImportError as error:
        raise UnknownPlace(
            f"{shown}: what opens {scheme}:// is not installed ({_first_line(error, url)}): {install_hint('remote')}"
        ) from error
    return system, str(path)


def _said(where: Remote, ask: Callable[[], T]) -> T:
    """Return what a file system answers. Raises OSError in words, ImportError as it comes."""
    try:
        return ask()
    except FileNotFoundError as error:
        raise _missing(where, error) from error
    except IsADirectoryError:
        raise
    except PermissionError as error:
        raise PermissionError(errno.EACCES, f"access denied ({_first_line(error, where.url)})", str(where)) from error
    except ImportError:
        raise
    except Exception as error:  # every library behind fsspec has errors of its own
        if _NO_CREDENTIALS.search(type(error).__name__):
            text = f"credentials are missing or refused ({_first_line(error, where.url)})"
            raise PermissionError(errno.EACCES, text, str(where)) from error
        raise OSError(errno.EIO, _in_words(error, where), str(where)) from error


def _missing(where: Remote, error: FileNotFoundError) -> OSError:
    """Say what fsspec calls missing: over HTTP that is whatever went wrong, with its reason as the cause."""
    cause = error.__cause__
    status = getattr(cause, "status", None)
    if not where.is_http or cause is None or isinstance(cause, FileNotFoundError) or status in (404, 410):
        return FileNotFoundError(errno.ENOENT, "no such object or bucket", str(where))
    if status in (401, 403):
        return PermissionError(errno.EACCES, f"access denied: the server answers HTTP {status}", str(where))
    answer = f"the server answers HTTP {status}" if status is not None else _in_words(cause, where)
    return OSError(errno.EIO, answer, str(where))


def _in_words(error: BaseException, where: Remote) -> str:
    """Say why a server was not reached, where that is the reason; else what the library says."""
    for reason in _reasons(error):
        for kind, words in _UNREACHED.items():
            if isinstance(reason, kind):
                return words
    return f"{type(error).__name__}: {_first_line(error, where.url)}"


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that led to it, however its library keeps them."""
    todo, seen = [error], set[int]()
    while todo:
        reason = todo.pop(0)
        if id(reason) in seen:
            continue
        seen.add(id(reason))
        yield reason
        # aiohttp's attribute, botocore's argument, Python's own.
        within = (getattr(reason, "os_error", None), (getattr(reason, "kwargs", None) or {}).get("error"))
        todo += [one for one in (*within, reason.__cause__, reason.__context__) if isinstance(one, BaseException)]


def _first_line(error: BaseException, url: str) -> str:
    return redacted((str(error).splitlines() or [type(error).__name__])[0], url)[:_LONGEST_REASON]
