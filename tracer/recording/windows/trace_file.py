"""Traces of ranks, packed, whole or not there, with events as Kineto's."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from analyzers.json_documents import compact
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


def event(
    category: str, name: str, place: tuple[int, int], span_ns: tuple[int, int], base_ns: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return an event as Kineto writes it: `place` is process and thread, or device and stream."""
    start_ns, end_ns = span_ns
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": place[0],
        "tid": place[1],
        "ts": microseconds(start_ns - base_ns),
        "dur": microseconds(end_ns - start_ns),
        "args": arguments,
    }


def encoded(event: dict[str, Any]) -> bytes:
    """Write an event on lines of its own, as Kineto does."""
    return b"  {\n    " + compact(event)[1:-1] + b"\n  }"


def microseconds(ns: int) -> msgspec.Raw:
    """Return Kineto's number: microseconds with three decimals, exactly."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


# Phases of rows: with a length, counters' values from then on, and moments of a thread.
SPAN, COUNTER, MOMENT = "X", "C", "i"


class HostRow(msgspec.Struct, frozen=True):
    """What a thread of this process was in, on the system's clock; only spans have an end."""

    category: str
    name: str
    thread: int
    start_ns: int
    end_ns: int | None
    arguments: dict[str, Any]
    phase: str = SPAN

    def event(self, base_ns: int) -> dict[str, Any]:
        """Return the row as an event of a trace whose times begin at `base_ns`."""
        end_ns = self.start_ns if self.end_ns is None else self.end_ns
        span_ns, place = (self.start_ns, end_ns), (os.getpid(), self.thread)
        made = event(self.category, self.name, place, span_ns, base_ns, self.arguments)
        if self.end_ns is None:
            del made["dur"]
            made["ph"] = self.phase
        return made
