"""Bytes of RankSummaries and back: msgpack, with their arrays behind it.

section    |length|msgpack ......|  |array ...|array|  |array ......|     each begins at a multiple of 8

Summaries are bases, and a section for each of their parts that grow or cost, which are there only if asked for. Types
say what is read back, and nothing that bytes say is ever run or imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from math import prod
from typing import Any, cast, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.paths import Place
from analyzers.rank import Measured, RankSummary

# What `lanes` and `causes` ask for, and the fields of Measured that hold it.
LANES, CAUSES = "tracks", "graph"
_HELD = {LANES: ("tracks",), CAUSES: ("graph",)}
PARTS = tuple(_HELD)
BASE = "base"

# Pieces of one section, in order; they point into the arrays they hold.
Chunks = list[bytes | bytearray | memoryview]

_DTYPES = {name: np.dtype(name) for name in ("|b1", "|i1", "|u1", "<i2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")}
_ALIGNMENT = 8
# What msgspec and numpy raise over bytes that are none of ours.
DAMAGE = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)


class NotPacked(Exception):
    """A summary that no bytes can hold exactly, or bytes that hold none."""


def pack(ranks: Sequence[RankSummary], parts: Collection[str]) -> dict[str, Chunks]:
    """Return the sections of the summaries of a file: their bases and these parts. Raises NotPacked.

    Their place is left out: whoever reads them back knows that.
    """
    sections = {BASE: _encode([_base(summary) for summary in ranks])}
    for part in parts:
        sections[part] = _encode([
            _part_type(part)(
                *(getattr(times, name, None) for times in (summary.timed, summary.full) for name in _HELD[part])
            )
            for summary in ranks
        ])  # fmt: skip
    return sections


def _base(summary: RankSummary) -> msgspec.Struct:
    bare: dict[str, Any] = dict.fromkeys(name for part in PARTS for name in _HELD[part])
    full = None if summary.full is None else replace(summary.full, **bare)
    base = replace(summary, timed=replace(summary.timed, **bare), full=full)
    return _base_type()(**{name: getattr(base, name) for name in _base_fields()})


def unpack(sections: Mapping[str, bytearray], path: Place) -> tuple[RankSummary, ...]:
    """Return the summaries that sections hold, of the file at a place. Raises NotPacked."""
    try:
        bases: Any = _decode(sections[BASE], _base_type())
        parts: dict[str, Any] = {part: _decode(sections[part], _part_type(part)) for part in PARTS if part in sections}
        if not bases or any(len(held) != len(bases) for held in parts.values()):
            raise NotPacked("parts of other ranks")
        return tuple(
            _summary(base, {part: held[index] for part, held in parts.items()}, path)
            for index, base in enumerate(bases)
        )
    except DAMAGE as error:
        raise NotPacked(f"{type(error).__name__}: {error}") from error


def _summary(base: Any, parts: Mapping[str, Any], path: Place) -> RankSummary:
    summary = RankSummary(path=path, **{name: getattr(base, name) for name in _base_fields()})
    if not parts:
        return summary
    timed = replace(summary.timed, **_name_fields(parts, "timed"))
    full = summary.full and replace(summary.full, **_name_fields(parts, "full"))
    return replace(summary, timed=timed, full=full)


@cache
def _base_fields() -> tuple[str, ...]:
    return tuple(field.name for field in fields(RankSummary) if field.name != "path")


# Built when first used: they look at some forty classes.
@cache
def _base_type() -> type[msgspec.Struct]:
    hints = get_type_hints(RankSummary)
    return msgspec.defstruct("_Base", [(name, hints[name]) for name in _base_fields()], array_like=True)


@cache
def _part_type(part: str) -> type[msgspec.Struct]:
    hints = get_type_hints(Measured)
    named = [(f"{which}_{name}", hints[name]) for which in ("timed", "full") for name in _HELD[part]]
    return msgspec.defstruct("_Part", named, array_like=True)


def _name_fields(parts: Mapping[str, Any], which: str) -> dict[str, Any]:
    """Return by name the fields of one Measured that sections hold."""
    return {name: getattr(value, f"{which}_{name}") for part, value in parts.items() for name in _HELD[part]}


def _encode(value: list[msgspec.Struct]) -> Chunks:
    arrays = _Arrays()
    try:
        text = msgspec.msgpack.encode(value, enc_hook=arrays.add)
    except DAMAGE as error:
        raise NotPacked(f"{type(error).__name__}: {error}") from error
    return [len(text).to_bytes(_ALIGNMENT, "little"), text, bytes(-len(text) % _ALIGNMENT), *arrays.chunks]


def _decode(section: bytearray, kind: type[msgspec.Struct]) -> list[msgspec.Struct]:
    length = int.from_bytes(section[:_ALIGNMENT], "little")
    end = _ALIGNMENT + length
    if end > len(section):
        raise NotPacked("its text is longer than all of it")
    behind = memoryview(section)[end + -length % _ALIGNMENT :]
    text = memoryview(section)[_ALIGNMENT:end]
    return msgspec.msgpack.decode(text, type=list[kind], dec_hook=_Views(behind).array)  # type: ignore[valid-type]


class _Arrays:
    """Arrays that stand behind the msgpack, each once however many fields hold it."""

    def __init__(self) -> None:
        self.chunks: Chunks = []
        self._size = 0
        self._places: dict[int, list[Any]] = {}

    def add(self, value: object) -> list[Any]:
        """Return what stands for an array in the msgpack: its dtype, its first item, its shape. Raises TypeError."""
        if not isinstance(value, np.ndarray) or value.dtype.str not in _DTYPES or not value.ndim:
            raise TypeError(f"{type(value).__name__} is not packed")
        known = self._places.get(id(value))
        if known is not None:
            return known
        place = [value.dtype.str, self._size // value.itemsize, *value.shape]
        self._places[id(value)] = place
        if value.size:
            data = memoryview(cast(Any, np.ascontiguousarray(value).reshape(-1).view(np.uint8)))
            padding = bytes(-len(data) % _ALIGNMENT)
            self.chunks += [data, padding] if padding else [data]
            self._size += len(data) + len(padding)
        return place


class _Views:
    """Arrays in the bytes behind the msgpack: views, which nothing is copied for."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._by_dtype: dict[str, NDArray[Any]] = {}

    def array(self, kind: object, said: object) -> NDArray[Any]:
        """Return the array that a list in the msgpack stands for. Raises ValueError, TypeError."""
        name, first, length, *more = cast(Any, said)
        items = self._by_dtype.get(name)
        if items is None:
            items = self._by_dtype[name] = self._items(name)
        count = prod((length, *more)) if more else length
        if first < 0 or min(length, *more, count) < 0 or first + count > len(items):
            _refuse()
        view: NDArray[Any] = items[first : first + count]
        return view.reshape((length, *more)) if more else view

    def _items(self, name: str) -> NDArray[Any]:
        """All of the bytes as items of a dtype."""
        dtype = _DTYPES[name] if name in _DTYPES else _refuse()
        return np.frombuffer(self._data, dtype, len(self._data) // dtype.itemsize)


def _refuse() -> Any:
    raise ValueError("no array stands there")
