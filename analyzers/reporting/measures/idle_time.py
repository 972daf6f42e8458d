"""Rows of idle time: by cause, phase and operator, launches, the loader.

windows -> idle {input_ns, ...}; phases -> a row for each phase of each window; lines -> a rank's operators and modules
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, labels, typed_rows
from analyzers.lazy_fields import LazyStruct, lazy
from analyzers.rank import Breakdown, Cause, Measured, Phase, device_label, device_labels, main_function
from analyzers.statistics import Spread, spreads
from analyzers.step_parts import BY_CAUSE

# Causes as they are spelled, in the order of their columns.
IDLE_CAUSES = tuple(cause.label for cause in Cause)


class IdleCauses(msgspec.Struct, frozen=True):
    """Idle time by cause, which adds up: docs/measuring.md, Idle time, by cause."""

    input_ns: int
    synchronize_ns: int
    operator_ns: int
    python_ns: int
    launch_latency_ns: int
    kernel_gap_ns: int
    dependency_ns: int
    unknown_ns: int
    profiler_ns: int = 0  # this and what follows: not in documents of 0.2 and before
    allocator_ns: int = 0
    gc_ns: int = 0


class IdlePhase(msgspec.Struct, frozen=True):
    """One window's idle time in one phase.

    `phase`: `forward`, `backward`, `optimizer`, `between_steps`, `unknown`.
    """

    rank: int
    device: int | str
    step: int
    phase: str
    idle: IdleCauses


class IdleLine(msgspec.Struct, frozen=True):
    """A rank's idle time of one cause and phase while its host was in one place.

    `name`: the outermost operator, else the Python function, module or range; `(others)`: all but the longest, of a
    phase. `call`: which synchronizes. `count`: of calls, else of gaps.
    """

    rank: int
    cause: str
    phase: str
    name: str | None
    call: str | None
    ns: int
    count: int


class SynchronizingCall(msgspec.Struct, frozen=True):
    """Calls in a rank's steps that wait for the device, by what makes them."""

    rank: int
    name: str | None
    call: str
    count: int
    host_ns: int


class WindowLaunches(msgspec.Struct, frozen=True):
    """Launches of one full window.

    `shorter`: than their launch call. `call_ns`: the calls' median. `launching_ns`: their sum. `host_ns`: the step on
    the CPU. `waited_ns`: in synchronizations.
    """

    rank: int
    device: int | str
    step: int
    launches: int
    operations: int
    shorter: int
    call_ns: int | None
    launching_ns: int
    host_ns: int | None
    synchronizations: int | None
    waited_ns: int | None


class IdleRows(LazyStruct, frozen=True):
    """Where idle time comes from, beyond each window's causes.

    `lines`: each cause's 20 longest of a rank.
    """

    phases: list[IdlePhase]
    lines: list[IdleLine]
    synchronizing: list[SynchronizingCall]
    launches: list[WindowLaunches]


def window_causes(measured: Sequence[Measured]) -> list[IdleCauses]:
    """Return each window's idle time by cause."""
    return [IdleCauses(*row) for one in measured for row in idle_parts(one).tolist()]


def idle_parts(measured: Measured) -> Int64:
    """Return a row per window of one rank, a column per cause."""
    parts: Int64 = measured.idle.ns.sum(axis=2)
    return parts


def idle_rows(measured: Sequence[Measured]) -> IdleRows:
    """Return the rows of all ranks; phases without idle time have none."""
    ranks = [(int(one.windows.rank[0]), one) for one in measured]
    return IdleRows(
        phases=lazy(lambda: [row for one in measured for row in _phases(one)]),
        lines=lazy(lambda: [row for rank, one in ranks for row in _lines(rank, one)]),
        synchronizing=lazy(lambda: [row for rank, one in ranks for row in _synchronizing(rank, one)]),
        launches=lazy(lambda: [row for one in measured for row in _launches(one)]),
    )


