"""Host time that goes: input, collections, allocating, or a share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from analyzers.arrays import Float64
from analyzers.causes import Charge, Lags
from analyzers.rank import Cause, EdgeKind
from analyzers.scenarios.scenario import Kind, Scenario, Subject

# What is tried of hosts at a share of their time.
USUAL_SHARE = 0.5


def input_ns(lags: Lags) -> Float64:
    """Return what of each edge is fetching input, at the lags' own scale."""
    recorded = lags.graph.edges.lag_ns
    covered = lags.facts.covered_ns(Cause.INPUT)
    share = np.divide(covered, recorded, out=np.zeros(len(recorded)), where=recorded > 0)
    inputs: Float64 = lags.ns * np.clip(share, 0, 1)[:, None]
    return inputs


def without_cause(lags: Lags, cause: Cause) -> Lags:
    """Return the lags without the time that hosts are in one state; what is left of a stretch is scaled anew."""
    covered = lags.facts.covered_ns(cause)
    rows = np.flatnonzero(covered > 0)
    rest = np.maximum(lags.graph.edges.lag_ns[rows] - covered[rows], 0)
    excess = np.minimum(np.maximum(lags.calibrated.hosts.excess_ns[rows] - covered[rows], 0), rest)
    return lags.at(rows, (rest - excess)[:, None] * lags.host_shares[rows] + excess[:, None])


def at_share(lags: Lags, share: float) -> Lags:
    """Return the lags with hosts that take a share of their dense time; sleeps and input stay."""
    hosts = np.flatnonzero(lags.calibrated.hosts.dense_ns > 0)
    less_ns = lags.calibrated.hosts.dense_ns[hosts, None] * lags.host_shares[hosts] * (1 - share)
    return lags.at(hosts, np.maximum(lags.ns[hosts] - less_ns, 0))


def _without(name: str, cure: str, at: str, words: str, of: tuple[Cause, Charge]) -> Kind:
    """Return the kind that takes one state of hosts away, for runs that have it on their critical path."""
    cause, charge = of

    def find(subject: Subject) -> Iterator[Scenario]:
        if subject.on_path((charge,)) > 0:
            yield Scenario(name, at, partial(without_cause, cause=cause), words)

    return Kind(name, cure, find)


INPUT = _without(
    "input",
    "more workers for the DataLoader",
    "DataLoader",
    "a DataLoader that is not waited for",
    (Cause.INPUT, Charge.INPUT),
)
COLLECTIONS = _without(
    "gc",
    "gc.disable() in the step, and gc.collect() rarely",
    "gc",
    "no garbage collection in the step",
    (Cause.GC, Charge.GC),
)
ALLOCATOR = _without(
    "allocator",
    "no torch.cuda.empty_cache() in the step, and expandable segments",
    "cudaMalloc and cudaFree",
    "no allocating or freeing of device memory",
    (Cause.ALLOCATOR, Charge.ALLOCATOR),
)


def as_one_graph(lags: Lags) -> Lags:
    """Return the lags of one CUDA graph: no dense time of hosts, no pauses of streams between kernels."""
    return at_share(lags, 0).at(np.flatnonzero(lags.graph.edges.kind == EdgeKind.STREAM), 0)


def host_at(share: float) -> Scenario:
    """Return hosts at a share of their time; at none of it the step is as one CUDA graph."""
    if not share:
        return Scenario("graph", "the step", as_one_graph, "the step as one CUDA graph", 0.0, of_degree=True)
    words = f"CPUs that take {100 * share:g} % of their time"
    return Scenario("host", "all hosts", partial(at_share, share=share), words, share, of_degree=True)


def _shares(subject: Subject) -> Iterator[Scenario]:
    yield host_at(USUAL_SHARE)


def _graphs(subject: Subject) -> Iterator[Scenario]:
    if not any(part.on_host for part in subject.lags.graph.parts):
        yield host_at(0.0)


HOST = Kind("host", "a faster CPU", _shares)
GRAPH = Kind("graph", "one CUDA graph of the step", _graphs)
