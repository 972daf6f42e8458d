"""Damage to Kineto documents, real or made: what profilers, hosts and people do to traces.

    documents = [read(file) for file in files]
    documents[1] = shift_clock(drop_kernels(documents[1], 0.1, Random(7)), 800_000_123)
    write_run(folder, documents)

Every function answers a new document and leaves the one it was given alone. Times are Decimals and stay exact.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.support.generator import LAYOUTS

Event = dict[str, Any]
Document = dict[str, Any]
Member = tuple[int, int, int]  # rank, device, correlation

EXACT = msgspec.json.Decoder(float_hook=Decimal)
HOST = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function"})
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"})
SAID_OF_COLLECTIVES = frozenset(
    (
        *("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size"),
        *("Out split size", "Process Group Name", "Process Group Description", "Process Group Ranks"),
        *("Src Rank", "Dst Rank", "Rank", "Seq", "Comms Id", "Is asynchronized op"),
        *("Global rank start", "Global rank stride"),
    )
)


def read(path: Path) -> Document:
    """A document whose times are Decimals."""
    data = path.read_bytes()
    return EXACT.decode(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def read_run(folder: Path) -> list[Document]:
    return [read(path) for path in sorted(folder.glob("rank*.json*"))]


def write_run(
    folder: Path, documents: Sequence[Document], layout: str = "lines", names: Sequence[str] | None = None
) -> Path:
    """Every document in a file, `rank{i}.json` unless named otherwise; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, document in enumerate(documents):
        name = names[place] if names else f"rank{rank_of(document, place)}.json"
        (folder / name).write_text(LAYOUTS[layout](document))
    return folder


def us(ns: int) -> Decimal:
    """Nanoseconds as Kineto writes them: microseconds with three digits."""
    return Decimal(ns).scaleb(-3)


def ns(microseconds: Decimal | float | str) -> int:
    return int((Decimal(str(microseconds)) * 1000).to_integral_value())


def start_ns(event: Event) -> int:
    return ns(event["ts"])


def end_ns(event: Event) -> int:
    return ns(event["ts"]) + ns(event.get("dur", 0))


def rank_of(document: Document, otherwise: int = 0) -> int:
    return (document.get("distributedInfo") or {}).get("rank", otherwise)


def is_nccl(event: Event) -> bool:
    return event.get("cat") == "kernel" and event["name"].startswith("nccl")


def correlation(event: Event) -> int | None:
    return event.get("args", {}).get("correlation") if event.get("cat") in HOST | DEVICE else None


def members(document: Document) -> list[Member]:
    """The NCCL kernels that a document holds."""
    kernels = filter(is_nccl, document["traceEvents"])
    return [(rank_of(document), event["args"]["device"], event["args"]["correlation"]) for event in kernels]


def keep(document: Document, wanted: Callable[[Event], bool]) -> Document:
    return document | {"traceEvents": [event for event in document["traceEvents"] if wanted(event)]}


def drop_kernels(document: Document, fraction: float, random: Random, *, with_calls: bool = False) -> Document:
    """Lose a share of the NCCL kernels; `with_calls`: also what launched them and the operators around the calls."""
    kernels = [event for event in document["traceEvents"] if is_nccl(event)]
    lost = random.sample(kernels, round(fraction * len(kernels)))
    gone = set(map(id, lost))
    if with_calls:
        numbers = {event["args"]["correlation"] for event in lost}
        external = {event["args"].get("External id") for event in lost} - {None}
        for event in document["traceEvents"]:
            flow = event.get("cat") == "ac2g" and event.get("id") in numbers
            if flow or correlation(event) in numbers or (on_host(event) and external_id(event) in external):
                gone.add(id(event))
    return keep(document, lambda event: id(event) not in gone)


def on_host(event: Event) -> bool:
    return event.get("ph") == "X" and event.get("cat") in HOST


def external_id(event: Event) -> int | None:
    return event.get("args", {}).get("External id")


def steps(document: Document) -> dict[int, tuple[int, int]]:
    """The profiler's steps on the host: number to times."""
    found = {}
    for event in document["traceEvents"]:
        match = re.fullmatch(r"ProfilerStep#(\d+)", str(event.get("name")))
        if match and event.get("cat") == "user_annotation":
            found[int(match[1])] = start_ns(event), end_ns(event)
    return found


