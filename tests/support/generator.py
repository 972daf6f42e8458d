"""Runs from a picture: any ranks and steps of the lanes drawn, as Kineto JSON in any layout.

    write_run(folder, Run(ranks=4, steps=3, compute="aabb..", comm="..ccc."))

A character is a microsecond; steps follow one another at the picture's length. Every rank's clock starts `skew_us`
times its number later.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.support.drawing import runs

Event = dict[str, Any]
# Many times as fast as `dumps`, for runs that are written again and again.
QUICK = msgspec.json.Encoder(decimal_format="number")
BASE_NS = 1_790_857_026_000_000_000
START_US = 4_312_138_907_000
NAMES = {
    "compute": ("kernel", "void gemm<{}>(float*)"),
    "comm": ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL<{}>(ncclDevKernelArgsStorage<4096ul>)"),
    "copy": ("gpu_memcpy", "Memcpy HtoD ({} -> Device)"),
}


@dataclass(frozen=True)
class Run:
    """A run to write: how many ranks and steps, and what each step does on each lane."""

    ranks: int = 1
    steps: int = 1
    compute: str = ""
    comm: str = ""
    copy: str = ""
    skew_us: int = 0

    @property
    def length(self) -> int:
        """Microseconds of one step."""
        return max(len(self.compute), len(self.comm), len(self.copy))


def events(run: Run, rank: int) -> Iterator[Event]:
    """The events of one rank, in Kineto's order: host rows and device rows mixed."""
    correlation = 0
    for step in range(run.steps):
        begin = START_US + rank * run.skew_us + step * run.length
        host = {"ph": "X", "pid": 100 + rank, "tid": 100 + rank}
        yield host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": run.length}
        for stream, lane in enumerate(NAMES):
            category, name = NAMES[lane]
            for letter, start, length in runs(getattr(run, lane)):
                correlation += 1
                args = {"device": rank, "stream": 7 + stream, "correlation": correlation}
                at = {"ts": begin + start, "dur": length}
                yield host | {
                    "cat": "cuda_runtime",
                    "name": "cudaLaunchKernel",
                    **at,
                    "args": {"correlation": correlation},
                }
                device = {"ph": "X", "cat": category, "name": name.format(letter), "pid": rank, "tid": 7 + stream}
                yield device | at | {"args": args}


def document(run: Run, rank: int) -> dict[str, Any]:
    """One rank's trace as an object."""
    said = {"backend": "nccl", "rank": rank, "world_size": run.ranks}
    return {
        "schemaVersion": 1,
        "distributedInfo": said,
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": list(events(run, rank)),
        "traceName": f"rank{rank}.json",
    }


def dumps(value: Any, **how: Any) -> str:
    """JSON in which a Decimal keeps its own digits, as floats above 2**43 would not."""
    return re.sub(r'"@([-+.\dE]+)@"', r"\1", json.dumps(value, default=lambda number: f"@{number}@", **how))


def kineto(trace: dict[str, Any]) -> str:
    """As Kineto writes it: an event over several lines, its arguments on one."""
    rows = []
    for event in trace["traceEvents"]:
        args = event.get("args")
        head = dumps({key: value for key, value in event.items() if key != "args"})[1:-1]
        rows.append(
            f"  {{\n    {head}" + (f',\n    "args": {{\n      {dumps(args)[1:-1]}\n    }}' if args else "") + "\n  }"
        )
    head = ",\n  ".join(
        f'"{key}": {dumps(trace[key])}' for key in ("schemaVersion", "distributedInfo", "baseTimeNanoseconds")
    )
    return (
        f'{{\n  {head},\n  "traceEvents": [\n'
        + ",\n".join(rows)
        + f'\n  ],\n  "traceName": "{trace["traceName"]}"\n}}\n'
    )


def lines(trace: dict[str, Any]) -> str:
    """An event a line."""
    rest = {key: value for key, value in trace.items() if key != "traceEvents"}
    rows = b",\n".join(map(QUICK.encode, trace["traceEvents"])).decode()
    return f'{dumps(rest)[:-1]}, "traceEvents": [\n{rows}\n]}}'


LAYOUTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "kineto": kineto,
    "compact": lambda trace: dumps(trace, separators=(",", ":")),
    "pretty": lambda trace: dumps(trace, indent=4),
    "lines": lines,
    "array": lambda trace: dumps(trace["traceEvents"]),
}


def write_run(folder: Path, run: Run, layout: str = "kineto", zipped: bool = False) -> Path:
    """Write every rank's trace; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(run.ranks):
        data = LAYOUTS[layout](document(run, rank)).encode()
        name = f"rank{rank}.json" + (".gz" if zipped else "")
        (folder / name).write_bytes(gzip.compress(data) if zipped else data)
    return folder
