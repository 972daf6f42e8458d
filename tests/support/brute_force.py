"""The windows of a trace by brute force: plain Python, one sweep over boundaries, no code of the project.

What docs/measuring.md calls the breakdown, read as literally as possible. Slow, and meant to be obviously right.
"""

from __future__ import annotations

import bisect
import gzip
import itertools
import json
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# As torch 1.8 wrote them; its steps are rows of category Operator.
OLD_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
}
# NCCL, RCCL, PyTorch's symmetric memory, vLLM, TensorRT-LLM, MORI, TransformerEngine, oneCCL, HCCL; and DeepEP and
# MSCCL++, whatever namespace they are in.
COLLECTIVE = re.compile(
    "nccl|rccl|msccl|multimem_|cross_device_reduce_|nvshmem|k?userbuffers_|moeA2A|moeAllToAll|Ep(Dispatch|Combine)[A-Z]"
    "|oneccl_|hcom_|hccl|.*(one|two)_?shot|reduce_scatter_cross_device",
    re.IGNORECASE,
)
LIBRARY = re.compile(
    "(^|.*[:_])ep::(intranode|internode|internode_ll|elastic)::|(^|.*::)mscclpp::"
    "|c10d::(symmetric_memory|nccl_extension)::"
)
# These wait for other ranks, and leave it to copies to move anything.
SIGNAL = re.compile(r"c10d::symmetric_memory::(\w*barrier|put_signal|wait_signal)_kernel\b")
MEASURES = ("compute", "comm", "copy", "overlapped_comm", "exposed_comm", "exposed_copy", "idle")

Event = dict[str, Any]
Span = tuple[int, int]


def read(path: Path) -> tuple[list[Event], int]:
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    document = json.loads(text, parse_float=Decimal)
    events = document if isinstance(document, list) else document["traceEvents"]
    base = 0 if isinstance(document, list) else int(document.get("baseTimeNanoseconds", 0))
    spans = [named_today(event) for event in events if event.get("ph") == "X"]
    launched = launches(spans)
    return [event for event in spans if not is_corrupt(event, launched)], base


def named_today(event: Event) -> Event:
    """The event under the category that newer versions give it."""
    if event.get("cat") == "Operator" and event["name"].startswith("ProfilerStep#"):
        return event | {"cat": "user_annotation"}
    return event | {"cat": OLD_CATEGORIES[event["cat"]]} if event.get("cat") in OLD_CATEGORIES else event


def ns(microseconds: Any) -> int:
    return int((Decimal(microseconds) * 1000).to_integral_value())


def span(event: Event) -> Span:
    start = ns(event["ts"])
    return start, start + ns(event.get("dur", 0))


def kind(event: Event, engines: set[int] = frozenset()) -> str:
    if id(event) in engines:
        return "comm"
    args = event.get("args", {})
    if event["cat"] == "kernel":
        name = re.split("[<(]", event["name"].removeprefix("void ").replace("(anonymous namespace)", ""))[0]
        return "comm" if COLLECTIVE.match(name.split("::")[-1]) or LIBRARY.match(name) else "compute"
    return "comm" if args.get("fromDevice", 0) != args.get("toDevice", 0) else "copy"


def by_copy_engines(events: list[Event]) -> set[int]:
    """The copies, by identity, within a collective's host call in which no kernel communicates."""
    host = [event for event in events if event.get("cat") in ("cpu_op", "user_annotation")]
    calls = sorted({(event["tid"], *span(event)) for event in host if is_call(event)})
    tops = [call for call in calls if not any(other != call and holds(other, call) for other in nearby(calls, call))]
    device = {event["args"].get("correlation"): event for event in events if event.get("cat") in DEVICE}
    inside: dict[Any, list[tuple[str, Event | None]]] = defaultdict(list)
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            at = (event["tid"], *span(event)[:1])
            index = bisect.bisect_right(tops, (*at, float("inf"))) - 1
            if index >= 0 and tops[index][0] == at[0] and at[1] < tops[index][2]:
                inside[tops[index]].append((event["name"], device.get(event["args"].get("correlation"))))
    alone = [launched for launched in inside.values() if not any(may_communicate(*one) for one in launched)]
    moved = [row for launched in alone for _, row in launched if row is not None and row["cat"] == "gpu_memcpy"]
    return {id(row) for row in moved if not re.search("HtoD|DtoH|HtoH", row["name"])}


