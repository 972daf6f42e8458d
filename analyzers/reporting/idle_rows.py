"""Rows of idle time: by cause, phase and operator, and launches.

windows -> idle {input_ns, ...}; phases -> a row for each phase of each window; lines -> a rank's operators and modules
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from analyzers.arrays import Int64, natural
from analyzers.rank import Cause, Measured, Phase, device_label

# Causes as they are spelled, in the order of their columns.
IDLE_CAUSES = tuple(cause.label for cause in Cause)
# The same as figures of windows that stand beside their idle_ns, which they add up to.
IDLE_PARTS = tuple(f"idle_{cause}_ns" for cause in IDLE_CAUSES)


class IdleCauses(msgspec.Struct, frozen=True):
    """Idle time by cause, ns; the parts add up to it. See docs/measuring.md."""

    input_ns: int
    synchronize_ns: int
    operator_ns: int
    python_ns: int
    launch_latency_ns: int
    kernel_gap_ns: int
    dependency_ns: int
    unknown_ns: int


class IdlePhase(msgspec.Struct, frozen=True):
    """Idle time of one window in one phase: forward, backward, optimizer, between_steps or unknown."""

    rank: int
    device: int | str
    step: int
    phase: str
    idle: IdleCauses


class IdleLine(msgspec.Struct, frozen=True):
    """Idle time over all windows of a rank for one cause, in one phase, while the host was in one place.

    `name` is an operator, else a module or range; null where neither ran, `(others)` for all but the longest. `count`
    is in how many gaps, or how many calls where `call`, the synchronizing call, is not null.
    """

    rank: int
    cause: str
    phase: str
    name: str | None
    call: str | None
    ns: int
    count: int


class SynchronizingCall(msgspec.Struct, frozen=True):
    """Calls in a rank's steps that wait for the device, by the operator, module or range that makes them."""

    rank: int
    name: str | None
    call: str
    count: int
    host_ns: int


class WindowLaunches(msgspec.Struct, frozen=True):
    """Launches of one window, and its step on the host; null where the trace does not say.

    Of `operations`, device events with a launch call, `shorter` are shorter than it. `call_ns` is the calls' median.
    `waited_ns` is how much of `host_ns`, the step on the host, the `synchronizations` take.
    """

    rank: int
    device: int | str
    step: int
    launches: int
    operations: int
    shorter: int
    call_ns: int | None
    host_ns: int | None
    synchronizations: int | None
    waited_ns: int | None


class IdleRows(msgspec.Struct, frozen=True):
    """Where idle time comes from, beyond each window's causes."""

    phases: list[IdlePhase]
    lines: list[IdleLine]
    synchronizing: list[SynchronizingCall]
    launches: list[WindowLaunches]


def window_causes(measured: Sequence[Measured]) -> list[IdleCauses]:
    """Return each window's idle time by cause."""
    return [IdleCauses(*row) for one in measured for row in idle_parts(one).tolist()]


def idle_parts(measured: Measured) -> Int64:
    """Return a row per window of one rank, a column for each of IDLE_PARTS."""
    parts: Int64 = measured.idle.ns.sum(axis=2)
    return parts


def idle_rows(measured: Sequence[Measured]) -> IdleRows:
    """Return the rows of all ranks; phases without idle time have none."""
    ranks = [(int(one.windows.rank[0]), one) for one in measured]
    return IdleRows(
        phases=[row for one in measured for row in _phases(one)],
        lines=[row for rank, one in ranks for row in _lines(rank, one)],
        synchronizing=[row for rank, one in ranks for row in _synchronizing(rank, one)],
        launches=[row for one in measured for row in _launches(one)],
    )


def _phases(measured: Measured) -> Iterator[IdlePhase]:
    ns = measured.idle.ns
    for window, phase in zip(*(index.tolist() for index in np.nonzero(ns.sum(axis=1))), strict=True):
        yield IdlePhase(*_window(measured, window), Phase(phase).label, IdleCauses(*ns[window, :, phase].tolist()))


def _window(measured: Measured, window: int) -> tuple[int, int | str, int]:
    rows = measured.windows
    return int(rows.rank[window]), device_label(int(rows.device[window])), int(rows.step[window])


def _lines(rank: int, measured: Measured) -> Iterator[IdleLine]:
    lines = measured.idle.lines
    columns = zip(lines.cause.tolist(), lines.phase.tolist(), lines.name, lines.call, strict=True)
    for (cause, phase, name, call), ns, count in zip(columns, lines.ns.tolist(), lines.count.tolist(), strict=True):
        yield IdleLine(rank, Cause(cause).label, Phase(phase).label, name or None, call or None, ns, count)


def _synchronizing(rank: int, measured: Measured) -> Iterator[SynchronizingCall]:
    calls = measured.idle.synchronizations
    for name, call, count, ns in zip(calls.name, calls.call, calls.count.tolist(), calls.ns.tolist(), strict=True):
        yield SynchronizingCall(rank, name or None, call, count, ns)


def _launches(measured: Measured) -> Iterator[WindowLaunches]:
    launching = measured.idle.launching
    counts = (launching.launches, launching.operations, launching.shorter)
    maybe = (launching.call_ns, launching.host_ns, launching.synchronizations, launching.waited_ns)
    for window in range(len(measured.windows)):
        numbers = [int(column[window]) for column in counts]
        yield WindowLaunches(*_window(measured, window), *numbers, *(natural(column[window]) for column in maybe))
