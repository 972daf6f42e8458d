"""DDP's buckets and the lines of a trace by brute force: one rank's raw JSON, plain loops, no code of the project.

A host thread is walked once with a stack, so that each row knows all rows around it, outermost first; everything else
is read off these lists.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.brute_force import DEVICE, Event, Span, kind, read, span, steps, windows_of

NODE = "autograd::engine::evaluate_function: "
TAKER = NODE + "torch::autograd::AccumulateGrad"
MODULE = re.compile(r"nn\.Module: (.+) \(\w+\)")
RANGES = ("cpu_op", "user_annotation")
CALLS = ("cuda_runtime", "cuda_driver")


@dataclass
class Traced:
    """One rank's trace: its rows, what is around each on its thread, and what each node's forward operator is."""

    events: list[Event]
    base: int
    around: dict[int, list[Event]] = field(default_factory=dict)  # by id(): rows of the host, outermost first
    launch: dict[int, Event] = field(default_factory=dict)  # by correlation
    maker: dict[int, Event | None] = field(default_factory=dict)  # by id() of a node
    owners: dict[int, str] = field(default_factory=dict)  # by id() of a top operator: its name

    @cached_property
    def nodes(self) -> list[Event]:
        return [event for event in self.events if event["cat"] == "cpu_op" and event["name"].startswith(NODE)]

    @cached_property
    def has_modules(self) -> bool:
        return any(MODULE.fullmatch(event["name"]) for event in self.events if event["cat"] == "user_annotation")

    @cached_property
    def backward_threads(self) -> set[Any]:
        return {node["tid"] for node in self.nodes} - {
            event["tid"] for event in self.events if "Step#" in event["name"]
        }

    @cached_property
    def differentiable(self) -> list[int]:
        """When a module or a differentiable operator begins."""
        return [
            span(event)[0]
            for event in self.events
            if event["cat"] in RANGES and (MODULE.fullmatch(event["name"]) or number(event) is not None)
        ]

    @cached_property
    def broadcasts(self) -> list[tuple[int, Any]]:
        """When a broadcast is called, and by which thread."""
        return [(span(event)[0], event["tid"]) for event in self.events if event["name"] == "c10d::broadcast_"]


def traced(path: Path) -> Traced:
    events, base = read(path)
    found = Traced(events=[event for event in events if "cat" in event], base=base)
    threads: dict[Any, list[Event]] = defaultdict(list)
    for event in found.events:
        if event["cat"] in (*RANGES, *CALLS):
            threads[event["tid"]].append(event)
    for rows in threads.values():
        stack: list[Event] = []
        for event in sorted(rows, key=lambda row: (span(row)[0], -span(row)[1], row["cat"] in CALLS)):
            while stack and span(stack[-1])[1] <= span(event)[0]:
                stack.pop()
            found.around[id(event)] = list(stack)
            if event["cat"] in RANGES:
                stack.append(event)
        for event in rows:
            correlation = event.get("args", {}).get("correlation")
            if event["cat"] in CALLS and correlation is not None:
                known = found.launch.get(correlation)
                if known is None or span(event)[0] < span(known)[0]:
                    found.launch[correlation] = event
    _find_makers(found)
    _find_owners(found)
    return found


def number(event: Event) -> int | None:
    return event.get("args", {}).get("Sequence number")


def word(name: str) -> str:
    return re.sub("[^a-z]", "", re.sub(r"Backward\d*.*", "", name.split(":")[-1]).lower())


def _find_makers(found: Traced) -> None:
    """A node's forward operator has its number; a gradient's node follows the node that made the gradient."""
    numbered = defaultdict(list)
    for event in found.events:
        if event["cat"] == "cpu_op" and not event["name"].startswith(NODE) and number(event) is not None:
            own = [row for row in found.around[id(event)] if row["name"].startswith(NODE)]
            if not own or number(own[-1]) != number(event):
                numbered[number(event)].append(event)
    latest: dict[Any, Event | None] = {}
    for node in sorted(found.nodes, key=lambda row: span(row)[0]):
        if node["name"].startswith(TAKER):
            found.maker[id(node)] = latest.get(node["tid"])
            continue
        before = [event for event in numbered[number(node)] if span(event)[0] < span(node)[0]]
        alike = [event for event in before if word(event["name"]) == word(node["name"])]
        maker = max(alike or before, key=lambda event: span(event)[0], default=None)
        found.maker[id(node)] = latest[node["tid"]] = maker


def top_operator(found: Traced, event: Event, *, itself: bool = False) -> Event | None:
    """The outermost operator around a row that is no node."""
    rows = [*found.around[id(event)], *([event] if itself else [])]
    operators = [row for row in rows if row["cat"] == "cpu_op" and not row["name"].startswith(NODE)]
    return operators[0] if operators else None


def _find_owners(found: Traced) -> None:
    """Top operators that own parameters, by their name and number within their step."""
    numbered = steps(found.events)
    owners: dict[int, Event] = {}
    for node in found.nodes:
        maker = found.maker[id(node)]
        if node["name"].startswith(TAKER) and maker is not None:
            top = top_operator(found, maker, itself=True)
            if top is not None:
                owners[id(top)] = top
    counted: Counter[tuple[int, str]] = Counter()
    for event in sorted(owners.values(), key=lambda row: span(row)[0]):
        (step,) = [k for k, (start, end) in numbered.items() if start <= span(event)[0] < end]
        name = event["name"].removeprefix("aten::")
        found.owners[id(event)] = f"{name}_{counted[step, name]}"
        counted[step, name] += 1


# Lines.


def line_of(found: Traced, kernel: Event) -> tuple[str, bool]:
    """The line of one kernel, and whether it is of the backward."""
    launch = found.launch.get(kernel["args"].get("correlation", -1))
    if launch is None:
        return "(other)", False
    around = found.around[id(launch)]
    names = [row["name"] for row in around]
    nodes = [row for row in around if row["name"].startswith(NODE)]
    if any(name.startswith("Optimizer.") for name in names):
        return "(optimizer)", bool(nodes)
    if nodes and nodes[-1]["name"].startswith(TAKER) and "torch::autograd::AccumulateGrad" not in names:
        return "(packing)", True
    if not nodes and launch["tid"] in found.backward_threads:
        return "(packing)", True
    if not nodes and _before_the_model(found, launch, around):
        return "(packing)", False
    if nodes and not any(MODULE.fullmatch(row["name"]) for row in around[around.index(nodes[-1]) :]):
        maker = found.maker[id(nodes[-1])]
        return ("(other)" if maker is None else _line_at(found, maker, itself=True)), True
    return _line_at(found, launch), bool(nodes)


def _line_at(found: Traced, event: Event, *, itself: bool = False) -> str:
    around = found.around[id(event)]
    modules = [match[1] for row in around if (match := MODULE.fullmatch(row["name"]))]
    if modules:
        return modules[-1]
    top = top_operator(found, event, itself=itself)
    if top is None:
        return "(other)"
    if id(top) in found.owners and not found.has_modules:
        return found.owners[id(top)]
    if re.search("loss|cross_entropy", top["name"]):
        return "(loss)"
    if re.fullmatch("aten::(copy_|to|_to_copy|clone|contiguous)", top["name"]) and number(top) is None:
        return "(copies)"
    if number(top) is None:
        return "(other)"
    in_model = any(row["name"] == "DistributedDataParallel.forward" for row in found.around[id(top)])
    return top["name"].removeprefix("aten::") if in_model and not found.has_modules else "(loss)"


def _before_the_model(found: Traced, launch: Event, around: list[Event]) -> bool:
    """In DDP's forward, before its first module or differentiable operator."""
    forwards = [row for row in around if row["name"] == "DistributedDataParallel.forward"]
    if not forwards:
        return False
    start, end = span(forwards[-1])
    begun = [ns for ns in found.differentiable if start <= ns < end]
    broadcasts = [ns for ns, thread in found.broadcasts if start <= ns < end and thread == launch["tid"]]
    return bool(broadcasts) and span(launch)[0] < min(begun, default=end)


