"""Atomic writes: nothing half-done looks whole, nothing is overwritten unasked."""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from analyzers.errors import Option
from analyzers.paths import NO_TERMINAL, NO_WAITING, read_file, read_text
from analyzers.texts import utf8
from tracer.errors import NotWritten, TracerError
from tracer.second_reading import may_replace, note_written

# Folders of a run's recordings at several steps, and of its ranks on several hosts.
PART_OF_RUN = re.compile(r"step\d+|ranks\d+-\d+")
# In a hidden folder: the host and process that fill it, so that what was left of one that was killed can be told.
OWNER = "owner"
# A file that names a process is written at once after it is made: an empty one this old is of one that was killed.
_NAMED_WITHIN_S = 60
_OUTPUTS = (1, 2)
_OTHER_TMPDIR = "free some room in it, or set TMPDIR to another folder"
# What is never written to, let alone replaced.
_REFUSED = {"socket": stat.S_ISSOCK, "block device": stat.S_ISBLK}
# How hidden folders are named, before some more letters: one that is filled, and what is just being replaced.
PARTIAL = ".{name}.partial-"
REPLACED = ".{name}.replaced-"


def refuse_existing(path: Path, force: bool) -> None:
    """Raise TracerError where a path exists and may not be replaced.

    A FIFO, a terminal and such devices may always be written to: nothing is lost by it, and they are never replaced.
    """
    status = _status(path)
    if status is None or _is_stream(status):
        return
    for kind, is_of in _REFUSED.items():
        if is_of(status.st_mode):
            raise TracerError(f"{path} is a {kind}, not a regular file: choose another name")
    if not force and not may_replace(path):
        raise TracerError(f"{path} already exists: give ", Option("force"), " to replace it, or choose another name")


def _status(path: Path) -> os.stat_result | None:
    """Return what a path leads to, None where that is nothing yet. Raises TracerError."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TracerError(f"{path}: cannot be written ({error.strerror or error}); give another name") from error


def _is_stream(status: os.stat_result) -> bool:
    """Whether a file is written to as it stands: a FIFO, a terminal, or what stdout or stderr leads to."""
    is_stream = stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode)
    return is_stream or _own_output(status) is not None


def _own_output(status: os.stat_result) -> int | None:
    """Return the descriptor of this process's stdout or stderr, where that is the file."""
    for number in _OUTPUTS:
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(number)):
                return number
    return None


def write_text(path: Path, text: str, force: bool) -> None:
    """Write a text file; see `write_bytes`."""
    write_bytes(path, utf8(text), force)


def write_bytes(path: Path, data: bytes, force: bool) -> None:
    """Write a file as a whole. Raises TracerError."""
    with new_file(path, force) as file:
        file.write(data)


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[IO[bytes]]:
    """A temporary file beside `path` to fill, which takes its name when the block ends well. Raises TracerError.

    A link stays, and leads to the new file; a FIFO and a terminal are written to.
    """
    refuse_existing(path, force)
    status = _status(path)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise TracerError(f"{path} is not a regular file: choose another name")
    filling = _stream(path, status) if status is not None and _is_stream(status) else _replacing(path)
    try:
        with filling as file:
            yield file
    except OSError as error:
        raise NotWritten(path, error) from error
    note_written(path)


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file beside what a path leads to, which replaces that. Raises OSError."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    try:
        # The kernel takes the umask off its mode; to read the umask is to set it, for all threads.
        with temporary.open("xb") as file:
            yield file
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _stream(path: Path, status: os.stat_result) -> Iterator[IO[bytes]]:
    """What is written to as it stands. Raises TracerError for a FIFO that would keep us waiting, OSError."""
    own = _own_output(status)
    if own is not None:
        number = os.dup(own)
    else:
        try:
            number = os.open(path, os.O_WRONLY | NO_WAITING | NO_TERMINAL)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            raise TracerError(f"{path}: no process reads from this FIFO; start its reader first") from error
        if sys.platform != "win32":
            os.set_blocking(number, True)
    with os.fdopen(number, "wb") as file:
        yield file


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder that is gone when the block ends. Raises TracerError that tells of TMPDIR."""
    try:
        # Windows removes no file that is still being sent to a browser.
        made = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=sys.platform == "win32")
    except OSError as error:
        where = Path(error.filename).parent if error.filename else "TMPDIR"
        why = f"no temporary folder can be made there ({error.strerror or error})"
        raise TracerError(f"{where}: {why}; {_OTHER_TMPDIR}") from error
    with made as name:
        folder = Path(name)
        try:
            yield folder
        except NotWritten as error:
            if not error.path.is_relative_to(folder):
                raise
            raise TracerError(*error.args, f"; {_OTHER_TMPDIR}") from error


def hidden_name(path: Path, token: str) -> Path:
    """The hidden folder beside `path` that one recording fills; `token` tells it from others'."""
    return path.with_name(PARTIAL.format(name=path.name) + token)


@contextmanager
def hidden_folder(path: Path, say: Callable[[str], object] = lambda words: None) -> Iterator[Path]:
    """A hidden folder beside `path` to fill; what is still in it when the block ends is removed. Raises TracerError.

    Those that killed processes left there go first: see `remove_abandoned`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path, say)
    except OSError as error:
        raise TracerError(f"{path}: cannot be created ({error.strerror or error})") from error
    folder = hidden_name(path, os.urandom(8).hex())
    try:
        own(folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise TracerError(f"{path}: cannot be created ({error.strerror or error})") from error
    try:
        yield folder
    except OSError as error:
        raise TracerError(f"{path}: cannot be written ({error.strerror or error}); nothing was kept") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own(folder: Path) -> None:
    """Make a hidden folder, and make it this process's unless another has done so. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        name_process(folder / OWNER)


