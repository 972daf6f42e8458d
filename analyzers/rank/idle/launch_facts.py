"""Launches and synchronizing calls of each window's step.

host       |step 3 [launch] [launch]   |cudaStreamSynchronize||     two launches, one call that waits
device              a        bbbbbb                                 `a` is shorter than its launch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, distinct
from analyzers.intervals import union_of
from analyzers.rank.host import Host
from analyzers.rank.idle.gaps import DeviceTime, launch_calls
from analyzers.rank.idle.host_states import HostStates
from analyzers.trace import STEP, Events

COUNTS = ("launches", "operations", "shorter", "launching_ns")


@dataclass(frozen=True, eq=False)
class Launching:
    """A value for each window of a rank; UNKNOWN where the trace does not say.

    `launches` are the launch calls of the `operations` (device events with such a call) that begin in the window, of
    which `shorter` are shorter than their own call; `call_ns` is the calls' median length, `launching_ns` what all of
    them take. Calls' lengths are the full window's. `host_ns` is how long the step is on the host, `waited_ns` how much
    of it the step's thread is in the `synchronizations`, calls that wait for the device.
    """

    launches: Int64
    operations: Int64
    shorter: Int64
    call_ns: Int64
    launching_ns: Int64
    host_ns: Int64
    synchronizations: Int64
    waited_ns: Int64


def launching(
    timed: Events, host: Host, states: HostStates, devices: Sequence[DeviceTime], step: Int64, steps: dict[int, int]
) -> Launching:
    """Return the launches behind a rank's windows; `step` is each window's, `steps` has the row of each step's mark."""
    columns = {name: np.zeros(len(step), dtype=np.int64) for name in COUNTS}
    columns["call_ns"] = np.full(len(step), UNKNOWN, dtype=np.int64)
    every = np.flatnonzero(timed.on_device)
    calls = launch_calls(host, every)
    known = calls.row != UNKNOWN
    for device in devices:
        mine = known & ((timed.device[every] == device.device) | (timed.peer[every] == device.device))
        rows, call = every[mine], calls.row[mine]
        call_ns = (calls.end_ns - calls.start_ns)[mine]
        window = _window(device, timed.start_ns[rows])
        inside = window >= 0
        count = len(device.row)
        columns["operations"][device.row] = np.bincount(window[inside], minlength=count)
        shorter = inside & (timed.dur_ns[rows] < call_ns)
        columns["shorter"][device.row] = np.bincount(window[shorter], minlength=count)
        launches = distinct(window[inside], call[inside])
        launched_in, _ = launches.columns
        each_ns = call_ns[inside][launches.first]
        columns["launches"][device.row] = np.bincount(launched_in, minlength=count)
        columns["call_ns"][device.row] = _medians(launched_in, each_ns, count)
        columns["launching_ns"][device.row] = np.bincount(launched_in, each_ns, count)
    return Launching(**columns, **_steps_on_host(host, states, step, steps))


def _window(device: DeviceTime, instant_ns: Int64) -> Int64:
    """Return the place of the window that holds each instant, -1 for none."""
    at = np.searchsorted(device.start_ns, instant_ns, side="right") - 1
    inside = (at >= 0) & (instant_ns < device.end_ns[at])
    return np.where(inside, at, UNKNOWN)


def _medians(group: Int64, values: Int64, count: int) -> Int64:
    """Return the lower median of each group's values, UNKNOWN for an empty one."""
    order = np.lexsort((values, group))
    bounds = np.searchsorted(group[order], np.arange(count + 1))
    middle = (bounds[:-1] + bounds[1:] - 1) // 2
    filled = bounds[1:] > bounds[:-1]
    return np.where(filled, np.r_[values[order], UNKNOWN][np.where(filled, middle, -1)], UNKNOWN)


def step_rows(host: Host) -> dict[int, int]:
    """Return the row of each profiler step's mark; of a number that occurs twice, the first."""
    events = host.events
    rows = host.named(STEP)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    found: dict[int, int] = {}
    for row in rows.tolist():
        number = events.names[events.name[row]].removeprefix(STEP)
        if number.isdecimal():
            found.setdefault(int(number), row)
    return found


def _steps_on_host(host: Host, states: HostStates, step: Int64, steps: dict[int, int]) -> dict[str, Int64]:
    """Return how long each window's step is on its host thread, and that thread's calls that wait."""
    events = host.events
    marks = np.array([steps.get(number, UNKNOWN) for number in step.tolist()], dtype=np.int64)
    marked = marks >= 0
    start, end = (np.where(marked, column[marks], 0) for column in (events.start_ns, events.end_ns))
    calls = np.flatnonzero(states.is_synchronizing)
    if marked.any():
        calls = calls[np.isin(events.thread[calls], events.thread[marks[marked]])]
    begun = np.sort(events.start_ns[calls])
    count = np.searchsorted(begun, end) - np.searchsorted(begun, start)
    waited = union_of(events.start_ns[calls], events.end_ns[calls]).length_within(start, end)
    columns = {"host_ns": end - start, "synchronizations": count, "waited_ns": waited}
    return {name: np.where(marked, column, UNKNOWN) for name, column in columns.items()}
