"""Calls of collectives, from PyTorch's ranges and the payloads of NCCL's.

record_param_comms   |..............................|   has the call, as in Kineto's traces
nccl:all_to_all        |..........................|     says its kind
ncclSend, ncclRecv       |s| |r| |s| |r|                say, with payloads, sizes, peers and the communicator

A payload is four numbers of 8 bytes (the second is the schema, the fourth where its fields begin), then the fields,
as NVTX_PAYLOAD_SCHEMA_ENTRIES lays them out. Peers were tried on payloads that tests pack alone.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, distinct, rows_by
from analyzers.nsys.database import Database
from analyzers.trace import NCCL, Args, Call, Category, Codes, Events, Kind, call_of, find_outermost, leaves_kind_open

_RECORD = "record_param_comms"
_OF_NCCL = re.compile(r"p?nccl[A-Z]")
_FIELDS = ("NCCL communicator ID", "Message size [bytes]", "Peer rank", "No. of ranks")
_HEAD, _MOST_BYTES = struct.Struct("<QQQQ"), 1 << 12
_DIGITS = re.compile(rb"(?:[0-9A-Fa-f]{2})+")
# Whole numbers of nvToolsExtPayload.h, by their number there, as `struct` spells them.
_WHOLE = "bBhHiIqQ"
_TYPES = dict(enumerate(f"{_WHOLE}qQ{_WHOLE}", start=1)) | {22: "Q"}
# Format and place of each field.
_Layout = dict[str, tuple[str, int]]
_SENT, _RECEIVED = "ncclSend", "ncclRecv"
# Of the first of these, and of what a rank gets or gives of the others, NCCL says the bytes.
_SIZED = ("ncclAllReduce", "ncclBroadcast", "ncclReduce", _SENT, _RECEIVED, "ncclAllGather", "ncclReduceScatter")


class Payload(NamedTuple):
    """What a payload says of a call of NCCL's; -1 for a field that it does not have."""

    communicator: int
    nbytes: int
    peer: int
    members: int


def read_payloads(database: Database, domain: Int64, blob: Int64) -> dict[int, Payload]:
    """Return what payloads say that fit a schema of their domain, by row; `blob` are codes of texts."""
    layouts, texts = _read_layouts(database), [*database.codes]
    held = np.flatnonzero(np.array([*map(bool, texts), False])[blob])
    alike = distinct(domain[held], blob[held])
    said = [_read_payload(layouts, domain, texts[code]) for domain, code in alike.lines.T.tolist()]
    by_row = {row: said[place] for row, place in zip(held.tolist(), alike.index.tolist(), strict=True)}
    fit = {row: payload for row, payload in by_row.items() if payload is not None}
    database.odd["payloads of NCCL's that fit no schema"] += len(by_row) - len(fit)
    return fit


def _read_payload(layouts: Mapping[tuple[int, int], _Layout], domain: int, text: bytes) -> Payload | None:
    """Return what a payload says; it may be written as text, two digits a byte."""
    text = bytes.fromhex(str(text, "ascii")) if _DIGITS.fullmatch(text) else text
    try:
        _, schema, _, begin = _HEAD.unpack_from(text)
        layout = layouts[domain, schema]
        values = {name: struct.unpack_from(kind, text, begin + offset)[0] for name, (kind, offset) in layout.items()}
    except (KeyError, OverflowError, struct.error):
        return None
    return Payload(*(values.get(name, UNKNOWN) for name in _FIELDS)) if begin >= _HEAD.size else None


def _read_layouts(database: Database) -> dict[tuple[int, int], _Layout]:
    """Return the layout of each schema, by domain and number; what several processes registered is one."""
    wanted, names = "domainId schemaId type? offset?", {"name": "CAST(name AS TEXT)"}
    *columns, name = database.read("NVTX_PAYLOAD_SCHEMA_ENTRIES", wanted, texts=names).values()
    layouts = defaultdict[tuple[int, int], _Layout](dict)
    rows = zip(*(column.tolist() for column in columns), database.texts(name), strict=True)
    for domain, schema, kind, offset, field in rows:
        if kind in _TYPES and offset < _MOST_BYTES:  # the first field's place is not said
            layouts[domain, schema][field] = (f"<{_TYPES[kind]}", max(offset, 0))
    return layouts