def name_process(file: Path) -> None:
    """Write this process's name into a new file. Raises FileExistsError where there is one, OSError."""
    with file.open("x", encoding="utf-8") as named:
        try:
            named.write(this_process())
            named.flush()
        except OSError:
            file.unlink(missing_ok=True)
            raise


def this_process() -> str:
    """Name this process: its host and number, and as far as the system says, when it began and where the number counts.

    Numbers come again, and a container has its own.
    """
    return " ".join([socket.gethostname(), str(os.getpid()), *_began(os.getpid()), *_namespace()])


def has_ended(file: Path) -> bool:
    """Whether the process that a file names has ended; False where nobody on this host can tell. Raises OSError."""
    process = read_text(file)
    if not process:
        return time.time() - file.stat().st_mtime > _NAMED_WITHIN_S
    host, pid, began, namespace = [*process.split(), "", "", "", ""][:4]
    if (
        sys.platform == "win32"  # whose os.kill would end it, or send Ctrl-C
        or host != socket.gethostname()
        or not re.fullmatch(r"[0-9]{1,9}", pid)
        or (namespace and [namespace] != _namespace())
    ):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's
        return False
    return bool(began) and [began] != _began(int(pid))


def _began(pid: int) -> list[str]:
    """When a process that runs began, in ticks since the system did: proc(5), stat."""
    try:
        state, *fields = read_file(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    except OSError:
        return []
    return [] if state in b"ZX" else [fields[18].decode()]


def _namespace() -> list[str]:
    """What tells this process's numbers from a container's: proc(5), ns/pid."""
    with suppress(OSError):
        return [os.readlink("/proc/self/ns/pid")]  # noqa: PTH115  # it names no file
    return []


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Be the only process that fills a folder until the block ends. Raises TracerError where another one does."""
    owner = folder / OWNER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _is_abandoned(folder):
            owner.unlink(missing_ok=True)
        try:
            name_process(owner)
        except FileExistsError as error:
            raise TracerError(
                f"{folder}: another process is at work in it ({read_text(owner)}): wait until it has "
                f"ended, or remove {owner} if it is gone"
            ) from error
    except OSError as error:
        raise TracerError(f"{folder}: cannot be written ({error.strerror or error})") from error
    try:
        yield
    finally:
        owner.unlink(missing_ok=True)


def remove_abandoned(path: Path, say: Callable[[str], object] = lambda words: None) -> None:
    """Remove the hidden folders beside `path` whose process was killed on this host, and say which they were.

    One that was killed just when it replaced `path` has left that without either: the old one is put back.
    """
    for replaced in _abandoned(path, REPLACED):
        if (replaced / path.name).exists() and not path.exists():
            (replaced / path.name).rename(path)
            say(f"put {path} back, which a recording that was killed was about to replace")
        shutil.rmtree(replaced, ignore_errors=True)
    for folder in _abandoned(path, PARTIAL):
        shutil.rmtree(folder, ignore_errors=True)
        say(f"removed {folder}, left by a recording that was killed")


def _abandoned(path: Path, prefix: str) -> list[Path]:
    names = glob.escape(prefix.format(name=path.name)) + "*"
    return [folder for folder in path.parent.glob(names) if _is_abandoned(folder)]


def _is_abandoned(folder: Path) -> bool:
    try:
        return has_ended(folder / OWNER)
    except OSError:
        return False


def refuse_folder(path: Path, force: bool, marker: str) -> None:
    """Raise TracerError where a folder may not be put in a path's place.

    With `force` it may replace a folder that holds the file `marker` or nothing: none of another sort is ever removed.
    """
    if path.is_symlink():
        raise TracerError(f"{path} is a link: name the folder itself")
    if Path.cwd().is_relative_to(path.resolve()):
        raise TracerError(f"{path} contains the current folder and cannot be replaced: choose another name")
    refuse_existing(path, force)
    if path.exists() and not path.is_dir():
        raise TracerError(f"{path} is a file, not a folder: choose another name")
    if path.is_dir() and not _holds_only(path, marker):
        raise TracerError(
            f"{path} is not a recording, since it has no {marker}, and is not replaced: choose another name"
        )


def _holds_only(path: Path, marker: str) -> bool:
    """Whether a folder has the marker, or nothing but parts of a run that have it."""
    inside = [] if (path / marker).is_file() else list(path.iterdir())
    return all(entry.is_dir() and PART_OF_RUN.fullmatch(entry.name) and _holds_only(entry, marker) for entry in inside)


def put_in_place(folder: Path, path: Path, force: bool, marker: str) -> None:
    """Rename a finished folder; beside the place where something else has come up in the meantime.

    Raises TracerError.
    """
    (folder / OWNER).unlink(missing_ok=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_folder(path, force, marker)
    except TracerError as error:
        kept = next(free for n in count(2) if not (free := path.with_name(f"{path.name}-{n}")).exists())
        folder.rename(kept)
        raise TracerError(*error.args, f". The recording is in {kept}") from error
    if path.exists():
        replaced = Path(tempfile.mkdtemp(dir=path.parent, prefix=REPLACED.format(name=path.name)))
        own(replaced)
        path.rename(replaced / path.name)
        folder.rename(path)
        shutil.rmtree(replaced, ignore_errors=True)
    else:
        folder.rename(path)
