"""What fuzzing does to files: one list of changes, each to bytes, and the kinds of file that it fits.

@mutates(TEXT)
def _upside_down(data: bytes, chance: random.Random) -> bytes:
    # Its name in a case is that of the function.
    return data[::-1]
"""

from __future__ import annotations

import gzip
import json
import random
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from tracer.reading.cache.store import NoEntry, read_head, read_sections, write_entry

Change = Callable[[bytes, random.Random], bytes]
TRACES, MANIFESTS, REPORTS, CALIBRATIONS, SWEEPS, ENTRIES, ARCHIVES, UNSEALED = KINDS = (
    "traces",
    "manifests",
    "reports",
    "calibrations",
    "sweeps",
    "entries",
    "archives",
    "unsealed",
)
DOCUMENTS = (MANIFESTS, REPORTS, CALIBRATIONS, SWEEPS)
TEXT = (TRACES, *DOCUMENTS)
ANY = KINDS
MUTATORS: dict[str, tuple[Change, tuple[str, ...]]] = {}


def mutates(kinds: tuple[str, ...]) -> Callable[[Change], Change]:
    """Put a change into the list, under its function's name, for these kinds of file."""

    def listed(change: Change) -> Change:
        MUTATORS[change.__name__.strip("_").replace("_", " ")] = change, kinds
        return change

    return listed


