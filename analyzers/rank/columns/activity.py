"""Activity of each device of one rank: compute, communication and copy intervals.

On a CPU run (gloo) the host is the device: operators compute, gloo's worker threads communicate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64
from analyzers.intervals import EMPTY, Intervals, union_of
from analyzers.ranks import RankNumber
from analyzers.run import RankTrace
from analyzers.trace import C10D, Category, Health, Kind

# Not UNKNOWN: no row that says no peer is a copy to the CPU.
CPU_DEVICE = -2


def device_label(device: int) -> int | str:
    """Return how every output calls a device: by its index, or `cpu`."""
    return "cpu" if device < 0 else device


def device_labels(devices: NDArray[np.signedinteger]) -> list[int | str]:
    """Return how every output calls each of several devices."""
    return [device_label(device) for device in devices.tolist()]


@dataclass(frozen=True, eq=False)
class Activity:
    """One device of one rank.

    `start_ns`, `end_ns`, `launched_ns` are the device's events, in any order; `launched_ns` is the start of the host
    call that launched each, UNKNOWN where the trace does not have it. `compute`, `comm`, `copy` are the unions of time.
    `cut` is when rows ran that lasted too long and were cut, `endless_ns` when those begin that have no known end.
    """

    rank: RankNumber
    device: int
    start_ns: Int64
    end_ns: Int64
    launched_ns: Int64
    compute: Intervals
    comm: Intervals
    copy: Intervals
    cut: Intervals = EMPTY
    endless_ns: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @cached_property
    def busy(self) -> Intervals:
        """Return when anything ran."""
        return self.compute | self.comm | self.copy

    def is_endless(self, start_ns: Int64, end_ns: Int64) -> NDArray[np.bool_]:
        """Whether a row without a known end begins within each time [start, end)."""
        begun: NDArray[np.bool_] = np.searchsorted(self.endless_ns, end_ns) > np.searchsorted(self.endless_ns, start_ns)
        return begun


def activities(trace: RankTrace) -> list[Activity]:
    """Return the activity of every device in a rank's trace, by device. A copy between two belongs to both."""
    if trace.is_cpu_run:
        return [_cpu_activity(trace)]
    events = trace.timed
    devices = np.unique(np.r_[events.device[events.on_device], events.peer[events.on_device]])
    return [_device_activity(trace, int(device)) for device in devices if device != UNKNOWN]


def _device_activity(trace: RankTrace, device: int) -> Activity:
    events = trace.timed
    rows = np.flatnonzero(events.on_device & ((events.device == device) | (events.peer == device)))

    def covered(kind: Kind) -> Intervals:
        these = rows[events.kind[rows] == kind]
        return union_of(events.start_ns[these], events.end_ns[these])

    cut, endless = (rows[(events.health[rows] & bit) > 0] for bit in (Health.CUT, Health.ENDLESS))
    return Activity(
        trace.rank,
        device,
        events.start_ns[rows],
        events.end_ns[rows],
        trace.events.launched_ns[rows],  # on the clock of the full window, which has the steps
        covered(Kind.COMPUTE),
        covered(Kind.COMM),
        covered(Kind.COPY),
        union_of(events.start_ns[cut], events.end_ns[cut]),
        np.sort(events.start_ns[endless]),
    )


def _cpu_activity(trace: RankTrace) -> Activity:
    """Return the time of operators on all threads but gloo's, less that of calls into c10d, which are communication."""
    events = trace.timed
    workers = np.isin(events.thread, np.unique(events.thread[trace.gloo]))
    operators = (events.category == Category.OPERATOR) & ~workers
    calls = operators & events.named(C10D)
    rows = trace.gloo | (operators & ~calls)
    compute = union_of(events.start_ns[operators], events.end_ns[operators])
    return Activity(
        trace.rank,
        CPU_DEVICE,
        events.start_ns[rows],
        events.end_ns[rows],
        events.start_ns[rows],
        compute=compute - union_of(events.start_ns[calls], events.end_ns[calls]),
        comm=union_of(events.start_ns[trace.gloo], events.end_ns[trace.gloo]),
        copy=EMPTY,
    )
