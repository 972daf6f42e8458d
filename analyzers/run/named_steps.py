"""Steps by an annotation's name, and annotations that could be steps.

annotation   |execute_a     |  |execute_b   |  |execute_a  |      given as `execute_`: steps 0, 1, 2
  inside it     |execute_c|                                      the outermost count
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.errors import UnusableRun
from analyzers.intervals import union_of
from analyzers.trace import C10D, NCCL, OPTIMIZER, SPANS, STEP, Category, Events

# What libraries annotate many times a step.
_NO_STEPS = (STEP, C10D, *SPANS, NCCL, "## Call ", "Torch-Compiled Region", "PyTorch Profiler", "nn.Module: ", "FSDP::")
OPTIMIZER_STEP = f"{OPTIMIZER}step"
# A candidate's repeats hold at least so much of what was launched.
_HELD = 0.5
_LISTED = 3
# Of names that repeat, so many are looked at, those that last longest.
_LOOKED_AT = 50


@dataclass(frozen=True)
class Repeated:
    """A range that repeats: its name, or how names begin; how often it is there; how far starts are apart, median."""

    name: str
    count: int
    period_ns: int


def with_steps(events: Events, name: str, whose: object) -> Events:
    """Return the rows with annotations called `name`, or beginning with it, as the profiler's steps 0, 1, ... by start.

    The profiler's own steps are none then. Raises UnusableRun, which names `whose` rows they are, for a name that
    nothing has.
    """
    rows = keep_outermost(events, _find_named(events, name))
    if not len(rows):
        names = " or ".join(repr(one.name) for one in step_candidates(events, least=0.0)) or "none that repeats"
        raise UnusableRun(f"{whose}: no annotation is called {name[:80]!r}, or begins so; candidates: {names}")
    return mark_steps(events, rows, events.start_ns[rows], events.end_ns[rows])


def mark_steps(events: Events, rows: Int64, start_ns: Int64, end_ns: Int64) -> Events:
    """Return the rows with the profiler's steps 0, 1, ... from starts to ends, each on the thread of another row."""
    codes = {f"{STEP}{number}": len(events.names) + number for number in range(len(rows))}
    kept = tuple(f"its own {known}" if known.startswith(STEP) else known for known in events.names)
    count = len(events)
    longer = events.take(np.r_[np.arange(count), rows])
    told = {"name": [*codes.values()], "category": Category.ANNOTATION, "call": UNKNOWN}
    # They are in no file: behind all that is.
    last = max(int(events.position.max()), int(events.syncs.position.max(initial=UNKNOWN)))
    told |= {"start_ns": start_ns, "dur_ns": end_ns - start_ns, "position": last + 1 + np.arange(len(rows))}
    columns = {name: getattr(longer, name).copy() for name in told}
    for name, values in told.items():
        columns[name][count:] = values
    return replace(longer, names=(*kept, *codes), **columns)


def _find_named(events: Events, name: str) -> Int64:
    """Return the host's ranges with that name; where none has it, those whose names begin with it."""
    ranges = np.isin(events.category, (Category.ANNOTATION, Category.OPERATOR)) & (events.dur_ns > 0)
    exact = np.flatnonzero(ranges & np.array([known == name for known in events.names], dtype=bool)[events.name])
    return exact if len(exact) else np.flatnonzero(ranges & events.named(name))


def keep_outermost(events: Events, rows: Int64) -> Int64:
    """Return those of some ranges that begin in none of the others, by start."""
    rows = rows[np.lexsort((-events.end_ns[rows], events.start_ns[rows]))]
    reach = np.maximum.accumulate(events.end_ns[rows])
    apart: Mask = np.r_[True, events.start_ns[rows][1:] >= reach[:-1]][: len(rows)]
    return rows[apart]


def step_candidates(events: Events, least: float = _HELD) -> tuple[Repeated, ...]:
    """Return what to name for steps: annotations that repeat and hold most of what was launched, at least `least`.

    An optimizer's steps hold little, and are once in each.
    """
    launched = np.sort(launched_rows(events)[1])
    shares = {}
    for name, rows in find_repeated(events).items():
        held = union_of(events.start_ns[rows], events.end_ns[rows])
        inside = np.searchsorted(launched, held.end) - np.searchsorted(launched, held.start)
        share = inside.sum() / max(len(launched), 1)
        outermost = keep_outermost(events, rows)
        if len(outermost) > 1 and (share >= least or name.startswith(OPTIMIZER_STEP)):
            shares[repeated(events, name, outermost)] = share
    return tuple(sorted(shares, key=lambda one: -shares[one])[:_LISTED])


def repeated(events: Events, name: str, rows: Int64) -> Repeated:
    """Return of several rows, by start, how often and how far apart they are."""
    return Repeated(name, len(rows), int(np.median(np.diff(events.start_ns[rows]))))


def launched_rows(events: Events) -> tuple[Int64, Int64]:
    """Return the rows of the device and when they were launched; operators and their starts where there are none."""
    rows = np.flatnonzero(events.on_device & (events.launched_ns != UNKNOWN))
    if len(rows):
        return rows, events.launched_ns[rows]
    rows = np.flatnonzero(events.category == Category.OPERATOR)
    return rows, events.start_ns[rows]


def find_repeated(events: Events) -> dict[str, Int64]:
    """Return annotations that occur several times, by name, or by what their names share before a number."""
    annotations = np.flatnonzero(events.category == Category.ANNOTATION)
    codes, which = np.unique(events.name[annotations], return_inverse=True)
    by_stem = defaultdict(list)
    for index, code in enumerate(codes.tolist()):
        if not events.names[code].startswith(_NO_STEPS):
            by_stem[re.sub(r"\d+", "0", events.names[code])].append(index)
    order = np.argsort(which, kind="stable")
    first = np.searchsorted(which[order], np.arange(len(codes) + 1))
    rows_of = [annotations[order[low:high]] for low, high in pairwise(first)]
    repeated = {}
    for members in by_stem.values():
        rows = np.concatenate([rows_of[index] for index in members])
        name = events.names[codes[members[0]]]
        name = name if len(members) == 1 else re.split(r"\d", name, maxsplit=1)[0]
        if len(rows) > 1 and name:
            repeated[name] = rows
    longest = sorted(repeated, key=lambda name: -int(events.dur_ns[repeated[name]].sum()))[:_LOOKED_AT]
    return {name: repeated[name] for name in longest}
