"""Writing so that nothing half-done looks whole, and nothing is overwritten unasked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracer.errors import TracerError


def refuse_existing(path: Path, force: bool) -> None:
    """Raise TracerError where a path exists and may not be replaced."""
    if path.exists() and not force:
        raise TracerError(f"{path}: exists already; give --force to replace it, or another name")


def write_text(path: Path, text: str, force: bool) -> None:
    """Write a file through a temporary one beside it. Raises TracerError."""
    refuse_existing(path, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
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
def new_folder(path: Path, force: bool) -> Iterator[Path]:
    """A hidden folder beside `path` to fill; renamed to `path` when the block ends well, removed when it does not.

    An existing `path` is replaced only then, and only with `force`. Raises TracerError.
    """
    refuse_existing(path, force)
    if force and path.exists() and not path.is_dir():
        raise TracerError(f"{path}: is a file, not a folder; give another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.partial-"))
        folder.chmod(0o777 & ~_umask())
    except OSError as error:
        raise TracerError(f"{path}: cannot be created ({error.strerror or error})") from error
    try:
        yield folder
        if path.exists():
            shutil.rmtree(path)
        folder.rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