def may_communicate(launch: str, row: Event | None) -> bool:
    """Whether what a call of the runtime launched is a kernel of communication, or a kernel without a record."""
    if row is None:
        return "Kernel" in launch
    return row["cat"] == "kernel" and kind(row) == "comm" and not SIGNAL.match(row["name"])


def is_call(event: Event) -> bool:
    name = re.fullmatch(r"(?:c10d::|nccl:|symm_mem::)(.*)", event["name"])
    words = "reduce|gather|scatter|all_?to_?all|broadcast|barrier|send|recv"
    said = event.get("args", {}).get("Collective name")
    return bool(said and re.search(words, said)) or bool(name and re.search(words, name[1]))


def holds(outer: tuple[Any, int, int], inner: tuple[Any, int, int]) -> bool:
    return outer[0] == inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2]


def nearby(calls: list[tuple[Any, int, int]], call: tuple[Any, int, int]) -> list[tuple[Any, int, int]]:
    """Those that begin shortly before a call, or with it: nesting is not deep."""
    index = bisect.bisect_left(calls, call)
    return calls[max(0, index - 8) : index + 8]


def launches(events: list[Event]) -> dict[int, int]:
    """The start of the first call with each correlation."""
    launched: dict[int, int] = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            correlation, start = event.get("args", {}).get("correlation"), span(event)[0]
            launched[correlation] = min(start, launched.get(correlation, start))
    return launched


def is_corrupt(event: Event, launched: dict[int, int]) -> bool:
    """Whether a device event begins more than a millisecond before its own launch."""
    if event.get("cat") not in DEVICE:
        return False
    start, _ = span(event)
    return launched.get(event.get("args", {}).get("correlation"), start) - start > 1_000_000


def devices(event: Event) -> set[int]:
    args = event.get("args", {})
    if "fromDevice" in args:
        return {args["fromDevice"], args["toDevice"]}
    return {args.get("device", event["pid"])}


def steps(events: list[Event]) -> dict[int, Span]:
    named = [event for event in events if event.get("cat") == "user_annotation"]
    found = [(re.fullmatch(r"ProfilerStep#(\d+)", event["name"]), span(event)) for event in named]
    return {int(match[1]): extent for match, extent in found if match}


def windows(path: Path) -> list[dict[str, Any]]:
    """Every window of one trace file: device, step, start_ns on the epoch, span_ns and the measures."""
    return windows_of(*read(path))


def windows_of(events: list[Event], base: int) -> list[dict[str, Any]]:
    """The windows of complete events whose times count from `base`."""
    per_device: dict[Any, list[tuple[Span, str, int | None]]] = defaultdict(list)
    launched = launches(events)
    engines = by_copy_engines(events)
    for event in events:
        if event.get("cat") in DEVICE:
            for device in devices(event):
                call = launched.get(event.get("args", {}).get("correlation"))
                per_device[device].append((span(event), kind(event, engines), call))
    numbered = steps(events)
    rows = []
    for device, activity in sorted(per_device.items()):
        rows += [{"device": device, **row} for row in _tile(activity, numbered)]
    if not per_device:
        rows = [{"device": "cpu", **row} for row in _cpu(events, numbered)]
    return [row | {"start_ns": row["start_ns"] + base} for row in rows]


