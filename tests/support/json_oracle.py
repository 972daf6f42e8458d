"""Oracle of reading: what json, gzip and Decimal alone make of a trace file."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

from analyzers.trace.reader import Trace
from tests.support.generator import dumps

CATEGORIES = {
    "kernel": 1, "gpu_memcpy": 2, "gpu_memset": 3, "cuda_runtime": 4, "cuda_driver": 4, "cpu_op": 5,
    "user_annotation": 6,
}  # fmt: skip
# Other writers' categories, of which it has none.
_FOREIGN = ("hip_runtime", "hip_driver", "Kernel", "Memcpy", "Memset", "Runtime", "Operator")
WAITING = ("Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync", "Device Sync")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# A rank's time beyond these is none; a digit beyond the third is no nanosecond, and rounds as its writer likes.
_LATEST_US = 2**62 // 1000
_BITS = 2**63

Row = tuple[Any, ...]


class NotJson(Exception):
    """The file is no JSON document, or the gzip around it is damaged."""


class Unknown(Exception):
    """The oracle has no opinion: a value is not of the type that PyTorch writes, or is too deep for json."""


def inflated(data: bytes) -> bytes:
    """The document in a file. Raises NotJson."""
    try:
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:
        raise NotJson(str(error)) from error


def parsed(data: bytes) -> Any:
    """The document that strict JSON makes of bytes, its fractions as Decimals. Raises NotJson, Unknown."""
    try:
        return json.loads(data.decode("utf-8-sig"), parse_float=Decimal, parse_constant=_no_number)
    except RecursionError as error:
        raise Unknown from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise NotJson(str(error)) from error
    except (ValueError, ArithmeticError) as error:
        raise Unknown from error  # Python's limit for the digits of a number; JSON has none


def _no_number(word: str) -> None:
    raise NotJson(word)


def events_of(document: Any) -> list[Any]:
    """The events of a document. Raises Unknown where it has no list of them."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise Unknown
    return events


def expected(document: Any) -> list[Row]:
    """The rows of a document's host and device activity. Raises Unknown."""
    base = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    if type(base) is not int:
        raise Unknown
    rows = (expected_row(event, base) for event in events_of(document))
    return [row for row in rows if row is not None]


def expected_row(event: Any, base: int) -> Row | None:
    """One event's row, None where none is made of it. Raises Unknown."""
    event = {key: value for key, value in _typed(event, dict).items() if key in _FIELDS}
    texts = {key: _typed(event.get(key, ""), str) for key in ("ph", "cat", "name")}
    if texts["cat"] in _FOREIGN:
        raise Unknown
    if texts["ph"] != "X" or texts["cat"] not in CATEGORIES or texts["name"] in WAITING:
        return None
    numbers = {key: _number(event.get(key, -1)) for key in ("pid", "tid")}
    args = _typed(event.get("args", {}), dict)
    said = {key: _number(args.get(key, -1)) for key in _NUMBERS}
    on_device = texts["cat"] in DEVICE
    return (
        CATEGORIES[texts["cat"]],
        # Half of a surrogate pair is no character.
        re.sub("[\ud800-\udfff]", "\ufffd", texts["name"]),
        _ns(event.get("ts")) + base,
        max(_ns(event.get("dur", 0)), 0),
        numbers["tid"],
        said["correlation"],
        _device(said, numbers["pid"], texts["cat"]) if on_device else -1,
        said["stream"] if on_device else -1,
        said["bytes"] if on_device else -1,
    )


_FIELDS = ("ph", "cat", "name", "ts", "dur", "pid", "tid", "args")
_NUMBERS = ("correlation", "stream", "bytes", "device", "fromDevice", "inDevice", "toDevice")


def _device(said: dict[str, int], process: int, category: str) -> int:
    """The device of a row; of a copy between two, the one that it leaves."""
    source, target = said["fromDevice"], said["toDevice"]
    if category == "gpu_memcpy" and source >= 0 and target >= 0 and source != target:
        return min(source, 2**31 - 1)
    places = (said["device"], said["inDevice"], process)
    return min(next((place for place in places if place >= 0), 0), 2**31 - 1)


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Unknown
    return value


def _number(value: Any) -> int:
    number: int = _typed(value, int)
    return number if -_BITS <= number < _BITS else -1


def _ns(microseconds: Any) -> int:
    if type(microseconds) not in (int, Decimal):
        raise Unknown
    value = Decimal(microseconds)
    if not value.is_finite() or value.adjusted() > 20 or abs(value) >= _LATEST_US or value != round(value, 3):
        raise Unknown
    return int(value * 1000)


def rows_of(trace: Trace) -> list[Row]:
    """A trace's rows of host and device activity, as the oracle makes them."""
    found = trace.events
    columns = (
        found.category, [found.names[code] for code in found.name], found.start_ns, found.dur_ns, found.thread,
        found.correlation, found.device, found.stream, found.nbytes,
    )  # fmt: skip
    rows = zip(*(column if isinstance(column, list) else column.tolist() for column in columns), strict=True)
    return [row for row in rows if row[0] in CATEGORIES.values()]


class _Digits(float):
    """A decimal that json writes digit by digit."""

    def __new__(cls, value: Decimal) -> _Digits:
        number = super().__new__(cls, value)
        number.digits = str(value)
        return number

    def __repr__(self) -> str:
        return self.digits


def plain(value: Any) -> Any:
    """The same value for `json.dumps`, its Decimals with all their digits."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return _Digits(value) if isinstance(value, Decimal) and value.is_finite() else value


def rewritten(document: Any, path: Path) -> Path:
    """A file with the same document as json writes it, every key once."""
    path.write_text(dumps(document))
    return path
