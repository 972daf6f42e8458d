"""Fuzzing of the reading: traces cut, joined and broken anyhow, judged by json.

Of every file that gives no warning, json and the reader must agree; whatever is no JSON must be said, or the file be
refused; and whatever is JSON must not be called anything else. `python -m benchmarks.fuzzing` judges as many as are
asked for.
"""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
Change = Callable[[bytes, random.Random], bytes]


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


# Damage. Each takes a document's bytes and gives others.


def _places(data: bytes, chance: random.Random) -> tuple[int, int]:
    """Two places, near one another or far, anywhere or where the text has its joints."""
    pattern = chance.choice([rb"", rb"", rb'"', rb'"name": "[^"]*', rb"\}", rb"\n", rb",", rb"\{", rb'": ?'])
    joints = [match.end() for match in re.finditer(pattern, data)] if pattern else None
    first = chance.choice(joints) if joints else chance.randrange(len(data))
    if chance.random() < 0.5:
        return first, min(first + chance.choice([1, 1, 2, 5, 30, 300, 3000]), len(data))
    second = chance.choice(joints) if joints and chance.random() < 0.7 else chance.randrange(len(data))
    return min(first, second), max(first, second)


def _splice(data: bytes, chance: random.Random) -> bytes:
    begin, end = _places(data, chance)
    return data[:begin] + data[end:]


def _swap(data: bytes, chance: random.Random) -> bytes:
    a, b, c, d = sorted((*_places(data, chance), *_places(data, chance)))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _double(data: bytes, chance: random.Random) -> bytes:
    begin, end = _places(data, chance)
    return data[:end] + data[begin:end] + data[end:]


TOKENS = (
    *(b'"', b"\\", b",", b":", b"{", b"}", b"[", b"]", b"},{", b"],[", b"]}", b"\n", b"\0", b"\x0b", b"\x01", b"\x7f"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"0", b"-", b".", b"e9", b"true", b"null", b"NaN", b"inf"),
    *(b"-inf", b"nan", b'"x": 1, ', b', "x": 1', b"/* */", b"\\ud800", b"\\u00", b'"traceEvents": [', b'{"ph": "X"}'),
)


def _insert(data: bytes, chance: random.Random) -> bytes:
    place, _ = _places(data, chance)
    return data[:place] + chance.choice(TOKENS) + data[place:]


def _overwrite(data: bytes, chance: random.Random) -> bytes:
    place, _ = _places(data, chance)
    return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]


def _drop_token(data: bytes, chance: random.Random) -> bytes:
    match = _any(rb'[",:{}\[\]]', data, chance)
    return data[: match.start()] + data[match.end() :] if match else data


def _value(data: bytes, chance: random.Random) -> bytes:
    """Another value for some key."""
    match = _any(rb'": ?(-?[\d.]+|"[^"]*")', data, chance)
    other = (
        b"inf",
        b"-nan",
        b"NaN",
        b"1e3",
        b"-0",
        b"1e400",
        b"9" * 30,
        b"007",
        b"1.",
        b".5",
        b'"5"',
        b"true",
        b"null",
    )
    more = (b"[1e3]", b"[[1e3]]", b'"\xff"', b"{}", b"1.0005", b"-5", b"9" * 5000)
    return data[: match.start(1)] + chance.choice(other + more) + data[match.end(1) :] if match else data


def _double_key(data: bytes, chance: random.Random) -> bytes:
    """A key twice, with another's value or its own."""
    pattern = rb'"[^"\n]*": ?(?:-?[\d.]+|"[^"\n]*")'
    match, other = _any(pattern, data, chance), _any(pattern, data, chance)
    if match is None or other is None:
        return data
    key = match[0].partition(b":")[0]
    twice = match[0] + b", " + key + b":" + chance.choice([match, other])[0].partition(b":")[2]
    return data[: match.start()] + twice + data[match.end() :]


def _drop_key(data: bytes, chance: random.Random) -> bytes:
    match = _any(rb'"[^"\n]*": ?(?:-?[\d.]+|"[^"\n]*"),? ?', data, chance)
    return data[: match.start()] + data[match.end() :] if match else data


def _drop_line(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    first = chance.randrange(len(lines))
    del lines[first : first + chance.choice([1, 1, 2, 9])]
    return b"".join(lines)


def _cut(data: bytes, chance: random.Random) -> bytes:
    place, _ = _places(data, chance)
    return data[:place]


def _glue(data: bytes, chance: random.Random) -> bytes:
    """Another separator between two events."""
    match = _any(rb"(?<=\})\s*,\s*(?=\{)", data, chance)
    between = chance.choice([b"", b" ", b",,", b";", b"]", b"],", b", x,", b'"",', b"}, ", b"null,"])
    return data[: match.start()] + between + data[match.end() :] if match else data


def _behind(data: bytes, chance: random.Random) -> bytes:
    more = (b"\0" * 9, b"}", b"]", b"{}", b",", b"# by hand", b"\n\n", data, b"\xff", b" null")
    return data + chance.choice(more)


def _around(data: bytes, chance: random.Random) -> bytes:
    """Damage to the header, or to what follows the events."""
    match = _any(rb'\[\s*(?=\{)|(?<=\})\s*\]|"traceEvents"|,\s*"traceEvents"|\],\s*', data, chance)
    if match is None:
        return data
    other = (b"", match[0] + b",", b"," + match[0], match[0] * 2, match[0] + b"\0", b"\x0b" + match[0])
    return data[: match.start()] + chance.choice(other) + data[match.end() :]


def _any(pattern: bytes, data: bytes, chance: random.Random) -> re.Match[bytes] | None:
    found = list(re.finditer(pattern, data))
    return chance.choice(found) if found else None


CHANGES: dict[str, Change] = {
    "splice": _splice, "swap": _swap, "double": _double, "insert": _insert, "overwrite": _overwrite,
    "drop a token": _drop_token, "another value": _value, "a key twice": _double_key, "drop a key": _drop_key,
    "drop lines": _drop_line, "cut": _cut, "glue": _glue, "behind": _behind, "around": _around,
}  # fmt: skip


def _members(data: bytes, chance: random.Random) -> list[bytes]:
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 1, 2])))
    bounds = zip([0, *places], [*places, len(data)], strict=True)
    return [gzip.compress(data[begin:end], 1, mtime=0) for begin, end in bounds]


def packed(data: bytes, chance: random.Random) -> bytes:
    """The document as gzip, of one member or several, whole or damaged."""
    members = _members(data, chance)
    change = chance.randrange(7)
    which = chance.randrange(len(members))
    member = members[which]
    place = chance.randrange(len(member))
    if change == 0:
        members[which] = member[:place] + bytes([member[place] ^ 1 << chance.randrange(8)]) + member[place + 1 :]
    if change == 1:
        members[which] = member[:place]
    if change == 2:
        del members[which]
    if change == 3:
        members.insert(which, chance.choice([b"\0" * 9, member, b"junk"]))
    return b"".join(members)


def cases(documents: Sequence[bytes], count: int, seed: int) -> Iterator[Case]:
    """So many damaged files, and the names of what was done to each. The same for the same seed."""
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        data, done = chance.choice(documents), []
        for _ in range(chance.choice([1, 1, 1, 1, 2, 3])):
            name = chance.choice([*CHANGES])
            if data:
                data, done = CHANGES[name](data, chance), [*done, name]
        if chance.random() < 0.2:
            data, done = packed(data, chance), [*done, "gzip"]
        yield " + ".join(done), data


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
