"""Runs in which one thing grows: events, steps, layers, collectives or ranks; and the phases of a report on them.

    write_run(folder, replace(Size(), layers=16))
    dict(phases(folder))["match"]()

Every rank trains under DDP: each layer has a module's range, operators with kernels in both passes, and a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from analyzers.collectives import exchange
from analyzers.rank import summary_of
from analyzers.reporting import report, to_json
from analyzers.run import load
from tests.support.kineto_files import Event
from tests.support.training import all_reduce, backward, document, forward, kernel, ranged, step
from tracer.views.sections import first_screen_text

OPERATOR_US = 10
CALL_US = 8


@dataclass(frozen=True)
class Size:
    """How much there is of each."""

    events: int = 2  # operators of a layer, each with its kernels in both passes
    steps: int = 4
    layers: int = 4
    collectives: int = 4  # of a step
    ranks: int = 2


GROWING = tuple(field.name for field in fields(Size))


def write_run(folder: Path, size: Size) -> Path:
    """Write every rank's trace; the folder."""
    folder.mkdir(parents=True)
    for rank in range(size.ranks):
        data = msgspec.json.encode(document(list(events(size, rank)), rank, size.ranks))
        (folder / f"rank{rank}.json").write_bytes(data)
    return folder


def events(size: Size, rank: int) -> Iterator[Event]:
    """One rank's rows."""
    rows, length = one_step(size)
    members = {"Group size": size.ranks, "Process Group Ranks": str(list(range(size.ranks)))}
    for number in range(size.steps):
        yield step(number, number * length, length)
        for row in rows:
            args = dict(row["args"])
            if "correlation" in args:
                args["correlation"] += number * length * 1000
            if "Sequence number" in args:
                args["Sequence number"] += number * size.layers * size.events
            if "Group size" in args:
                args |= members
            # Each rank comes a little later than the one before.
            yield row | {"ts": row["ts"] + number * length + rank % 8 * 0.25, "args": args}


def one_step(size: Size) -> tuple[list[Event], int]:
    """The rows of a step but its annotation, and its length in microseconds."""
    forwards = [(layer, place) for layer in range(size.layers) for place in range(size.events)]
    rows: list[Event] = [ranged("DistributedDataParallel.forward", 4, OPERATOR_US * len(forwards))]
    now = 5
    for layer in range(size.layers):
        rows.append(ranged(f"nn.Module: layer{layer} (Linear)", now, OPERATOR_US * size.events - 1))
        for place in range(size.events):
            rows += forward(now + 1, _name(place), layer * size.events + place)
            now += OPERATOR_US
    for number, (layer, place) in reversed(list(enumerate(forwards))):
        shapes = [(8, 8)] if place == 0 else []
        rows += backward(now + 1, _name(place), number, gradients=shapes)
        now += OPERATOR_US
        done = size.layers - 1 - layer
        first, last = (size.collectives * (done + more) // size.layers for more in (0, 1))
        for _ in range(first, last) if place == 0 else ():
            rows += all_reduce(now, 64, now + 2, CALL_US - 3)
            now += CALL_US
    rows.append(ranged("Optimizer.step#SGD.step", now, 8))
    rows += kernel("sgd", now + 1, now + 2, 3)
    return rows, now + 20


def _name(place: int) -> str:
    return "relu" if place else "linear"


Phase = tuple[str, Callable[[], object]]


def phases(folder: Path) -> Iterator[Phase]:
    """Yield what a report does, in order, each to be called any number of times; `report` contains a `match`."""
    yield "read", lambda: load(folder)
    run = load(folder)
    yield "summarize", lambda: summary_of(run)
    yield "graph", lambda: summary_of(run, lanes=True, causes=True)
    summary = summary_of(run)
    yield "match", lambda: exchange(summary)
    yield "report", lambda: report(summary)
    made: Any = report(summary)
    yield "screen", lambda: first_screen_text(made, str(folder))
    yield "json", lambda: to_json(made)