def idle_places(measured: Sequence[Measured]) -> dict[str, str | None]:
    """Return where half or more of a part's idle time is: a function of Python, an operator's launches."""
    python, launches = (
        [
            (of.name[row], int(of.ns[row]), int(of.count[row]))
            for of in (one.idle.lines for one in measured)
            for row in np.flatnonzero(of.cause == cause).tolist()
        ]
        for cause in (Cause.PYTHON, Cause.LAUNCH_LATENCY)
    )
    name, ns, times = max(launches, key=lambda line: line[1], default=("", 0, 0))
    is_most = bool(name) and 2 * ns >= sum(line[1] for line in launches)
    return {
        BY_CAUSE[Cause.PYTHON.label].field: main_function((name, ns) for name, ns, _ in python),
        BY_CAUSE[Cause.LAUNCH_LATENCY.label].field: f"{times} of {name}" if is_most else None,
    }


def _phases(measured: Measured) -> list[IdlePhase]:
    ns = measured.idle.ns
    window, phase = np.nonzero(ns.sum(axis=1))
    rows = measured.windows.take(window)
    return typed_rows(
        IdlePhase,
        rows,
        device=device_labels(rows.device),
        phase=labels(Phase, phase),
        idle=[IdleCauses(*causes) for causes in ns[window, :, phase].tolist()],
    )


def _lines(rank: int, measured: Measured) -> list[IdleLine]:
    lines = measured.idle.lines
    return typed_rows(
        IdleLine,
        rank=rank,
        cause=labels(Cause, lines.cause),
        phase=labels(Phase, lines.phase),
        name=[name or None for name in lines.name],
        call=[call or None for call in lines.call],
        ns=lines.ns,
        count=lines.count,
    )


def _synchronizing(rank: int, measured: Measured) -> list[SynchronizingCall]:
    calls = measured.idle.synchronizations
    names = [name or None for name in calls.name]
    return typed_rows(SynchronizingCall, rank=rank, name=names, call=[*calls.call], count=calls.count, host_ns=calls.ns)


def _launches(measured: Measured) -> list[WindowLaunches]:
    rows = measured.windows
    place = {"rank": rows.rank, "device": device_labels(rows.device), "step": rows.step}
    return typed_rows(WindowLaunches, **place, **vars(measured.idle.launching))


class DeviceInput(msgspec.Struct, frozen=True):
    """The same of one device."""

    rank: int
    device: int | str
    idle_ns: Spread
    fetch_ns: Spread
    span_ns: Spread


class Input(msgspec.Struct, frozen=True):
    """How long the CPU is in the loader (`fetch_ns`) and the device idles meanwhile, in full windows."""

    idle_ns: Spread
    fetch_ns: Spread
    span_ns: Spread
    by_device: list[DeviceInput]
    window: str = msgspec.field(name="from")

    @property
    def longest(self) -> DeviceInput:
        """Return the device that idles longest, by its median: with synchronization, the others wait for it."""
        return max(self.by_device, key=lambda device: device.idle_ns.median or 0)


def input_summary(measured: Sequence[Measured]) -> Input | None:
    """Return what the loader takes in the full windows of all ranks; None where no trace shows one."""
    if not any(rank_measured.fetching.seen for rank_measured in measured):
        return None
    rows = Breakdown.joined([rank_measured.windows for rank_measured in measured])
    idle_ns = np.concatenate([rank_measured.fetching.input_idle_ns for rank_measured in measured])
    fetch_ns = np.concatenate([rank_measured.fetching.fetch_ns for rank_measured in measured])
    is_known = idle_ns != UNKNOWN

    def over(windows: Int64) -> dict[str, Spread]:
        known_windows = windows[is_known[windows]]
        return spreads(
            {
                "idle_ns": idle_ns[known_windows],
                "fetch_ns": fetch_ns[known_windows],
                "span_ns": rows.span_ns[known_windows],
            }
        )

    by_device = [
        DeviceInput(rank, device_label(device), **over(device_windows))
        for (rank, device), device_windows in rows.by_device()
    ]
    return Input(**over(np.arange(len(rows))), by_device=by_device, window="full")
