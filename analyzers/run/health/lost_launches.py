"""Launches that never reached the device, and steps without device rows.

launch        ^    ^    ^graph      ^    ^graph
device          #         ### ##      #     #            nothing came of the second; the second graph lacks kernels
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import compress

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, begins, distinct, is_in, rows_by, values_at
from analyzers.notices import Code, Notice
from analyzers.run.health.corrupt_times import CLOCK_ERROR_NS
from analyzers.run.health.launch_joins import LAUNCH
from analyzers.run.health.relations import Queues, Relations, listed, shown_numbers
from analyzers.trace import KERNEL_LAUNCH, STEP, Category, Events

_NEVER = np.iinfo(np.int64).max
# So many graphs take turns at most.
_MOST_TURNS = 64
_GRAPH_LAUNCH = re.compile(r"(?:cuda|cu|hip)\w*GraphLaunch")


def lost_launches(rows: Relations, queues: Queues, file: str) -> tuple[Int64, list[Notice]]:
    """Return launches of graphs of which kernels are missing, and what is said of these and of all that are lost."""
    if not len(rows.device):
        return rows.device, []
    notices = []
    graphs = _GraphLaunches(rows, queues)
    not_known = "why the device is idle in their steps is not known"
    for lost, what, effect in (
        (
            _lost_kernels(rows, _extent(rows)),
            "kernels in the midst of the profile",
            "kernels are missing, which show as idle",
        ),
        (graphs.lost, "graphs", f"their kernels are missing; {not_known}"),
    ):
        if len(lost):
            named = listed(rows.events, lost)
            text = f"{file}: {len(lost)} launches of {what} have no event on the device ({named}): {effect}"
            notices.append(Notice(Code.LAUNCHES_ARE_LOST, text, Code.LAUNCHES_ARE_LOST.facts.do))
    if len(graphs.short):
        missing, short = int(graphs.missing.sum()), len(graphs.short)
        what = (
            f"{missing} kernels of {short} launches of graphs are missing: other launches of the same graph have them"
        )
        text = f"{file}: {what}; {not_known}"
        notices.append(Notice(Code.GRAPH_KERNELS_ARE_LOST, text, Code.GRAPH_KERNELS_ARE_LOST.facts.do))
    return np.r_[graphs.lost, graphs.short], notices + _without_rows(rows, file)


def launches_without_kernels(events: Events) -> Int64:
    """Return the launches of kernels of which nothing came, though something came of later ones.

    Whoever counts kernels in order asks this: what a queue still held when the profile closed leaves a gap, too.
    """
    rows = Relations(events)
    return _lost_kernels(rows, _launched_extent(rows)) if len(rows.device) else rows.device


def launched_calls(events: Events) -> int:
    """Count the calls that launch kernels, graphs or copies, in a file without any device row."""
    return len(events.called(Category.LAUNCH, LAUNCH.match))


def _calls(events: Events, pattern: re.Pattern[str]) -> Int64:
    """Return the launch calls of a name that have a correlation."""
    calls = events.called(Category.LAUNCH, pattern.match)
    return calls[events.correlation[calls] > 0]


def _launched_extent(rows: Relations) -> tuple[int, int]:
    """Return the first and the last launch of which something came."""
    launched = rows.launched_ns[rows.launched_ns != UNKNOWN]
    return (int(launched.min()), int(launched.max())) if len(launched) else (0, 0)


def _extent(rows: Relations) -> tuple[int, int]:
    """Return from which launch to which the profile should hold all that came of them."""
    since, until = _launched_extent(rows)
    return since, min(until, int(rows.events.start_ns[rows.device].max()) - CLOCK_ERROR_NS)


def _lost_kernels(rows: Relations, extent: tuple[int, int]) -> Int64:
    """Return the launches of kernels without a device event, within an extent, or in an empty step.

    What is captured into a CUDA graph runs when the graph does.
    """
    events, (since, until) = rows.events, extent
    calls = _calls(events, KERNEL_LAUNCH)
    begun = events.start_ns[calls]
    in_empty: Mask = values_at(rows.is_empty, _step_of(rows, begun), False)
    calls = calls[(begun > since) & (begun < until) | in_empty]
    calls = calls[~is_in(events.correlation[calls], events.correlation[rows.device])]
    return calls[~_is_captured(events, events.start_ns[calls])] if len(calls) else calls


def _is_captured(events: Events, instant: Int64) -> Mask:
    """Whether instants lie between a stream capture's begin and end, or before a graph is made of what was captured."""

    def times(word: str) -> Int64:
        return np.sort(events.start_ns[events.called(Category.LAUNCH, lambda name: word in name)])

    begun, ended = (np.searchsorted(times(word), instant) for word in ("BeginCapture", "EndCapture"))
    made = times("GraphInstantiate").max(initial=np.iinfo(np.int64).min)
    captured: Mask = (begun > ended) | (instant < made)
    return captured


