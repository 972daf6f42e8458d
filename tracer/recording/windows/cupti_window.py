"""`CuptiWindow`: steps whose device activity is recorded through CUPTI alone.

LightStep#3       LightStep#4             from mark to mark, on the host's thread
gemm  relu  allreduce  gemm  relu         the devices' rows; no launches, no operators
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import torch

from analyzers.json_documents import visible
from analyzers.trace import LIGHT_STEP
from tracer.recording.windows.device_activity import DeviceActivity, checked_activity
from tracer.recording.windows.libcupti import CuptiUnusable
from tracer.recording.windows.records import DeviceRow
from tracer.recording.windows.trace_file import HostRow, encoded, event, microseconds, write_trace

NS_PER_S = 1_000_000_000


class CuptiWindow:
    """A light window: entered, told of each step, left, and then written; the first `warmup` steps are left out.

    Whatever CUPTI has against it costs the window, which then has no trace, and never the training.
    """

    def __init__(self, warmup: int) -> None:
        self.failure: str | None = None
        self._warmup = warmup
        self._steps = 0
        self._marks_ns: list[int] = []
        self._activity: DeviceActivity | None = None

    def __enter__(self) -> CuptiWindow:
        try:
            self._activity = checked_activity().__enter__()
        except (CuptiUnusable, OSError) as error:  # OSError: there is no libstdc++
            self.failure = str(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._activity is None:
            return
        try:
            self._activity.__exit__(kind, error, trace)
        except CuptiUnusable as unusable:
            self.failure = str(unusable)

    def step(self) -> None:
        """Say that a step has ended."""
        self._steps += 1
        if self._steps >= self._warmup and self._activity is not None:
            self._marks_ns.append(self._activity.now_ns())

    def write(self, folder: Path, rank: int, host_rows: Sequence[HostRow] = ()) -> None:
        """Leave the trace in a folder as rankN.json.gz, unless it failed. Raises TracerError for a full disk."""
        if self._activity is None or self.failure is not None or len(self._marks_ns) < 2:
            return
        try:
            rows = [row for row in self._activity.rows() if row.start_ns >= self._marks_ns[0]]
        except (CuptiUnusable, OSError) as error:  # OSError: there is no libstdc++
            self.failure = str(error)
            return

        write_trace(folder, rank, lambda target: target.write(_document(rows, self._marks_ns, self._warmup, host_rows)))


def _document(rows: list[DeviceRow], marks_ns: list[int], warmup: int, host_rows: Sequence[HostRow]) -> bytes:
    """The trace as Kineto would write it: times in microseconds since a whole second, an event on lines of its own."""
    base_ns = min(marks_ns) // NS_PER_S * NS_PER_S
    steps = (
        event("user_annotation", f"{LIGHT_STEP}{number}", (os.getpid(), threading.get_native_id()), span, base_ns, {})
        for number, span in enumerate(pairwise(marks_ns), start=warmup)
    )
    devices = (
        event(row.category, row.name, (row.device, row.stream), (row.start_ns, row.end_ns), base_ns, row.arguments)
        for row in rows
    )
    head = {
        "schemaVersion": 1,
        "deviceProperties": _device_properties(),
        "distributedInfo": _distributed(),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base_ns,
    }
    hosts = (row.event(base_ns) for row in host_rows)
    lines = map(encoded, [*steps, *devices, *hosts, *_names(sorted({row.device for row in rows}))])
    # Spaces behind colons: HTA looks for "rank": and a number.
    opening = visible(msgspec.json.format(msgspec.json.encode(head), indent=1))[:-2] + b',\n "traceEvents": [\n'
    return opening + b",\n".join(lines) + b"\n  ]}\n"


def _device_properties() -> list[dict[str, Any]]:
    properties = (torch.cuda.get_device_properties(gpu) for gpu in range(torch.cuda.device_count()))
    return [
        {
            "id": gpu,
            "name": found.name,
            "totalGlobalMem": found.total_memory,
            "computeMajor": found.major,
            "computeMinor": found.minor,
            "numSms": found.multi_processor_count,
        }
        for gpu, found in enumerate(properties)
    ]


def _distributed() -> dict[str, Any]:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return {}
    return {
        "backend": str(distributed.get_backend()),
        "rank": distributed.get_rank(),
        "world_size": distributed.get_world_size(),
    }


def _names(devices: list[int]) -> list[dict[str, Any]]:
    """Names of processes, for viewers: the host's, and the GPUs'."""
    named = [(os.getpid(), "python", "CPU"), *((device, "python", f"GPU {device}") for device in devices)]
    return [
        {"name": key, "ph": "M", "ts": microseconds(0), "pid": pid, "tid": 0, "args": {argument: text}}
        for pid, process, label in named
        for key, argument, text in (("process_name", "name", process), ("process_labels", "labels", label))
    ]
