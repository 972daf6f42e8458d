"""Traces of ranks, packed, and whole or not there at all."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tracer.errors import TracerError

# The training waits while its trace is packed: level 9 takes three times as long for a tenth less
# (docs/dev/decisions/recording.md).
GZIP_LEVEL = 6


def write_trace(folder: Path, rank: int, fill: Callable[[BinaryIO], object]) -> None:
    """Leave a trace in a folder as rankN.json.gz: `fill` writes its JSON. Raises TracerError for a full disk."""
    packed, partial = folder / f"rank{rank}.json.gz", folder / f"rank{rank}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with gzip.open(partial, "wb", GZIP_LEVEL) as target:
            fill(target)  # type: ignore[arg-type]  # a GzipFile is one in all but name
        partial.rename(packed)
    except (OSError, RuntimeError) as error:
        raise TracerError(f"{packed}: cannot be written ({error})") from error
    finally:
        with suppress(OSError):
            partial.unlink()
