"""Many small collectives as one, no search for unused parameters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, begins
from analyzers.causes import Lags
from analyzers.rank import Section
from analyzers.scenarios.removal import share_in, without_activities, without_host_time
from analyzers.scenarios.scenario import Kind, Scenario, Subject, Told
from analyzers.trace import Collective
from analyzers.units import size

# So many all-reduces a step, of so many bytes at most, are many and small.
MANY, SMALL_BYTES = 8, 64_000
# What is launched between two of them, and runs so long, keeps them apart.
LONG_NS = 20_000
INTEGERS = ("Int", "int", "int32", "Long", "int64")


def _members(subject: Subject, chosen: Mask) -> tuple[Int64, Int64]:
    """Return activities (among all ranks') of collectives whose transfers are chosen, and the instance of each."""
    graph = subject.lags.graph
    rows, _ = subject.lags.common.transfers
    rows = rows[chosen]
    return subject.lags.facts.activity_of_point[graph.edges.target[rows]], graph.instance[rows]


def _coalesced(lags: Lags, rest: Int64, first_call: Int64, last_call: Int64) -> Lags:
    """Return the lags with but the first of each step's small collectives, and without the hosts' time behind it.

    `rest` are the activities that go; from the end of each call of `first_call` to that of `last_call` a host is idle.
    """
    graph, facts = lags.graph, lags.facts
    gone = np.zeros(len(facts.rank_of_activity), dtype=bool)
    gone[rest] = True
    share = np.zeros(len(graph.edges))
    ends = facts.of_calls("end_ns")
    call_rank = np.searchsorted(facts.first_call, first_call, side="right") - 1
    is_host, until = lags.calibrated.hosts.is_host, facts.call
    for first, last, place in zip(first_call.tolist(), last_call.tolist(), call_rank.tolist(), strict=True):
        of_rank = is_host & (graph.edge_rank == place) & (until >= 0)
        target_ns = ends[until]
        share[of_rank & (target_ns > ends[first]) & (target_ns <= ends[last])] = 1
    return without_host_time(without_activities(lags, gone), share)


def find_small(subject: Subject) -> Iterator[Scenario]:
    """Yield the scenario where the main thread asks for many small all-reduces behind one another in a step."""
    lags, facts = subject.lags, subject.lags.facts
    instance = lags.graph.instance[lags.common.transfers[0]]
    nbytes = subject.nbytes(instance)
    kind = subject.exchanged.matching.instances.kind[instance]
    small = (kind == Collective.ALL_REDUCE) & (nbytes > 0) & (nbytes <= SMALL_BYTES)
    activity, _ = _members(subject, small)
    call = facts.of_activities("call")[activity] + facts.first_call[facts.rank_of_activity[activity]]
    main = np.array([part.main_thread for part in lags.graph.parts])
    on_main = facts.of_calls("thread")[call] == main[facts.rank_of_activity[activity]]
    activity, call = activity[on_main], call[on_main]
    rows = _behind_one_another(subject, activity, call)
    if not rows:
        return
    change = partial(
        _coalesced,
        rest=np.concatenate([activity[own[1:]] for own in rows]),
        first_call=np.array([call[own[0]] for own in rows]),
        last_call=np.array([call[own[-1]] for own in rows]),
    )
    per_step = sum(map(len, rows)) / (len(subject.model.calibrated.course.steps) * len(lags.graph.ranks))
    told = Told(
        "many small all-reduces run behind one another",
        "reduce what is many as one: flatten the tensors, or torch.distributed.all_reduce_coalesced",
        f"{per_step:,.0f} per {subject.step_word}, of {size(int(np.median(nbytes[small])))} each (median)",
    )
    yield Scenario("coalesce", "small all-reduces", change, "small all-reduces as one", told=told)


def _behind_one_another(subject: Subject, activity: Int64, call: Int64) -> list[Int64]:
    """Return runs of small all-reduces, of a rank and step each, between which nothing of length is launched."""
    facts = subject.lags.facts
    if not len(activity):
        return []
    own_call = facts.of_activities("call")
    called = np.where(own_call >= 0, own_call + facts.first_call[facts.rank_of_activity], UNKNOWN)
    long_ns = facts.of_activities("stop_ns") - facts.of_activities("start_ns")
    others = np.setdiff1d(np.flatnonzero((called >= 0) & (long_ns >= LONG_NS)), activity)
    between = np.sort(called[others])
    step = subject.lags.graph.points.step[facts.start_of_activity[activity]]
    order = np.lexsort((call, step, facts.rank_of_activity[activity]))
    begins_run = begins(facts.rank_of_activity[activity][order]) | begins(step[order])
    begins_run |= begins(np.searchsorted(between, call[order]))
    runs = np.split(order, np.flatnonzero(begins_run)[1:])
    return [run for run in runs if len(run) >= MANY]


def _without_search(lags: Lags, gone: Int64) -> Lags:
    is_gone = np.zeros(len(lags.facts.rank_of_activity), dtype=bool)
    is_gone[gone] = True
    return without_host_time(without_activities(lags, is_gone), share_in(lags.facts, Section.SEARCH))


def find_search(subject: Subject) -> Iterator[Scenario]:
    """Yield the scenario where DDP searches for unused parameters; its all-reduce is of integers."""
    if not any(len(part.ranges.of(Section.SEARCH)) for part in subject.lags.graph.parts):
        return
    instance = subject.lags.graph.instance[subject.lags.common.transfers[0]]
    integers = np.array([dtype.removeprefix("torch.") in INTEGERS for dtype in subject.dtypes(instance)], dtype=bool)
    activity, _ = _members(subject, integers)
    told = Told(
        "DDP searches every step's graph for unused parameters",
        "find_unused_parameters=False, where every parameter gets a gradient in every step",
        "with an all-reduce of integers that says which were used",
    )
    change = partial(_without_search, gone=activity)
    yield Scenario("unused", "DistributedDataParallel", change, "find_unused_parameters=False", told=told)


COALESCE = Kind("coalesce", find_small)
UNUSED = Kind("unused", find_search)
