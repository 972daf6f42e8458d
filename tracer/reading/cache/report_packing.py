"""Bytes of what is known of a report, and back.

msgpack, a section for the run's facts and one for the summary. Only what is computed is kept, and of that what one
screen needs: tables grow with the run, and are made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

import msgspec

from analyzers.lazy_fields import computed
from analyzers.reporting import Report, Summary
from tracer.reading.cache.packing import DAMAGE, Chunks, NotPacked

# Fields by their names, of those documents.
Fields = dict[type[msgspec.Struct], dict[str, Any]]

_KEPT: dict[type[msgspec.Struct], frozenset[str]] = {
    Report: frozenset(("schema", "run", "compute")),
    Summary: frozenset(Summary.__struct_fields__),
}
REPORT_SECTIONS = tuple(kind.__name__ for kind in _KEPT)


def pack_report(report: Report) -> dict[str, Chunks]:
    """Return the sections of what is known of a report. Raises NotPacked."""
    sections: dict[str, Chunks] = {}
    try:
        for kind, document in ((Report, report), (Summary, report.summary)):
            known = {name: value for name, value in computed(document).items() if name in _KEPT[kind]}
            sections[kind.__name__] = [msgspec.msgpack.encode(known)]
    except (*DAMAGE, UnicodeEncodeError) as error:
        raise NotPacked(str(error)) from error
    return sections


def unpack_report(sections: Mapping[str, bytearray]) -> Fields:
    """Return what sections say of a report. Raises NotPacked."""
    try:
        return {kind: _decode(sections[kind.__name__], kind) for kind in _KEPT}
    except DAMAGE as error:
        raise NotPacked(f"{type(error).__name__}: {error}") from error


def _decode(section: bytearray, kind: type[msgspec.Struct]) -> dict[str, Any]:
    said = msgspec.msgpack.decode(section)
    hints = {name: hint for name, hint in _hints(kind).items() if name in said}
    return {name: _as_said(msgspec.convert(said[name], hint), said[name]) for name, hint in hints.items()}


def _as_said(value: Any, said: Any) -> Any:
    """Return a value with the integers that were said where its type has floats: JSON writes 8 and 8.0 differently."""
    if isinstance(value, float):
        return said
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            if field.encode_name in said:
                whole = _as_said(getattr(value, field.name), said[field.encode_name])
                msgspec.structs.force_setattr(value, field.name, whole)
        return value
    if isinstance(value, dict):
        return dict(zip(value, map(_as_said, value.values(), said.values()), strict=True))
    if isinstance(value, list | tuple):
        return type(value)(map(_as_said, value, said))
    return value


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if name in _KEPT[kind]}
