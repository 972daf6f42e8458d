"""Host rows of a rank by thread, and the launches among them.

spans      |AAAAAAAAAAAAAAAAAAAAA|   |DDDDDD|
             |BBBBBB|  |CCCCC|
launches  a     b     c   d      e      f         around: b in B, c in A, d in C, f in D, a and e in none
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, begins, find, rows_by, values_at
from analyzers.texts import finder
from analyzers.trace import C10D, Category, Events

# gloo has two threads for each group; more groups may be at work at a time.
GLOO_THREADS = 8


@dataclass(frozen=True, eq=False)
class Places(Columns):
    """Instants on host threads; thread and instant are UNKNOWN where there is no place."""

    thread: Int64
    instant_ns: Int64

    @cached_property
    def by_thread(self) -> dict[int, Int64]:
        """Return the places on each thread."""
        known = np.flatnonzero(self.instant_ns != UNKNOWN)
        return {thread: known[places] for thread, places in rows_by(self.thread[known]).items()}


@dataclass(frozen=True, eq=False)
class Spans(Columns):
    """Times on host threads, nested within each thread, in any order; what each thread has is sorted once."""

    thread: Int64
    start_ns: Int64
    end_ns: Int64

    def around(self, places: Places) -> Int64:
        """Return for each place the index of the innermost span that runs around it on its thread; -1 for none."""
        holder = np.full(len(places), UNKNOWN, dtype=np.int64)
        for thread, asked in places.by_thread.items():
            if thread in self._nests:
                holder[asked] = self._nests[thread].innermost(places.instant_ns[asked])
        return holder

    def outermost(self, places: Places) -> Int64:
        """Return for each place the index of the outermost span that runs around it on its thread; -1 for none."""
        holder = np.full(len(places), UNKNOWN, dtype=np.int64)
        for thread, asked in places.by_thread.items():
            if thread in self.tops:
                top = self.tops[thread]
                at = np.searchsorted(top.start_ns, places.instant_ns[asked], side="right") - 1
                inside = (at >= 0) & (top.end_ns[at] > places.instant_ns[asked])
                holder[asked] = np.where(inside, top.label[at], UNKNOWN)
        return holder

    @cached_property
    def by_thread(self) -> dict[int, Int64]:
        """Return the spans on each thread."""
        return rows_by(self.thread)

    @cached_property
    def _nests(self) -> dict[int, Nest]:
        return {thread: Nest(self._labelled(spans)) for thread, spans in self.by_thread.items()}

    @cached_property
    def tops(self) -> dict[int, Labelled]:
        """Return the spans of each thread that lie in no other, by start."""
        tops = {}
        for thread, spans in self.by_thread.items():
            order = spans[np.lexsort((-self.end_ns[spans], self.start_ns[spans]))]
            reach = np.maximum.accumulate(self.end_ns[order])
            is_top = np.ones(len(order), dtype=bool)
            is_top[1:] = self.start_ns[order[1:]] >= reach[:-1]
            tops[thread] = self._labelled(order[is_top])
        return tops

    def _labelled(self, spans: Int64) -> Labelled:
        return Labelled(self.start_ns[spans], self.end_ns[spans], spans)


@dataclass(frozen=True, eq=False)
class Labelled(Columns):
    """Spans [start, end), each with a number."""

    start_ns: Int64
    end_ns: Int64
    label: Int64


class Nest:
    """Nested spans of one thread by their depth, which is how many are open when one begins."""

    def __init__(self, spans: Labelled) -> None:
        """Sort the spans, without those that are empty."""
        spans = spans.take(spans.end_ns > spans.start_ns)
        spans = spans.take(np.lexsort((-spans.end_ns, spans.start_ns)))
        self._starts, self._ends = spans.start_ns, np.sort(spans.end_ns)
        place = np.arange(len(spans.label))
        depth = place - np.searchsorted(self._ends, self._starts, side="right")
        # Those of one depth stand together, by start.
        key = depth * len(place) + place
        order = np.argsort(key)
        self._key, self._spans = key[order], spans.take(order)

    def innermost(self, instant_ns: Int64) -> Int64:
        """Return for each instant the label of the innermost span that holds it, UNKNOWN for none.

        Around an instant at depth d it is the last that began at depth d.
        """
        if not len(self._key):
            return np.full(len(instant_ns), UNKNOWN, dtype=np.int64)
        begun = np.searchsorted(self._starts, instant_ns, side="right")
        first_key = (begun - np.searchsorted(self._ends, instant_ns, side="right") - 1) * len(self._key)
        last = np.searchsorted(self._key, first_key + begun) - 1
        holds = (first_key >= 0) & (self._key[last] >= first_key) & (self._spans.end_ns[last] > instant_ns)
        return np.where(holds, self._spans.label[last], UNKNOWN)


def innermost(start_ns: Int64, end_ns: Int64, instant_ns: Int64, label: Int64) -> Int64:
    """Return for each instant the label of the innermost nested span [start, end) that holds it, UNKNOWN for none."""
    return Nest(Labelled(start_ns, end_ns, label)).innermost(instant_ns)


class Host:
    """One rank's rows, looked at by thread."""

    def __init__(self, events: Events) -> None:
        self.events = events
        launches = np.flatnonzero((events.category == Category.LAUNCH) & (events.correlation != UNKNOWN))
        launches = launches[np.lexsort((events.start_ns[launches], events.correlation[launches]))]
        self._launches = launches[begins(events.correlation[launches])]
        self._spans_named: dict[tuple[str, ...], Spans] = {}

    @cached_property
    def is_range(self) -> Mask:
        """Whether rows are operators or annotations."""
        return np.isin(self.events.category, (Category.OPERATOR, Category.ANNOTATION))

    def launches(self, rows: Int64) -> Int64:
        """Return the row of the host call that launched each row, -1 where there is none."""
        events, correlations = self.events, self.events.correlation[self._launches]
        if not len(correlations):
            return self._queued(rows)
        index = find(correlations, events.correlation[rows])
        return np.where(index >= 0, self._launches[index], UNKNOWN)

    def _queued(self, rows: Int64) -> Int64:
        """Return for gloo's spans, in order, the calls that queued them for its threads, if there are as many."""
        events = self.events
        calls = np.flatnonzero((events.category == Category.OPERATOR) & events.named(C10D))
        calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
        if len(calls) != len(rows):
            return np.full(len(rows), UNKNOWN)
        # Several threads take them from the queue: of two that begin at about the same time, sizes tell which is which.
        sizes = [self._elements(row) for row in calls.tolist()]
        queued_by = np.full(len(rows), UNKNOWN)
        waiting = list(range(len(calls)))
        for span in np.argsort(events.start_ns[rows], kind="stable").tolist():
            size = self._elements(rows[span])
            taken = next((index for index in waiting[:GLOO_THREADS] if sizes[index] == size), waiting[0])
            queued_by[span] = calls[taken]
            waiting.remove(taken)
        return queued_by

    def _elements(self, row: int) -> int:
        code = self.events.inputs[row]
        return self.events.shapes[code].elements() if code >= 0 else UNKNOWN

    def places(self, rows: Int64) -> Places:
        """Return where rows of the host begin; no place for row -1."""
        is_row = rows >= 0
        events = self.events
        return Places(np.where(is_row, events.thread[rows], UNKNOWN), np.where(is_row, events.start_ns[rows], UNKNOWN))

    def around(self, calls: Int64 | Places, rows: Int64) -> Int64:
        """Return for each call or place the innermost among `rows` that runs around it on its thread; -1 for none."""
        places = calls if isinstance(calls, Places) else self.places(calls)
        return values_at(rows, self.spans(rows).around(places))

    def spans(self, rows: Int64) -> Spans:
        """Return rows of the host as spans of time on threads."""
        return Spans(self.events.thread[rows], self.events.start_ns[rows], self.events.end_ns[rows])

    def before(self, calls: Int64, spans: Int64) -> Int64:
        """Return for each call the last among the rows `spans` that began before it on its thread; -1 for none."""
        last = np.full(len(calls), UNKNOWN, dtype=np.int64)
        places = self.places(calls)
        on_thread = self.spans(spans).by_thread
        for thread, asked in places.by_thread.items():
            candidates = spans[on_thread.get(thread, spans[:0])]
            candidates = candidates[np.argsort(self.events.start_ns[candidates], kind="stable")]
            index = np.searchsorted(self.events.start_ns[candidates], places.instant_ns[asked], side="right") - 1
            last[asked] = values_at(candidates, index)
        return last

    def named(self, *prefixes: str) -> Int64:
        """Return rows of the host's ranges whose name starts with one of the prefixes."""
        rows = self.events.rows_named(*prefixes)
        return rows[self.is_range[rows]]

    def inside(self, places: Places, *prefixes: str) -> Mask:
        """Whether places lie inside a range or operator whose name starts with one of the prefixes."""
        if prefixes not in self._spans_named:
            self._spans_named[prefixes] = self.spans(self.named(*prefixes))
        return self._spans_named[prefixes].outermost(places) >= 0

    def inside_any(self, places: Places, pattern: re.Pattern[str]) -> Mask:
        """Whether places lie inside a range or operator in whose name a pattern is."""
        names = np.array([*map(finder(pattern), self.events.names)], dtype=bool)
        rows = np.flatnonzero(names[self.events.name] & self.is_range)
        return self.spans(rows).outermost(places) >= 0
