"""Evidence that advice is drawn from: rows and figures per step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzers.collectives import CollectiveRow, Exchange, WaitingRow
from analyzers.layers import BucketRow, LayerRow, PipelineSummary, ShardedCollective, TensorWindow
from analyzers.layers.strategies import AttentionRow, ExpertRow
from analyzers.rank import Breakdown, Cause, Measured, RunSummary, Source, joined
from analyzers.ranks import RankNumber
from analyzers.reporting.measures import IdleLine, Input, SyncCost, SynchronizingCall, WindowLaunches
from analyzers.reporting.remedies.advised import StepTime
from analyzers.run import hosts, slowed

# The host keeps a device waiting: nothing is queued, or it is on its way.
HOST_CAUSES = (Cause.OPERATOR, Cause.PYTHON, Cause.LAUNCH_LATENCY)


@dataclass(frozen=True)
class DeviceIdle:
    """One device's idle time by cause, and for want of launches altogether: medians over its windows, ns."""

    rank: RankNumber
    device: int
    ns: Mapping[Cause, float]
    by_host_ns: float = 0.0


@dataclass(frozen=True)
class Copies:
    """Copies that DDP makes for buffers and gradients: how many a window, and how long, gaps included, in ns."""

    buffers: float = 0.0
    buffers_ns: float = 0.0
    gradients: float = 0.0
    gradients_ns: float = 0.0


@dataclass(frozen=True)
class Evidence(StepTime):
    """Rows of the report, the median step, and means over windows.

    `free_compute_ns` is compute with no communication beside it, which could hide some, None where it is
    not known. `complete`: no collective has
    members that are not in the run. `gradient_dtypes` are those that are reduced, `latency_ns` the shortest transfer of
    an all_reduce, None where none is known. `host` is each rank's, and `slowed` says which ranks' devices run slower
    than the others'. `input_caution` says how far the profiler may have made what full windows show, whose times those
    of the input are. `environment` is what run.json has of it.
    """

    buckets: Sequence[BucketRow] = ()
    layers: Sequence[LayerRow] = ()
    sharded: Sequence[ShardedCollective] = ()
    tensor: Sequence[TensorWindow] = ()
    waiting: Sequence[WaitingRow] = ()
    cost: SyncCost | None = None
    copies: Copies = Copies()
    input: Input | None = None
    idle: Sequence[DeviceIdle] = ()
    launches: Sequence[WindowLaunches] = ()
    synchronizing: Sequence[SynchronizingCall] = ()
    idle_lines: Sequence[IdleLine] = ()
    waits_by_kind: Mapping[str, int] = field(default_factory=dict)
    world_size: int = 1
    is_data_parallel: bool = False
    free_compute_ns: float | None = None
    complete: bool = True
    gradient_dtypes: frozenset[str] = frozenset()
    latency_ns: int | None = None
    host: Mapping[RankNumber, str] = field(default_factory=dict)
    slowed: Mapping[RankNumber, str] = field(default_factory=dict)
    input_caution: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    torch_version: str | None = None
    is_async_tp_on: bool = False
    experts: Sequence[ExpertRow] = ()
    attention: Sequence[AttentionRow] = ()
    pipelines: Sequence[PipelineSummary] = ()


def idle_by_device(rows: Breakdown, measured: Sequence[Measured], in_full: Sequence[Measured]) -> list[DeviceIdle]:
    """Return each device's idle time by cause; `rows` are all ranks' windows in order.

    Pauses between kernels are at most those of the full windows: a light window's gaps are divided as the full one's,
    and what was a pause there may be a wait for the host here.
    """
    ns = np.concatenate([one.idle.ns.sum(axis=2) for one in measured])
    full_rows = joined([one.windows for one in in_full])
    full_ns = np.concatenate([one.idle.ns.sum(axis=2) for one in in_full])
    pauses = {place: np.median(full_ns[windows, Cause.KERNEL_GAP]) for place, windows in full_rows.by_device()}
    devices = []
    for (rank, device), windows in rows.by_device():
        median_ns = {cause: float(np.median(ns[windows, cause])) for cause in Cause}
        pause_ns = float(pauses.get((rank, device), 0.0))
        median_ns[Cause.KERNEL_GAP] = min(median_ns[Cause.KERNEL_GAP], pause_ns)
        by_host_ns = float(np.median(ns[windows][:, HOST_CAUSES].sum(axis=1)))
        devices.append(DeviceIdle(rank, device, median_ns, by_host_ns))
    return devices


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


def waits_by_kind(rows: Sequence[CollectiveRow]) -> Counter[str]:
    """Return how long all members waited in collectives, by kind, ns."""
    waits: Counter[str] = Counter()
    for row in rows:
        waits[row.kind] += sum(member.wait_ns or 0 for member in row.members)
    return waits


def ranks_hosts(exchanged: Exchange) -> dict[RankNumber, str]:
    """Return the host of each rank, where it is known."""
    return hosts(exchanged.run.manifest, exchanged.run.ranks)


def slowed_ranks(run: RunSummary) -> dict[RankNumber, str]:
    """Return the ranks whose devices run slower than the others', and what NVML says of them."""
    return slowed(run.manifest.device_states if run.manifest is not None else None)
