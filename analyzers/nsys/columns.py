"""Columns of one process's rows, from the tables that hold them.

table            rows become             whose they are
KERNEL ...       kernels, copies         globalPid
RUNTIME          launch calls            globalTid, whose last 24 bits are the thread
NVTX_EVENTS      operators, annotations  globalTid
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, distinct, find, values_at
from analyzers.nsys.database import Database, Rows, get
from analyzers.trace import Args, CallColumns, Category, Codes, Decoded, EventPart, Marks

CUPTI = "CUPTI_ACTIVITY_KIND_"
DEVICE_TABLES = _KERNELS, _COPIES, _SETS = f"{CUPTI}KERNEL", f"{CUPTI}MEMCPY", f"{CUPTI}MEMSET"
# A process's number and a thread's in it are one.
THREADS = 1 << 24
_NO_STREAM, _MOST_NS = (1 << 32) - 1, 1 << 61
_ON_DEVICE = "start end deviceId streamId correlationId? graphNodeId?"
_OF_DEVICE = {"device": "deviceId", "in_device": "", "from_device": "srcDeviceId", "to_device": "dstDeviceId"}
_OF_DEVICE |= {"stream": "streamId", "bytes": "bytes", "grid": "grid"}
_GRID = "gridX? gridY? gridZ? blockX? blockY? blockZ?"
# Ranges that push and pop made; and those with a start and an end of their own, where these are on one thread.
_PUSHED = "eventType = 59"
_STARTED = f"({_PUSHED} OR eventType = 60 AND coalesce(endGlobalTid, globalTid) = globalTid)"
# PyTorch's text of a range: `aten::mm, seq = 7, op_id = 9910`; shapes may follow. No two have one op_id.
_TEXT = "substr(text, 1, coalesce(nullif(instr(text, ', op_id = '), 0) + 9, 65536))"
_BLOB = "CASE WHEN domainId > 0 THEN CAST(substr(binaryData, 1, 4096) AS BLOB) END"

# Calls of CUDA with the version of their interface behind them: cudaLaunchKernel_v7000.
_VERSION = re.compile(r"_v\d{4,}$")
# Constants among template arguments with their types: (int)4, (bool)1.
_TYPED = re.compile(r"\((?:(bool)|(?:unsigned |signed )?(?:int|long|short|char|long long))\)(-?\d+)")
# CUPTI's kinds of copies, of memory and of synchronizations, by number.
_MOVE = ("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD")
_MOVES = dict(enumerate(_MOVE))
_MEMORY = dict(enumerate(("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")))
_WAITS = dict(enumerate(("Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")))
_ODD = "Unknown"
# PyTorch's operators have a namespace; of what else it records some are users' ranges.
_OPERATOR = re.compile(r"(?!FSDP::)[\w.]+::|record_param_comms$|detach_?$")


class Process:
    """Rows of one process in the making; `blobs` are payloads, each with its domain, by the position of its range."""

    def __init__(self, database: Database, pid: int | None) -> None:
        self._database, self._pid = database, pid
        self._names, self._grids = Codes[str](), CallColumns()
        self.blobs: dict[int, tuple[int, bytes]] = {}
        strings = database.read("StringIds", "id value!", texts={"value": "substr(value, 1, 65536)"})
        texts = database.texts(strings["value"])
        self._strings = defaultdict[int, str](str, zip(strings["id"].tolist(), texts, strict=True))

    def decoded(self) -> Decoded:
        """Return all rows, those of devices first, as `assemble` takes them. Raises UnreadableTrace, TooLarge."""
        on_device = [*self._on_device()]
        wanted = "start end globalTid correlationId?"
        calls = [self._named(f"{CUPTI}RUNTIME", Category.LAUNCH, wanted, "nameId", self._name_call)]
        for table in (f"{CUPTI}OVERHEAD", "PROFILER_OVERHEAD"):
            calls.append(self._named(table, Category.OVERHEAD, "start end globalTid?", "nameId", self._name_call))
        about, ranges = "start end correlationId? deviceId? streamId? eventSyncId?", self._ranges()
        syncs = self._named(
            f"{CUPTI}SYNCHRONIZATION", Category.SYNC, about, "syncType", lambda kind: _WAITS.get(kind, _ODD)
        )
        parts = [*on_device, *calls, ranges, syncs]
        first = np.cumsum([0, *(len(part["start"]) for part in parts)])
        ranges_at, syncs_at, total = first[-3:].tolist()
        self._keep_blobs(ranges, ranges_at)
        numbered = np.flatnonzero(ranges["number"] >= 0)

        def joined(name: str, parts: list[Rows] = parts) -> Int64:
            return np.concatenate([get(part, name) for part in parts])

        start_ns, thread = joined("start"), joined("globalTid")
        columns = {
            "category": joined("category").astype(np.int8),
            "name": joined("name"),
            "start_ns": start_ns,
            "dur_ns": joined("end") - start_ns,
            "position": np.arange(total),
            "thread": np.where(thread < 0, UNKNOWN, thread % THREADS),
            "process": np.zeros(total, dtype=np.int64),
            "correlation": joined("correlationId"),
            "external": np.full(first[len(on_device) + 1], UNKNOWN),
            **{name: joined(column, on_device) for name, column in _OF_DEVICE.items()},
            "graph": np.concatenate([_graphs(part) for part in on_device]),
            "forward_row": ranges_at + numbered,
            "forward": ranges["number"][numbered],
            "forward_thread": np.full(len(numbered), UNKNOWN),
            "sync_row": np.arange(syncs_at, total),
            "sync_device": syncs["deviceId"],
            "sync_stream": syncs["streamId"],
            **self._waited(syncs["eventSyncId"]),
        }
        return Decoded(EventPart(total, total, columns), 1, tuple(self._names), {}, self._grids, Marks(), 0)

    def _keep_blobs(self, ranges: Rows, first: int) -> None:
        texts, blob = [*self._database.codes], get(ranges, "blob")
        rows = np.flatnonzero(np.array([*map(bool, texts), False])[blob])
        said = zip(rows.tolist(), get(ranges, "domainId")[rows].tolist(), blob[rows].tolist(), strict=True)
        self.blobs = {first + row: (domain, texts[code]) for row, domain, code in said}

    def _read(self, table: str, wanted: str, where: str = "1", texts: Mapping[str, str] | None = None) -> Rows:
        """Return this process's rows of a table that have times."""
        column, past = ("globalPid", 1) if self._database.has(table, "globalPid") else ("globalTid", THREADS)
        if self._pid is not None and self._database.has(table, column):
            where += f" AND {column} >= {self._pid} AND {column} < {self._pid + past}"
        rows = self._database.read(table, wanted, where, texts)
        start, end = get(rows, "start"), get(rows, "end")
        timed = (np.minimum(start, end) > -_MOST_NS) & (np.maximum(start, end) < _MOST_NS)
        if "streamId" in rows:
            rows["streamId"] = np.where(rows["streamId"] == _NO_STREAM, UNKNOWN, rows["streamId"])
        self._database.odd += int((~timed).sum())
        return rows if timed.all() else {name: column[timed] for name, column in rows.items()}

    def _named(self, table: str, category: Category, wanted: str, by: str, name_of: Callable[..., str]) -> Rows:
        """Return a table's rows with a category, and with names by some of its columns, each made once."""
        rows = self._read(table, f"{wanted} {by}")
        alike = distinct(*(rows[column.rstrip("?")] for column in by.split()))
        names = np.array([self._names[name_of(*line)] for line in alike.lines.T.tolist()], dtype=np.int64)
        return rows | {"name": names[alike.index], "category": np.full(len(alike.index), category)}

    def _on_device(self) -> Iterator[Rows]:
        kernels = self._named(_KERNELS, Category.KERNEL, f"{_ON_DEVICE} {_GRID}", "demangledName", self._name_kernel)
        alike = distinct(*(kernels[side] for side in _GRID.replace("?", "").split()))
        grids = [Args(grid=msgspec.Raw(str(line).encode())) for line in alike.lines.T.tolist()]
        yield kernels | {"grid": self._grids.grids(grids)[alike.index]}
        wanted = f"{_ON_DEVICE} bytes? srcDeviceId? dstDeviceId?"
        yield self._named(_COPIES, Category.MEMCPY, wanted, "copyKind? srcKind? dstKind?", _name_copy)
        yield self._named(
            _SETS,
            Category.MEMSET,
            f"{_ON_DEVICE} bytes?",
            "memKind?",
            lambda kind: f"Memset ({_MEMORY.get(kind, _ODD)})",
        )

    def _name_call(self, number: int) -> str:
        return _VERSION.sub("", self._strings[number])

    def _name_kernel(self, number: int) -> str:
        constant = ("true", "false")
        return _TYPED.sub(lambda typed: constant[typed[2] == "0"] if typed[1] else typed[2], self._strings[number])

    def _ranges(self) -> Rows:
        has_blobs = self._database.has_blobs and self._database.has("NVTX_EVENTS", "binaryData", "domainId")
        texts = {"text": _TEXT} | ({"blob": _BLOB} if has_blobs else {})
        which = _STARTED if self._database.has("NVTX_EVENTS", "endGlobalTid") else _PUSHED
        rows = self._read("NVTX_EVENTS", "start end? globalTid textId? domainId? eventType! text!", which, texts)
        alike = distinct(rows["text"], rows["textId"])
        text, registered = alike.columns
        said = zip(self._database.texts(text), registered.tolist(), strict=True)
        ranges = [_parse_range(own or self._strings[number]) for own, number in said]
        lines = np.array([(self._names[name], *more) for name, *more in ranges], dtype=np.int64).reshape(-1, 3)
        name, is_operator, sequence = lines[alike.index].T
        category = np.where(is_operator, Category.OPERATOR, Category.ANNOTATION)
        return rows | {"name": name, "category": category, "number": sequence}

    def _waited(self, sync: Int64) -> Rows:
        """Return the stream of the event that was waited for, and the call that recorded it, where that is known."""
        events = self._read(f"{CUPTI}CUDA_EVENT", "eventSyncId? correlationId? streamId?")
        order = np.argsort(events["eventSyncId"], kind="stable")
        found = np.where(sync >= 0, values_at(order, find(events["eventSyncId"][order], sync)), UNKNOWN)
        told = {"sync_wait_on_stream": "streamId", "sync_wait_on_record": "correlationId"}
        return {name: values_at(events[column], found) for name, column in told.items()}


def _parse_range(text: str) -> tuple[str, bool, int]:
    """Return a range's name, whether it is an operator, and autograd's number of it, where PyTorch wrote one."""
    said, is_of_pytorch, _ = text.partition(", op_id = ")
    name, _, number = said.partition(", seq = ")
    if is_of_pytorch and number.isdecimal():
        return name, True, int(number[:18])
    return said if is_of_pytorch else text, bool(is_of_pytorch and _OPERATOR.match(said)), UNKNOWN


def _name_copy(kind: int, source: int, target: int) -> str:
    return f"Memcpy {_MOVES.get(kind, _ODD)} ({_MEMORY.get(source, _ODD)} -> {_MEMORY.get(target, _ODD)})"


def _graphs(rows: Rows) -> Int64:
    """Return the graph that launched each row, by the least of its nodes in a launch; -1 for none."""
    node, launches = rows["graphNodeId"], distinct(rows["correlationId"])
    least = np.full(len(launches), _MOST_NS)
    np.minimum.at(least, launches.index, np.where(node < 0, _MOST_NS, node))
    return np.where(node < 0, UNKNOWN, least[launches.index])
