"""Light windows as CUPTI's own records make them, from those that Kineto recorded: device rows and marks of steps.

document = as_recorded_bare(document, steps)         no calls of the host, no launches
document = differing(document, "drop", every=50)     other kernels than the full window's
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Document = dict[str, Any]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
ARGUMENTS = ("device", "context", "stream", "correlation", "grid", "block", "bytes", "graph node id")
ARGUMENTS = (*ARGUMENTS, "fromDevice", "inDevice", "toDevice")
HOST = {"pid": 4242, "tid": 4242}


def read(path: Path) -> Document:
    return json.loads(gzip.decompress(path.read_bytes()))


def write(path: Path, document: Document) -> None:
    path.write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1))


def as_recorded_bare(document: Document, first: int = 0) -> Document:
    """A light window with nothing but its device rows, and marks of steps from `first` on where its calls tell them."""
    rows = [row for row in document["traceEvents"] if row.get("cat") in DEVICE]
    bare = [row | {"args": {key: row["args"][key] for key in ARGUMENTS if key in row["args"]}} for row in rows]
    return document | {"traceEvents": [*_marks(document, first), *bare]}


def _marks(document: Document, first: int) -> Iterator[dict[str, Any]]:
    """Steps of equal length from the first row to the last: nothing tells where they were."""
    begins = [row["ts"] for row in document["traceEvents"] if row.get("cat") in (*DEVICE, "cuda_runtime")]
    count = 3
    length = (max(begins) - min(begins)) / count
    for number in range(count):
        start = min(begins) + number * length
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{first + number}", **HOST}
        yield mark | {"ts": round(start, 3), "dur": round(length, 3)}


def differing(document: Document, how: str, every: int) -> Document:
    """Every so many-th device row dropped, renamed or said twice: another routing, another batch."""
    rows, count = [], 0
    for row in document["traceEvents"]:
        chosen = False
        if row.get("cat") == "kernel":
            count += 1
            chosen = count % every == 0
        if not chosen:
            rows.append(row)
        elif how == "rename":
            rows.append(row | {"name": "void sort_of_kernel<int>(int*)"})
        elif how == "insert":
            half = round(row["dur"] / 2, 3)
            again = {"name": "void sort_of_kernel<int>(int*)", "ts": round(row["ts"] + half, 3), "dur": row["dur"]}
            rows += [row | {"dur": half}, row | again]
    return document | {"traceEvents": rows}


def rerecorded(run: Path, into: Path, change: Callable[[Document], Document]) -> Path:
    """A run with its light windows, and those without synchronization, as something else would have recorded them."""
    shutil.copytree(run, into)
    for window in ("light", "nosync"):
        for file in (into / window).glob("*.json.gz"):
            write(file, change(read(file)))
    return into
