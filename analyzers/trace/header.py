"""Header of a trace: what it says outside its events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from analyzers.notices import Code
from analyzers.trace.decoding import LAST_NS, Oddity, make_readable, raw_decode

T = TypeVar("T", bound=msgspec.Struct)

_BASE = "baseTimeNanoseconds"
_SPACE = b" \t\r\n"
_GAP = _SPACE + b","


@dataclass(frozen=True)
class Remedies:
    """What brings into files of a kind what one lacks, None where nothing does; by default of torch.profiler's."""

    steps: str = "call profiler.step() in the loop"
    modules: str | None = (
        "for the model's modules profile with with_stack=True and with_modules=True, or record with tracer"
    )
    shapes: str | None = Code.FLOPS_ARE_NULL.facts.do


@dataclass(frozen=True)
class Header:
    """What a trace says of itself outside its events, empty where it says nothing, and remedies of its kind of file."""

    base_time_ns: int = 0
    distributed: dict[str, Any] = field(default_factory=dict)
    device_names: tuple[str, ...] = ()
    host_name: str | None = None
    cuda_runtime_version: int | None = None
    cuda_driver_version: int | None = None
    remedies: Remedies = Remedies()


class _WrittenHeader(msgspec.Struct):
    base_time_ns: int = msgspec.field(default=0, name=_BASE)
    distributed: dict[str, Any] = msgspec.field(default_factory=dict, name="distributedInfo")
    devices: list[dict[str, Any]] = msgspec.field(default_factory=list, name="deviceProperties")
    host_name: str | None = None
    cuda_runtime_version: int | None = None
    cuda_driver_version: int | None = None


@dataclass(frozen=True)
class Outside:
    """What stands around the events: the header, what of it was lost, and what of it is no JSON but was read.

    `behind` is the text that follows the document, `torn` how many bytes follow the events and are no JSON: nothing of
    them was read.
    """

    header: Header
    lost: tuple[str, ...] = ()
    oddities: frozenset[Oddity] = frozenset()
    behind: bytes = b""
    torn: int = 0


def outside(before: bytes, behind: bytes) -> Outside:
    """Build the header from the text on both sides of the event list; where commas are wrong, something may be gone."""
    before, behind = before.strip(_SPACE), behind.strip(_SPACE)
    if not before:
        return Outside(Header(), behind=behind)
    lost = []
    front = _parse_object(before.rstrip(_GAP) + b"}")
    if front is None or front.rest:
        front = _Object(_recover_values(before))
        lost.append(f"the header before the events{_but_for(front.values)}")
    elif before[len(before.rstrip(_GAP)) :].count(b",") != bool(front.values):
        lost.append("what may have stood before the events (a comma is missing there, or one too many)")
    back, torn = _parse_object(b"{" + behind.lstrip(_GAP)), 0
    if back is None:
        back, torn = _Object(_recover_values(behind)), len(behind)
        follows = f"the {torn:,} bytes that follow the events" if torn else "what may have followed the events"
        lost.append(f"{follows}{_but_for(back.values)}")
    elif behind[: -len(behind.lstrip(_GAP))].count(b",") != bool(back.values):
        lost.append("what may have followed the events (a comma is missing there, or one too many)")
    if "traceEvents" in back.values:
        lost.append("a second list of traceEvents")
    header, odd = _check_values(front.values | back.values)
    oddities = frozenset(front.oddities | back.oddities)
    return Outside(header, (*lost, *odd), oddities, back.rest.encode(), torn)


def _check_values(values: dict[str, Any]) -> tuple[Header, list[str]]:
    """Those values that are of their type, and what is said of the others."""
    header = _build_header(values)
    if header is not None:
        return _redact(header), []
    kept = {key: value for key, value in values.items() if _build_header({key: value}) is not None}
    return _redact(_build_header(kept) or _WrittenHeader()), [
        f"the header's {', '.join(sorted(set(values) - set(kept)))}"
    ]


def _build_header(values: dict[str, Any]) -> _WrittenHeader | None:
    """Build a header whose values are of their type, and whose epoch is one; None of others."""
    header = convert(values, _WrittenHeader)
    return header if header is not None and 0 <= header.base_time_ns <= LAST_NS else None


def _recover_values(text: bytes) -> dict[str, Any]:
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


@dataclass(frozen=True)
class _Object:
    values: dict[str, Any]
    rest: str = ""
    oddities: frozenset[Oddity] = frozenset()


def _parse_object(data: bytes) -> _Object | None:
    """A JSON object at the front of a text, and what stands behind it; None where there is none."""
    text, oddities = make_readable(data)
    try:
        parsed, end, oddities = raw_decode(text, oddities)
    except (ValueError, RecursionError):
        return None
    return _Object(parsed, text[end:].strip(" \t\r\n"), frozenset(oddities))


def _redact(header: _WrittenHeader) -> Header:
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