class _GraphLaunches:
    """Launches of graphs: those without a kernel (`lost`), and the `short` ones, which lack `missing` kernels each.

    A graph launches the same kernels each time. Which graph a launch has, rows of some files say (`graph`). In others
    it is its place in the step where half of the steps, two at least, launch as many; else there is one, if the launch
    with most kernels has those of all others. Several graphs that take turns there are told by what repeats (`_turns`).
    """

    def __init__(self, rows: Relations, queues: Queues) -> None:
        events, nothing = rows.events, np.zeros(0, dtype=np.int64)
        self.lost, self.short, self.missing = nothing, nothing, nothing
        calls = _calls(events, _GRAPH_LAUNCH)
        if not len(calls):
            return
        calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
        self._mine = np.flatnonzero(np.isin(rows.call, calls))
        self._rows, self._queues = rows, queues
        self._events, self._device = events, rows.device[self._mine]
        self._launched = rows_by(rows.call[self._mine])
        self._counted: dict[bytes, Counter[int]] = {}
        since, until = _extent(rows)
        begun, step = events.start_ns[calls], _step_of(rows, events.start_ns[calls])
        # A profile ends when what was launched in its steps has run.
        inside = (begun > since) & ((begun < until) | (step >= 0))
        has_kernels = np.isin(calls, list(self._launched))
        # Where no graph has any, rows without a launch may be theirs.
        told = has_kernels.any() or bool((rows.launched_ns != UNKNOWN).all())
        lost = calls[inside & ~has_kernels & told]
        self.lost = lost[~_is_captured(events, events.start_ns[lost])] if len(lost) else lost
        graph = {call: int(events.graph[self._device[own[0]]]) for call, own in self._launched.items()}
        unsaid = np.array([graph.get(call, 0) <= 0 for call in calls.tolist()], dtype=bool)
        named: dict[int, list[int]] = defaultdict(list)
        for call in calls[~unsaid].tolist():
            named[graph[call]].append(call)
        graphs = [*named.values(), *self._alike(calls[unsaid], step[unsaid])]
        short = [self._short(launches) for launches in graphs if len(launches) > 1]
        found = [one for several in short for one in several]
        self.short = np.array([call for call, _ in found], dtype=np.int64)
        self.missing = np.array([missing for _, missing in found], dtype=np.int64)

    def _alike(self, calls: Int64, step: Int64) -> Iterable[list[int]]:
        """Yield the launches of each graph that have kernels, as far as rows do not say whose they are."""
        inside = step >= 0
        places = np.arange(len(calls)) - np.searchsorted(step, step)
        numbers, counts = np.unique(step[inside], return_counts=True)
        usual = int(np.median(counts)) if len(counts) else 0
        if max(4, len(counts)) <= 2 * int((counts == usual).sum()):
            inside = np.isin(step, numbers[counts == usual])
            graphs: dict[int, list[int]] = defaultdict(list)
            for call, place in zip(calls[inside].tolist(), places[inside].tolist(), strict=True):
                graphs[place].append(call)
            for launches in graphs.values():
                yield from self._by_turns(launches)
            return
        launches = [call for call in calls.tolist() if call in self._launched]
        richest = max(launches, key=self._count, default=UNKNOWN)
        if launches and len(self._kernels(richest)) > 1 and all(self._is_part(call, richest) for call in launches):
            yield from self._by_turns(calls.tolist())

    def _by_turns(self, calls: Sequence[int]) -> Iterable[list[int]]:
        """Yield the launches that have kernels of each of the graphs that take turns in successive launches."""
        kernels: dict[bytes, int] = {}
        has_any = [call in self._launched for call in calls]
        codes = [kernels.setdefault(self._key(call), len(kernels)) for call in compress(calls, has_any)]
        code = np.full(len(calls), UNKNOWN)
        code[has_any] = codes
        turns = _turns(code) if len(kernels) > 1 else 1
        for first in range(turns):
            yield [call for call in calls[first::turns] if call in self._launched]

    def _short(self, launches: list[int]) -> list[tuple[int, int]]:
        """Return the launches that lack kernels which half of a graph's launches have, two at least; and how many.

        What had no time for more than it has, is a graph of its own, and so are those of the same kernels.
        """
        counts = sorted(map(self._count, launches), reverse=True)
        usual = counts[max(1, (len(counts) - 1) // 2)]
        whole = next(call for call in launches if self._count(call) == usual)
        lacking = [call for call in launches if self._count(call) < usual and self._is_part(call, whole)]
        if lacking:
            taken_ns = min(self._span_ns(call) for call in launches if self._key(call) == self._key(whole))
            others = {self._key(call) for call in lacking if 10 * self._time_ns(call) < 9 * taken_ns}
            lacking = [call for call in lacking if self._key(call) not in others]
        return [(call, usual - self._count(call)) for call in lacking]

    def _span_ns(self, call: int) -> int:
        rows = self._device[self._launched[call]]
        return int(self._events.end_ns[rows].max() - self._events.start_ns[rows].min())

    def _time_ns(self, call: int) -> int:
        """Return how long the stream of a launch's first kernel had for it: until it went on to what is not of it."""
        own = self._launched[call]
        start_ns = self._events.start_ns[self._device[own]]
        return int(self._followed_ns[own[start_ns.argmin()]] - start_ns.min())

    @cached_property
    def _followed_ns(self) -> Int64:
        """Return when the next row that is of another call begins on the stream of each row that a graph launched."""
        rows, queues = self._rows, self._queues
        starts = begins(rows.call[queues.place]) | begins(queues.stream)
        first = np.flatnonzero(starts)
        next_ns = np.r_[self._events.start_ns[rows.device[queues.place[first[1:]]]], _NEVER]
        next_ns[np.r_[begins(queues.stream[first])[1:], True]] = _NEVER
        followed_ns = np.full(len(rows.device), _NEVER)
        followed_ns[queues.place] = next_ns[np.cumsum(starts) - 1]
        return followed_ns[self._mine]

    @cached_property
    def _kind(self) -> Int64:
        """Return a number for the name and grid of each row that a graph launched."""
        return distinct(self._events.name[self._device], self._events.grid[self._device]).index

    def _count(self, call: int) -> int:
        return len(self._launched[call])

    def _is_part(self, call: int, whole: int) -> bool:
        return self._kernels(call) <= self._kernels(whole)

    def _kernels(self, call: int) -> Counter[int]:
        """Count what a launch has launched; most launches of a run have launched the same."""
        key = self._key(call)
        if key not in self._counted:
            self._counted[key] = Counter(np.frombuffer(key, dtype=np.int64).tolist())
        return self._counted[key]

    def _key(self, call: int) -> bytes:
        """Return what is the same for launches of the same kernels."""
        key: bytes = np.sort(self._kind[self._launched[call]]).astype(np.int64).tobytes()
        return key


def _turns(launched: Int64) -> int:
    """Return how many graphs take turns in successive launches, of which codes say what they launched, -1 for unknown.

    a b a b a b       two: each launches the same whenever its turn is
    a a a b b b       one, which lost kernels from the fourth launch on

    Of every graph three quarters of the launches, two at least, have to be alike; the fewest others decide.
    """
    best, fewest = 1, len(launched)
    for turns in range(1, min(_MOST_TURNS, len(launched) // 2) + 1):
        others = 0
        for first in range(turns):
            known = launched[first::turns][launched[first::turns] != UNKNOWN]
            usual = int(np.bincount(known).max(initial=0))
            if usual < 2 or 4 * usual < 3 * len(known):
                break
            others += len(known) - usual
        else:
            if others < fewest:
                best, fewest = turns, others
    return best


def _step_of(rows: Relations, instant: Int64) -> Int64:
    """Return the place of the step's mark that holds each instant, -1 for none."""
    marks, events = rows.events.steps, rows.events
    at = np.searchsorted(events.start_ns[marks], instant, side="right") - 1
    inside = (at >= 0) & (instant < np.r_[events.end_ns[marks], 0][at])
    return np.where(inside, at, UNKNOWN)


def _without_rows(rows: Relations, file: str) -> list[Notice]:
    """Name the steps that are marked, and of which nothing reached the device."""
    marks, events = rows.events.steps, rows.events
    empty = marks[rows.is_empty]
    if not len(empty):
        return []
    numbers = shown_numbers([events.names[code].removeprefix(STEP) for code in events.name[empty].tolist()])
    text = f"{file}: {len(empty)} of {len(marks)} marked steps have no event on the device, and no window: {numbers}"
    return [Notice(Code.STEPS_WITHOUT_DEVICE_ROWS, text)]
