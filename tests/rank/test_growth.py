"""Effort grows with what there is to do: four times the steps are four times the work, and hardly more."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import pytest

from analyzers.rank.summary import summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import to_json
from tests.support.effort import effort
from tests.support.samples import SAMPLES

SAMPLE = SAMPLES / "resnet18-ddp1" / "rank0.json.gz"
# n log n of four times as many, and what each call costs however little it has to do.
MOST = 4.6


@pytest.fixture(scope="module")
def recorded() -> dict:
    return json.loads(gzip.decompress(SAMPLE.read_bytes()))


def repeated(document: dict, times: int, folder: Path) -> Path:
    """A trace whose steps come so many times over, one after another."""
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    first = min(event["ts"] for event in events)
    length = int(max(event["ts"] + event["dur"] for event in events) - first) + 1
    rows = [_moved(event, copy, copy * length) for copy in range(times) for event in events]
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps({**document, "traceEvents": rows}))
    return folder


def _moved(event: dict, copy: int, by: int) -> dict:
    args = dict(event.get("args", {}))
    for key in ("correlation", "External id", "Sequence number"):
        if key in args:
            args[key] += copy * 1_000_000
    name = event["name"]
    if name.startswith("ProfilerStep#"):
        name = f"ProfilerStep#{int(name.removeprefix('ProfilerStep#')) + 100 * copy}"
    return {**event, "name": name, "ts": event["ts"] + by, "args": args}


def test_reports_and_schedules_grow_with_steps(recorded, tmp_path):
    def told(folder: Path) -> None:
        to_json(report(summarize(folder, schedules=True)))

    told(repeated(recorded, 1, tmp_path / "first"))  # what is made once, such as tables of patterns
    runs = [repeated(recorded, times, tmp_path / str(times)) for times in (4, 16)]
    few, many = (effort(partial(told, run)) for run in runs)
    assert many < MOST * few
