"""Exports of Nsight Systems as small databases, of rows that a test names; nothing here reads one.

    ranks(path)     two processes on two devices: a matrix product, and an all-to-all as PyTorch and NCCL range it

Times count from a session's start. What real exports look like, the three of `shared/public` show.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ROOT.parent / "shared" / "public" / "nsys"

_DEVICE = "start end deviceId streamId correlationId globalPid graphNodeId"
_GRID = "gridX gridY gridZ blockX blockY blockZ"
TABLES = {
    "StringIds": "id value",
    "META_DATA_EXPORT": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "TARGET_INFO_SYSTEM_ENV": "name value",
    "TARGET_INFO_GPU": "id name",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_DEVICE} demangledName shortName {_GRID}",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_DEVICE} bytes copyKind srcKind dstKind srcDeviceId dstDeviceId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_DEVICE} bytes memKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end deviceId streamId correlationId globalPid syncType eventSyncId",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "deviceId streamId correlationId globalPid eventSyncId",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start end globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType text globalTid endGlobalTid textId domainId binaryData",
    "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId payloadSize",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx type name offset",
}
# By their number in an export, from 1.
NAMES = (
    *("sm90_gemm", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", "cudaLaunchKernel_v7000"),
    *("cuLaunchKernelEx", "ncclSend", "ncclRecv", "ncclCommInitRankConfig", "ncclAllReduce", "ncclAllGather"),
    *("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",),
    *("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",),
)
GEMM, SEND_RECV, LAUNCH, LAUNCH_EX, SEND, RECV, INIT, ALL_REDUCE, ALL_GATHER, REDUCING, GATHERING = range(1, 12)
# As in the exports of shared/public: fields of NCCL's schemas, with their types and places, and their bytes in all.
MADE, MESSAGE, WHOLE, PART = 16777218, 16777226, 16777223, 16777220
_ID, _SIZE = (18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8)
SCHEMAS = {
    MADE: ("<QIIIxxxx", [_ID, (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)]),
    MESSAGE: ("<QQIxxxx", [_ID, _SIZE, (5, "Peer rank", 16)]),
    WHOLE: ("<QQIxxxx", [_ID, _SIZE, (16777232, "Reduction operation", 16)]),
    PART: ("<QQ", [_ID, _SIZE]),
}
COMMUNICATOR = 0xFEEDC0DE12345678
EPOCH = 1_779_782_330_176_752_435
Row = Mapping[str, Any]


def pid(rank: int) -> int:
    """The number of a rank's process, as exports write it."""
    return (1 << 48) + ((100 + rank) << 24)


def blob(schema: int, *fields: int) -> bytes:
    """A payload of NCCL's domain."""
    body = struct.pack(SCHEMAS[schema][0], *fields)
    return struct.pack("<QQQQ", 1, schema, len(body), 32) + body


def write(path: Path, rows: Mapping[str, Iterable[Row]], without: Iterable[str] = (), *, began: int = EPOCH) -> Path:
    """An export with these rows beside those that every one has, without some tables or columns (`TABLE.column`)."""
    always: dict[str, list[Row]] = {
        "StringIds": [{"id": number, "value": name} for number, name in enumerate(NAMES, start=1)],
        "META_DATA_EXPORT": [
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2026.2.1.210"},
            {"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"},
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": began}],
        "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": "node7"}],
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": [
            {"domainId": 1, "schemaId": schema, "idx": index, "type": kind, "name": name, "offset": offset}
            for schema, (_, entries) in SCHEMAS.items()
            for index, (kind, name, offset) in enumerate(entries)
        ],
    }
    left_out = set(without)
    with closing(sqlite3.connect(path)) as database, database:
        for table, columns in TABLES.items():
            if table in left_out:
                continue
            kept = [column for column in columns.split() if f"{table}.{column}" not in left_out]
            database.execute(f"CREATE TABLE {table} ({', '.join(kept)})")
            for row in (*always.get(table, ()), *rows.get(table, ())):
                database.execute(
                    f"INSERT INTO {table} VALUES ({', '.join('?' * len(kept))})", [row.get(column) for column in kept]
                )
    return path


def nvtx(rank: int, start: int, end: int, text: str | int, payload: bytes | str | None = None) -> Row:
    """A range: with a text of its own in the default domain, else with a registered one in NCCL's."""
    said = {"text": text, "domainId": 0} if isinstance(text, str) else {"textId": text, "domainId": 1}
    place = {"start": start, "end": end, "eventType": 59, "globalTid": pid(rank) + 100 + rank}
    return place | said | {"binaryData": payload}


def kernel(rank: int, name: int, correlation: int, start: int, end: int, stream: int = 7) -> Row:
    return {
        "start": start,
        "end": end,
        "deviceId": rank,
        "streamId": stream,
        "correlationId": correlation,
        "globalPid": pid(rank),
        "demangledName": name,
        "shortName": name,
        **dict.fromkeys(_GRID.split(), 1),
    }


def launch(rank: int, correlation: int, start: int, name: int = LAUNCH) -> Row:
    place = {"start": start, "end": start + 4, "globalTid": pid(rank) + 100 + rank}
    return place | {"correlationId": correlation, "nameId": name}


ROUNDS = 6


def ranks(*, kept: int | None = None, payloads: bool = True, lone: bool = True) -> dict[str, list[Row]]:
    """Rows of two ranks: in each round one sends 1,000 bytes to the other, and keeps as many, or `kept`, of its own.

    With `lone` a first all-to-all runs whose launch was not recorded.
    """
    rows: dict[str, list[Row]] = {f"CUPTI_ACTIVITY_KIND_{kind}": [] for kind in ("KERNEL", "RUNTIME")}
    rows["NVTX_EVENTS"] = []
    for rank in (0, 1):
        if payloads:
            rows["NVTX_EVENTS"].append(nvtx(rank, 2, 4, INIT, blob(MADE, COMMUNICATOR, 2, rank, rank)))
        if lone:
            rows["CUPTI_ACTIVITY_KIND_KERNEL"].append(kernel(rank, SEND_RECV, 90_000, 5, 35, 24))
        for number in range(ROUNDS):
            # No two rounds are as far apart as others.
            _add_round(rows, rank, number, 1_000 * number + 37 * number**2, kept or 1_000 if payloads else None)
    return rows


def _add_round(rows: dict[str, list[Row]], rank: int, number: int, at: int, kept: int | None) -> None:
    ranges = [nvtx(rank, at + 10, at + 30, "aten::mm, seq = 5, op_id = 11"), nvtx(rank, at + 5, at + 900, "forward")]
    ranges.append(nvtx(rank, at + 100, at + 300, "record_param_comms, op_id = 12"))
    ranges.append(nvtx(rank, at + 110, at + 290, "nccl:all_to_all, op_id = 13"))
    for peer in (0, 1):
        said = None if kept is None else blob(MESSAGE, COMMUNICATOR, 1_000 if peer != rank else kept, peer)
        for begin, name in ((120 + 20 * peer, SEND), (130 + 20 * peer, RECV)):
            ranges.append(nvtx(rank, at + begin, at + begin + 5, name, said))
    rows["NVTX_EVENTS"] += ranges
    one, other = 2 * number + 1, 2 * number + 2
    rows["CUPTI_ACTIVITY_KIND_RUNTIME"] += [launch(rank, one, at + 20), launch(rank, other, at + 200, LAUNCH_EX)]
    rows["CUPTI_ACTIVITY_KIND_KERNEL"] += [
        kernel(rank, GEMM, one, at + 40, at + 400),
        kernel(rank, SEND_RECV, other, at + 420 + 20 * rank, at + 520, 24),
    ]