def mutated(kind: str, data: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Some bytes of a kind after one change or several, and the names of these."""
    fitting = [name for name, (_, kinds) in MUTATORS.items() if kind in kinds]
    done = []
    for _ in range(chance.choice([1, 1, 1, 1, 2, 3])):
        if data:
            done.append(chance.choice(fitting))
            data = MUTATORS[done[-1]][0](data, chance)
    return " + ".join(done), data


def _places(data: bytes, chance: random.Random) -> tuple[int, int]:
    """Two places, near one another or far, anywhere or where the text has its joints."""
    pattern = chance.choice([rb"", rb"", rb'"', rb'"name": "[^"]*', rb"\}", rb"\n", rb",", rb"\{", rb'": ?'])
    joints = [match.end() for match in re.finditer(pattern, data)] if pattern else None
    first = chance.choice(joints) if joints else chance.randrange(len(data))
    if chance.random() < 0.5:
        return first, min(first + chance.choice([1, 1, 2, 5, 30, 300, 3000]), len(data))
    second = chance.choice(joints) if joints and chance.random() < 0.7 else chance.randrange(len(data))
    return min(first, second), max(first, second)


@mutates(ANY)
def _splice(data: bytes, chance: random.Random) -> bytes:
    begin, end = _places(data, chance)
    return data[:begin] + data[end:]


@mutates(ANY)
def _swap(data: bytes, chance: random.Random) -> bytes:
    a, b, c, d = sorted((*_places(data, chance), *_places(data, chance)))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


@mutates(ANY)
def _double(data: bytes, chance: random.Random) -> bytes:
    begin, end = _places(data, chance)
    return data[:end] + data[begin:end] + data[end:]


TOKENS = (
    *(b'"', b"\\", b",", b":", b"{", b"}", b"[", b"]", b"},{", b"],[", b"]}", b"\n", b"\0", b"\x0b", b"\x01", b"\x7f"),
    *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"0", b"-", b".", b"e9", b"true", b"null", b"NaN", b"inf"),
    *(b"-inf", b"nan", b'"x": 1, ', b', "x": 1', b"/* */", b"\\ud800", b"\\u00", b'"traceEvents": [', b'{"ph": "X"}'),
)


@mutates(ANY)
def _insert(data: bytes, chance: random.Random) -> bytes:
    place, _ = _places(data, chance)
    return data[:place] + chance.choice(TOKENS) + data[place:]


@mutates(ANY)
def _overwrite(data: bytes, chance: random.Random) -> bytes:
    place, _ = _places(data, chance)
    return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]


@mutates(TEXT)
def _drop_a_token(data: bytes, chance: random.Random) -> bytes:
    return _without_one(rb'[",:{}\[\]]', data, chance)


@mutates(TEXT)
def _another_value(data: bytes, chance: random.Random) -> bytes:
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


@mutates(TEXT)
def _a_key_twice(data: bytes, chance: random.Random) -> bytes:
    """A key twice, with another's value or its own."""
    pattern = rb'"[^"\n]*": ?(?:-?[\d.]+|"[^"\n]*")'
    match, other = _any(pattern, data, chance), _any(pattern, data, chance)
    if match is None or other is None:
        return data
    key = match[0].partition(b":")[0]
    twice = match[0] + b", " + key + b":" + chance.choice([match, other])[0].partition(b":")[2]
    return data[: match.start()] + twice + data[match.end() :]


@mutates(TEXT)
def _drop_a_key(data: bytes, chance: random.Random) -> bytes:
    return _without_one(rb'"[^"\n]*": ?(?:-?[\d.]+|"[^"\n]*"),? ?', data, chance)


@mutates(ANY)
def _drop_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    first = chance.randrange(len(lines))
    del lines[first : first + chance.choice([1, 1, 2, 9])]
    return b"".join(lines)


@mutates(ANY)
def _cut(data: bytes, chance: random.Random) -> bytes:
    place, _ = _places(data, chance)
    return data[:place]


@mutates(TEXT)
def _glue(data: bytes, chance: random.Random) -> bytes:
    """Another separator between two events."""
    match = _any(rb"(?<=\})\s*,\s*(?=\{)", data, chance)
    between = chance.choice([b"", b" ", b",,", b";", b"]", b"],", b", x,", b'"",', b"}, ", b"null,"])
    return data[: match.start()] + between + data[match.end() :] if match else data


@mutates(ANY)
def _behind(data: bytes, chance: random.Random) -> bytes:
    more = (b"\0" * 9, b"}", b"]", b"{}", b",", b"# by hand", b"\n\n", data, b"\xff", b" null")
    return data + chance.choice(more)


@mutates(TEXT)
def _around(data: bytes, chance: random.Random) -> bytes:
    """Damage to the header, or to what follows the events."""
    match = _any(rb'\[\s*(?=\{)|(?<=\})\s*\]|"traceEvents"|,\s*"traceEvents"|\],\s*', data, chance)
    if match is None:
        return data
    other = (b"", match[0] + b",", b"," + match[0], match[0] * 2, match[0] + b"\0", b"\x0b" + match[0])
    return data[: match.start()] + chance.choice(other) + data[match.end() :]


_ODD = (None, True, "", "x", "nan", -1, 0, 1.5, 2**63, -(10**30), 1e308, [], {}, [None], {"x": []}, [[[[]]]])


@mutates(DOCUMENTS)
def _another_type(data: bytes, chance: random.Random) -> bytes:
    """Another value anywhere in what is JSON, or a list that lost or doubled its last."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return data
    held = _held(said)
    if not held:
        return data
    within, place = chance.choice(held)
    if isinstance(within, list) and chance.random() < 0.5:
        within[:] = chance.choice([within[:-1], [*within, within[-1]], within[::-1]])
    else:
        within[place] = chance.choice(_ODD)
    return json.dumps(said).encode()


def _any(pattern: bytes, data: bytes, chance: random.Random) -> re.Match[bytes] | None:
    found = list(re.finditer(pattern, data))
    return chance.choice(found) if found else None


def _without_one(pattern: bytes, data: bytes, chance: random.Random) -> bytes:
    match = _any(pattern, data, chance)
    return data[: match.start()] + data[match.end() :] if match else data


def _members(data: bytes, chance: random.Random) -> list[bytes]:
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice([0, 1, 2])))
    bounds = zip([0, *places], [*places, len(data)], strict=True)
    return [gzip.compress(data[begin:end], 1, mtime=0) for begin, end in bounds]


@mutates((TRACES,))
def _gzip(data: bytes, chance: random.Random) -> bytes:
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


# What a forger writes where a number was, and how wide one is.
_NUMBERS = (-1, 0, 1, 7, 2**31, -(2**40), 2**63 - 1)
_WIDEST = 8


@mutates((ENTRIES,))
def _forge(data: bytes, chance: random.Random) -> bytes:
    """Change something in an entry that is whole, and give it the digests of what it then says."""
    with tempfile.TemporaryFile() as file, suppress(NoEntry):
        file.write(data)
        file.seek(0)
        head = read_head(file)
        sections = read_sections(file, head, head.sections)
        name = chance.choice(sorted(sections))
        sections[name] = bytearray(_forged_section(bytes(sections[name]), chance))
        file.seek(0)
        file.truncate()
        write_entry(file, head, {each: [section] for each, section in sections.items()})
        file.seek(0)
        return file.read()
    return data


def _forged_section(section: bytes, chance: random.Random) -> bytes:
    length = int.from_bytes(section[:_WIDEST], "little")
    end = _WIDEST + length + -length % _WIDEST
    said, arrays = msgspec.msgpack.decode(section[_WIDEST : _WIDEST + length]), bytearray(section[end:])
    if len(arrays) >= _WIDEST and chance.random() < 0.5:
        place = chance.randrange(len(arrays) // _WIDEST) * _WIDEST
        arrays[place : place + _WIDEST] = chance.choice(_NUMBERS).to_bytes(_WIDEST, "little", signed=True)
    else:
        _change_inside(said, chance)
    text: bytes = msgspec.msgpack.encode(said)
    return len(text).to_bytes(_WIDEST, "little") + text + bytes(-len(text) % _WIDEST) + arrays


def _change_inside(said: Any, chance: random.Random) -> None:
    """Change one value somewhere in what an entry says; a list may lose its last."""
    if not (leaves := [(within, place) for within, place in _held(said) if _is_leaf(within[place])]):
        return
    within, place = chance.choice(leaves)
    if isinstance(within, list) and chance.random() < 0.2:
        within.pop()
    else:
        within[place] = _other(within[place], chance)


def _held(said: Any) -> list[tuple[Any, Any]]:
    """Each list and dictionary in a document, with each of its places."""
    return [
        (within, place)
        for within in _lists(said)
        for place in (within if isinstance(within, dict) else range(len(within)))
    ]


def _lists(said: Any) -> list[Any]:
    inside = list(said.values()) if isinstance(said, dict) else said if isinstance(said, list) else []
    return [*([said] if inside else []), *(each for one in inside for each in _lists(one))]


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, list | dict)


def _other(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return chance.choice([True, False, None])
    if isinstance(value, int):
        # Of an array's length a little less or more is still an array.
        number = chance.choice([value - 1, value + 1, value // 2, *_NUMBERS])
        return number if -(2**63) <= number < 2**64 else -value
    if isinstance(value, float):
        return chance.choice([float("nan"), float("inf"), -1.0, 0.0, 1e300])
    return chance.choice(["", "x", "<i4", "<f8", "|b1"])