def lines(found: Traced) -> Counter[tuple[int, str, bool]]:
    """How long each line computed in each step's window: an instant goes to the kernel that started first."""
    windows = [
        (row["step"], row["start_ns"] - found.base, row["start_ns"] - found.base + row["span_ns"])
        for row in windows_of(found.events, found.base)
    ]
    total: Counter[tuple[int, str, bool]] = Counter()
    for start, end, line in pieces(found):
        for step, low, high in windows:
            inside = min(end, high) - max(start, low)
            if inside > 0:
                total[(step, *line)] += inside
    return total


def pieces(found: Traced) -> list[tuple[int, int, tuple[str, bool]]]:
    """The compute in disjoint pieces, each with its line."""
    found_pieces = []
    reached = -(2**62)
    for event in sorted(kernels(found, "compute"), key=lambda row: span(row)[0]):
        start, end = span(event)
        if end > max(start, reached):
            found_pieces.append((max(start, reached), end, line_of(found, event)))
        reached = max(end, reached)
    return found_pieces


def hidden_by(found: Traced) -> list[Counter[tuple[str, bool]]]:
    """How long each line ran beside each bucket's kernel, in the order of `buckets`."""
    own = pieces(found)
    rows = []
    for row in buckets(found):
        low = row["start_ns"] - found.base
        high = low + row["dur_ns"]
        beside: Counter[tuple[str, bool]] = Counter()
        for start, end, line in own:
            beside[line] += max(0, min(end, high) - max(start, low))
        rows.append(+beside)
    return rows


