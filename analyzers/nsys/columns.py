"""Columns of one process's rows, from the tables that hold them.

table            rows become             whose they are
KERNEL ...       kernels, copies         globalPid
RUNTIME          launch calls            globalTid, whose last 24 bits are the thread
NVTX_EVENTS      operators, annotations  globalTid
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, distinct, find, values_at
from analyzers.nsys.database import Database, Rows, get
from analyzers.trace import Args, CallColumns, Category, Codes, Decoded, EventPart, Marks

_CUPTI = "CUPTI_ACTIVITY_KIND_"
DEVICE_TABLES = _KERNELS, _COPIES, _SETS = f"{_CUPTI}KERNEL", f"{_CUPTI}MEMCPY", f"{_CUPTI}MEMSET"
_CALLS, _SYNCS, _EVENTS = f"{_CUPTI}RUNTIME", f"{_CUPTI}SYNCHRONIZATION", f"{_CUPTI}CUDA_EVENT"
_OVERHEADS = f"{_CUPTI}OVERHEAD", "PROFILER_OVERHEAD"
# A process's number and a thread's in it are one.
THREADS = 1 << 24
_NO_STREAM, _MOST_NS = (1 << 32) - 1, 1 << 61
_ON_DEVICE = "start end deviceId streamId correlationId? graphNodeId?"
_OF_DEVICE = {"device": "deviceId", "in_device": "", "from_device": "srcDeviceId", "to_device": "dstDeviceId"}
_OF_DEVICE |= {"stream": "streamId", "bytes": "bytes", "grid": "grid"}
_GRID = "gridX? gridY? gridZ? blockX? blockY? blockZ?"
# Ranges that push and pop made, which are nested; those that begin and end on their own are not.
_PUSHED = "eventType = 59"
# PyTorch's text of a range: `aten::mm, seq = 7, op_id = 9910`; shapes may follow.
_SEQ, _ID = "instr(text, ', seq = ')", "instr(text, ', op_id = ')"
_BOTH = f"{_SEQ} AND {_ID} > {_SEQ}"
_TEXT = f"CASE WHEN {_BOTH} THEN substr(text, 1, {_SEQ} - 1) WHEN {_ID} THEN substr(text, 1, {_ID} - 1) ELSE text END"
# Autograd's number of a range, -1 for one of PyTorch's without, -2 for one that somebody else made.
_NUMBER = f"CASE WHEN {_BOTH} THEN CAST(substr(text, {_SEQ} + 8, 18) AS INTEGER) WHEN {_ID} THEN -1 ELSE -2 END"
_BLOB = "CASE WHEN domainId > 0 THEN CAST(substr(binaryData, 1, 4096) AS BLOB) END"

# Calls of CUDA with the version of their interface behind them: cudaLaunchKernel_v7000.
_VERSION = re.compile(r"_v\d{4,}$")
# Constants among template arguments with their types: (int)4, (bool)1.
_TYPED = re.compile(r"\((?:(bool)|(?:unsigned |signed )?(?:int|long|short|char|long long))\)(-?\d+)")
# CUPTI's kinds of copies, of memory and of synchronizations, by number.
_MOVES = ("?", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD")
_MEMORY = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
_WAITS = ("Unknown", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
# PyTorch's operators have a namespace; of what else it records some are users' ranges.
_OPERATOR = re.compile(r"(?!FSDP::)[\w.]+::|record_param_comms$|detach_?$")


class Process:
    """Rows of one process in the making; `odd` ones were left out.

    `blobs` are payloads with the domain of each, by the position of its range.
    """

    def __init__(self, database: Database, pid: int | None) -> None:
        self._database, self._pid, self.odd = database, pid, 0
        self._names, self._grids = Codes[str](), CallColumns()
        self.blobs: dict[int, tuple[int, bytes]] = {}
        strings = database.read("StringIds", "id value!", texts={"value": "CAST(substr(value, 1, 65536) AS TEXT)"})
        self._strings: dict[int, str] = dict(zip(strings["id"].tolist(), database.texts(strings["value"]), strict=True))

    def decoded(self) -> Decoded:
        """Return all rows, those of devices first, as `assemble` takes them. Raises UnreadableTrace, TooLarge."""
        on_device = [self._kernels(), self._moves(), self._sets()]
        calls = self._named(_CALLS, "globalTid nameId correlationId?", Category.LAUNCH, partial(_VERSION.sub, ""))
        overheads = [self._named(one, "globalTid? nameId", Category.OVERHEAD, str) for one in _OVERHEADS]
        ranges, syncs = self._ranges(), self._synchronizations()
        parts = [*on_device, calls, *overheads, ranges, syncs]
        first = np.cumsum([0, *(len(part["start"]) for part in parts)])
        ranges_at, syncs_at, total = first[-3:].tolist()
        self._keep_blobs(ranges, ranges_at)
        numbered = np.flatnonzero((ranges["number"] >= 0) & (ranges["category"] == Category.OPERATOR))

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
        self.odd += self._database.odd
        return Decoded(EventPart(total, total, columns), 1, tuple(self._names), {}, self._grids, Marks(), 0)

    def _keep_blobs(self, ranges: Rows, first: int) -> None:
        texts, blob = [*self._database.codes], get(ranges, "blob")
        rows = np.flatnonzero(np.array([*map(bool, texts), False])[blob])
        domains, codes = ranges["domainId"][rows].tolist(), blob[rows].tolist()
        self.blobs = {first + row: (domains[at], texts[codes[at]]) for at, row in enumerate(rows.tolist())}

    def _read(self, table: str, wanted: str, also: str = "1", **computed: dict[str, str]) -> Rows:
        """Return this process's rows of a table that have times."""
        column, past = ("globalPid", 1) if self._database.has(table, "globalPid") else ("globalTid", THREADS)
        where: tuple[str, tuple[int, ...]] = (also, ())
        if self._pid is not None and self._database.has(table, column):
            where = f"{also} AND {column} >= ? AND {column} < ?", (self._pid, self._pid + past)
        rows = self._database.read(table, wanted, where, **computed)
        start, end = get(rows, "start"), get(rows, "end")
        timed = (np.minimum(start, end) > -_MOST_NS) & (np.maximum(start, end) < _MOST_NS)
        if "streamId" in rows:
            rows["streamId"] = np.where(rows["streamId"] == _NO_STREAM, UNKNOWN, rows["streamId"])
        self.odd += int((~timed).sum())
        return rows if timed.all() else {name: column[timed] for name, column in rows.items()}

    def _code(self, values: Int64, name_of: Callable[[int], str]) -> Int64:
        """Return codes of names, each made once."""
        ids, which = np.unique(values, return_inverse=True)
        return np.array([self._names[name_of(number)] for number in ids.tolist()], dtype=np.int64)[which]

    def _string(self, number: int) -> str:
        return self._strings.get(number, "")

    def _named(self, table: str, wanted: str, category: Category, name_of: Callable[[str], str]) -> Rows:
        rows = self._read(table, f"start end {wanted}")
        return _with(rows, category, self._code(rows["nameId"], lambda number: name_of(self._string(number))))

    def _kernels(self) -> Rows:
        rows = self._read(_KERNELS, f"{_ON_DEVICE} demangledName {_GRID}")
        alike = distinct(*(rows[side] for side in _GRID.replace("?", "").split()))
        grids = [Args(grid=msgspec.Raw(str(line).encode())) for line in alike.lines.T.tolist()]
        name = self._code(rows["demangledName"], lambda number: _TYPED.sub(_constant, self._string(number)))
        return _with(rows, Category.KERNEL, name) | {"grid": self._grids.grids(grids)[alike.index]}

    def _moves(self) -> Rows:
        rows = self._read(_COPIES, f"{_ON_DEVICE} bytes? srcDeviceId? dstDeviceId? copyKind? srcKind? dstKind?")
        alike = distinct(rows["copyKind"], rows["srcKind"], rows["dstKind"])
        ways = [
            f"Memcpy {_at(_MOVES, kind)} ({_at(_MEMORY, source)} -> {_at(_MEMORY, target)})"
            for kind, source, target in alike.lines.T.tolist()
        ]
        return _with(rows, Category.MEMCPY, self._code(alike.index, ways.__getitem__))

    def _sets(self) -> Rows:
        rows = self._read(_SETS, f"{_ON_DEVICE} bytes? memKind?")
        return _with(rows, Category.MEMSET, self._code(rows["memKind"], lambda kind: f"Memset ({_at(_MEMORY, kind)})"))

    def _ranges(self) -> Rows:
        table = "NVTX_EVENTS"
        texts = {"text": f"CAST({_TEXT} AS TEXT)"}
        if self._database.has(table, "binaryData", "domainId"):
            texts["blob"] = _BLOB
        wanted = "start end? globalTid textId? domainId? eventType! text!"
        rows = self._read(table, wanted, _PUSHED, numbers={"number": _NUMBER}, texts=texts)
        texts_of = self._database.texts(np.arange(len(self._database.codes)))
        registered, own = self._code(rows["textId"], self._string), self._code(rows["text"], texts_of.__getitem__)
        name = np.where(np.array([*map(bool, texts_of), False])[rows["text"]], own, registered)
        names, kinds = [*self._names], distinct(name, np.clip(rows["number"], -2, 0))
        lines = kinds.lines.T.tolist()
        is_one = [number == 0 or (number == -1 and bool(_OPERATOR.match(names[code]))) for code, number in lines]
        category = np.where(np.array(is_one, dtype=bool)[kinds.index], Category.OPERATOR, Category.ANNOTATION)
        return rows | {"name": name, "category": category}

    def _synchronizations(self) -> Rows:
        rows = self._read(_SYNCS, "start end syncType correlationId? deviceId? streamId? eventSyncId?")
        return _with(rows, Category.SYNC, self._code(rows["syncType"], lambda kind: _at(_WAITS, kind)))

    def _waited(self, sync: Int64) -> Rows:
        """Return the stream of the event that was waited for, and the call that recorded it, where that is known."""
        events = self._read(_EVENTS, "eventSyncId? correlationId? streamId?")
        order = np.argsort(events["eventSyncId"], kind="stable")
        found = np.where(sync >= 0, values_at(order, find(events["eventSyncId"][order], sync)), UNKNOWN)
        told = {"sync_wait_on_stream": "streamId", "sync_wait_on_record": "correlationId"}
        return {name: values_at(events[column], found) for name, column in told.items()}


def _constant(typed: re.Match[str]) -> str:
    return ("false" if typed[2] == "0" else "true") if typed[1] else typed[2]


def _at(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else "Unknown"


def _with(rows: Rows, category: Category, name: Int64) -> Rows:
    return rows | {"name": name, "category": np.full(len(name), category)}


def _graphs(rows: Rows) -> Int64:
    """Return the graph that launched each row, by the least of its nodes in a launch; -1 for none."""
    node, none = rows["graphNodeId"], np.iinfo(np.int64).max
    if not (node >= 0).any():
        return node
    launches, which = np.unique(rows["correlationId"], return_inverse=True)
    least = np.full(len(launches), none)
    np.minimum.at(least, which, np.where(node < 0, none, node))
    return np.where(node < 0, UNKNOWN, least[which])
