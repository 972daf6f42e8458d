"""nn.DataParallel: one process drives several devices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.rank.strategies.protocol import Calls, Launches, Packing, Purpose, Strategy, dimension
from analyzers.trace import DP_FORWARD, NODE, Collective

# What it runs to spread and gather tensors, and their backwards.
SPREADING = ("Broadcast", "Scatter", "Gather", "ReduceAddCoalesced", "flatten_dense_tensors")


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    broadcast, forward = calls.of(Collective.BROADCAST), calls.inside(DP_FORWARD)
    reduced = calls.of(Collective.ALL_REDUCE, Collective.REDUCE) & calls.is_floating
    yield Purpose.PARAMETERS, broadcast & calls.inside("Broadcast")
    yield Purpose.BUFFERS, broadcast & forward
    yield Purpose.GRADIENTS, reduced & calls.inside("ReduceAddCoalesced")
    yield Purpose.INPUTS, calls.of(Collective.SEND_RECV) & calls.inside("Scatter") & forward


def _packing(launches: Launches) -> Packing:
    """Mark what spreads tensors, and what replicas ran, whose threads have no operators."""
    replicated, none = launches.host.named(DP_FORWARD), np.zeros(len(launches.rows), dtype=bool)
    if not len(replicated):
        return Packing(none, none)
    spreading = launches.host.inside(launches.places, *SPREADING, *(NODE + name for name in SPREADING))
    return Packing(spreading, none, _is_replica(launches, replicated))


def _is_replica(launches: Launches, replicated: Int64) -> Mask:
    """Whether a thread without operators launches in the replicated forward: CUDA names threads otherwise."""
    events, rows = launches.host.events, launches.rows
    operator_threads = np.unique(events.thread[launches.nodes.operators])
    stranger = (rows >= 0) & ~np.isin(events.thread[rows], operator_threads)
    first = np.searchsorted(events.start_ns[replicated], events.start_ns[rows], side="right") - 1
    during = (first >= 0) & (events.end_ns[replicated][first] > events.start_ns[rows])
    replicas: Mask = stranger & during
    return replicas


DATA_PARALLEL = Strategy(
    name="data_parallel",
    in_words="nn.DataParallel",
    dimension=dimension("replicas"),
    purposes=_purposes,
    packing=_packing,
    why_no_buckets="nn.DataParallel adds gradients up on one device; see --by layer.",
)
