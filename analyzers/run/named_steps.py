"""Steps by an annotation's name, and annotations that could be steps.

annotation   |execute_a     |  |execute_b   |  |execute_a  |      given as `execute_`: steps 0, 1, 2
  inside it     |execute_c|                                      the outermost count
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.errors import UnusableRun
from analyzers.intervals import union_of
from analyzers.trace import C10D, NCCL, SPANS, STEP, Category, Events

# What libraries annotate many times a step.
_NO_STEPS = (STEP, C10D, *SPANS, NCCL, "## ", "Torch-Compiled Region", "PyTorch Profiler", "nn.Module: ")
# A candidate's repeats hold at least so much of what was launched.
_HELD = 0.5
_LISTED = 3
# Of names that repeat, so many are looked at, those that last longest.
_LOOKED_AT = 50


def with_steps(events: Events, name: str, whose: object) -> Events:
    """Return the rows with annotations called `name`, or beginning with it, as the profiler's steps 0, 1, ... by start.

    The profiler's own steps are none then. Raises UnusableRun, which names `whose` rows they are, for a name that
    nothing has.
    """
    rows = _keep_outermost(events, _find_named(events, name))
    if not len(rows):
        names = " or ".join(map(repr, step_candidates(events, least=0.0))) or "none that repeats"
        raise UnusableRun(f"{whose}: no annotation is called {name[:80]!r}, or begins so; candidates: {names}")
    codes = {f"{STEP}{number}": len(events.names) + number for number in range(len(rows))}
    kept = tuple(f"its own {known}" if known.startswith(STEP) else known for known in events.names)
    count = len(events)
    longer = events.take(np.r_[np.arange(count), rows])
    named, category, call = longer.name.copy(), longer.category.copy(), longer.call.copy()
    named[count:], category[count:], call[count:] = [*codes.values()], Category.ANNOTATION, UNKNOWN
    return replace(longer, names=(*kept, *codes), name=named, category=category, call=call)


def _find_named(events: Events, name: str) -> Int64:
    """Return the host's ranges with that name; where none has it, those whose names begin with it."""
    ranges = np.isin(events.category, (Category.ANNOTATION, Category.OPERATOR)) & (events.dur_ns > 0)
    exact = np.flatnonzero(ranges & np.array([known == name for known in events.names], dtype=bool)[events.name])
    return exact if len(exact) else np.flatnonzero(ranges & events.named(name))


def _keep_outermost(events: Events, rows: Int64) -> Int64:
    """Return those of some ranges that begin in none of the others, by start."""
    rows = rows[np.lexsort((-events.end_ns[rows], events.start_ns[rows]))]
    reach = np.maximum.accumulate(events.end_ns[rows])
    apart: Mask = np.r_[True, events.start_ns[rows][1:] >= reach[:-1]][: len(rows)]
    return rows[apart]


def step_candidates(events: Events, least: float = _HELD) -> tuple[str, ...]:
    """Return names to give for steps: annotations that repeat and hold most of what was launched, at least `least`."""
    launched = np.sort(events.launched_ns[events.on_device & (events.launched_ns != UNKNOWN)])
    if not len(launched):
        launched = np.sort(events.start_ns[events.category == Category.OPERATOR])
    shares = {}
    for name, rows in _find_repeated(events).items():
        held = union_of(events.start_ns[rows], events.end_ns[rows])
        inside = np.searchsorted(launched, held.end) - np.searchsorted(launched, held.start)
        share = inside.sum() / max(len(launched), 1)
        if share >= least and len(_keep_outermost(events, rows)) > 1:
            shares[name] = share
    return tuple(sorted(shares, key=lambda name: -shares[name])[:_LISTED])


def _find_repeated(events: Events) -> dict[str, Int64]:
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
