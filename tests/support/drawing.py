"""Time as pictures: one character is one nanosecond, a run of one letter is one event, `.` and space are nothing.

    draw(compute="aabb..", comm=".aa...", step="000111")

Steps are written as digits, in `loader` each letter is a batch that the host fetches, in `ranges` a range of that name.
Every device event is launched where it starts, unless a picture of the same lane under `launch` shows the launches, in
order, as `^`.

    meet("aaa...bbb", ".aa....bb")

is the communication of two ranks, each letter a collective of theirs of its own size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.arrays import UNKNOWN
from analyzers.rank.summary import RunSummary, summary_of
from analyzers.run.loading import Run
from analyzers.run.rank_trace import RankTrace
from analyzers.trace.collective_calls import Call, Collective, Group
from analyzers.trace.events import Events, launch_times
from analyzers.trace.header import Header
from analyzers.trace.kernel_names import Category, Kind

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LANES = {
    "compute": (Category.KERNEL, Kind.COMPUTE),
    "comm": (Category.KERNEL, Kind.COMM),
    "copy": (Category.MEMCPY, Kind.COPY),
}


def runs(picture: str) -> Iterator[tuple[str, int, int]]:
    """Each run of one character: (character, start, length)."""
    place = 0
    for character, group in groupby(picture):
        length = len(list(group))
        if character not in ". ":
            yield character, place, length
        place += length


def draw(
    *,
    step: str = "",
    loader: str = "",
    ranges: Mapping[str, str] | None = None,
    launch: Mapping[str, str] | None = None,
    rank: int = 0,
    device: int = 0,
    since: int = 0,
    calls: Mapping[str, Call] | None = None,
    header: Header | None = None,
    **lanes: str,
) -> RankTrace:
    """One rank with one device, its lanes (compute, comm, copy) as drawn; `compute2` is a second lane of compute.

    The pictures begin at `since`. `calls` are those of the lane comm, by letter.
    """
    rows = [row(Category.ANNOTATION, Kind.HOST, f"ProfilerStep#{k}", start, length) for k, start, length in runs(step)]
    for name, picture in {LOADER: loader, **(ranges or {})}.items():
        rows += [row(Category.ANNOTATION, Kind.HOST, name, start, length) for _, start, length in runs(picture)]
    correlation = 0
    known = dict(calls or {})
    for lane, picture in lanes.items():
        category, kind = LANES[lane.rstrip("2")]
        events = list(runs(picture))
        shown = launch.get(lane) if launch else None
        calls = [at for at, mark in enumerate(shown) if mark == "^"] if shown else [start for _, start, _ in events]
        for (name, start, length), call in zip(events, calls, strict=True):
            correlation += 1
            code = list(known).index(name) if kind == Kind.COMM and name in known else UNKNOWN
            more = {"device": device, "correlation": correlation, "call": code}
            rows.append(row(category, kind, f"{lane} {name}", start, length, **more))
            rows.append(row(Category.LAUNCH, Kind.HOST, "cudaLaunchKernel", call, 1, correlation=correlation))
    for each in rows:
        each["start_ns"] += since
    events = events_of(rows, tuple(known.values()))
    return RankTrace(rank, Path(f"rank{rank}.json"), header or Header(), events, events)


def called(kind: Collective, elements: int, ranks: Sequence[int], dtype: str = "Float") -> Call:
    """A call of a group that has all these ranks."""
    return Call(kind, elements, elements, dtype, Group(f"group {ranks}", len(ranks), tuple(ranks)))


def meet(
    *comm: str,
    kind: Collective = Collective.ALL_REDUCE,
    calls: Mapping[str, Call] | None = None,
    comm2: Sequence[str] = (),
    compute: Sequence[str] = (),
    copy: Sequence[str] = (),
    launch: Sequence[str] = (),
    since: Sequence[int] = (),
    hosts: Sequence[str | None] = (),
    world_size: int | None = None,
    step: str = "",
    causes: bool = True,
) -> RunSummary:
    """Ranks that communicate as drawn, one picture each; equal letters are one collective, of `kind` and among all.

    Letter `a` carries 1000 floats, `b` 2000, unless `calls` says otherwise. `since` is where each rank's clock begins.
    """
    size = world_size or len(comm)
    step = step or "0" * max(map(len, comm))
    known = {letter: called(kind, 1000 * (place + 1), range(size)) for place, letter in enumerate("abcdefgh")}
    traces = []
    for rank, picture in enumerate(comm):
        drawn = {"comm": picture} | ({"compute": compute[rank]} if compute else {})
        drawn |= {"copy": copy[rank]} if copy else {}
        drawn |= {"comm2": comm2[rank]} if comm2 else {}
        header = Header(distributed={"rank": rank, "world_size": size}, host_name=hosts[rank] if hosts else None)
        shown = {"comm": launch[rank]} if launch else None
        begin = since[rank] if since else 0
        more = {"rank": rank, "device": rank, "since": begin, "header": header, "launch": shown, "step": step}
        traces.append(draw(**more, calls=calls or known, **drawn))
    return summary_of(Run("drawn", None, tuple(traces)), lanes=True, causes=causes)


def row(category: Category, kind: Kind, name: str, start: int, length: int, **more: int) -> dict[str, Any]:
    host = {"thread": 1, "device": UNKNOWN, "peer": UNKNOWN, "stream": UNKNOWN, "correlation": UNKNOWN}
    host |= {"call": UNKNOWN, "nbytes": UNKNOWN}
    return host | {"category": category, "kind": kind, "name": name, "start_ns": start, "dur_ns": length} | more


def events_of(rows: list[dict[str, Any]], calls: tuple[Call, ...] = ()) -> Events:
    names = sorted({row["name"] for row in rows})
    types = {"category": np.int8, "kind": np.int8, "device": np.int32, "peer": np.int32, "call": np.int32}
    keys = ("category", "kind", "start_ns", "dur_ns", "thread", "device", "peer", "stream", "correlation")
    columns = {
        key: np.array([row[key] for row in rows], dtype=types.get(key, np.int64)) for key in (*keys, "call", "nbytes")
    }
    code = np.array([names.index(row["name"]) for row in rows], dtype=np.int32)
    unknown = np.full(len(rows), UNKNOWN)
    return Events(
        name=code,
        names=tuple(names),
        external=unknown,
        sequence=unknown,
        calls=calls,
        inputs=unknown.astype(np.int32),
        shapes=(),
        forward=unknown,
        forward_thread=unknown,
        grid=unknown,
        graph=unknown,
        position=np.arange(len(rows)),
        health=np.zeros(len(rows), dtype=np.int8),
        launched_ns=launch_times(columns["category"], columns["correlation"], columns["start_ns"]),
        **columns,
    )
