"""Time as pictures: one character is one nanosecond, a run of one letter is one event, `.` and space are nothing.

    draw(compute="aabb..", comm=".aa...", step="000111")

Steps are written as digits. Every device event is launched where it starts, unless a picture of the same lane under
`launch` shows the launches, in order, as `^`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.classify import Category, Kind
from analyzers.events import UNKNOWN, Events, launch_times
from analyzers.header import Header
from analyzers.run import RankTrace

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
    *, step: str = "", launch: Mapping[str, str] | None = None, rank: int = 0, device: int = 0, **lanes: str
) -> RankTrace:
    """One rank with one device, its lanes (compute, comm, copy) as drawn; `compute2` is a second lane of compute."""
    rows = [row(Category.ANNOTATION, Kind.HOST, f"ProfilerStep#{k}", start, length) for k, start, length in runs(step)]
    correlation = 0
    for lane, picture in lanes.items():
        category, kind = LANES[lane.rstrip("2")]
        events = list(runs(picture))
        shown = launch.get(lane) if launch else None
        calls = [at for at, mark in enumerate(shown) if mark == "^"] if shown else [start for _, start, _ in events]
        for (name, start, length), call in zip(events, calls, strict=True):
            correlation += 1
            rows.append(row(category, kind, f"{lane} {name}", start, length, device=device, correlation=correlation))
            rows.append(row(Category.LAUNCH, Kind.HOST, "cudaLaunchKernel", call, 1, correlation=correlation))
    events = events_of(rows)
    return RankTrace(rank, Path(f"rank{rank}.json"), Header(), events, events)


def row(category: Category, kind: Kind, name: str, start: int, length: int, **more: int) -> dict[str, Any]:
    host = {"thread": 1, "device": UNKNOWN, "peer": UNKNOWN, "stream": UNKNOWN, "correlation": UNKNOWN}
    return host | {"category": category, "kind": kind, "name": name, "start_ns": start, "dur_ns": length} | more


def events_of(rows: list[dict[str, Any]]) -> Events:
    names = sorted({row["name"] for row in rows})
    types = {"category": np.int8, "kind": np.int8, "device": np.int32, "peer": np.int32}
    columns = {
        key: np.array([row[key] for row in rows], dtype=types.get(key, np.int64))
        for key in ("category", "kind", "start_ns", "dur_ns", "thread", "device", "peer", "stream", "correlation")
    }
    code = np.array([names.index(row["name"]) for row in rows], dtype=np.int32)
    unknown = np.full(len(rows), UNKNOWN)
    return Events(
        name=code,
        names=tuple(names),
        nbytes=unknown,
        external=unknown,
        sequence=unknown,
        call=unknown.astype(np.int32),
        calls=(),
        inputs=unknown.astype(np.int32),
        shapes=(),
        launched_ns=launch_times(columns["category"], columns["correlation"], columns["start_ns"]),
        **columns,
    )
