"""Sample runs whose steps come many times over.

python -m tests.support.repeating traces/resnet18-ddp4 8 FOLDER
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

Document = dict[str, Any]


def repeated(documents: Sequence[Document], times: int) -> list[Document]:
    """Return the traces of one run's ranks, their steps so many times over, one after another on every rank at once."""
    timed = [[event for event in document["traceEvents"] if event.get("ph") == "X"] for document in documents]
    length = max(max(row["ts"] + row["dur"] for row in rows) - min(row["ts"] for row in rows) for rows in timed)
    # Copies that came evenly would match the copy before as well as their own.
    random = Random(times)
    gaps = [int(length * random.uniform(1, 1.2)) + 1 for _ in range(times - 1)]
    moments = list(accumulate(gaps, initial=0))
    return [
        {**document, "traceEvents": [_moved(row, copy, by) for copy, by in enumerate(moments) for row in rows]}
        for document, rows in zip(documents, timed, strict=True)
    ]


def _moved(event: dict[str, Any], copy: int, by: int) -> dict[str, Any]:
    args = dict(event.get("args", {}))
    for key in ("correlation", "External id", "Sequence number"):
        if key in args:
            args[key] += copy * 1_000_000
    name = event["name"]
    if name.startswith("ProfilerStep#"):
        name = f"ProfilerStep#{int(name.removeprefix('ProfilerStep#')) + 100 * copy}"
    return {**event, "name": name, "ts": event["ts"] + by, "args": args}


def write_repeated(run: Path, times: int, folder: Path) -> None:
    """Write a run's ranks, their steps so many times over, and its run.json and links.json as they are."""
    traces = sorted(run.glob("rank*.json.gz"))
    documents = [json.loads(gzip.decompress(trace.read_bytes())) for trace in traces]
    folder.mkdir(parents=True)
    for trace, document in zip(traces, repeated(documents, times), strict=True):
        (folder / trace.name).write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    for other in run.glob("*.json"):
        shutil.copy(other, folder)


if __name__ == "__main__":
    write_repeated(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
