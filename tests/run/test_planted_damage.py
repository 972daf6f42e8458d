"""Damage planted into a recorded rank: what is left is as without it, or as mended by hand."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import analyzers
from tests.support.kineto_files import Event, write
from tests.support.samples import SAMPLES

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
FILE = SAMPLES / "resnet18-ddp2" / "rank1.json.gz"
Document = dict[str, Any]


def recorded() -> Document:
    document: Document = json.loads(gzip.decompress(FILE.read_bytes()))
    # One rank alone: what is told here is its windows.
    return document | {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}


def on_device(document: Document) -> list[Event]:
    return [row for row in document["traceEvents"] if row.get("cat") in DEVICE and row.get("ph") == "X"]


def streams(document: Document) -> dict[tuple[int, int], list[Event]]:
    """The rows of each stream in order of start."""
    found = defaultdict(list)
    for row in on_device(document):
        found[row["args"]["device"], row["args"]["stream"]].append(row)
    return {key: sorted(rows, key=lambda row: row["ts"]) for key, rows in found.items()}


def drop(document: Document, gone: list[Event]) -> None:
    chosen = {id(row) for row in gone}
    document["traceEvents"] = [row for row in document["traceEvents"] if id(row) not in chosen]


def long_row(document: Document, chance: random.Random, is_mended: bool) -> None:
    """A row amidst its stream lasts 3 s; by hand it ends where the next one begins."""
    rows = max(streams(document).values(), key=len)
    place = chance.randrange(1, len(rows) - 2)
    rows[place]["dur"] = rows[place + 1]["ts"] - rows[place]["ts"] if is_mended else 3_000_000


def late_row(document: Document, chance: random.Random, is_mended: bool) -> None:
    """A row begins 5 s after its launch; by hand it is gone."""
    row = chance.choice([row for row in on_device(document) if "nccl" not in row["name"]])
    if is_mended:
        drop(document, [row])
    else:
        row["ts"] += 5_000_000


def zero_rows(document: Document, chance: random.Random, is_mended: bool) -> None:
    """A third of the rows of all kinds but marks of steps lost their times; by hand they are gone."""
    rows = [row for row in document["traceEvents"] if row.get("ph") == "X" and "ProfilerStep" not in row["name"]]
    gone = [row for row in rows if chance.random() < 0.3]
    if is_mended:
        drop(document, gone)
    else:
        for row in gone:
            row |= {"ts": 0, "dur": 0}


def bare_rows(document: Document, chance: random.Random, is_mended: bool) -> None:
    """Device rows have no correlation; their operators' launch calls say whose they are."""
    calls = defaultdict(list)
    for row in document["traceEvents"]:
        if row.get("cat") in ("cuda_runtime", "cuda_driver") and "External id" in row["args"]:
            calls[row["args"]["External id"]].append(row)
    for row in on_device(document):
        if len(calls[row["args"].get("External id")]) == 1 and chance.random() < 0.5 and not is_mended:
            row["args"]["correlation"] = chance.choice([0, -1])


def copies_as_kernels(document: Document, chance: random.Random, is_mended: bool) -> None:
    for row in on_device(document):
        if row["cat"] != "kernel" and not is_mended:
            row["cat"] = "kernel"


def paths(document: Document, chance: random.Random, is_mended: bool) -> None:
    """Calls have a stack; in the damaged file its backslashes are not escaped (see `text_of`)."""
    for row in document["traceEvents"]:
        if row.get("ph") == "X" and chance.random() < 0.1:
            row["args"] = row.get("args", {}) | {
                "Call stack": "C:/Users/x/me.py" if is_mended else "C:\\Users\\x\\me.py"
            }


PLANTED: dict[str, Callable[[Document, random.Random, bool], None]] = {
    "K1 long": long_row,
    "K1 late": late_row,
    "K3": zero_rows,
    "K9": copies_as_kernels,
    "K10": bare_rows,
    "K12": paths,
}
PAIRS = [("K1 long", "K12"), ("K1 late", "K10"), ("K9", "K1 long"), ("K10", "K12"), ("K1 late", "K1 long")]


def text_of(document: Document) -> str:
    return json.dumps(document).replace("\\\\", "\\")


def windows(path: Path, document: Document) -> list[tuple[object, ...]]:
    report = analyzers.report(analyzers.load(write(path / "rank0.json", text_of(document))))
    names = ("step", "span_ns", "compute_ns", "comm_ns", "copy_ns", "overlapped_comm_ns", "exposed_copy_ns", "idle_ns")
    return [tuple(getattr(row, name) for name in names) for row in report.windows]


ALL = [*((kind,) for kind in PLANTED), *PAIRS]
# Each reads a recorded rank twice.
CHOSEN = [
    pytest.param(kinds, marks=[] if kinds == PAIRS[0] else pytest.mark.slow, id=" and ".join(kinds)) for kinds in ALL
]


@pytest.mark.parametrize("kinds", CHOSEN)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_what_is_planted_costs_no_more_than_it_must(tmp_path, kinds, seed):
    planted, mended = recorded(), recorded()
    for document, is_mended in ((planted, False), (mended, True)):
        chance = random.Random(seed)
        for kind in kinds:
            PLANTED[kind](document, chance, is_mended)
    assert copy.deepcopy(planted) != mended
    assert windows(tmp_path / "planted", planted) == windows(tmp_path / "mended", mended)
