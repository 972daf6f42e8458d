"""Writes Kineto JSON the way Kineto, or someone else, lays it out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def step(k: int, ts: float, dur: float) -> Event:
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{k}", "pid": 9, "tid": 9, "ts": ts, "dur": dur}


def kernel(name: str, ts: float, dur: float, correlation: int, device: int = 0, stream: int = 7) -> list[Event]:
    """A kernel and the call that launched it, 1 us earlier."""
    args = {"device": device, "stream": stream, "correlation": correlation}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": ts - 1, "dur": 1}
    return [
        {"ph": "X", "cat": "kernel", "name": name, "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": args},
        launch | {"args": {"correlation": correlation}},
    ]


def small_trace(rank: int | None = 0, world_size: int = 1) -> dict[str, Any]:
    """Two steps of a kernel each, 10 us apart, the second of them communication."""
    events = [step(1, 0.0, 10.0), step(2, 10.0, 10.0)]
    events += kernel("gemm", 2.0, 5.0, 1) + kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 12.0, 5.5, 2)
    said = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size}} if rank is not None else {}
    return {"schemaVersion": 1, **said, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events}


def write(path: Path, document: Any) -> Path:
    text = document if isinstance(document, str) else json.dumps(document)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_run(folder: Path, ranks: Sequence[int], world_size: int) -> Path:
    for rank in ranks:
        write(folder / f"rank{rank}.json", small_trace(rank, world_size))
    return folder
