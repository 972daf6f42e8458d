"""Listing of recorded runs and sweeps below a folder."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzers.paths import open_file
from analyzers.run import MANIFEST, OF_HOST, SWEEP, looks_like_input, may_be_trace

# What is looked through, so that a huge folder is not read for ever.
MOST_FOLDERS = 10_000
MOST_LOOKED_INTO = 8
HEAD_BYTES = 4096
# As torch.profiler's handler, Kineto and `tracer record` name traces.
_TRACE_NAME = re.compile(r"rank|trace", re.IGNORECASE)


@dataclass(frozen=True)
class ListedRun:
    """A run's or a sweep's folder, and its path from the folder that was listed, which is its name."""

    name: str
    path: Path
    is_sweep: bool

    @property
    def key(self) -> str:
        """Return the key that a request asks by."""
        return hashlib.sha256(f"{self.is_sweep}{self.name}".encode(errors="surrogateescape")).hexdigest()[:20]

    @property
    def root(self) -> Path:
        """Return the folder that was listed."""
        return self.path if self.name == "." else self.path.parents[len(Path(self.name).parts) - 1]

    def state(self) -> tuple[tuple[str, int, int], ...]:
        """Return what changes when any of its files does: names, times of modification, sizes."""
        stamps = []
        for folder, _, files in os.walk(self.path):
            for file in files:
                file_path = os.path.join(folder, file)  # noqa: PTH118  # os.walk's strings, of which there may be many
                try:
                    status = os.stat(file_path)  # noqa: PTH116
                except OSError:
                    continue
                stamps.append((file_path, status.st_mtime_ns, status.st_size))
        return tuple(sorted(stamps))


def list_runs(root: Path) -> Iterator[ListedRun]:
    """List sweeps, their cells and all other runs, by name, without hidden folders and links to folders."""
    for number, (folder, folders, files) in enumerate(os.walk(root)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if number >= MOST_FOLDERS:
            return
        path = Path(folder)
        name = "." if path == root else str(path.relative_to(root))
        if SWEEP in files:
            yield ListedRun(name, path, True)
        if MANIFEST in files or _is_of_hosts(path, folders):
            # What lies in a run is its own: other windows, other hosts' ranks.
            folders.clear()
            yield ListedRun(name, path, False)
        elif any(_is_trace(path / file) for file in sorted(filter(may_be_trace, files))[:MOST_LOOKED_INTO]):
            yield ListedRun(name, path, False)


def leads_out(folder: Path, root: Path) -> Path | None:
    """Return a link in a folder that leads out of the root, or nowhere; None where all that is in it lies inside.

    Links to folders inside of the root are gone through too.
    """
    within, todo = root.resolve(), [folder]
    seen: set[Path] = set()
    while todo:
        start = todo.pop()
        for inside, folders, files in os.walk(start):
            for path in (start, *(Path(inside, name) for name in (*folders, *files))):
                if not path.is_symlink():
                    continue
                target = _follow_link(path)
                if target is None or not target.is_relative_to(within) or len(seen) > MOST_FOLDERS:
                    return path
                if target.is_dir() and target not in seen:
                    seen.add(target)
                    todo.append(target)
    return None


def _is_trace(file: Path) -> bool:
    """Whether a file is called a trace, or begins like one; any JSON may lie beside TensorBoard's files."""
    if _TRACE_NAME.search(file.name):
        return True
    try:
        with open_file(file) as raw, gzip.GzipFile(fileobj=raw) if file.suffix == ".gz" else raw as opened:
            return looks_like_input(opened.read(HEAD_BYTES))
    except (OSError, EOFError, zlib.error):
        return False


def _follow_link(link: Path) -> Path | None:
    # A link that goes round in circles is a RuntimeError until Python 3.13.
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def _is_of_hosts(path: Path, folders: Sequence[str]) -> bool:
    """Whether several hosts wrote a run into a folder, each its own part."""
    return any(OF_HOST.fullmatch(name) and (path / name / MANIFEST).is_file() for name in folders)
