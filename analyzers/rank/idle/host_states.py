"""States of host threads: loader, allocation, synchronizing call, collection, operator, Python.

loader        |=======|                              first that applies:
calls                    |cudaStreamSynchronize|     input, allocator, synchronize, gc, operator, python
operators            |aten::item...................|
state      python|input  |o|synchronize         |op|python
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Int64, Labelled, Mask, sorted_set, values_at
from analyzers.rank.host import Host, Places
from analyzers.rank.idle.data_loading import is_input
from analyzers.rank.idle.python_functions import functions_of
from analyzers.trace import STEP, Category, Events, Samples, module_of


class Cause(Labelled):
    """Why a device was idle; docs/measuring.md defines each."""

    INPUT = 0
    SYNCHRONIZE = 1
    OPERATOR = 2
    PYTHON = 3
    LAUNCH_LATENCY = 4
    KERNEL_GAP = 5
    DEPENDENCY = 6
    UNKNOWN = 7
    PROFILER = 8
    ALLOCATOR = 9
    GC = 10


# Calls of the runtimes and drivers that return when the device is done. Copies whose names do not end in Async block;
# so does an asynchronous one into pageable memory (CUDA Runtime API, "API synchronization behavior").
_SYNCHRONIZES = re.compile(
    r"(?:cuda|hip|cu)(?:Stream|Device|Event|Ctx|Thread)Synchronize(?:_\w+)?|(?:cuda|hip|cu)Memcpy(?!\w*Async)\w*"
)
# Calls that reserve or give back memory of the device, or memory of the host for it.
_ALLOCATES = re.compile(
    r"(?:cuda|hip)(?:Ext)?(?:Host)?(?:Malloc|Alloc|Free)\w*"
    r"|cuMem(?:Host)?(?:Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address)\w*"
)
_COPIES_LATER = re.compile(r"(?:cuda|hip|cu)Memcpy\w*Async\w*")
_INTO_PAGEABLE = "Memcpy DtoH (Device -> Pageable)"


def synchronizes(host: Host) -> Mask:
    """Return which rows are calls that wait for the device."""
    events = host.events
    is_call = events.category == Category.LAUNCH
    waits = is_call & _matching(events, _SYNCHRONIZES)
    blocking = np.flatnonzero((events.category == Category.MEMCPY) & events.named(_INTO_PAGEABLE))
    calls = host.launches(blocking)
    waits[calls[calls >= 0]] = True
    found: Mask = waits & is_call & (_matching(events, _SYNCHRONIZES) | _matching(events, _COPIES_LATER))
    return found


def _matching(events: Events, pattern: re.Pattern[str]) -> Mask:
    found: Mask = np.array([pattern.fullmatch(name) is not None for name in events.names], dtype=bool)[events.name]
    return found


@dataclass(frozen=True, eq=False)
class ThreadStates(Columns):
    """All of one thread's time, in order, tile by tile: the state of each, and where the thread was.

    `name` is that of the outermost operator, else of the innermost module or range, but in Python of the function that
    a sample found; `call` is the row that synchronizes; UNKNOWN for none.
    """

    start_ns: Int64
    end_ns: Int64
    cause: Int64
    name: Int64
    call: Int64


# Farther than any instant, and near enough to subtract from.
_BEFORE, _AFTER = np.iinfo(np.int64).min // 4, np.iinfo(np.int64).max // 4


class HostStates:
    """What a rank's threads were in."""

    def __init__(self, host: Host) -> None:
        events = host.events
        self._host = host
        self.is_synchronizing = synchronizes(host)
        is_step, is_loader = events.named(STEP), _named_input(events)
        is_module = np.array([module_of(name) is not None for name in events.names], dtype=bool)[events.name]
        # Torch 1.8 wrote steps and loaders as operators.
        marks = is_step | is_loader
        ranges = (events.category == Category.ANNOTATION) | ((events.category == Category.PYTHON) & is_module)
        self._loader = _Rows(host, is_loader & host.is_range)
        self._operators = _Rows(host, (events.category == Category.OPERATOR) & ~marks)
        self._ranges = _Rows(host, ranges & ~marks)
        self._calls = _Rows(host, self.is_synchronizing)
        self._allocations = _Rows(host, (events.category == Category.LAUNCH) & _matching(events, _ALLOCATES))
        self._collections = _Rows(host, events.category == Category.COLLECTION)

    def of_thread(self, thread: int) -> ThreadStates:
        """Return one thread's states."""
        told_by = (self._loader, self._allocations, self._calls, self._collections, self._operators)
        changes = [rows.outermost_edges(thread) for rows in told_by]
        edges = sorted_set(np.concatenate([*changes, self._ranges.edges(thread), [_BEFORE, _AFTER]]))
        places = Places(np.full(len(edges) - 1, thread), edges[:-1])
        found = [rows.outermost(places) for rows in told_by]
        in_loader, _, in_call, _, in_operator = found
        in_range = self._ranges.innermost(places)
        causes = [Cause.INPUT, Cause.ALLOCATOR, Cause.SYNCHRONIZE, Cause.GC, Cause.OPERATOR]
        cause = np.select([rows >= 0 for rows in found], causes, Cause.PYTHON)
        within = np.where(in_operator >= 0, in_operator, in_range)
        within = np.where(in_loader >= 0, in_loader, within)
        in_call = np.where(cause == Cause.SYNCHRONIZE, in_call, UNKNOWN)
        states = ThreadStates(edges[:-1], edges[1:], cause, self._names(within), in_call)
        return _with_functions(states, self._host.events.samples, thread)

    def refills(self, thread: int) -> tuple[Int64, Int64, Int64]:
        """Return one thread's calls that wait, by end; when each one ended, and when anything was launched next."""
        events = self._host.events
        calls = np.flatnonzero(self.is_synchronizing & (events.thread == thread))
        calls = calls[np.argsort(events.end_ns[calls], kind="stable")]
        at = np.searchsorted(self._launched_ns, events.end_ns[calls])
        return calls, events.end_ns[calls], np.r_[self._launched_ns, _AFTER][at]

    @cached_property
    def _launched_ns(self) -> Int64:
        """Return when the calls began that launched something, on whatever thread, in order."""
        events = self._host.events
        calls = self._host.launches(np.flatnonzero(events.on_device))
        return np.unique(events.start_ns[calls[calls >= 0]])

    def around(self, calls: Int64) -> Int64:
        """Return the name of where each call of the runtime was made, UNKNOWN where nothing is around it."""
        places = self._host.places(calls)
        operator = self._operators.outermost(places)
        return self._names(np.where(operator >= 0, operator, self._ranges.innermost(places)))

    def _names(self, rows: Int64) -> Int64:
        return values_at(self._host.events.name, rows).astype(np.int64)

    def main_thread(self) -> int:
        """Return the thread that marks the steps, else the one with most ranges."""
        events = self._host.events
        is_range = self._host.is_range
        steps = is_range & events.named(STEP)
        threads, counts = np.unique(events.thread[steps if steps.any() else is_range], return_counts=True)
        return int(threads[counts.argmax()]) if len(threads) else UNKNOWN


