"""Device rows decoded from buffers of CUPTI's activity records.

Offsets are those of CUpti_ActivityKernel9 to 11, Memcpy5 and 6, MemcpyPtoP4, Memset3 and 4 (cupti_activity.h and
cupti_activity_deprecated.h of CUDA 12.1 to 13.5), which differ only in what they add at their ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tracer.recording.windows.libcupti import CONCURRENT_KERNEL, MEMCPY, MEMCPY2, MEMSET, Cupti, CuptiUnusable

WORD = 4
# Kineto demangles no longer names either.
LONGEST_MANGLED = 8192

Field = tuple[str, int]
_TIMES: dict[str, Field] = {"start": ("<u8", 16), "end": ("<u8", 24)}
_OF_MEMORY: dict[str, Field] = {
    **_TIMES,
    "bytes": ("<u8", 8),
    "device": ("<u4", 32),
    "context": ("<u4", 36),
    "stream": ("<u4", 40),
}
_COPY: dict[str, Field] = {**_OF_MEMORY, "copy_kind": ("u1", 4), "from_kind": ("u1", 5), "to_kind": ("u1", 6)}
LAYOUTS: dict[int, dict[str, Field]] = {
    CONCURRENT_KERNEL: {
        **_TIMES,
        "registers": ("<u2", 6),
        "device": ("<u4", 40),
        "context": ("<u4", 44),
        "stream": ("<u4", 48),
        "grid": ("<3i4", 52),
        "block": ("<3i4", 64),
        "static_memory": ("<i4", 76),
        "dynamic_memory": ("<i4", 80),
        "correlation": ("<u4", 92),
        "name": ("<u8", 104),
        "graph_node": ("<u8", 144),
    },
    MEMCPY: {**_COPY, "correlation": ("<u4", 44), "graph_node": ("<u8", 64)},
    MEMCPY2: {
        **_COPY,
        "from_device": ("<u4", 44),
        "from_context": ("<u4", 48),
        "to_device": ("<u4", 52),
        "to_context": ("<u4", 56),
        "correlation": ("<u4", 60),
        "graph_node": ("<u8", 72),
    },
    MEMSET: {**_OF_MEMORY, "correlation": ("<u4", 44), "memory_kind": ("<u2", 50), "graph_node": ("<u8", 64)},
}
# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind, in the words of Kineto's traces.
COPY_KINDS = ("<unknown>", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
MEMORY_KINDS = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")


class DeviceRow(msgspec.Struct, frozen=True, gc=False):
    """One kernel, copy or memset: its category and name as Kineto has them, times in ns on the clock of records."""

    category: str
    name: str
    start_ns: int
    end_ns: int
    device: int
    stream: int
    arguments: dict[str, Any]


def device_rows(cupti: Cupti, buffers: Iterable[NDArray[np.uint8]]) -> list[DeviceRow]:
    """Decode all records of buffers, in order of their starts. Names are read from the process's memory, still there.

    Raises CuptiUnusable where CUPTI could not give all of them their times, which are zero then.
    """
    names = _Names()
    rows = [row for buffer in buffers for row in _rows_of(cupti, buffer, names)]
    timeless = sum(not 0 < row.start_ns <= row.end_ns for row in rows)
    if timeless:
        raise CuptiUnusable(f"{timeless} of {len(rows)} records have no times")
    return sorted(rows, key=lambda row: (row.start_ns, row.arguments["correlation"]))


def _rows_of(cupti: Cupti, buffer: NDArray[np.uint8], names: _Names) -> Iterator[DeviceRow]:
    places = np.array(_places(cupti, buffer), dtype=np.int64)
    kinds = buffer[places[:, None] + np.arange(WORD)].view("<u4").ravel() if len(places) else places
    for kind, layout in LAYOUTS.items():
        record = np.dtype(
            {
                "names": list(layout),
                "formats": [kind_of_field for kind_of_field, _ in layout.values()],
                "offsets": [offset for _, offset in layout.values()],
            }
        )
        of_kind = places[kinds == kind]
        table = buffer[of_kind[:, None] + np.arange(record.itemsize)].view(record).ravel()
        columns = [table[name].tolist() for name in layout]
        for values in zip(*columns, strict=True):
            yield _row(kind, dict(zip(layout, values, strict=True)), names)


def _places(cupti: Cupti, buffer: NDArray[np.uint8]) -> list[int]:
    """Where each record of a buffer begins: how long they are is CUPTI's to say, which differs between versions."""
    base = buffer.ctypes.data
    record = ctypes.c_void_p()
    places = []
    while cupti.next_record(base, len(buffer), record):
        places.append((record.value or 0) - base)
    return places


def _row(kind: int, fields: dict[str, Any], names: _Names) -> DeviceRow:
    arguments = {key: fields[key] for key in ("device", "context", "stream", "correlation")}
    if fields["graph_node"]:
        arguments["graph node id"] = fields["graph_node"]
    if kind == CONCURRENT_KERNEL:
        category, name = "kernel", names[fields["name"]]
        arguments["registers per thread"] = fields["registers"]
        arguments["shared memory"] = fields["static_memory"] + fields["dynamic_memory"]
        arguments |= {"grid": fields["grid"], "block": fields["block"]}
    elif kind == MEMSET:
        category, name = "gpu_memset", f"Memset ({_word(MEMORY_KINDS, fields['memory_kind'])})"
        arguments["bytes"] = fields["bytes"]
    else:
        category, name = "gpu_memcpy", _copy(fields)
        arguments["bytes"] = fields["bytes"]
    if kind == MEMCPY2:
        # As Kineto has them: such a copy is of no one device.
        arguments = {"fromDevice": fields["from_device"], "inDevice": arguments.pop("device")} | arguments
        arguments |= {"toDevice": fields["to_device"], "inContext": arguments.pop("context")}
        arguments |= {"fromContext": fields["from_context"], "toContext": fields["to_context"]}
    return DeviceRow(category, name, fields["start"], fields["end"], fields["device"], fields["stream"], arguments)


def _copy(fields: dict[str, Any]) -> str:
    source, target = _word(MEMORY_KINDS, fields["from_kind"]), _word(MEMORY_KINDS, fields["to_kind"])
    return f"Memcpy {_word(COPY_KINDS, fields['copy_kind'])} ({source} -> {target})"


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if number < len(words) else "Unrecognized"


class _Names(dict[int, str]):
    """Kernels' names by where the process has them, demangled as Kineto does."""

    def __init__(self) -> None:
        super().__init__()
        # Within a class Python would rename what begins with two underscores.
        self._demangle = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
        self._demangle.restype = ctypes.c_void_p
        self._demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]

    def __missing__(self, address: int) -> str:
        mangled = ctypes.string_at(address) if address else b""
        self[address] = (self._demangled(mangled) or mangled).decode(errors="replace")
        return self[address]

    def _demangled(self, mangled: bytes) -> bytes | None:
        if len(mangled) > LONGEST_MANGLED:
            return None
        status = ctypes.c_int()
        text = self._demangle(mangled, None, None, ctypes.byref(status))
        if status.value or not text:
            return None
        try:
            return ctypes.string_at(text)
        finally:
            self._free(text)