def _tile(activity: list[tuple[Span, str, int | None]], numbered: dict[int, Span]) -> list[dict[str, Any]]:
    own: dict[int, list[Span]] = defaultdict(list)
    for extent, _, call in activity:
        for k, (start, end) in numbered.items():
            if call is not None and start <= call < end:
                own[k].append(extent)
    if not own:
        bounds = [(0, min(start for (start, _), _, _ in activity), max(end for (_, end), _, _ in activity))]
    else:
        begin = {k: min(start for start, _ in own[k]) for k in sorted(own)}
        order = list(begin)
        stops = [begin[k] for k in order[1:]] + [max(end for _, end in own[order[-1]])]
        bounds = [(k, begin[k], stop) for k, stop in zip(order, stops, strict=True)]
    spans = [(extent, kind) for extent, kind, _ in activity]
    return [{"step": k, **sweep(spans, start, end)} for k, start, end in bounds]


def _cpu(events: list[Event], numbered: dict[int, Span]) -> list[dict[str, Any]]:
    gloo = [event for event in events if event["name"].startswith("gloo:")]
    workers = {event["tid"] for event in gloo}
    operators = [event for event in events if event.get("cat") == "cpu_op" and event["tid"] not in workers]
    spans = [(span(event), "comm") for event in gloo]
    spans += [(span(event), "call" if event["name"].startswith("c10d::") else "compute") for event in operators]
    order = sorted(k for k, (start, end) in numbered.items() if any(start <= s < end for (s, _), _ in spans))
    first, last = numbered[order[-1]]
    stop = max(end for (start, end), kind in spans if first <= start < last and kind != "call")
    stops = [numbered[k][0] for k in order[1:]] + [stop]
    return [{"step": k, **sweep(spans, numbered[k][0], end)} for k, end in zip(order, stops, strict=True)]


def input_idle(path: Path) -> list[int]:
    """Of each window of a CPU run that does not communicate how long it is idle while a DataLoader's range runs."""
    events, base = read(path)
    loader = [span(event) for event in events if event["name"].startswith("enumerate(DataLoader)#")]
    busy = [span(event) for event in events if event.get("cat") == "cpu_op"]
    found = []
    for row in windows(path):
        low = row["start_ns"] - base
        found.append(covered(loader, busy, low, low + row["span_ns"]))
    return found


def covered(inside: list[Span], outside: list[Span], low: int, high: int) -> int:
    """How long it is, between two instants, that some span of `inside` runs and none of `outside`."""
    changes: dict[int, list[tuple[bool, int]]] = defaultdict(list, {low: [], high: []})
    for spans, is_inside in ((inside, True), (outside, False)):
        for start, end in ((max(start, low), min(end, high)) for start, end in spans):
            if start < end:
                changes[start].append((is_inside, 1))
                changes[end].append((is_inside, -1))
    running, total = {True: 0, False: 0}, 0
    for here, following in itertools.pairwise(sorted(changes)):
        for is_inside, change in changes[here]:
            running[is_inside] += change
        total += (following - here) * (running[True] > 0 and not running[False])
    return total


def sweep(spans: list[tuple[Span, str]], low: int, high: int) -> dict[str, int]:
    """The measures of one window, by walking over all boundaries inside it."""
    changes: dict[int, list[tuple[str, int]]] = defaultdict(list, {low: [], high: []})
    for (start, end), kind in spans:
        start, end = max(start, low), min(end, high)
        if start < end:
            changes[start].append((kind, 1))
            changes[end].append((kind, -1))
    on: dict[str, int] = defaultdict(int)
    total = dict.fromkeys(MEASURES, 0)
    times = sorted(changes)
    for here, following in itertools.pairwise(times):
        for kind, change in changes[here]:
            on[kind] += change
        compute, comm, copy = on["compute"] > 0 and not on["call"], on["comm"] > 0, on["copy"] > 0
        for measure, holds in zip(
            MEASURES,
            (
                compute,
                comm,
                copy,
                comm and compute,
                comm and not compute,
                copy and not (compute or comm),
                not (compute or comm or copy),
            ),
            strict=True,
        ):
            total[measure] += (following - here) * holds
    return {"start_ns": low, "span_ns": high - low, **{f"{name}_ns": value for name, value in total.items()}}
