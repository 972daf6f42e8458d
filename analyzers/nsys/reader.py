"""Reader of exports: a session's processes, each with its rows.

Processes are told apart by `globalPid`. Times count from the session's start, whose epoch the export has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzers.errors import TooLarge, UnreadableTrace
from analyzers.memory import Budget, budget_of, cores
from analyzers.notices import Code, Notice
from analyzers.nsys.collectives import with_calls
from analyzers.nsys.columns import CUPTI, DEVICE_TABLES, THREADS, Process
from analyzers.nsys.database import Database, export_command, opened
from analyzers.trace import Header, Input, ProcessRows, Remedies, Trace, assemble, with_copy_collectives, yield_notices

_GRAPHS = f"{CUPTI}GRAPH_TRACE"
# Half of what an int64 of nanoseconds holds: an event's time and its epoch are each within it.
_LAST_NS = 1 << 62
# The largest machine that one session sees has fewer ranks.
_MOST_PROCESSES = 1_024
# Reports as nsys writes them, and tables of its other exports.
_TABLES = r"(?:StringIds|CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|META_DATA_EXPORT)\.(?:parquet|arrow)"
_OTHER = re.compile(rf"(?P<report>.+\.(?:nsys-rep|qdrep|qdstrm))|{_TABLES}")


def _read_export(
    path: Path, on_bytes: Callable[[int], None] | None = None, memory: int | None = None, **_: object
) -> Trace:
    """Read an export as `read_trace` does, each process's rows when asked for; nobody helps, `on_bytes` hears once."""
    budget = Budget(path, budget_of(memory, cores() if memory is None else 1))
    with opened(path, budget) as database:
        pids, header, lost = _find_processes(database), _read_header(database), tuple(_say_lacks(database))
    if not pids:
        raise UnreadableTrace(
            f"{path}: no device activity (written by {database.version}): record with `nsys profile -t cuda,nvtx`, and "
            "at least one whole step"
        )
    if on_bytes is not None:
        on_bytes(path.stat().st_size)
    return Trace(header, _Processes(path, budget, pids, header.base_time_ns), lost)


def _find_processes(database: Database) -> list[int | None]:
    """Return the processes that have device rows, in order; None for those of an export that names none."""
    found: set[tuple[object]] = set()
    for table in filter(database.has, DEVICE_TABLES):
        pid = "globalPid" if database.has(table, "globalPid") else "NULL"
        found.update(*database.batches(f"SELECT DISTINCT {pid} FROM {table} NOT INDEXED"))
    pids = sorted(pid for (pid,) in found if type(pid) is int)
    if len(pids) > _MOST_PROCESSES:
        raise TooLarge(f"{database.path}: has {len(pids):,} processes, where {_MOST_PROCESSES:,} are read: damaged?")
    # Beside processes, rows of none are of nobody's.
    return [*pids] or [None] * bool(found)


def _read_header(database: Database) -> Header:
    """Return what an export says of its session; each is a host of its own, since clocks of two differ."""
    begun = database.read("TARGET_INFO_SESSION_START_TIME", "utcEpochNs?")["utcEpochNs"].tolist()[:1]
    told = dict(database.pairs("TARGET_INFO_SYSTEM_ENV", "name", "value"))
    host, driver = told.get("Hostname", "")[:100], told.get("CudaDriverVersion", "")
    return Header(
        base_time_ns=begun[0] if begun and 0 < begun[0] < _LAST_NS else 0,
        device_names=tuple(name for name, _ in database.pairs("TARGET_INFO_GPU", "name", "name")),
        host_name=f"{host}, session of {begun[0]}" if host and begun else None,
        cuda_driver_version=int(driver) if re.fullmatch("[0-9]{1,8}", driver) else None,
    )


def _say_lacks(database: Database) -> Iterator[Notice]:
    """Yield what is to be known of an export: what was not recorded, not exported, or is not read."""
    name = database.path.name
    if database.has(_GRAPHS) and any(database.batches(f"SELECT 1 FROM {_GRAPHS} LIMIT 1")):
        text = "CUDA graphs are recorded whole, and their kernels are missing: record with --cuda-graph-trace=node"
        yield Notice(Code.TRACE_INCOMPLETE, f"{name}: {text}")
    if database.has("NVTX_PAYLOAD_SCHEMAS") and not database.has_blobs:
        text = "sizes, peers and communicators of NCCL's calls are not in it: export again with --include-blobs=true"
        yield Notice(Code.EXPORT_LACKS, f"{name}: {text}")
    if database.has("GPU_METRICS"):
        yield Notice(Code.EXPORT_LACKS, f"{name}: metrics of GPUs are in it, and are not read")


@dataclass(frozen=True)
class _Processes(Sequence[ProcessRows]):
    """The processes of an export."""

    path: Path
    budget: Budget
    pids: list[int | None]
    base_ns: int

    def __len__(self) -> int:
        return len(self.pids)

    def __getitem__(self, index: Any) -> Any:
        pid = self.pids[index]
        with opened(self.path, self.budget) as database:
            decoded, payloads = Process(database, pid).decoded()
        built = assemble(decoded, self.base_ns)
        events = with_calls(built.processes[0].events, payloads)
        lost = [f"{count:,} {what}" for what, count in database.odd.items() if count]
        notices = tuple(yield_notices(self.path.name, lost, built.endless))
        return ProcessRows("" if pid is None else str(pid // THREADS % THREADS), with_copy_collectives(events), notices)


def _remedy(name: str) -> str | None:
    if (other := _OTHER.fullmatch(name)) is None:
        return None
    report = name if other["report"] else "REPORT.nsys-rep"
    return f"Nsight Systems' recordings are read from their export to SQLite alone: {export_command(report)}"


_MARKING = 'call torch.cuda.nvtx.range_push("step") and range_pop() around each step (-t cuda,nvtx): --steps step'
# Modules and shapes are not read.
_REMEDIES = Remedies(steps=_MARKING, modules=None, shapes=None)
NSYS = Input((".sqlite",), re.compile(b"SQLite format 3\0"), _read_export, _remedy, _REMEDIES)
