"""DDP: buckets of gradients in the backward, buffers before the forward."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from analyzers.arrays import Mask, values_at
from analyzers.rank.strategies.protocol import Calls, Launches, Packing, Purpose, Strategy, dimension
from analyzers.trace import ACCUMULATE, C10D, COPIES_IN, DDP_FORWARD, NODE, STEP, TAKES_GRADIENT, Collective

# What it does with buffers before the model's own forward begins.
_FLATTENING = re.compile(
    r"c10d::|record_param_comms|nccl:|aten::(?:(?:un)?flatten_dense_tensors|cat|copy_|_foreach_copy_|view|narrow|slice|"
    r"as_strided|detach|empty\w*|resize_|contiguous|clone)$|detach$"
)


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    backward = calls.inside(TAKES_GRADIENT) | _behind_backward(calls)
    yield Purpose.BUFFERS, calls.of(Collective.BROADCAST) & calls.inside(DDP_FORWARD)
    # Programs of others (DeepSpeed, Megatron) reduce in hooks of the same nodes, without DDP's ranges.
    if len(calls.host.named(DDP_FORWARD, COPIES_IN)):
        yield Purpose.GRADIENTS, calls.of(Collective.ALL_REDUCE, Collective.REDUCE) & backward & calls.is_floating


def _behind_backward(calls: Calls) -> Mask:
    """Whether a thread that only runs backwards launches outside all nodes: with a static graph, in its first."""
    host, events = calls.host, calls.host.events
    nodes, takers = host.named(NODE), host.named(TAKES_GRADIENT, COPIES_IN)
    steps = host.named(STEP)
    threads = np.setdiff1d(events.thread[takers], events.thread[steps])
    places = calls.places
    behind: Mask = np.isin(places.thread, threads) & (host.spans(nodes).around(places) < 0)
    return behind


def _packing(launches: Launches) -> Packing:
    """Mark copies into and out of buckets: in gradients' nodes beside taking them, and after the backward."""
    host, rows, nodes, places = launches.host, launches.rows, launches.nodes, launches.places
    packs, backward = np.zeros((2, len(rows)), dtype=bool)
    gradients = nodes.row[nodes.is_gradient]
    node = values_at(nodes.row, nodes.spans.around(places))
    in_gradient = (node >= 0) & np.isin(node, gradients)
    reduces = host.around(host.named(C10D + "allreduce_", COPIES_IN), gradients) >= 0
    if reduces.any():
        threads = np.unique(host.events.thread[gradients])
        forward_threads = np.unique(host.events.thread[nodes.maker[nodes.maker >= 0]])
        reducing = np.isin(places.thread, np.setdiff1d(threads, forward_threads))
        backward = reducing & ~launches.in_backward
        packs = backward | (in_gradient & ~host.inside(places, ACCUMULATE))
    copies = host.inside(places, COPIES_IN, "torch.distributed.ddp.reducer::")
    return Packing(packs | copies | _is_buffer_copy(launches), backward | copies)


def _is_buffer_copy(launches: Launches) -> Mask:
    """Whether buffers are copied before or after their broadcast: in DDP's forward, before the model's begins."""
    host, events, rows = launches.host, launches.host.events, launches.rows
    forwards = host.named(DDP_FORWARD)
    broadcasts = host.named(C10D + "broadcast_")
    forwards = forwards[np.isin(forwards, host.around(broadcasts, forwards))]
    if not len(forwards):
        return np.zeros(len(rows), dtype=bool)
    operators = launches.nodes.operators
    flattening = np.array([_FLATTENING.match(name) is not None for name in events.names], dtype=bool)
    outer = launches.nodes.is_outermost
    others = operators[(outer & ~flattening[events.name[operators]]) | (events.forward[operators] >= 0)]
    model = np.sort(np.r_[events.start_ns[others], launches.modules.start_ns])
    holder = host.around(launches.places, forwards)
    begun = np.searchsorted(model, events.start_ns[holder])
    begins = np.r_[model, np.iinfo(np.int64).max][begun]
    before_model: Mask = (holder >= 0) & (events.start_ns[rows] < begins)
    return before_model


DDP = Strategy(
    name="ddp",
    in_words="DDP",
    # Megatron's data parallel groups, and torchtitan's dimension of replicas.
    dimension=dimension("dp", "dp_replicate", r"(?:expert_)?data_parallel\w*", "replicate"),
    purposes=_purposes,
    packing=_packing,
)
