"""Relations of one rank's rows: each device row's call, each stream's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, begins, joint, values_at
from analyzers.trace import STEP, Events

_LONGEST_NUMBER = 18  # digits that an int64 holds in any case
_NAMED = 3
_LISTED = 12


@dataclass(frozen=True, eq=False)
class Queues:
    """Device rows stream by stream, by start, of several the one first that ends first.

    `place` is each one's among a rank's device rows, `stream` the number of its stream, from 0.
    """

    place: Int64
    stream: Int64


class Relations:
    """Rows of one rank, looked at together.

    `device` are the rows of its devices, `launched_ns` is when the host call behind each begins, UNKNOWN for none.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.device = np.flatnonzero(events.on_device)
        self.launched_ns = events.launched_ns[self.device]

    @cached_property
    def call(self) -> Int64:
        """Return the row of the host call behind each device row, UNKNOWN for none."""
        events = self.events
        return events.launched_by(events.correlation[self.device])

    @cached_property
    def returned_ns(self) -> Int64:
        """Return when the call behind each device row ends, UNKNOWN for none."""
        return values_at(self.events.end_ns, self.call)

    def in_order(self, kept: Mask) -> Queues:
        """Return the device rows that are kept and say their stream."""
        events, rows = self.events, self.device
        said = np.flatnonzero(kept[rows] & (events.stream[rows] != UNKNOWN))
        stream = joint(events.device[rows[said]], events.stream[rows[said]])
        order = np.lexsort((events.end_ns[rows[said]], events.start_ns[rows[said]], stream))
        return Queues(said[order], np.cumsum(begins(stream[order])) - 1)

    @cached_property
    def is_empty(self) -> Mask:
        """Whether steps that are marked, by start, have nothing on the device; none where that is so of all."""
        launched, events = np.sort(self.launched_ns[self.launched_ns != UNKNOWN]), self.events
        begin, end = (np.searchsorted(launched, ns[events.steps]) for ns in (events.start_ns, events.end_ns))
        empty: Mask = (begin == end) & bool((begin != end).any())
        return empty


def step_numbers(events: Events) -> tuple[Int64, Int64]:
    """Return the rows that mark numbered steps, by start, and their numbers."""
    rows = events.steps
    numbers = {code: events.names[code].removeprefix(STEP) for code in np.unique(events.name[rows]).tolist()}
    known = {code: int(text) for code, text in numbers.items() if text.isdecimal() and len(text) <= _LONGEST_NUMBER}
    rows = rows[np.isin(events.name[rows], list(known))]
    return rows, np.array([known[code] for code in events.name[rows].tolist()], dtype=np.int64)


def listed(events: Events, rows: Int64) -> str:
    """Return the names of rows, the most frequent first, with how often each occurs."""
    counts = Counter(events.names[code][:60] for code in events.name[rows].tolist())
    named = ", ".join(f"{name!r} {count} times" for name, count in counts.most_common(_NAMED))
    return named + (", ..." if len(counts) > _NAMED else "")


def shown_numbers(numbers: Sequence[str]) -> str:
    """Return numbers of steps as words, only the first of many."""
    return ", ".join(numbers[:_LISTED]) + (f" and {len(numbers) - _LISTED} more" if len(numbers) > _LISTED else "")
