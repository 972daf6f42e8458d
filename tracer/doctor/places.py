"""Free space for recordings, the cache, and images to train on."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tracer.doctor.findings import Finding
from tracer.reading import why_unusable

GB = 10**9
SHARED_MEMORY = Path("/dev/shm")
# Where somebody should look. Of ResNet-50 a rank's traces take 0.3 MB a step, packed, and all rounds' until the end.
LEAST_BYTES = GB
# Where CIFAR-10 lies below, unpacked as torchvision has it; and where somebody would look first.
CIFAR10 = "cifar-10-batches-py"
IMAGE_FOLDERS = (Path("data"), Path.home() / "data")


def cache_finding(cache: Path | None) -> Finding:
    """Say where what reports read is kept, or why it is not: they are made all the same."""
    purpose = "what reports have read, for the next time"
    if cache is None:
        return Finding("cache", "missing", f"switched off: {purpose}", "set TRACER_CACHE to a folder")
    why = why_unusable(cache)
    if why is not None:
        return Finding("cache", "no", f"{cache} {why}: {purpose}", "set TRACER_CACHE to a folder of yours alone")
    return Finding("cache", "ok", f"{cache}: {purpose}")


def image_findings(folders: Sequence[Path] = IMAGE_FOLDERS) -> Iterator[Finding]:
    """Say which images the built-in workload can train on: without any, accuracy means nothing."""
    found = next((folder for folder in folders if (folder / CIFAR10).is_dir()), None)
    if found is not None:
        yield Finding("CIFAR-10", "ok", f"accuracy on real images: --data cifar10:{found}")
    else:
        where = " or ".join(map(str, folders))
        remedy = f"unpack cifar-10-python.tar.gz in {folders[0]}/"
        yield Finding("CIFAR-10", "missing", f"accuracy on real images: it is not in {where}", remedy)
    purpose = "1,797 handwritten digits, real images without a download: --data digits"
    there = importlib.util.find_spec("sklearn") is not None
    yield (
        Finding("scikit-learn", "ok", purpose)
        if there
        else Finding("scikit-learn", "missing", purpose, "pip install scikit-learn")
    )


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
