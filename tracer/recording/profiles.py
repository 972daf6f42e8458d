"""Profiler windows of a recording, and how their traces are written."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule

from tracer.errors import TracerError
from tracer.recording.torch_compat import leave_unparsed

PROFILES: dict[str, dict[str, Any]] = {
    # Device activity and its launches: the cheapest profile there is, without steps and operators.
    "light": {"activities": [ProfilerActivity.CUDA]},
    "full": {"activities": [ProfilerActivity.CPU, ProfilerActivity.CUDA], "record_shapes": True},
    # On a CPU run the operators are the device's activity, so that one profile says everything.
    "cpu": {"activities": [ProfilerActivity.CPU], "record_shapes": True},
}
# The training waits while its trace is packed: level 9 takes three times as long for a tenth less
# (docs/decisions/recording.md).
GZIP_LEVEL = 6


class _Ours:
    """Whether this process is just now making a profile of ours, so that others' are told from it."""

    depth = 0


@contextmanager
def ours() -> Iterator[None]:
    """Mark as tracer's every profiler that is made or started while this is entered."""
    _Ours.depth += 1
    try:
        yield
    finally:
        _Ours.depth -= 1


def is_ours() -> bool:
    """Whether `ours` is entered."""
    return _Ours.depth > 0


class Profiling:
    """A profile of one kind: entered, told of each step, left, and then written."""

    def __init__(self, kind: str, warmup: int, active: int) -> None:
        cycle = schedule(wait=0, warmup=warmup, active=active, repeat=1)
        with ours():
            self._profiler = profile(schedule=cycle, acc_events=True, **PROFILES[kind])

    def __enter__(self) -> Profiling:
        with ours():
            self._profiler.start()
        leave_unparsed(self._profiler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ours():
            self._profiler.stop()

    def step(self) -> None:
        """Say that a step has ended."""
        with ours():
            self._profiler.step()

    def write(self, folder: Path, rank: int) -> None:
        """Leave the trace in a folder as rankN.json.gz, whole or not at all. Raises TracerError for a full disk."""
        packed = folder / f"rank{rank}.json.gz"
        plain, partial = folder / f"rank{rank}.json", folder / f"rank{rank}.partial"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(plain))
            _check_whole(plain)
            with plain.open("rb") as source, gzip.open(partial, "wb", GZIP_LEVEL) as target:
                shutil.copyfileobj(source, target)
            partial.rename(packed)
        except (OSError, RuntimeError) as error:
            raise TracerError(f"{packed}: cannot be written ({error})") from error
        finally:
            partial.unlink(missing_ok=True)
            plain.unlink(missing_ok=True)


def _check_whole(file: Path) -> None:
    """Kineto does not say when the disk was full: a trace that was cut short lacks its end."""
    if not file.exists():
        raise TracerError(f"{file}: was not written (is the disk full?)")
    with file.open("rb") as trace:
        trace.seek(max(file.stat().st_size - 16, 0))
        end = trace.read()
    if not end.rstrip().endswith(b"}"):
        raise TracerError(f"{file}: was cut short while it was written (is the disk full?)")
