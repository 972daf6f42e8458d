"""A trace file -> columns. The only owner of Kineto's keys, of gzip and of JSON.

Kineto writes microseconds with three decimals; they arrive as exact integer nanoseconds, on the epoch
(`baseTimeNanoseconds` added). Nothing but the rows of `classify.Category` is kept.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.classify import DEVICE_CATEGORIES, Category, is_waiting, kinds
from analyzers.errors import UnreadableTrace
from analyzers.units import NS_PER_US

Int64 = NDArray[np.int64]

_CATEGORIES = {
    "kernel": Category.KERNEL,
    "gpu_memcpy": Category.MEMCPY,
    "gpu_memset": Category.MEMSET,
    "cuda_runtime": Category.LAUNCH,
    "cuda_driver": Category.LAUNCH,
    "hip_runtime": Category.LAUNCH,
    "hip_driver": Category.LAUNCH,
    "xpu_runtime": Category.LAUNCH,
    "xpu_driver": Category.LAUNCH,
    "privateuse1_runtime": Category.LAUNCH,
    "privateuse1_driver": Category.LAUNCH,
    "cpu_op": Category.OPERATOR,
    "user_annotation": Category.ANNOTATION,
}
# Categories were capitalized before 2022.
_CATEGORIES |= {
    "Kernel": Category.KERNEL,
    "Memcpy": Category.MEMCPY,
    "Memset": Category.MEMSET,
    "Runtime": Category.LAUNCH,
    "Operator": Category.OPERATOR,
}

# Below 2**43 us a float64 keeps apart all decimal nanoseconds; above it, the digits themselves are read.
_EXACT_FLOAT_US = 2.0**43
_LAST_US = 2**62 // NS_PER_US

UNKNOWN = -1


class _Args(msgspec.Struct, gc=False, frozen=True):
    correlation: int = UNKNOWN
    device: int = UNKNOWN
    stream: int | str = UNKNOWN  # ROCm writes a pointer, as text, on its host rows
    bytes: int = UNKNOWN
    from_device: int = msgspec.field(default=UNKNOWN, name="fromDevice")
    in_device: int = msgspec.field(default=UNKNOWN, name="inDevice")
    to_device: int = msgspec.field(default=UNKNOWN, name="toDevice")


_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float | None = None
    dur: float = 0
    pid: int | str = UNKNOWN
    tid: int | str = UNKNOWN
    args: _Args = _NO_ARGS


class _DecimalEvent(_Event, gc=False):
    ts: Decimal | None = None  # type: ignore[assignment]  # the same key, read digit by digit
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


E = TypeVar("E", bound=_Event)


class _Header(msgspec.Struct):
    base_time_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    distributed: dict[str, Any] = msgspec.field(default_factory=dict, name="distributedInfo")
    devices: list[dict[str, Any]] = msgspec.field(default_factory=list, name="deviceProperties")
    host_name: str | None = None
    cuda_runtime_version: int | None = None
    cuda_driver_version: int | None = None


class _Document(_Header, Generic[E], kw_only=True):
    events: list[E] = msgspec.field(name="traceEvents")


@dataclass(frozen=True)
class Header:
    """What a trace says of itself outside its events. Empty where it says nothing."""

    base_time_ns: int = 0
    distributed: dict[str, Any] = field(default_factory=dict)
    device_names: tuple[str, ...] = ()
    host_name: str | None = None
    cuda_runtime_version: int | None = None
    cuda_driver_version: int | None = None


@dataclass(frozen=True, eq=False)
class Events:
    """The rows of one trace file as columns of one length; -1 where a row does not have the value.

    `name` indexes `names`. `thread` is the host thread (rows of the host), `device` the device (rows of a device),
    `peer` the other device of a copy between two. Times are nanoseconds since the epoch.
    """

    category: NDArray[np.int8]
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    names: tuple[str, ...]
    start_ns: Int64
    dur_ns: Int64
    thread: Int64
    device: NDArray[np.int32]
    peer: NDArray[np.int32]
    stream: Int64
    correlation: Int64
    nbytes: Int64

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64:
        """End of every row, half-open."""
        return self.start_ns + self.dur_ns

    @cached_property
    def on_device(self) -> NDArray[np.bool_]:
        """The rows that are device activity."""
        return np.isin(self.category, DEVICE_CATEGORIES)

    def named(self, prefix: str) -> NDArray[np.bool_]:
        """The rows whose name starts with a prefix."""
        return np.array([name.startswith(prefix) for name in self.names], dtype=bool)[self.name]

    def take(self, rows: NDArray[Any]) -> Events:
        """The rows that a mask or an index selects, names kept as they are."""
        columns = {key: value[rows] for key, value in self.columns().items()}
        return replace(self, **columns)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns by name, in the order of the fields."""
        return {name: getattr(self, name) for name in _COLUMNS}


