"""Samples of Python's stack in traces, as `tracer record` writes them.

copied_with_samples(SAMPLES / "resnet18-ddp1", tmp_path / "sampled")
"""

import gzip
import json
import shutil

import numpy as np

from tests.support.training import MAIN


def sample(name, ts, held=0.0, *, tid=MAIN):
    """A sample as `tracer record` writes it, in microseconds."""
    row = {"ph": "i", "cat": "python_sample", "name": name, "pid": 9, "tid": tid, "ts": ts}
    return row | {"args": {"held_ns": round(held * 1000), "stack": [f"train.py:1 {name}"]}}


def copied_with_samples(run, target):
    """A copy of a run whose full windows have samples."""
    shutil.copytree(run, target)
    for file in run.glob("rank*.json.gz"):
        packed = gzip.compress(_with_samples(gzip.decompress(file.read_bytes())).encode(), compresslevel=1)
        (target / file.name).write_bytes(packed)
    return target


def _with_samples(text):
    """A trace with a sample every 100 us of each thread that runs operators, in front of all other rows."""
    document = json.loads(text)
    rows = [row for row in document["traceEvents"] if row.get("cat") == "cpu_op"]
    added = []
    for tid in sorted({row["tid"] for row in rows}):
        instants = [row["ts"] for row in rows if row["tid"] == tid]
        for place, at in enumerate(np.arange(min(instants), max(instants), 100.0)[:5000].tolist()):
            row = sample(f"function {place % 7} (train.py:{place % 7})", round(at, 3), 50 * (place % 3), tid=tid)
            added.append(row | {"pid": rows[0]["pid"]})
    document["traceEvents"] = added + document["traceEvents"]
    return json.dumps(document)