def kernels(found: Traced, which: str) -> list[Event]:
    return [event for event in found.events if event["cat"] in DEVICE and kind(event) == which]


# Buckets.


def buckets(found: Traced) -> list[dict[str, int]]:
    """Each all-reduce of gradients that was called in a step, in the order of its calls."""
    compute = union([span(event) for event in kernels(found, "compute")])
    rows = []
    for kernel in kernels(found, "comm"):
        launch = found.launch.get(kernel["args"].get("correlation", -1))
        around = found.around[id(launch)] if launch else []
        calls = [row for row in around if row["name"] == "c10d::allreduce_"]
        if not calls or not any(row["name"].startswith(TAKER) for row in around):
            continue
        step = [k for k, (start, end) in steps(found.events).items() if start <= span(launch)[0] < end]
        if step:
            rows.append(_bucket(found, kernel, calls[0], compute) | {"step": step[0]})
    return sorted(rows, key=lambda row: (row["step"], row["launched_ns"]))


def _bucket(found: Traced, kernel: Event, call: Event, compute: list[Span]) -> dict[str, int]:
    launched_ns = span(call)[0]
    last: tuple[int, int] = (-1, -1)
    for event in kernels(found, "compute"):
        launch = found.launch.get(event["args"].get("correlation", -1))
        if launch and launch["tid"] == call["tid"] and span(launch)[0] < launched_ns:
            last = max(last, (span(launch)[0], span(event)[1]))
    ready_ns = last[1]
    start, end = span(kernel)
    hidden = sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in compute)
    return {
        "ready_ns": ready_ns + found.base,
        "launched_ns": launched_ns + found.base,
        "start_ns": start + found.base,
        "dur_ns": end - start,
        "exposed_ns": end - start - hidden,
        "overlapped_ns": hidden,
        "queued_ns": max(0, start - max(ready_ns, launched_ns)),
        "late_launch_ns": max(0, launched_ns - ready_ns),
    }


def union(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
