"""Evidence that advice is drawn from: rows and figures per step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import msgspec
import numpy as np

from analyzers.collectives import CollectiveRow, Exchange, WaitingRow
from analyzers.layers import BucketRow, LayerRow
from analyzers.rank import Breakdown, Cause, Measured, RunSummary, Source
from analyzers.ranks import RankNumber
from analyzers.reporting.data_loading import Input
from analyzers.reporting.idle_rows import SynchronizingCall, WindowLaunches
from analyzers.reporting.sync_cost import SyncCost
from analyzers.run import hosts, slowed
from analyzers.units import duration, percent

# The host keeps a device waiting: nothing is queued, or it is on its way.
HOST_CAUSES = (Cause.OPERATOR, Cause.PYTHON, Cause.LAUNCH_LATENCY)


class Advice(msgspec.Struct, frozen=True):
    """What to change, what that would bring at most (ns a step), and what was measured. Programs go by the code."""

    code: str
    text: str
    figure_ns: int
    because: str


@dataclass(frozen=True)
class DeviceIdle:
    """One device's idle time by cause, ns: means over its windows."""

    rank: RankNumber
    device: int
    ns: Mapping[Cause, float]

    @property
    def by_host_ns(self) -> float:
        """Return how long the host's pace keeps the device waiting."""
        return sum(self.ns.get(cause, 0.0) for cause in HOST_CAUSES)


@dataclass(frozen=True)
class Copies:
    """Copies that DDP makes for buffers and gradients: how many a window, and how long, gaps included, in ns."""

    buffers: float = 0.0
    buffers_ns: float = 0.0
    gradients: float = 0.0
    gradients_ns: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """Rows of the report, the median step, and means over windows.

    `complete`: no collective has members that are not in the run. `gradient_dtypes` are those that are reduced,
    `latency_ns` the shortest transfer of an all_reduce, None where none is known. `host` is each rank's, and `slowed`
    says which ranks' devices run slower than the others'. The cautions say how far the profiler may have made what
    windows show: `input_caution` of the full ones, whose times those of the input are.
    """

    step_ns: float
    windows: int
    buckets: Sequence[BucketRow] = ()
    layers: Sequence[LayerRow] = ()
    waiting: Sequence[WaitingRow] = ()
    cost: SyncCost | None = None
    copies: Copies = Copies()
    input: Input | None = None
    idle: Sequence[DeviceIdle] = ()
    launches: Sequence[WindowLaunches] = ()
    synchronizing: Sequence[SynchronizingCall] = ()
    is_data_parallel: bool = False
    complete: bool = True
    gradient_dtypes: frozenset[str] = frozenset()
    latency_ns: int | None = None
    host: Mapping[RankNumber, str] = field(default_factory=dict)
    slowed: Mapping[RankNumber, str] = field(default_factory=dict)
    caution: str = ""
    input_caution: str = ""

    def share(self, ns: float) -> str:
        """Write a time as it is a step, and as a share of the step."""
        return f"{duration(ns)} a step ({percent(ns / self.step_ns)})"

    def typical(self, parts: Iterable[tuple[BucketRow | LayerRow, int]]) -> int:
        """Return the median, over all windows, of what each window's rows add up to, ns: one odd step is no reason."""
        total: Counter[tuple[int, int | str, int]] = Counter()
        for row, ns in parts:
            total[row.rank, row.device, row.step] += ns
        sums = sorted([*total.values(), *[0] * (self.windows - len(total))])
        return round(median(sums)) if sums else 0


def idle_by_device(rows: Breakdown, measured: Sequence[Measured]) -> list[DeviceIdle]:
    """Return each device's idle time by cause; `rows` are all ranks' windows in order."""
    ns = np.concatenate([one.idle.ns.sum(axis=2) for one in measured])
    return [
        DeviceIdle(rank, device, {cause: float(ns[windows, cause].mean()) for cause in Cause})
        for (rank, device), windows in rows.by_device()
    ]


def copies_of(measured: Sequence[Measured]) -> Copies:
    """Return the means, over all windows, of what DDP copies."""

    def mean(name: str) -> float:
        return float(np.concatenate([getattr(one.cost, name) for one in measured]).mean())

    names = ("buffer_copies", "buffer_copies_ns", "gradient_copies", "gradient_copies_ns")
    return Copies(*(mean(name) for name in names))


def is_data_parallel(run: RunSummary) -> bool:
    """Whether nn.DataParallel drives the devices."""
    return any(measured.work.source == Source.NODES for measured in run.measured)


def gradient_dtypes(rows: Sequence[CollectiveRow]) -> frozenset[str]:
    """Return the dtypes in which gradients are reduced."""
    return frozenset(row.dtype for row in rows if row.purpose == "gradients" and row.dtype)


def latency_ns(rows: Sequence[CollectiveRow]) -> int | None:
    """Return the shortest transfer of an all_reduce that is known exactly, about what one of no bytes would take."""
    return min(
        (row.transfer_ns for row in rows if row.kind == "all_reduce" and not row.bound and row.transfer_ns),
        default=None,
    )


def ranks_hosts(exchanged: Exchange) -> dict[RankNumber, str]:
    """Return the host of each rank, where it is known."""
    return hosts(exchanged.run.manifest, exchanged.run.ranks)


def slowed_ranks(run: RunSummary) -> dict[RankNumber, str]:
    """Return the ranks whose devices run slower than the others', and what NVML says of them."""
    return slowed(run.manifest.device_states if run.manifest is not None else None)
