"""Tensor and sequence parallelism: activations gathered and reduced by modules.

Beside its collectives are matrix products, as asynchronous TP runs them:

host     |all_gather| |mm wq| |mm wk| ... |mm wo| |reduce_scatter|
          wq and wk are beside the all-gather: what it gathers is multiplied by them; wo is beside the reduce-scatter
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, rows_by
from analyzers.rank.host import Host
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, callers, dimension
from analyzers.trace import Category, Collective

# These gather statistics over all samples, whatever holds the weights.
_STATISTICS = re.compile(r"SyncBatchNorm", re.IGNORECASE)
# A loss over logits that are spread over ranks (loss parallelism) is no module, and reduces in its operators.
_LOSS = re.compile(r"aten::(?:cross_entropy_loss|_?log_softmax|nll_loss\w*)")


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    kinds = calls.of(Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    spread = (kinds | calls.of(Collective.ALL_TO_ALL)) & calls.is_floating
    statistics = calls.in_module(_STATISTICS) | calls.inside_any(_STATISTICS)
    yield Purpose.ACTIVATIONS, spread & calls.over(TENSOR.dimension) & (calls.in_model | calls.is_replayed)
    # FSDP without ranges and compiled context parallelism look alike; programs with a tensor parallelism of their own,
    # such as Megatron's, are not recognized when they are recorded.
    is_explained = TENSOR.name not in calls.recorded and bool(calls.recorded & {"fsdp", "context"})
    if not is_explained:
        yield Purpose.ACTIVATIONS, kinds & calls.is_floating & calls.in_model & ~statistics
    yield Purpose.ACTIVATIONS, kinds & calls.is_floating & calls.inside_any(_LOSS)
    # Kernels of their own (symmetric memory, vLLM's cross_device_reduce) are written for these activations.
    yield Purpose.ACTIVATIONS, kinds & calls.is_library


TENSOR = Strategy(
    name="tensor",
    in_words="tensor parallel",
    dimension=dimension("tp", "sp", "asynctp", r"tensor_(?:model_)?parallel\w*"),
    purposes=_purposes,
    owners=callers,
)


# Operators of PyTorch's asynchronous TP, which cut a product and its collective into pieces (torch/distributed/
# _symmetric_memory); Inductor puts them in where `_micro_pipeline_tp` is set.
_PIPELINED = "symm_mem::fused_"
_MATMUL = re.compile(r"aten::(?:mm|addmm|bmm|baddbmm|_addmm_activation|_scaled_mm|_(?:scaled_)?grouped_mm)$")


def pipelined_calls(host: Host) -> int:
    """Return how many calls of fused, micro-pipelined products and collectives the trace has."""
    return len(host.named(_PIPELINED))


def matmuls_beside(host: Host, called: tuple[Int64, Int64], chosen: Mask, launched: tuple[Int64, Int64]) -> Int64:
    """Return how long the matrix products beside each chosen collective ran, -1 for rows that are not chosen, ns.

    `called` are launches of communication and their kinds, `launched` those of a device's kernels and their lengths.
    Beside an all-gather are the products launched on its thread until the next chosen collective, without the last of
    several where that one reduces; beside a reduction is the last one before it.
    """
    (launches, kind), (kernels, ns) = called, launched
    found = np.full(len(launches), UNKNOWN, dtype=np.int64)
    thread, start, length = _products(host, kernels, ns)
    multiplied, asked = rows_by(thread), np.flatnonzero(chosen)
    for on_thread, places in rows_by(host.events.thread[launches[asked]]).items():
        rows = asked[places]
        rows = rows[np.argsort(host.events.start_ns[launches[rows]], kind="stable")]
        mine = multiplied.get(on_thread, rows[:0])
        mine = mine[np.argsort(start[mine], kind="stable")]
        before = np.searchsorted(start[mine], host.events.start_ns[launches[rows]])
        total = np.r_[0, np.cumsum(length[mine])]
        low, high = np.r_[0, before], np.r_[before, len(mine)]
        reduces = kind[rows] != Collective.ALL_GATHER
        behind = high[1:] - low[1:]
        gives = np.r_[reduces[1:], False] & (behind > 1)
        last = np.where(before > low[:-1], np.r_[0, length[mine]][before], 0)
        found[rows] = np.where(reduces, last, total[high[1:] - gives] - total[low[1:]])
    return found


def _products(host: Host, kernels: Int64, ns: Int64) -> tuple[Int64, Int64, Int64]:
    """Return of the operators that multiply their threads, starts, and how long their kernels ran."""
    events = host.events
    named = np.array([_MATMUL.match(name) is not None for name in events.names], dtype=bool)
    operators = np.flatnonzero(named[events.name] & (events.category == Category.OPERATOR))
    around = host.around(kernels, operators)
    rows, index = np.unique(around[around >= 0], return_inverse=True)
    length = np.zeros(len(rows), dtype=np.int64)
    np.add.at(length, index, ns[around >= 0])
    return events.thread[rows], events.start_ns[rows], length
