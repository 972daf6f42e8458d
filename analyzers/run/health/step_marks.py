"""Marks of steps: doubled numbers, and several cycles in one file.

marks      |1   |2 |2   |3   |        |1   |2   |3   |
launches     a b      c    d             e    f    g        the first mark of 2 holds none: it is no step
steps      |1   |  |2   |3   |        |4   |5   |6   |      numbers go on, and each cycle has its own last window

A number that is missing begins no cycle where its mark has lost its time, or where work was launched meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.notices import Code, Notice
from analyzers.run.health.relations import step_numbers
from analyzers.trace import STEP, Category, Events, Health

_LISTED = 4


def with_distinct_steps(events: Events, lost: Int64, file: str) -> tuple[Events, list[Notice]]:
    """Return the rows with each step marked once, cycles told apart, and what is said of several.

    `lost` are numbers of steps whose marks are no more among the rows.
    """
    marks, numbers = step_numbers(events)
    if (np.diff(numbers) == 1).all():
        return events, []
    kept = _kept(events, marks, numbers)
    rows, numbers = marks[kept], numbers[kept]
    first = np.flatnonzero(np.r_[True, ~_goes_on(events, rows, numbers, lost)])
    new, used, highest = numbers.copy(), set[int](), 0
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(numbers)], strict=True):
        if not used.isdisjoint(new[low:high].tolist()):
            new[low:high] += highest + 1 - new[low]
        used.update(new[low:high].tolist())
        highest = max(highest, int(new[high - 1]))
    is_other = np.zeros(len(events), dtype=bool)
    is_other[marks], is_other[rows] = True, False
    marked = _renamed(events, rows, numbers, new, rows[first[1:]]).take(~is_other)
    if len(first) < 2:
        return marked, []
    cycles = [f"{new[low]} to {new[high - 1]}" for low, high in zip(first, [*first[1:], len(new)], strict=True)]
    more = f" and {len(cycles) - _LISTED} more" if len(cycles) > _LISTED else ""
    again = "; numbers that were there before go on" if (new != numbers).any() else ""
    text = f"{file}: holds {len(cycles)} cycles of the profiler, steps {', '.join(cycles[:_LISTED])}{more}{again}"
    return marked, [Notice(Code.SEVERAL_CYCLES, text)]


def _goes_on(events: Events, marks: Int64, numbers: Int64, lost: Int64) -> Mask:
    """Whether each step but the first is of the same cycle as the step before it."""
    missing = np.diff(numbers) - 1
    known = np.unique(lost)
    are_lost = np.searchsorted(known, numbers[1:]) - np.searchsorted(known, numbers[:-1], side="right") == missing
    launched = np.sort(events.launched_ns[events.on_device & (events.launched_ns != UNKNOWN)])
    ended, begun = (np.searchsorted(launched, ns) for ns in (events.end_ns[marks[:-1]], events.start_ns[marks[1:]]))
    goes_on: Mask = (missing == 0) | ((missing > 0) & (are_lost | (begun > ended)))
    return goes_on


def _kept(events: Events, rows: Int64, numbers: Int64) -> Int64:
    """Return the places of marks that are steps: not those without launches whose number another with launches has.

    Nor is one that begins within the mark of the same number before it: two threads mark one step.
    """
    launches = events.category == Category.LAUNCH
    launched = np.sort(events.start_ns[launches if launches.any() else events.category == Category.OPERATOR])
    start, end = events.start_ns[rows], events.end_ns[rows]
    holds = np.searchsorted(launched, end) > np.searchsorted(launched, start)
    is_step = holds | ~(np.isin(numbers, numbers[holds]) | (np.diff(numbers, prepend=-1) == 0))
    reached: dict[int, int] = {}
    for place in np.flatnonzero(is_step).tolist():
        number = int(numbers[place])
        is_step[place] = start[place] >= reached.get(number, start[place])
        if is_step[place]:
            reached[number] = int(end[place])
    return np.flatnonzero(is_step)


def _renamed(events: Events, rows: Int64, numbers: Int64, new: Int64, begun: Int64) -> Events:
    """Return the rows with marks under new numbers, and cycles beginning with some of them."""
    health = events.health.copy()
    health[begun] |= Health.CYCLE
    changed = np.flatnonzero(new != numbers)
    codes = {f"{STEP}{number}": code for code, number in enumerate(np.unique(new[changed]), start=len(events.names))}
    name = events.name.copy()
    name[rows[changed]] = [codes[f"{STEP}{number}"] for number in new[changed]]
    return replace(events, names=(*events.names, *codes), name=name, health=health)
