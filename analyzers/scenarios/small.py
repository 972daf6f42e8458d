"""Many small collectives as one, no search for unused parameters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from analyzers.arrays import Int64, Mask
from analyzers.causes import Lags
from analyzers.rank import Section
from analyzers.scenarios.removal import share_in, without_activities, without_host_time
from analyzers.scenarios.scenario import Kind, Scenario, Subject
from analyzers.trace import Collective

# So many all-reduces a step, of so many bytes at most, are many and small.
MANY, SMALL_BYTES = 8, 64_000
INTEGERS = ("Int", "int", "int32", "Long", "int64")


def _members(subject: Subject, chosen: Mask) -> tuple[Int64, Int64]:
    """Return activities (among all ranks') of collectives whose transfers are chosen, and the instance of each."""
    graph = subject.lags.graph
    rows, _ = subject.lags.transfers
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
    """Yield the scenario where the main thread asks for many small all-reduces in a step."""
    lags, facts = subject.lags, subject.lags.facts
    instance = lags.graph.instance[lags.transfers[0]]
    nbytes = subject.nbytes(instance)
    kind = subject.exchanged.matching.instances.kind[instance]
    small = (kind == Collective.ALL_REDUCE) & (nbytes > 0) & (nbytes <= SMALL_BYTES)
    activity, _ = _members(subject, small)
    call = facts.of_activities("call")[activity] + facts.first_call[facts.rank_of_activity[activity]]
    main = np.array([part.main_thread for part in lags.graph.parts])
    on_main = facts.of_calls("thread")[call] == main[facts.rank_of_activity[activity]]
    activity, call = activity[on_main], call[on_main]
    step = lags.graph.points.step[facts.start_of_activity[activity]]
    key = np.stack([facts.rank_of_activity[activity], step])
    _, of = np.unique(key, axis=1, return_inverse=True) if len(activity) else (key, activity)
    of = of.ravel()
    rest, first_call, last_call = [], [], []
    for number in np.flatnonzero(np.bincount(of) >= MANY).tolist():
        own = np.flatnonzero(of == number)
        own = own[np.argsort(call[own], kind="stable")]
        rest.append(activity[own[1:]])
        first_call.append(int(call[own[0]]))
        last_call.append(int(call[own[-1]]))
    if rest:
        change = partial(
            _coalesced,
            rest=np.concatenate(rest),
            first_call=np.array(first_call),
            last_call=np.array(last_call),
        )
        yield Scenario("coalesce", "small all-reduces", change, "small all-reduces as one")


def _without_search(lags: Lags, gone: Int64) -> Lags:
    is_gone = np.zeros(len(lags.facts.rank_of_activity), dtype=bool)
    is_gone[gone] = True
    return without_host_time(without_activities(lags, is_gone), share_in(lags.facts, Section.SEARCH))


def find_search(subject: Subject) -> Iterator[Scenario]:
    """Yield the scenario where DDP searches for unused parameters; its all-reduce is of integers."""
    if not any(len(part.ranges.of(Section.SEARCH)) for part in subject.lags.graph.parts):
        return
    instance = subject.lags.graph.instance[subject.lags.transfers[0]]
    integers = np.array([dtype.removeprefix("torch.") in INTEGERS for dtype in subject.dtypes(instance)], dtype=bool)
    activity, _ = _members(subject, integers)
    yield Scenario("unused", "DistributedDataParallel", partial(_without_search, gone=activity), UNUSED.cure)


COALESCE = Kind("coalesce", "one all-reduce of what is many: torch.distributed.all_reduce_coalesced", find_small)
UNUSED = Kind("unused", "find_unused_parameters=False", find_search)
