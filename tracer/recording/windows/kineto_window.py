"""`KinetoWindow`: steps recorded by torch.profiler."""

from __future__ import annotations

import inspect
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, schedule

from analyzers.paths import open_file
from analyzers.texts import encodable
from tracer.errors import TracerError
from tracer.recording.windows.trace_file import HostRow, encoded, write_trace


def _with_sync_events() -> Any:
    """The settings under which Kineto records which streams wait; None where this torch has none.

    It costs nothing that can be seen (2 x H100, ResNet-50: 47 to 55 ms with, 49 to 67 without).
    """
    try:
        return _ExperimentalConfig(enable_cuda_sync_events=True)
    except TypeError:
        return None


PROFILES: dict[str, dict[str, Any]] = {
    # Device activity and its launches: the cheapest profile that Kineto has, without steps and operators.
    "light": {"activities": [ProfilerActivity.CUDA]},
    "full": {
        "activities": [ProfilerActivity.CPU, ProfilerActivity.CUDA],
        "record_shapes": True,
        "experimental_config": _with_sync_events(),
    },
    # On a CPU run the operators are the device's activity, so that one profile says everything.
    "cpu": {"activities": [ProfilerActivity.CPU], "record_shapes": True},
}


# Kineto's head holds properties of devices, groups and versions; its first event follows.
HEAD_BYTES = 1 << 24
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[(?=\s*\{)')
# Times count from it (Kineto's of torch 2.3 and later); without it from 1970.
BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')


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
        # Read at a process's first profile: Kineto tells of each on stderr, among which a script's own words are lost.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
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

    def write(self, folder: Path, rank: int, host_rows: Sequence[HostRow] = ()) -> None:
        """Leave the trace in a folder as rankN.json.gz, whole or not at all, with rows of ours in front.

        Raises TracerError for a full disk.
        """
        plain = folder / f"rank{rank}.json"

        def fill(target: BinaryIO) -> None:
            with _named_in_utf8(folder) as name:
                self._profiler.export_chrome_trace(f"{name}/{plain.name}")
            _check_whole(plain)
            with open_file(plain) as source:
                target.write(_begin_with(host_rows, source))
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


def _begin_with(rows: Sequence[HostRow], source: BinaryIO) -> bytes:
    """Read a trace up to its first event, and put rows before that; a head unlike Kineto's gets none."""
    head = source.read(HEAD_BYTES)
    events, base = EVENTS.search(head), BASE.search(head)
    if events is None:
        return head
    base_ns = int(base[1]) if base is not None else 0
    written = b"".join(b"\n" + encoded(row.event(base_ns)) + b"," for row in rows)
    return head[: events.end()] + written + head[events.end() :]


def _check_whole(file: Path) -> None:
    """Kineto does not say when the disk was full: a trace that was cut short lacks its end."""
    if not file.exists():
        raise TracerError(f"{file}: was not written (is the disk full?)")
    with open_file(file) as trace:
        trace.seek(max(file.stat().st_size - 16, 0))
        end = trace.read()
    if not end.rstrip().endswith(b"}"):
        raise TracerError(f"{file}: was cut short while it was written (is the disk full?)")
