"""Evidence that advice is drawn from: rows and figures per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzers.collectives import WaitingRow
from analyzers.layers import BucketTimes, LayerRow, LineCommunication, PipelineSummary, ShardedCollective, TensorWindow
from analyzers.layers.strategies import AttentionRow, ExpertRow
from analyzers.rank import Cause
from analyzers.ranks import RankNumber
from analyzers.reporting.measures import IdleLine, Input, SyncCost, SynchronizingCall, WindowLaunches
from analyzers.reporting.remedies.advised import StepTime

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


class Evidence(StepTime, frozen=True):
    """Rows of the report, the median step, and means over windows.

    Rows and means are of typical windows, but `synchronizing` and `idle_lines` of all `recorded_windows`.

    `free_compute_ns` is compute with no communication beside it, which could hide some, None where it is
    not known. `complete`: no collective has
    members that are not in the run. `gradient_dtypes` are those that are reduced, `latency_ns` the shortest transfer of
    an all_reduce, None where none is known. `host` is each rank's, and `slowed` says which ranks' devices run slower
    than the others', `held_up` what held which ranks' hosts up. `input_caution` says how far the profiler may have made
    what full windows show, whose times those of the input are. `environment` is what run.json has of it. Without
    `names_ranks` which rank is which is a guess.
    """

    recorded_windows: int = 1
    buckets: BucketTimes | None = None
    layers: Sequence[LayerRow] = ()
    of_lines: LineCommunication | None = None
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
    waits_by_kind: Mapping[str, int] = {}
    world_size: int = 1
    is_data_parallel: bool = False
    free_compute_ns: float | None = None
    complete: bool = True
    gradient_dtypes: frozenset[str] = frozenset()
    latency_ns: int | None = None
    host: Mapping[RankNumber, str] = {}
    slowed: Mapping[RankNumber, str] = {}
    held_up: Mapping[RankNumber, str] = {}
    input_caution: str = ""
    environment: Mapping[str, str] = {}
    torch_version: str | None = None
    is_async_tp_on: bool = False
    experts: Sequence[ExpertRow] = ()
    attention: Sequence[AttentionRow] = ()
    names_ranks: bool = True
    pipelines: Sequence[PipelineSummary] = ()
