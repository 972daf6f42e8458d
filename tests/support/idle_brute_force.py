"""Idle time by cause by brute force: plain Python, gap by gap, no code of the project.

What docs/measuring.md calls idle time by cause, read as literally as possible, over a trace's own times.
"""

from __future__ import annotations

import bisect
import itertools
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

from tests.support.brute_force import DEVICE, Event, Span, devices, read, span, windows_of

CAUSES = (
    *("input", "synchronize", "operator", "python"),
    *("launch_latency", "kernel_gap", "dependency", "unknown", "profiler", "allocator", "gc"),
)
# Of what a thread may be in at once, the first.
STATES = ("input", "allocator", "synchronize", "drained", "gc", "operator")
CALLS = ("cuda_runtime", "cuda_driver", "hip_runtime")
ALLOCATES = re.compile(
    "(cuda|hip)(Malloc|MallocHost|HostAlloc|HostMalloc|Free|FreeHost|HostFree)"
    "|cuMem(Alloc|Free|HostAlloc|Create|Release|Map|Unmap|SetAccess|Address)"
)
LOADER = re.compile(r"enumerate\(DataLoader\)#")
WAITS = re.compile(r"(cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize$|(cuda|hip|cu)Memcpy(?!.*Async)")


@dataclass
class Gap:
    """One gap and what ends it; `row` is its window's place, `parts` its division."""

    row: int
    device: Any
    span: Span
    ender: Event | None
    call: Event | None
    parts: dict[str, int]


class Trace:
    """The rows of one trace, sorted out."""

    def __init__(self, events: list[Event], base: int) -> None:
        self.windows = windows_of(events, base)
        self.base = base
        self.active = [event for event in events if event.get("cat") in DEVICE]
        self.calls: dict[Any, Event] = {}
        for event in events:
            if event.get("cat") in CALLS and "correlation" in event.get("args", {}):
                earlier = self.calls.setdefault(event["args"]["correlation"], event)
                if span(event)[0] < span(earlier)[0]:
                    self.calls[event["args"]["correlation"]] = event
        self.first: dict[Any, int] = {}
        for event in self.active:
            number = correlation(event)
            self.first[number] = min(span(event)[0], self.first.get(number, span(event)[0]))
        own = [event for event in events if event.get("cat") == "overhead"]
        self.overhead = [span(event) for event in own if "Flush" not in event["name"]]
        self.flushes = [span(event) for event in own if "Flush" in event["name"]]
        self.called: dict[Any, list[Span]] = {}
        for event in events:
            if event.get("cat") in CALLS:
                self.called.setdefault(event["tid"], []).append(span(event))
        launching = {id(self.calls[correlation(event)]): event for event in self.active if self.call_of(event)}
        self.launched = sorted(span(call)[0] for call in self.calls.values() if id(call) in launching)
        self.host: dict[Any, dict[str, list[Span]]] = {}
        pageable = {correlation(event) for event in self.active if event["name"] == "Memcpy DtoH (Device -> Pageable)"}
        for event in events:
            state = None
            if event.get("cat") in ("cpu_op", "user_annotation") and LOADER.match(event["name"]):
                state = "input"
            elif event.get("cat") in CALLS and (
                WAITS.match(event["name"]) or ("Memcpy" in event["name"] and correlation(event) in pageable)
            ):
                state = "synchronize"
            elif event.get("cat") in CALLS and ALLOCATES.match(event["name"]):
                state = "allocator"
            elif event.get("cat") == "gc":
                state = "gc"
            elif event.get("cat") == "cpu_op" and not event["name"].startswith("ProfilerStep#"):
                state = "operator"
            if state:
                self.host.setdefault(event["tid"], {}).setdefault(state, []).append(span(event))
        self.drained = {
            thread: merged([(end, self.next_launch(end)) for _, end in states.get("synchronize", [])])
            for thread, states in self.host.items()
        }
        self.host = {
            thread: {state: merged(spans) for state, spans in states.items()} for thread, states in self.host.items()
        }
        self.before: dict[int, Event] = {}
        for _, same in itertools.groupby(
            sorted(self.active, key=lambda event: (str(stream(event)), span(event)[0])), stream
        ):
            self.before |= {id(event): earlier for earlier, event in itertools.pairwise(same)}

    def next_launch(self, since: int) -> int:
        at = bisect.bisect_left(self.launched, since)
        return self.launched[at] if at < len(self.launched) else 10**18

    def call_of(self, event: Event | None) -> Event | None:
        return None if event is None else self.calls.get(correlation(event))


def merged(spans: list[Span]) -> list[Span]:
    """The same time in spans that neither overlap nor touch."""
    whole: list[Span] = []
    for start, end in sorted(spans):
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((start, end))
    return whole


def meeting(spans: list[Span], low: int, high: int) -> list[Span]:
    """Those of disjoint spans that meet another."""
    first = bisect.bisect_right(spans, low, key=lambda pair: pair[1])
    return list(itertools.takewhile(lambda pair: pair[0] < high, spans[first:]))


def correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation", object())


def idle_by_cause(path: Path, only: int | None = None) -> list[dict[str, int]]:
    """Of each window of a trace on accelerators its idle time by cause; of the first `only` windows alone, if given."""
    trace = Trace(*read(path))
    rows = [dict.fromkeys(CAUSES, 0) for _ in trace.windows]
    for gap in divided(trace, only):
        for cause, ns in gap.parts.items():
            rows[gap.row][cause] += ns
    return rows[:only]


def divided(trace: Trace, only: int | None = None) -> list[Gap]:
    """All gaps with their parts; the usual delay is that of all windows, even where parts are wanted of few."""
    gaps = list(gaps_of(trace))
    inside: dict[int, int] = {}
    for gap in gaps:
        if gap.call and gap.span[0] <= span(gap.call)[0] < gap.span[1]:
            inside[id(gap.ender)] = gap.span[1] - span(gap.call)[1]
    delay = floor(statistics.median(inside.values())) if inside else 0
    chosen = [gap for gap in gaps if only is None or gap.row < only]
    for gap in chosen:
        gap.parts = parts_of(trace, gap, delay)
        assert sum(gap.parts.values()) == gap.span[1] - gap.span[0]
    return chosen


def gaps_of(trace: Trace) -> Iterator[Gap]:
    for row, window in enumerate(trace.windows):
        low = window["start_ns"] - trace.base
        high = low + window["span_ns"]
        active = [event for event in trace.active if window["device"] in devices(event)]
        starting: dict[int, list[Event]] = {}
        for event in active:
            starting.setdefault(span(event)[0], []).append(event)
        busy = merged([span(event) for event in active if event["dur"] > 0])
        for before, after in itertools.pairwise([(low, low), *busy, (high, high)]):
            begin, stop = max(before[1], low), min(after[0], high)
            if begin < stop:
                enders = starting.get(stop, [])
                enders.sort(key=lambda event: (trace.call_of(event) is None, launched(trace, event)))
                ender = enders[0] if enders else None
                yield Gap(row, window["device"], (begin, stop), ender, trace.call_of(ender), {})


def launched(trace: Trace, event: Event) -> int:
    call = trace.call_of(event)
    return 0 if call is None else span(call)[0]


def parts_of(trace: Trace, gap: Gap, delay: int) -> dict[str, int]:
    """What each cause has of a gap: nanoseconds walked from boundary to boundary."""
    parts = dict.fromkeys(CAUSES, 0)
    calls = trace.called.get(gap.call["tid"], []) if gap.call else []
    held = [(a, b) for a, b in trace.flushes if any(low <= a and b <= high for low, high in calls)]
    profiling = merged([*trace.overhead, *held])
    for cause, (low, high) in pieces_of(trace, gap, delay):
        own = sum(min(b, high) - max(a, low) for a, b in meeting(profiling, low, high))
        parts["profiler"] += own
        parts[cause] += high - low - own
    return parts


def pieces_of(trace: Trace, gap: Gap, delay: int) -> Iterator[tuple[str, Span]]:
    """The stretches of a gap by cause, as if the profiler itself did nothing."""
    begin, stop = gap.span
    if gap.call is None:
        yield "unknown", (begin, stop)
        return
    called, returned = span(gap.call)
    queued = min(max(called, begin), stop)
    states = {name: meeting(spans, begin, queued) for name, spans in trace.host.get(gap.call["tid"], {}).items()}
    states["drained"] = meeting(trace.drained.get(gap.call["tid"], []), begin, queued)
    edges = {begin, queued, *(edge for spans in states.values() for pair in spans for edge in pair)}
    for here, following in itertools.pairwise(sorted(edge for edge in edges if begin <= edge <= queued)):
        state = next((name for name in STATES if any(a <= here < b for a, b in states.get(name, ()))), "python")
        yield "synchronize" if state == "drained" else state, (here, following)
    is_first = span(gap.ender)[0] == trace.first[correlation(gap.ender)]
    is_inside = begin <= called < stop
    delay = 20_000 if is_inside else min(delay, 20_000)
    latency = min(max(returned + delay, queued), stop) - queued if is_first else 0
    yield "launch_latency", (queued, queued + latency)
    yield "dependency" if is_inside else rest_of(trace, gap), (queued + latency, stop)


def rest_of(trace: Trace, gap: Gap) -> str:
    """Whether what is left is the device's own pause: the stream's event before ended where the gap begins."""
    earlier = trace.before.get(id(gap.ender))
    follows = earlier is not None and span(earlier)[1] == gap.span[0]
    return "kernel_gap" if follows and gap.span[1] - gap.span[0] <= 50_000 else "dependency"


def stream(event: Event) -> tuple[Any, Any]:
    args = event["args"]
    return args.get("fromDevice", args.get("device", event["pid"])), args.get("stream")
