"""Columns of one process's rows, from the tables that hold them.

table            rows become             whose they are
KERNEL ...       kernels, copies         globalPid
RUNTIME          launch calls            globalTid, whose last 24 bits are the thread
NVTX_EVENTS      operators, annotations  globalTid
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, distinct, find, values_at
from analyzers.nsys.collectives import Payload, read_payloads
from analyzers.nsys.database import ODD_ROWS, Database, Rows, get
from analyzers.trace import Args, CallColumns, Category, Codes, Decoded, EventPart, Marks

CUPTI = "CUPTI_ACTIVITY_KIND_"
DEVICE_TABLES = _KERNELS, _COPIES, _SETS = f"{CUPTI}KERNEL", f"{CUPTI}MEMCPY", f"{CUPTI}MEMSET"
# A process's number and a thread's in it are one.
THREADS = 1 << 24
_NO_STREAM, _MOST_NS = (1 << 32) - 1, 1 << 61

_GRID = "gridX? gridY? gridZ? blockX? blockY? blockZ?"
_ON_DEVICE = "start end deviceId streamId correlationId? graphNodeId?"
_COPIED = "bytes? srcDeviceId? dstDeviceId? copyKind? srcKind? dstKind?"
_SYNCED = "start end correlationId? deviceId? streamId? eventSyncId? syncType"
# All tables but that of ranges: columns that are read, the category of rows, and names, made of what columns stand for.
_TABLES = (
    (_KERNELS, f"{_ON_DEVICE} {_GRID} demangledName", Category.KERNEL, "{demangledName}"),
    (_COPIES, f"{_ON_DEVICE} {_COPIED}", Category.MEMCPY, "Memcpy {copyKind} ({srcKind} -> {dstKind})"),
    (_SETS, f"{_ON_DEVICE} bytes? memKind?", Category.MEMSET, "Memset ({memKind})"),
    (f"{CUPTI}RUNTIME", "start end globalTid correlationId? nameId", Category.LAUNCH, "{nameId}"),
    (f"{CUPTI}OVERHEAD", "start end globalTid? nameId", Category.OVERHEAD, "{nameId}"),
    ("PROFILER_OVERHEAD", "start end globalTid? nameId", Category.OVERHEAD, "{nameId}"),
    (f"{CUPTI}SYNCHRONIZATION", _SYNCED, Category.SYNC, "{syncType}"),
)
# CUPTI's kinds of copies, of memory and of synchronizations, by number; other columns that name rows hold strings' ids.
_MOVE = ("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD")
_MOVES = dict(enumerate(_MOVE))
_MEMORY = dict(enumerate(("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")))
_WAITS = dict(enumerate(("Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")))
_KINDS = {"copyKind": _MOVES, "srcKind": _MEMORY, "dstKind": _MEMORY, "memKind": _MEMORY, "syncType": _WAITS}
# What names are rid of: the version of a call's interface (cudaLaunchKernel_v7000), types of constants: (int)4.
_UNTOLD = re.compile(r"^(cu\w+)_v\d{4,}$|\((?:unsigned |signed )?(?:int|long|short|char|long long)\)(-?\d+)")
# What rows on devices alone have, by the name that `assemble` has for it.
_OF_DEVICE = {"device": "deviceId", "in_device": "", "from_device": "srcDeviceId", "to_device": "dstDeviceId"}
_OF_DEVICE |= {"stream": "streamId", "bytes": "bytes"}

# Ranges that push and pop made; and those with a start and an end of their own, where these are on one thread.
_PUSHED = "eventType = 59"
_STARTED = f"({_PUSHED} OR eventType = 60 AND coalesce(endGlobalTid, globalTid) = globalTid)"
# PyTorch's text of a range: `aten::mm, seq = 7, op_id = 9910`; shapes may follow. No two have one op_id.
_TEXT = "substr(text, 1, coalesce(nullif(instr(text, ', op_id = '), 0) + 9, 65536))"
_BLOB = "CASE WHEN domainId > 0 THEN CAST(substr(binaryData, 1, 4096) AS BLOB) END"
# PyTorch's operators have a namespace; of what else it records some are users' ranges.
_OPERATOR = re.compile(r"(?!FSDP::)[\w.]+::|record_param_comms$|detach_?$")


class Process:
    """Rows of one process in the making."""

    def __init__(self, database: Database, pid: int | None) -> None:
        self._database, self._pid, self._names = database, pid, Codes[str]()
        strings = database.read("StringIds", "id", texts={"value": "substr(value, 1, 65536)"})
        self._strings = dict(zip(strings["id"].tolist(), database.texts(strings["value"]), strict=True))

    def decoded(self) -> tuple[Decoded, dict[int, Payload]]:
        """Return all rows as `assemble` takes them, and payloads by position. Raises UnreadableTrace, TooLarge."""
        rows = self._rows()
        found = read_payloads(self._database, rows["domainId"], get(rows, "binaryData"))
        payloads = {row + 1: payload for row, payload in found.items()}
        category, start_ns, thread = rows["category"], rows["start"], rows["globalTid"]
        on_device = {name: column[category <= Category.MEMSET] for name, column in rows.items()}
        numbered, syncs = np.flatnonzero(rows["number"] >= 0), np.flatnonzero(category == Category.SYNC)
        grids, alike = CallColumns(), distinct(*(on_device[side] for side in _GRID.replace("?", "").split()))
        sizes = [Args(grid=msgspec.Raw(str(line).encode())) for line in alike.lines.T.tolist()]
        columns = {
            "category": category,
            "name": rows["name"],
            "start_ns": start_ns,
            "dur_ns": rows["end"] - start_ns,
            "position": 1 + np.arange(len(start_ns)),  # HTA takes 0 for no row
            "thread": np.where(thread < 0, UNKNOWN, thread % THREADS),
            "process": np.zeros_like(start_ns),
            "correlation": rows["correlationId"],
            "external": np.full(np.count_nonzero(category <= Category.LAUNCH), UNKNOWN),
            **{name: get(on_device, column) for name, column in _OF_DEVICE.items()},
            "grid": np.where(on_device["gridX"] < 0, UNKNOWN, grids.grids(sizes)[alike.index]),
            "graph": _find_graphs(on_device),
            "forward_row": numbered,
            "forward": rows["number"][numbered],
            "forward_thread": np.full(len(numbered), UNKNOWN),
            "sync_row": syncs,
            "sync_device": rows["deviceId"][syncs],
            "sync_stream": rows["streamId"][syncs],
            **self._waited(rows["eventSyncId"][syncs]),
        }
        part = EventPart(len(start_ns), len(start_ns), columns)
        return Decoded(part, 1, tuple(self._names), {}, grids, Marks(), 0), payloads

    def _rows(self) -> Rows:
        """Return all rows that have times, those of devices first."""
        parts = [*(self._named(*table) for table in _TABLES), self._ranges()]
        rows = {name: np.concatenate([get(part, name) for part in parts]) for name in {*chain(*parts)}}
        times = np.stack([rows["start"], rows["end"]])
        timed = ((times > -_MOST_NS) & (times < _MOST_NS)).all(axis=0)
        self._database.odd[ODD_ROWS] += int((~timed).sum())
        rows["streamId"][rows["streamId"] == _NO_STREAM] = UNKNOWN
        return rows if timed.all() else {name: column[timed] for name, column in rows.items()}

    def _read(self, table: str, wanted: str, where: str = "1", texts: Mapping[str, str] | None = None) -> Rows:
        """Return this process's rows of a table."""
        column, past = ("globalPid", 1) if self._database.has(table, "globalPid") else ("globalTid", THREADS)
        if self._pid is not None and self._database.has(table, column):
            where += f" AND {column} >= {self._pid} AND {column} < {self._pid + past}"
        return self._database.read(table, wanted, where, texts)

    def _named(self, table: str, wanted: str, category: Category, name: str) -> Rows:
        """Return a table's rows with a category, and with names, each made once."""
        rows, by = self._read(table, wanted), re.findall(r"{(\w+)}", name)
        alike = distinct(*(rows[column] for column in by))
        words = [_KINDS.get(column, self._strings) for column in by]
        codes = np.zeros(len(alike), dtype=np.int64)
        for place, line in enumerate(alike.lines.T.tolist()):
            said = (of.get(number, "Unknown") for of, number in zip(words, line, strict=True))
            own = name.format_map(dict(zip(by, said, strict=True)))
            own = own.replace("(bool)0", "false").replace("(bool)1", "true")
            codes[place] = self._names[_UNTOLD.sub(r"\1\2", own)]
        return rows | {"name": codes[alike.index], "category": np.full(len(alike.index), category)}

    def _ranges(self) -> Rows:
        texts = {"text": _TEXT} | ({"binaryData": _BLOB} if self._database.has_blobs else {})
        which = _STARTED if self._database.has("NVTX_EVENTS", "endGlobalTid") else _PUSHED
        rows = self._read("NVTX_EVENTS", "start end? globalTid textId? domainId?", which, texts)
        alike = distinct(rows["text"], rows["textId"])
        text, registered = alike.columns
        said = zip(self._database.texts(text), registered.tolist(), strict=True)
        ranges = [_parse_range(own or self._strings.get(number, "")) for own, number in said]
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
    return said, bool(is_of_pytorch and _OPERATOR.match(said)), UNKNOWN


def _find_graphs(rows: Rows) -> Int64:
    """Return the graph that launched each row, by the least of its nodes in a launch; -1 for none."""
    node, launches = rows["graphNodeId"], distinct(rows["correlationId"])
    least = np.full(len(launches), _MOST_NS)
    np.minimum.at(least, launches.index, np.where(node < 0, _MOST_NS, node))
    return np.where(node < 0, UNKNOWN, least[launches.index])
