"""Header of a trace: what it says outside its events."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from analyzers.trace.lenient_json import cleaned
from analyzers.trace.timestamps import LAST_NS

T = TypeVar("T", bound=msgspec.Struct)

_BASE = "baseTimeNanoseconds"


@dataclass(frozen=True)
class Header:
    """What a trace says of itself outside its events. Empty where it says nothing."""

    base_time_ns: int = 0
    distributed: dict[str, Any] = field(default_factory=dict)
    device_names: tuple[str, ...] = ()
    host_name: str | None = None
    cuda_runtime_version: int | None = None
    cuda_driver_version: int | None = None


class _WrittenHeader(msgspec.Struct):
    base_time_ns: int = msgspec.field(default=0, name=_BASE)
    distributed: dict[str, Any] = msgspec.field(default_factory=dict, name="distributedInfo")
    devices: list[dict[str, Any]] = msgspec.field(default_factory=list, name="deviceProperties")
    host_name: str | None = None
    cuda_runtime_version: int | None = None
    cuda_driver_version: int | None = None


def whole_header(before: bytes, behind: bytes) -> tuple[Header, list[str]]:
    """Build the header from the text on both sides of the event list, and list what was lost."""
    behind = behind.lstrip(b" \t\r\n,")
    if not before:
        return Header(), (["text behind the document"] if behind.strip(b"\0") else [])
    lost = []
    parsed, rest = _object(before.rstrip(b" \t\r\n,") + b"}")
    if parsed is None or rest:
        lost.append(f"the header before the events{_but_for(parsed := _recovered(before))}")
    more, rest = _object(b"{" + behind)
    if more is None:
        lost.append(f"what follows the events{_but_for(more := _recovered(behind))}")
    elif "traceEvents" in more:
        lost.append("a second list of traceEvents")
    if rest.strip("\0 \t\r\n"):
        lost.append("text behind the document")
    values = (parsed or {}) | more
    header = convert(values, _WrittenHeader)
    if header is None or not 0 <= header.base_time_ns <= LAST_NS:
        kept = _fields(values)
        header = convert(kept, _WrittenHeader) or _WrittenHeader()
        lost.append(f"the header's {', '.join(sorted(set(values) - set(kept)))}")
    return _public(header), lost


def _recovered(text: bytes) -> dict[str, Any]:
    """What times and ranks need of a header that does not parse."""
    values: dict[str, Any] = {}
    if base := re.search(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b', text):
        values[_BASE] = int(base[1])
    matches = {name: re.search(rb'"%s"\s*:\s*(\d{1,9})\b' % name.encode(), text) for name in ("rank", "world_size")}
    if any(matches.values()):
        values["distributedInfo"] = {name: int(match[1]) for name, match in matches.items() if match}
    return values


def _but_for(values: dict[str, Any]) -> str:
    return f" (but for {', '.join(sorted(values))})" if values else ""


def _object(text: bytes) -> tuple[dict[str, Any] | None, str]:
    """A JSON object at the front of a text, and what stands behind it; None where there is none."""
    document = cleaned(text.decode("utf-8", errors="replace"))
    try:
        parsed, end = json.JSONDecoder(strict=False).raw_decode(document)
    except (ValueError, RecursionError):
        return None, ""
    return parsed, document[end:]


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    """Those values of a header that are of their type, and an epoch that is one."""
    kept = {key: value for key, value in values.items() if convert({key: value}, _WrittenHeader) is not None}
    if not 0 <= kept.get(_BASE, 0) <= LAST_NS:
        del kept[_BASE]
    return kept


def _public(header: _WrittenHeader) -> Header:
    return Header(
        header.base_time_ns,
        header.distributed,
        tuple(str(device.get("name", "")) for device in header.devices),
        header.host_name,
        header.cuda_runtime_version,
        header.cuda_driver_version,
    )


def convert(value: Any, wanted: type[T]) -> T | None:
    """Build a struct from a value, numbers in strings taken for numbers; None where it has another form."""
    try:
        return msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError:
        return None
