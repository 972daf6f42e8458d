"""Host time that goes: input, collections, allocating, or a share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from analyzers.arrays import UNKNOWN, Float64, values_at
from analyzers.causes import Charge, Lags
from analyzers.rank import Cause, EdgeKind, main_function
from analyzers.scenarios.scenario import UNTOLD, Kind, Scenario, Subject, Told, everywhere
from analyzers.scenarios.synchronizing import busiest_wait, waits_per_step
from analyzers.units import ms, rounded_percent

# The iterator of a DataLoader with num_workers=0, in its range's name.
_WITHOUT_WORKERS = "_SingleProcessDataLoaderIter"
# A wait per step may be the end of it: only what lies between others is in the way of a CUDA graph.
SEVERAL = 2
COLLECT_LESS = (
    "collect less: gc.freeze() after the first steps, gc.disable() in the loop, gc.collect() only now and then"
)
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
    return lags.at(rows, (rest - excess)[:, None] * lags.common.host_shares[rows] + excess[:, None])


def at_share(lags: Lags, share: float) -> Lags:
    """Return the lags with hosts that take a share of their dense time; sleeps and input stay."""
    hosts = np.flatnonzero(lags.calibrated.hosts.dense_ns > 0)
    less_ns = lags.calibrated.hosts.dense_ns[hosts, None] * lags.common.host_shares[hosts] * (1 - share)
    return lags.at(hosts, np.maximum(lags.ns[hosts] - less_ns, 0))


def _without(scenario: Scenario, cause: Cause, charge: Charge, tell: Callable[[Subject], Told]) -> Kind:
    """Return the kind that takes one state of hosts away, for runs that have it on their critical path."""
    changed = replace(scenario, change=partial(without_cause, cause=cause), of_idle=True)
    return everywhere(changed, lambda subject: subject.on_path((charge,)) > 0, tell)


def _tell_input(subject: Subject) -> Told:
    fetched = np.rint(subject.lags.facts.covered_ns(Cause.INPUT)).astype(np.int64)
    by_rank = np.bincount(np.maximum(subject.lags.graph.edge_rank, 0), fetched * subject.lags.common.times_in_course)
    longest, steps = int(by_rank.argmax()), len(subject.model.calibrated.course.steps)
    rank = f" on rank {subject.lags.graph.ranks[longest]}" if len(by_rank) > 1 else ""
    loaders = subject.manifest.training.loaders if subject.manifest.training is not None else []
    workers = next((loader.workers for loader in loaders if loader.workers is not None), None)
    if workers is None and any(_WITHOUT_WORKERS in name for name in subject.lags.facts.names):
        workers = 0
    remedy = "load data faster: more workers (num_workers), pin_memory=True, a larger prefetch_factor"
    if workers == 0:
        remedy = "give the DataLoader workers: num_workers=0 loads in the training process itself"
    has = f"; num_workers is {workers}" if workers else ""
    because = f"{ms(by_rank[longest] / steps)} of a profiled {subject.step_word} in the DataLoader{rank}{has}"
    return Told("the CPU waits for the DataLoader", remedy, because)


def _tell_collections(subject: Subject) -> Told:
    taken = np.rint(subject.lags.facts.covered_ns(Cause.GC)).astype(np.int64)
    return Told(
        "Python's garbage collector holds the CPU up",
        COLLECT_LESS,
        f"{ms(subject.per_step(taken > 0, taken))} of a profiled {subject.step_word}",
    )


def _tell_allocator(subject: Subject) -> Told:
    lags = subject.lags
    spent = lags.facts.stretches
    spent = spent.take((spent.cause == Cause.ALLOCATOR) & lags.common.in_course[spent.edge])
    steps = len(subject.model.calibrated.course.steps) * len(lags.graph.ranks)
    places = np.bincount(spent.place + 1, spent.ns)
    longest = int(places.argmax()) - 1 if len(places) else UNKNOWN
    where = f", most of it in {lags.facts.names[longest]}" if longest >= 0 else ""
    remedy = "leave torch.cuda.empty_cache() out of the step; else PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    if subject.step_word != "step":
        remedy = f"profile later steps: a process's first ones allocate memory once; if it goes on, {remedy}"
    return Told(
        f"device memory is allocated and freed in the {subject.step_word}",
        remedy,
        f"cudaMalloc, cudaFree and their kin take {ms(spent.ns.sum() / steps)} of a profiled {subject.step_word}"
        f"{where}",
    )


def _nothing(lags: Lags) -> Lags:
    return lags


INPUT = _without(
    Scenario("input", "DataLoader", _nothing, "a DataLoader that is not waited for"),
    Cause.INPUT,
    Charge.INPUT,
    _tell_input,
)
COLLECTIONS = _without(
    Scenario("gc", "gc", _nothing, "no garbage collection in the step"), Cause.GC, Charge.GC, _tell_collections
)
ALLOCATOR = _without(
    Scenario("allocator", "cudaMalloc and cudaFree", _nothing, "no allocating or freeing of device memory"),
    Cause.ALLOCATOR,
    Charge.ALLOCATOR,
    _tell_allocator,
)


def as_one_graph(lags: Lags) -> Lags:
    """Return the lags of one CUDA graph: no dense time of hosts, no pauses of streams between kernels."""
    return at_share(lags, 0).at(np.flatnonzero(lags.graph.edges.kind == EdgeKind.STREAM), 0)


def host_at(share: float, told: Told = UNTOLD) -> Scenario:
    """Return hosts at a share of their time; at none of it the step is as one CUDA graph."""
    if not share:
        words = "the step as one CUDA graph"
        return Scenario("graph", "the step", as_one_graph, words, 0.0, told, of_degree=True, of_idle=True)
    words = "CPUs twice as fast" if share == USUAL_SHARE else f"CPUs that take {100 * share:g} % of their time"
    return Scenario("host", "all hosts", partial(at_share, share=share), words, share, of_degree=True, of_idle=True)


def _shares(subject: Subject) -> Iterator[Scenario]:
    yield host_at(USUAL_SHARE)


def _graphs(subject: Subject) -> Iterator[Scenario]:
    """Yield the step as one CUDA graph: not of a CPU run, nor where one process drives several devices."""
    parts = subject.lags.graph.parts
    if not any(part.on_host or len(np.unique(part.activities.device)) > 1 for part in parts):
        yield host_at(0.0, _tell_graph(subject))


def _tell_graph(subject: Subject) -> Told:
    """Say how many launches a step has, and how many of them take longer than what they launch."""
    graph, facts = subject.lags.graph, subject.lags.facts
    if any("GraphLaunch" in name for name in facts.call_name):
        return Told()
    calls = facts.of_calls("end_ns") - facts.of_calls("begin_ns")
    first = facts.first_call[facts.rank_of_activity]
    call = facts.of_activities("call")
    ran = facts.of_activities("stop_ns") - facts.of_activities("start_ns")
    shorter = (call >= 0) & (ran < values_at(calls, np.where(call >= 0, call + first, UNKNOWN), 0))
    runs = graph.edges.kind == EdgeKind.RUN
    short = subject.per_step(runs & values_at(shorter, facts.activity, 0).astype(bool))
    launches = subject.per_step(subject.launches)
    problem, remedy = "devices pause between kernels", _LAUNCH_LESS
    if subject.model.calibrated.answers:
        launching = subject.on_path((Charge.LAUNCH, Charge.OPERATOR)) >= subject.on_path((Charge.PYTHON,))
        problem = "the CPU launches too slowly" if launching else "the CPU is busy between its launches"
        function = None if launching else _python_function(subject)
        if function is not None:
            problem = f"the CPU is in Python between its launches, most of it in {function}"
            remedy = f"take {function} out of the step, or make it shorter; then {_LAUNCH_LESS}"
    place, times = busiest_wait(subject)
    if times >= SEVERAL:
        number = f"{waits_per_step(subject):.3g}"
        waits = f"take the {number} waits for the device out of the {subject.step_word} (most in {place})"
        remedy = f"{waits}, which no CUDA graph can hold; then {remedy}"
    return Told(
        problem,
        remedy,
        f"{launches:,.0f} launches per {subject.step_word}; "
        f"{rounded_percent(short / max(launches, 1))} run for less time than their launch takes",
    )


_LAUNCH_LESS = 'launch less: the step as a CUDA graph (torch.compile(mode="reduce-overhead")), a larger batch'


def _python_function(subject: Subject) -> str | None:
    """Return the function that has most of the critical path's time in Python."""
    charges, names = subject.model.walked.charges, (*subject.model.walked.names, "")
    spent = charges.take(charges.cause == Charge.PYTHON)
    return main_function(zip((names[place] for place in spent.place.tolist()), spent.ns.tolist(), strict=True))


HOST = Kind("host", _shares)
GRAPH = Kind("graph", _graphs)
