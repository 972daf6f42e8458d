"""`KinetoWindow`: steps recorded by torch.profiler."""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from torch.profiler import ProfilerActivity, profile, schedule

from analyzers.paths import open_file
from analyzers.texts import encodable
from tracer.errors import TracerError
from tracer.recording.windows.trace_file import write_trace

PROFILES: dict[str, dict[str, Any]] = {
    # Device activity and its launches: the cheapest profile that Kineto has, without steps and operators.
    "light": {"activities": [ProfilerActivity.CUDA]},
    "full": {"activities": [ProfilerActivity.CPU, ProfilerActivity.CUDA], "record_shapes": True},
    # On a CPU run the operators are the device's activity, so that one profile says everything.
    "cpu": {"activities": [ProfilerActivity.CPU], "record_shapes": True},
}


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


class KinetoWindow:
    """A profile of one kind: entered, told of each step, left, and then written."""

    def __init__(self, kind: str, warmup: int, active: int) -> None:
        cycle = schedule(wait=0, warmup=warmup, active=active, repeat=1)
        kept: dict[str, Any] = {"acc_events": True} if _has_acc_events() else {}
        with ours():
            self._profiler = profile(schedule=cycle, **kept, **PROFILES[kind])

    def __enter__(self) -> KinetoWindow:
        with ours():
            self._profiler.start()
        _leave_unparsed(self._profiler)
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
        plain = folder / f"rank{rank}.json"

        def fill(target: BinaryIO) -> None:
            with _named_in_utf8(folder) as name:
                self._profiler.export_chrome_trace(f"{name}/{plain.name}")
            _check_whole(plain)
            with open_file(plain) as source:
                shutil.copyfileobj(source, target)

        try:
            write_trace(folder, rank, fill)
        finally:
            plain.unlink(missing_ok=True)


def _has_acc_events() -> bool:
    """Whether this torch can be told to keep the events of all cycles: 2.4 cannot."""
    return "acc_events" in inspect.signature(profile).parameters


def _leave_unparsed(profiler: profile) -> None:
    """Have a profiler that has started make no Python objects of its events when it stops: nobody asks it for them.

    That takes longer than to write the trace. Made without `acc_events`, torch 2.11 warns of cycles that nobody has.
    """
    parser: Any = profiler.profiler
    if parser is None:
        return
    if _has_acc_events():
        parser.acc_events = False
    else:
        parser._parse_kineto_results = lambda result: []


@contextmanager
def _named_in_utf8(folder: Path) -> Iterator[str]:
    """Name a folder for torch, which takes no other names than in UTF-8: Linux, which has others, by a descriptor."""
    name = str(folder)
    if encodable(name) == name:
        yield name
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _check_whole(file: Path) -> None:
    """Kineto does not say when the disk was full: a trace that was cut short lacks its end."""
    if not file.exists():
        raise TracerError(f"{file}: was not written (is the disk full?)")
    with open_file(file) as trace:
        trace.seek(max(file.stat().st_size - 16, 0))
        end = trace.read()
    if not end.rstrip().endswith(b"}"):
        raise TracerError(f"{file}: was cut short while it was written (is the disk full?)")