_COLUMNS = (
    "category",
    "kind",
    "name",
    "start_ns",
    "dur_ns",
    "thread",
    "device",
    "peer",
    "stream",
    "correlation",
    "nbytes",
)


@dataclass(frozen=True, eq=False)
class Trace:
    """One file: its header, its rows, and what of it could not be read, in words."""

    header: Header
    events: Events
    lost: tuple[str, ...]


def read_trace(path: Path) -> Trace:
    """Read one trace file, gzip or plain, an object with `traceEvents` or a bare array of events.

    Raises UnreadableTrace where the file cannot be opened or is no trace.
    """
    document = _content(path)
    try:
        return _decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_leniently(document, path)


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return _inflate(raw) if raw[:2] == b"\x1f\x8b" else raw
    except IsADirectoryError as error:
        raise UnreadableTrace(f"{path}: a folder, not a trace file") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableTrace(f"{path}: cannot be read ({reason}); copy or record it again") from error


def _inflate(raw: bytes) -> bytes:
    try:
        from isal import igzip
    except ImportError:
        return gzip.decompress(raw)
    inflated: bytes = igzip.decompress(raw)  # type: ignore[no-untyped-call]
    return inflated


def _decode(document: bytes) -> Trace:
    """Typed structs straight from the bytes; microseconds as floats, or as decimals where a float would lose digits."""
    header, events = _parse(document, _Event)
    if any(event.ts is not None and abs(event.ts) >= _EXACT_FLOAT_US for event in events):
        header, events = _parse(document, _DecimalEvent)
    return Trace(_header(header), _columns(events, header.base_time_ns), ())


def _parse(document: bytes, event: type[_Event]) -> tuple[_Header, list[_Event]]:
    if document.lstrip()[:1] == b"[":
        return _Header(), msgspec.json.decode(document, type=list[event])  # type: ignore[valid-type]
    whole = msgspec.json.decode(document, type=_Document[event])  # type: ignore[valid-type]
    return whole, whole.events


