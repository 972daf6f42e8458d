"""Writing so that nothing half-done looks whole, and nothing is overwritten unasked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tracer.errors import TracerError


def refuse_existing(path: Path, force: bool) -> None:
    """Raise TracerError where a path exists and may not be replaced."""
    if path.exists() and not force:
        raise TracerError(f"{path}: exists already; give --force to replace it, or another name")


def write_text(path: Path, text: str, force: bool) -> None:
    """Write a text file; see `write_bytes`."""
    write_bytes(path, text.encode(), force)


def write_bytes(path: Path, data: bytes, force: bool) -> None:
    """Write a file through a temporary one beside it. Raises TracerError."""
    refuse_existing(path, force)
    if path.exists() and not path.is_file():
        raise TracerError(f"{path}: is no ordinary file; give another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise TracerError(f"{path}: cannot be written ({error.strerror or error})") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def new_folder(path: Path, force: bool, marker: str) -> Iterator[Path]:
    """A hidden folder beside `path` to fill; renamed to `path` when the block ends well, removed when it does not.

    With `force` an existing folder is replaced, then, if it holds the file `marker` or nothing: no folder of another
    sort is ever removed. Raises TracerError.
    """
    path = path.absolute()
    refuse_folder(path, force, marker)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.partial-"))
        folder.chmod(0o777 & ~_umask())
    except OSError as error:
        raise TracerError(f"{path}: cannot be created ({error.strerror or error})") from error
    try:
        yield folder
        _put_in_place(folder, path, force, marker)
    except OSError as error:
        raise TracerError(f"{path}: cannot be written ({error.strerror or error}); nothing was kept") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refuse_folder(path: Path, force: bool, marker: str) -> None:
    """Raise TracerError where a folder may not be put in a path's place."""
    if path.is_symlink():
        raise TracerError(f"{path}: is a link; name the folder itself")
    if Path.cwd().is_relative_to(path.resolve()):
        raise TracerError(f"{path}: holds the folder this runs in; give another name")
    refuse_existing(path, force)
    if path.exists() and not path.is_dir():
        raise TracerError(f"{path}: is a file, not a folder; give another name")
    if path.is_dir() and any(path.iterdir()) and not (path / marker).is_file():
        raise TracerError(f"{path}: is no recording ({marker} is not in it), and is not replaced; give another name")


def _put_in_place(folder: Path, path: Path, force: bool, marker: str) -> None:
    """Rename a finished folder; beside the place where something else has come up in the meantime."""
    try:
        refuse_folder(path, force, marker)
    except TracerError as error:
        kept = next(place for n in count(2) if not (place := path.with_name(f"{path.name}-{n}")).exists())
        folder.rename(kept)
        raise TracerError(f"{error}. The recording is in {kept}") from error
    if path.exists():
        replaced = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.replaced-"))
        path.rename(replaced / path.name)
        folder.rename(path)
        shutil.rmtree(replaced, ignore_errors=True)
    else:
        folder.rename(path)
