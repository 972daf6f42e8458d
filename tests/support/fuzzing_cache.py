"""Fuzzing of the cache: damaged traces read and looked up, then their entries damaged, or forged.

A look-up gives what reading gives, or nothing; so does one in a damaged entry. What a forged entry says is false, and
its digests are right.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from analyzers.errors import AnalysisError
from analyzers.run.layout import RankFile
from tests.support.exactly import differences
from tests.support.fuzzing import cases
from tracer.reading.cache import identity
from tracer.reading.cache.packing import PARTS
from tracer.reading.cache.store import Cache, read_head, read_sections, write_entry

_MEMORY = 10**9


def fuzz_cache(documents: Sequence[bytes], count: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """So many damaged traces, and their entries damaged: how they went, and the numbers of those that went wrong."""
    kept = Cache(folder / "cache")
    kept.folder.mkdir(mode=0o700)
    went, wrong = Counter[str](), []
    with mock.patch.object(identity, "SETTLED_S", 0.0):
        for number, (done, data) in enumerate(cases(documents, count, seed)):
            path = folder / f"{number}.json"
            path.write_bytes(data)
            file = RankFile(path, None, None, False, memory=_MEMORY)
            outcome = _judged(kept, file, random.Random(f"{seed} entry {number}"))
            went[outcome] += 1
            if outcome.startswith("wrong"):
                wrong.append(f"{number}: {done}: {outcome}")
            path.unlink()
            for entry in kept.folder.iterdir():
                entry.unlink()
    return went, wrong


def _judged(kept: Cache, file: RankFile, chance: random.Random) -> str:
    try:
        summary = kept.reading()(file, lanes=True, causes=True)
    except AnalysisError:
        return "refused" if kept.look_up(file, ()) is None else "wrong: refused, but kept"
    found = kept.look_up(file, PARTS)
    if found is None:
        return "not kept"
    # Names as they are spelled, also those that no UTF-8 has.
    if more := list(differences(summary, found)):
        return f"wrong: {more[0]}"
    (entry,) = kept.folder.iterdir()
    data = bytearray(entry.read_bytes())
    place = chance.randrange(len(data))
    with suppress(IndexError):
        data[place] ^= 1 << chance.randrange(8)
    entry.write_bytes(data[: place + 1] if chance.random() < 0.3 else data)
    again = kept.look_up(file, PARTS)
    if again is not None:
        return "wrong: a damaged entry was taken"
    if kept.look_up(replace(file, steps="other"), ()) is not None:
        return "wrong: another's"
    return "kept"


# What a forger writes where a number was, and how wide one is.
_NUMBERS = (-1, 0, 1, 7, 2**31, -(2**40), 2**63 - 1)
_WIDEST = 8


def forge(entry: Path, chance: random.Random) -> str:
    """Change something in an entry that is whole, and give it the digests of what it then says; return the change."""
    with entry.open("rb") as file:
        head = read_head(file)
        sections = read_sections(file, head, head.sections)
    name = chance.choice(sorted(sections))
    length = int.from_bytes(sections[name][:_WIDEST], "little")
    end = _WIDEST + length + -length % _WIDEST
    said, arrays = msgspec.msgpack.decode(sections[name][_WIDEST : _WIDEST + length]), sections[name][end:]
    if arrays and chance.random() < 0.5:
        place = chance.randrange(len(arrays) // _WIDEST) * _WIDEST
        number = chance.choice([number for number in _NUMBERS if abs(number) < 2**63])
        arrays[place : place + _WIDEST] = number.to_bytes(_WIDEST, "little", signed=True)
        done = f"{name}: {number} at byte {place} of its arrays"
    else:
        done = f"{name}: {_forged(said, chance)}"
    text = msgspec.msgpack.encode(said)
    data = [len(text).to_bytes(_WIDEST, "little"), text, bytes(-len(text) % _WIDEST), arrays]
    with entry.open("wb") as file:
        write_entry(file, head, {each: data if each == name else [sections[each]] for each in sections})
    return done


def _forged(said: Any, chance: random.Random) -> str:
    """Change one value somewhere in what an entry says; a list may lose its last."""
    held = [
        (within, place)
        for within in _lists(said)
        for place in (within if isinstance(within, dict) else range(len(within)))
    ]
    within, place = chance.choice([(within, place) for within, place in held if _is_leaf(within[place])])
    if isinstance(within, list) and chance.random() < 0.2:
        return f"lost {within.pop()!r:.40}"
    before, within[place] = within[place], _other(within[place], chance)
    return f"{before!r:.40} became {within[place]!r:.40}"


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
