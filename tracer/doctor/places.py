"""Free space where recordings and their ranks write, and the cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tracer.doctor.findings import Finding
from tracer.reading import why_unusable

GB = 10**9
SHARED_MEMORY = Path("/dev/shm")
# Where somebody should look. Of ResNet-50 a rank's traces take 0.3 MB a step, packed, and all rounds' until the end.
LEAST_BYTES = GB


def cache_finding(cache: Path | None) -> Finding:
    """Say where what reports read is kept, or why it is not: they are made all the same."""
    purpose = "what reports have read, for the next time"
    if cache is None:
        return Finding("cache", "missing", f"switched off: {purpose}", "set TRACER_CACHE to a folder")
    why = why_unusable(cache)
    if why is not None:
        return Finding("cache", "no", f"{cache} {why}: {purpose}", "set TRACER_CACHE to a folder of yours alone")
    return Finding("cache", "ok", f"{cache}: {purpose}")


def place_findings(traces: Path, free_bytes: Callable[[Path], int] | None = None) -> Iterator[Finding]:
    """Say how much space there is for recordings, temporary files, and memory that processes share."""
    free_bytes = free_bytes or (lambda folder: shutil.disk_usage(folder).free)
    yield _finding(f"{traces.name}/", traces, free_bytes, "recordings", "give another place with -o DIR")
    temporary = Path(tempfile.gettempdir())
    yield _finding(str(temporary), temporary, free_bytes, "temporary files", "set TMPDIR to a larger disk")
    if SHARED_MEMORY.is_dir():
        remedy = "start the container with --shm-size=8g or --ipc=host"
        yield _finding(
            str(SHARED_MEMORY), SHARED_MEMORY, free_bytes, "NCCL between ranks, and loaders' workers", remedy
        )


def _finding(what: str, folder: Path, free_bytes: Callable[[Path], int], purpose: str, remedy: str) -> Finding:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK):
        return Finding(what, "no", f"{existing} cannot be written to: {purpose}", remedy)
    free = free_bytes(existing)
    detail = f"{free / GB:,.1f} GB free: {purpose}"
    return Finding(what, "ok", detail) if free >= LEAST_BYTES else Finding(what, "no", detail, remedy)