def drop_step(document: Document, step: int) -> Document:
    """Lose a step: its annotation, all host rows inside it, and every device row launched there."""
    start, end = steps(document)[step]
    inside = {id(e) for e in document["traceEvents"] if on_host(e) and start <= start_ns(e) < end}
    gone = {correlation(e) for e in document["traceEvents"] if id(e) in inside} - {None}
    external = {external_id(e) for e in document["traceEvents"] if id(e) in inside and e["cat"] == "user_annotation"}

    def stays(event: Event) -> bool:
        if event.get("cat") == "ac2g":
            return event.get("id") not in gone
        if event.get("cat") == "gpu_user_annotation":
            return external_id(event) is None or external_id(event) not in external
        return id(event) not in inside and (correlation(event) is None or correlation(event) not in gone)

    return keep(document, stays)


def cut_head(document: Document, before_ns: int) -> Document:
    """Lose every complete row that starts before an instant."""
    return keep(document, lambda event: event.get("ph") != "X" or start_ns(event) >= before_ns)


def cut_tail(document: Document, after_ns: int) -> Document:
    """Lose every complete row that starts after an instant."""
    return keep(document, lambda event: event.get("ph") != "X" or start_ns(event) <= after_ns)


def extent(document: Document) -> tuple[int, int]:
    """From the first to the last start of a device row."""
    starts = [start_ns(event) for event in document["traceEvents"] if event.get("cat") in DEVICE]
    return min(starts), max(starts)


def cut_part(document: Document, head: float, tail: float) -> Document:
    """Lose such shares of the device's time at the head and at the tail."""
    first, last = extent(document)
    long = last - first
    return cut_tail(cut_head(document, first + round(head * long)), last - round(tail * long))


def moved(document: Document, by_ns: int) -> list[Event]:
    return [
        event | {"ts": us(start_ns(event) + by_ns)} if "ts" in event else event for event in document["traceEvents"]
    ]


def shift_clock(document: Document, by_ns: int) -> Document:
    """A clock that is so much ahead."""
    return document | {"traceEvents": moved(document, by_ns)}


def rebase(document: Document, by_ns: int) -> Document:
    """The same instants, counted from a base that lies so much later."""
    base = document["baseTimeNanoseconds"] + by_ns
    return document | {"baseTimeNanoseconds": base, "traceEvents": moved(document, -by_ns)}


def shuffle(document: Document, random: Random) -> Document:
    """Events in any order."""
    events = list(document["traceEvents"])
    random.shuffle(events)
    return document | {"traceEvents": events}


def strip_metadata(
    document: Document, fraction: float, random: Random, *, with_external: bool = False, with_host: bool = False
) -> Document:
    """Take from a share of the NCCL kernels what they say of their collective.

    `with_external` takes `External id` too; `with_host` also what the host operators of those kernels say.
    """
    kernels = [event for event in document["traceEvents"] if is_nccl(event)]
    chosen = random.sample(kernels, round(fraction * len(kernels)))
    bare = set(map(id, chosen))
    named = {external_id(event) for event in chosen} - {None} if with_host else set()
    taken = SAID_OF_COLLECTIVES | ({"External id"} if with_external else set())

    def stripped(event: Event) -> Event:
        if id(event) in bare:
            return event | {"args": {key: value for key, value in event["args"].items() if key not in taken}}
        if event.get("name") == "record_param_comms" and external_id(event) in named:
            kept = {key: value for key, value in event["args"].items() if key not in SAID_OF_COLLECTIVES}
            return event | {"args": kept}
        return event

    return document | {"traceEvents": [stripped(event) for event in document["traceEvents"]]}


def renamed(documents: Iterable[Document], random: Random) -> list[str]:
    """Names for files that say nothing of ranks, in an order of their own."""
    names = [f"host-{random.randrange(10**9):09d}_{place}.pt.trace.json" for place, _ in enumerate(documents)]
    random.shuffle(names)
    return names


def damaged(documents: Sequence[Document], random: Random) -> list[Document]:
    """A few kinds of damage at once, each rank its own."""
    found = list(documents)
    for place in range(len(found)):
        for change in random.sample(CHANGES, random.randint(0, 3)):
            found[place] = change(found[place], random)
    return found


CHANGES: list[Callable[[Document, Random], Document]] = [
    lambda document, random: drop_kernels(document, random.uniform(0, 0.1), random, with_calls=random.random() < 0.5),
    lambda document, random: drop_step(document, random.choice([*steps(document)])) if steps(document) else document,
    lambda document, random: cut_part(document, random.uniform(0, 0.3), random.uniform(0, 0.3)),
    lambda document, random: shift_clock(document, random.randint(-(10**9), 10**9)),
    lambda document, random: rebase(document, random.randint(-(10**12), 10**12)),
    shuffle,
    lambda document, random: strip_metadata(document, random.random(), random, with_external=random.random() < 0.5),
]
