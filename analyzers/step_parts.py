"""Parts of a step: the figure, label, words and lane of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """One part of a window's span: its figure, its name in tables and in sentences, and the lane that adds up to it."""

    field: str
    label: str
    words: str
    lane: str = ""


COMPUTE = Part("compute_ns", "compute", "compute", "compute")
COMM = Part("exposed_comm_ns", "exposed comm", "exposed communication")
WAITING = Part("exposed_wait_ns", "exposed waiting", "exposed waiting for other ranks", "exposed_wait")
TRANSFER = Part("exposed_transfer_ns", "exposed transfer", "exposed transfer", "exposed_transfer")
UNRESOLVED = Part(
    *("exposed_unresolved_ns", "exposed unresolved", "exposed communication that could not be matched"),
    lane="exposed_unresolved",
)
COPY = Part("exposed_copy_ns", "exposed copy", "exposed copies", "exposed_copies")
IDLE = Part("idle_ns", "idle", "idle time", "idle")
# Where nothing tells waiting from idle time.
IDLE_OR_WAIT = Part("idle_or_wait_ns", "idle or waiting", "idle time or waiting")
# The four add up to the span; communication is made of three; so the six add up to the span, too.
PARTS = (COMPUTE, COMM, COPY, IDLE)
EXPOSED = (WAITING, TRANSFER, UNRESOLVED)
SPLIT_PARTS = (COMPUTE, *EXPOSED, COPY, IDLE)

# Idle time is made of its causes, in the order of their columns.
_IDLE = {
    "input": "idle time while input loads",
    "synchronize": "idle time while the host synchronizes",
    "operator": "idle time in PyTorch's operators on the host",
    "python": "idle time in Python",
    "launch_latency": "idle time while kernels launch",
    "kernel_gap": "gaps between kernels",
    "dependency": "idle time between streams",
    "unknown": "idle time of unknown cause",
    "profiler": "idle time of the profiler's own making",
    "allocator": "idle time while memory of the device is reserved or freed",
    "gc": "idle time while Python collects garbage",
}
BY_CAUSE = {
    cause: Part(f"idle_{cause}_ns", f"idle: {cause.replace('_', ' ')}", words) for cause, words in _IDLE.items()
}
IDLE_PARTS = tuple(BY_CAUSE.values())
CAUSE_PARTS = (*SPLIT_PARTS[:-1], *IDLE_PARTS)


def fields_of(parts: Iterable[Part]) -> tuple[str, ...]:
    """Return the names of their figures."""
    return tuple(part.field for part in parts)
