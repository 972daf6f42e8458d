"""Fuzzing of the cache: damaged traces read and looked up, then their entries damaged.

A look-up gives what reading gives, or nothing; so does one in a damaged entry.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

from analyzers.errors import AnalysisError
from analyzers.run.layout import RankFile
from tests.support.exactly import differences
from tests.support.fuzzing import cases
from tracer.reading.cache import identity
from tracer.reading.cache.packing import PARTS
from tracer.reading.cache.store import Cache

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