def _decode_leniently(document: bytes, path: Path) -> Trace:
    """Event by event, for a document whose odd values the typed path refuses; events that make no sense are counted."""
    try:
        whole = json.loads(document.decode("utf-8-sig", errors="replace"), strict=False, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise UnreadableTrace(f"{path}: not JSON ({error}); record it again, or cut it back to whole events") from error
    rows = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(rows, list):
        raise UnreadableTrace(f"{path}: JSON, but no trace (no traceEvents); give a file that torch.profiler exported")
    header = _Header()
    if isinstance(whole, dict):
        header = _convert({key: value for key, value in whole.items() if key != "traceEvents"}, _Header) or header
    events = [_convert(row, _DecimalEvent) or _convert(_without_odd_args(row), _DecimalEvent) for row in rows]
    read = [event for event in events if event is not None]
    lost = len(events) - len(read)
    said = (f"{path.name}: {lost} of {len(events)} events could not be read and are left out",) if lost else ()
    return Trace(_header(header), _columns(read, header.base_time_ns), said)


T = TypeVar("T")


def _convert(value: Any, wanted: type[T]) -> T | None:
    try:
        return msgspec.convert(value, wanted, strict=False)
    except msgspec.ValidationError:
        return None


def _without_odd_args(row: Any) -> Any:
    """The event with only those arguments that are of their type: an odd one must not cost the event its time."""
    if not isinstance(row, dict):
        return row
    args = row.get("args")
    if not isinstance(args, dict):
        return row | {"args": {}}
    return row | {"args": {key: value for key, value in args.items() if _convert({key: value}, _Args)}}


def _header(header: _Header) -> Header:
    return Header(
        header.base_time_ns,
        header.distributed,
        tuple(str(device.get("name", "")) for device in header.devices),
        header.host_name,
        header.cuda_runtime_version,
        header.cuda_driver_version,
    )


def _columns(events: Sequence[_Event], base_time_ns: int) -> Events:
    """The rows that analyses read, as columns."""
    rows = [(event, _CATEGORIES[event.cat]) for event in events if event.cat in _CATEGORIES and _counts(event)]
    category = np.array([category for _, category in rows], dtype=np.int8)
    codes: dict[str, int] = {}
    name = np.array([codes.setdefault(event.name, len(codes)) for event, _ in rows], dtype=np.int32)
    names = tuple(codes)
    source, target = _pairs(rows)
    between = (category == Category.MEMCPY) & (source >= 0) & (target >= 0) & (source != target)
    unsaid = (category == Category.MEMCPY) & ((source < 0) | (target < 0))
    peer_to_peer = unsaid & np.array([event.name.startswith("Memcpy PtoP") for event, _ in rows], dtype=bool)
    return Events(
        category=category,
        kind=kinds(category, name, names, between | peer_to_peer),
        name=name,
        names=names,
        start_ns=_nanoseconds([event.ts for event, _ in rows]) + base_time_ns,
        dur_ns=np.maximum(_nanoseconds([event.dur for event, _ in rows]), 0),
        thread=np.array([_thread(event.tid) for event, _ in rows], dtype=np.int64),
        device=np.where(between, source, _devices(rows)).astype(np.int32),
        peer=np.where(between, target, UNKNOWN).astype(np.int32),
        stream=np.array([_stream(event.args.stream) for event, _ in rows], dtype=np.int64),
        correlation=np.array([event.args.correlation for event, _ in rows], dtype=np.int64),
        nbytes=np.array([event.args.bytes for event, _ in rows], dtype=np.int64),
    )


def _counts(event: _Event) -> bool:
    """Whether an event is a complete one, with a time that can be one, of something other than waiting."""
    if event.ph != "X" or event.ts is None or is_waiting(event.name):
        return False
    # A comparison with a float NaN is false, and what lies beyond an int64 of nanoseconds is no time.
    return abs(float(event.ts)) < _LAST_US and abs(float(event.dur)) < _LAST_US


def _pairs(rows: Sequence[tuple[_Event, Category]]) -> tuple[Int64, Int64]:
    """The devices that each copy runs from and to."""
    source = np.array([event.args.from_device for event, _ in rows], dtype=np.int64)
    target = np.array([event.args.to_device for event, _ in rows], dtype=np.int64)
    return source, target


def _devices(rows: Sequence[tuple[_Event, Category]]) -> Int64:
    """The device of each device row: what it says, else where it ran, else its process, which Kineto numbers so."""
    devices = [_device(event) if category in DEVICE_CATEGORIES else UNKNOWN for event, category in rows]
    return np.array(devices, dtype=np.int64)


def _device(event: _Event) -> int:
    for device in (event.args.device, event.args.in_device, event.pid):
        if isinstance(device, int) and device >= 0:
            return device
    return 0


def _stream(stream: int | str) -> int:
    return stream if isinstance(stream, int) else UNKNOWN


def _thread(tid: int | str) -> int:
    # Threads are numbers in every layout seen; a name is kept apart from them by its own checksum.
    return tid if isinstance(tid, int) else -zlib.crc32(tid.encode()) - 2


def _nanoseconds(microseconds: Sequence[float | Decimal | None]) -> Int64:
    """Decimal microseconds -> integer nanoseconds, half to even."""
    if microseconds and isinstance(microseconds[0], Decimal):
        digits = (int((value * NS_PER_US).to_integral_value(ROUND_HALF_EVEN)) for value in microseconds)  # type: ignore[operator,union-attr]
        return np.fromiter(digits, dtype=np.int64, count=len(microseconds))
    # The fraction apart: round(us * 1000) rounds twice, and is wrong for a quarter of the values above 2**42.
    value = np.array(microseconds, dtype=np.float64)
    whole = np.floor(value)
    return whole.astype(np.int64) * NS_PER_US + np.rint((value - whole) * NS_PER_US).astype(np.int64)
