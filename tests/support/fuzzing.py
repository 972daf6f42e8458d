"""Fuzzing of the reading: traces cut, joined and broken anyhow, judged by json.

Of every file that gives no warning, json and the reader must agree; whatever is no JSON must be said, or the file be
refused; and whatever is JSON must not be called anything else. `python -m benchmarks.fuzzing` judges as many as are
asked for.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from analyzers.errors import UnreadableTrace
from analyzers.notices import Code
from analyzers.trace.decoding import decompress
from analyzers.trace.events import Events
from analyzers.trace.reader import Trace, read_trace
from tests.support.generator import LAYOUTS, Run, document
from tests.support.json_oracle import NotJson, Unknown, expected, inflated, parsed, rewritten, rows_of
from tests.support.mutators import TRACES, mutated
from tests.support.splitting import reads_alike

BLOCKS = (7, 61, 300, 4096, 1 << 19)
# What only large blocks keep alike: which operators' shapes are kept depends on what was read before.
_BY_BLOCK = ("inputs", "shapes", "syncs")
_ODD_EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "cpu_op", "name": 'a "b" \\ },\n {', "ts": 4312138907001.5, "dur": 0.25, "tid": 3},
    {"ph": "X", "cat": "kernel", "name": "é∑\u0001", "ts": 7, "dur": 1, "pid": 0, "tid": 7, "args": {"stream": 7}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 8, "dur": 1, "args": {"Input Dims": [[2, 3], [3, 4]]}},
    {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python", "labels": [{"a": [1, {"b": None}]}]}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "ts": 9, "dur": 1.5, "args": {"bytes": 4, "device": 0}},
    {
        "ph": "i",
        "cat": "python_sample",
        "name": "f (a.py:1)",
        "ts": 9,
        "tid": 3,
        "args": {"held_ns": 4, "stack": ["a"]},
    },
]

Case = tuple[str, bytes]


def made() -> list[bytes]:
    """Small documents in every layout."""
    trace = document(Run(steps=3, compute="ab.c", comm=".xx.", copy="z..."), 0)
    trace["traceEvents"] += _ODD_EVENTS
    small = document(Run(compute="a", comm="x"), 0)
    return [layout(each).encode() for each in (trace, small) for layout in LAYOUTS.values()]


def shortened(path: Path, events: int) -> bytes:
    """A real trace's first rows and some from its middle and end, in Kineto's own text."""
    text = inflated(path.read_bytes())
    pieces = re.split(rb"(?<=\n  \}),\n(?=  \{\n)", text)
    middle = len(pieces) // 2
    if len(pieces) > 3 * events:
        pieces = [*pieces[:events], *pieces[middle : middle + events], *pieces[-events:]]
    return b",\n".join(pieces)


def cases(documents: Sequence[bytes], count: int, seed: int) -> Iterator[Case]:
    """So many damaged files, and the names of what was done to each. The same for the same seed."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        yield mutated(TRACES, chance.choice(documents), chance)


class Disagreement(AssertionError):
    """The reader and json disagree about a file."""


@dataclass(frozen=True)
class Judge:
    """Reads files in a folder of its own, and holds what is read against json."""

    folder: Path

    def judge(self, data: bytes, block: int) -> str:
        """Say how one file went. Raises Disagreement."""
        with mock.patch.multiple(decompress, BLOCK=block, _COMPRESSED_BLOCK=max(block // 8, 2)):
            path = self.folder / "rank0.json"
            path.write_bytes(data)
            self._read_in_pieces(path, block)
            try:
                trace = read_trace(path)
            except UnreadableTrace as error:
                return _refused(data, str(error))
            said = [notice for notice in trace.lost if notice.code != Code.EVENTS_WITHOUT_DURATION]
            try:
                whole = parsed(inflated(data))
            except NotJson as error:
                if not said:
                    raise Disagreement(f"no JSON ({error}), and nothing is said") from error
                return "no JSON: said"
            except Unknown:
                return "beyond json"
            if any("no JSON" in notice.text or notice.code == Code.TRACE_IS_NO_JSON for notice in said):
                raise Disagreement(f"valid JSON, but {said}")
            return self._compared(trace, whole, is_said=bool(said), with_shapes=block == max(BLOCKS))

    def _read_in_pieces(self, path: Path, block: int) -> None:
        """Hold what helpers make of a file against what one process does, in blocks small enough to share."""
        try:
            reads_alike(path, min(block, 4096), 2 + block % 2, seed=block)
        except AssertionError as error:
            raise Disagreement(f"not as with helpers: {error}") from error

    def _compared(self, trace: Trace, whole: Any, is_said: bool, with_shapes: bool) -> str:
        """Hold a trace against valid JSON: as the oracle makes rows of it, and as the reader does, written anew."""
        if any("second list" in notice.text for notice in trace.lost):
            return "JSON: said"
        again = read_trace(rewritten(whole, self.folder / "again" / "rank0.json"))
        left = () if with_shapes else _BY_BLOCK
        if different := [name for name in _different(trace, again) if name not in left]:
            raise Disagreement(f"not as when json wrote it anew: {different}")
        try:
            rows = expected(whole)
        except Unknown:
            return "JSON: said" if is_said else "JSON: as written anew"
        if not is_said and rows != rows_of(trace):
            raise Disagreement("rows are not json's")
        return "JSON: said" if is_said else "JSON: rows are json's"


def _refused(data: bytes, why: str) -> str:
    try:
        events = parsed(inflated(data))
    except (NotJson, Unknown):
        return "no JSON: refused"
    listed = events.get("traceEvents") if isinstance(events, dict) else events
    if isinstance(listed, list):
        raise Disagreement(f"valid JSON with events, and refused: {why}")
    return "JSON: refused, without events"


def _different(trace: Trace, other: Trace) -> list[str]:
    """The columns in which two readings differ, and whether anything else does; codes stand for what they mean."""
    names = ["header", "lost", "unknown", "refusal"]
    different = [name for name in names if getattr(trace, name) != getattr(other, name)]
    mine, others = _meant(trace.events), _meant(other.events)
    return different + [name for name in mine if mine[name] != others[name]]


def _meant(events: Events) -> dict[str, Any]:
    columns = {field.name: getattr(events, field.name) for field in fields(events)}
    found = {name: column.tolist() for name, column in columns.items() if isinstance(column, np.ndarray)}
    found["name"] = [events.names[code] for code in events.name]
    found["call"] = [events.calls[code] if code >= 0 else None for code in events.call]
    found["inputs"] = [events.shapes[code] if code >= 0 else None for code in events.inputs]
    found["grid"] = np.unique(events.grid, return_inverse=True)[1].tolist() if len(events) else []
    for name, apart in (("syncs", events.syncs), ("samples", events.samples)):
        found[name] = {field.name: getattr(apart, field.name).tolist() for field in fields(apart)}
        found[name]["name"] = [events.names[code] for code in apart.name]
    return found


def fuzz(documents: Sequence[bytes], count: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Judge so many damaged files: how they went, and what disagrees, with the number that makes it again."""
    (folder / "again").mkdir(parents=True, exist_ok=True)
    judge, went, wrong = Judge(folder), Counter[str](), []
    for number, (done, data) in enumerate(cases(documents, count, seed)):
        try:
            went[judge.judge(data, BLOCKS[number % len(BLOCKS)])] += 1
        except Disagreement as error:
            wrong.append(f"{number} ({done}): {error}")
        except Exception as error:
            wrong.append(f"{number} ({done}): {type(error).__name__}: {error}")
    return went, wrong
