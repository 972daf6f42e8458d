"""Evidence for bounds of advice: rows and figures per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzers.layers import PipelineSummary, ShardedCollective, TensorWindow
from analyzers.layers.strategies import AttentionRow
from analyzers.reporting.measures import SyncCost
from analyzers.reporting.remedies.advised import StepTime


class Evidence(StepTime, frozen=True):
    """Rows of typical steps, the median step, and means over windows.

    `trained_ns` is the step that people train, of which shares are. `free_compute_ns` is compute with no
    communication beside it, which could hide some, None where it is not known. `latency_ns` is the shortest
    transfer of an all_reduce, None where none is known. `environment` is what run.json has of it. `driven_ns` is
    what nn.DataParallel's one process leaves its devices idle, and exposes of their transfers, None of other runs.
    `products_ns` are a step's FP32 products and convolutions outside of tensor cores, `layout_ns` its layout copies
    and batch norms outside of channels_last, on the rank that has most.
    """

    trained_ns: float = 0.0
    sharded: Sequence[ShardedCollective] = ()
    tensor: Sequence[TensorWindow] = ()
    cost: SyncCost | None = None
    free_compute_ns: float | None = None
    latency_ns: int | None = None
    environment: Mapping[str, str] = {}
    is_async_tp_on: bool = False
    attention: Sequence[AttentionRow] = ()
    pipelines: Sequence[PipelineSummary] = ()
    driven_ns: float | None = None
    products_ns: float = 0.0
    layout_ns: float = 0.0