def _with_functions(states: ThreadStates, samples: Samples, thread: int) -> ThreadStates:
    """Return a thread's states, those in Python divided by the functions that samples of it found."""
    samples = samples.take(samples.thread == thread)
    if not len(samples):
        return states
    is_python = np.r_[False, states.cause == Cause.PYTHON, False].astype(np.int8)
    begun, ended = np.flatnonzero(np.diff(is_python) > 0), np.flatnonzero(np.diff(is_python) < 0) - 1
    functions = functions_of(states.start_ns[begun], states.end_ns[ended], samples)
    edges = sorted_set(np.r_[states.start_ns, states.end_ns[-1:], functions.start_ns, functions.end_ns])
    start_ns, end_ns = edges[:-1], edges[1:]
    parts = states.take(np.searchsorted(states.start_ns, start_ns, side="right") - 1)
    at = np.searchsorted(functions.start_ns, start_ns, side="right") - 1
    is_known = values_at(functions.end_ns, at, _BEFORE) >= end_ns
    name = np.where(is_known, values_at(functions.label, at), parts.name)
    return replace(parts, start_ns=start_ns, end_ns=end_ns, name=name)


class _Rows:
    """Some of the host's rows as spans: their rows around places, UNKNOWN for none."""

    def __init__(self, host: Host, chosen: Mask) -> None:
        self._rows = np.flatnonzero(chosen)
        self._with_unknown = np.r_[self._rows, UNKNOWN]
        self._spans = host.spans(self._rows)

    def edges(self, thread: int) -> Int64:
        """Return when the rows on a thread begin and end."""
        spans = self._spans.by_thread.get(thread, self._rows[:0])
        return np.concatenate([self._spans.start_ns[spans], self._spans.end_ns[spans]])

    def outermost_edges(self, thread: int) -> Int64:
        """Return the same for those that lie in no other."""
        spans = self._spans.tops.get(thread)
        return np.concatenate([spans.start_ns, spans.end_ns]) if spans is not None else self._rows[:0]

    def outermost(self, places: Places) -> Int64:
        outermost: Int64 = self._with_unknown[self._spans.outermost(places)]
        return outermost

    def innermost(self, places: Places) -> Int64:
        innermost: Int64 = self._with_unknown[self._spans.around(places)]
        return innermost


def _named_input(events: Events) -> Mask:
    found: Mask = np.array([is_input(name) for name in events.names], dtype=bool)[events.name]
    return found