def with_calls(events: Events, payloads: Mapping[int, Payload]) -> Events:
    """Return the rows with the calls of collectives, and without NCCL's own ranges; `payloads` are by position."""
    operations = events.called(Category.ANNOTATION, _OF_NCCL.match)
    ranges = events.called(Category.ANNOTATION, lambda name: name.startswith(NCCL))[::-1]
    records = events.called(Category.OPERATOR, lambda name: name == _RECORD)
    said: dict[int, list[tuple[str, Payload]]] = defaultdict(list)
    for row, record in zip(operations.tolist(), find_outermost(events, records, operations).tolist(), strict=True):
        if (payload := payloads.get(int(events.position[row]))) is not None and payload.nbytes >= 0:
            said[record].append((events.names[events.name[row]], payload))
    communicators = {one.communicator for one in payloads.values()}
    # The only one needs no name; of several each has one, also where nothing says how many ranks it has.
    members = dict.fromkeys(communicators if len(communicators) > 1 else (), 0)
    members |= {one.communicator: one.members for one in payloads.values() if one.members > 0}
    # Of several ranges in a call the first says its kind.
    held = zip(find_outermost(events, records, ranges).tolist(), events.name[ranges].tolist(), strict=True)
    kinds = {record: events.names[code].removeprefix(NCCL) for record, code in held}
    args = {record: _describe(kinds.get(record, ""), said[record], members) for record in {*kinds, *said} - {UNKNOWN}}
    calls = {row: call for row, one in args.items() if (call := call_of(one)) is not None}
    calls |= _without_launch(events, records, calls)
    codes = Codes[Call]()
    column, external = events.call.copy(), events.external.copy()
    column[[*calls]] = [codes[call] for call in calls.values()]
    external[records] = records
    kept = np.delete(np.arange(len(events)), operations)
    return replace(events, call=column, calls=tuple(codes), external=external).take(kept)


def _without_launch(events: Events, records: Int64, calls: Mapping[int, Call]) -> dict[int, Call]:
    """Return calls for kernels without a launch whose name leaves the kind open: those of their like.

    What a stream of NCCL's runs is one communicator's: where all others of the name are of one kind, they are, too.
    """
    rows = events.called(Category.KERNEL, leaves_kind_open)
    rows = rows[events.kind[rows] == Kind.COMM]
    launches = events.launched_by(events.correlation[rows])
    around = find_outermost(events, records, launches)
    found = dict[int, Call]()
    for like in rows_by(distinct(events.name[rows], events.device[rows], events.stream[rows]).index).values():
        told = [calls[record] for record in around[like].tolist() if record in calls]
        kinds = {Call(one.kind, UNKNOWN, UNKNOWN, "", one.group) for one in told}
        if len(kinds) == 1:
            found |= dict.fromkeys(rows[like][launches[like] < 0].tolist(), *kinds)
    return found


def _describe(kind: str, operations: Sequence[tuple[str, Payload]], members: Mapping[int, int]) -> Args:
    """Return what Kineto would write of a call of a kind, or of its first operation's; sizes are counted in bytes.

    `members` count the ranks of communicators that have names.
    """
    if not operations:
        return Args(collective=kind)
    first, payload = operations[0]
    sent, received = ([one for name, one in operations if name != other] for other in (_RECEIVED, _SENT))
    size = members.get(payload.communicator, UNKNOWN)
    times_in, times_out = (size if first == one else 1 for one in ("ncclReduceScatter", "ncclAllGather"))
    is_sized = first in _SIZED and min(times_in, times_out) > 0
    peers = [payload.peer if first == one and len(operations) == 1 else UNKNOWN for one in (_SENT, _RECEIVED)]
    return Args(
        collective=kind or first.removeprefix("nccl"),
        elements_in=sum(one.nbytes for one in sent) * times_in if is_sized else UNKNOWN,
        elements_out=sum(one.nbytes for one in received) * times_out if is_sized else UNKNOWN,
        dtype="bytes",
        group_name=f"{payload.communicator % (1 << 64):#x}" if size >= 0 else "",
        group_size=size,
        target=peers[0],
        source=peers[1],
        split_in=_split(sent),
        split_out=_split(received),
    )


def _split(payloads: Sequence[Payload]) -> list[int] | str:
    """Return what goes to, or comes from, each rank of a group; nothing where all is the same."""
    by_peer = {one.peer: one.nbytes for one in payloads}
    is_whole = sorted(by_peer) == [*range(len(payloads))]
    return [by_peer[peer] for peer in sorted(by_peer)] if is_whole and len({*by_peer.values()}) > 1 else ""
