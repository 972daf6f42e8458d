"""Work shared out evenly: among stages, experts, ranks and steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.causes import Lags
from analyzers.rank import Phase
from analyzers.scenarios.scenario import Kind, Scenario, Subject, Told
from analyzers.trace import Collective
from analyzers.units import rounded_percent

# Ranks that do other work than each other by their own choice: experts' tokens.
UNEVEN = (Collective.ALL_TO_ALL, Collective.DISPATCH, Collective.COMBINE)


# A phase with a smaller share of the differences is not named.
TOLD = 0.05


def all_alike(lags: Lags) -> Lags:
    """Return the lags with kernels at the mean of ranks and steps, and transfers at the median of their like."""
    likes = lags.common.kernels
    return _transfers_at_median(lags.at(likes.edge, _at_mean(lags.ns[likes.edge], likes.in_any_step)))


def experts_alike(lags: Lags) -> Lags:
    """Return the lags with kernels at the mean of ranks, step by step, and transfers at the median of their like."""
    likes = lags.common.kernels
    return _transfers_at_median(lags.at(likes.edge, _at_mean(lags.ns[likes.edge], likes.key)))


def stages_even(lags: Lags, stages: Mapping[int, Collection[int]]) -> Lags:
    """Return the lags with the sum of each stage's kernels at the mean of all stages'."""
    changed, likes = lags.ns.copy(), lags.common.kernels
    for variant in range(lags.ns.shape[1]):
        of_rank = np.bincount(likes.rank, lags.ns[likes.edge, variant], len(lags.graph.ranks))
        of_stage = {number: float(np.mean(of_rank[list(places)])) for number, places in stages.items()}
        mean_ns = float(np.mean([*of_stage.values()]))
        for number, places in stages.items():
            own = likes.edge[np.isin(likes.rank, list(places))]
            changed[own, variant] *= mean_ns / of_stage[number] if of_stage[number] else 1.0
    return lags.at(np.ones(len(changed), dtype=bool), changed)


def _at_mean(ns: Float64, key: Int64) -> Float64:
    """Return for each row the mean of those of its key, column by column."""
    count = np.maximum(np.bincount(key), 1)
    return np.stack([(np.bincount(key, column) / count)[key] for column in ns.T], axis=1)


def _transfers_at_median(lags: Lags) -> Lags:
    rows, key = lags.common.transfers
    changed = lags.ns.copy()
    for variant in range(lags.ns.shape[1]):
        order = np.lexsort((lags.ns[rows, variant], key))
        ordered = rows[order]
        first = np.searchsorted(key[order], key)
        past = np.searchsorted(key[order], key, side="right")
        values = lags.ns[ordered, variant]
        changed[rows, variant] = (values[(first + past - 1) // 2] + values[(first + past) // 2]) / 2
    return lags.at(rows, changed[rows])


def _alike(subject: Subject) -> Iterator[Scenario]:
    if len(subject.lags.graph.ranks) > 1:
        words = "work shared out evenly among ranks and steps"
        yield Scenario("alike", "all ranks", all_alike, words, told=_tell_uneven(subject))


def _tell_uneven(subject: Subject) -> Told:
    """Say in which phase kernels of like work differ most."""
    lags, likes = subject.lags, subject.lags.common.kernels
    ns = lags.ns[likes.edge]
    apart = np.abs(ns - _at_mean(ns, likes.in_any_step))[:, 0]
    phase = lags.facts.phase[likes.edge]
    by_phase = np.bincount(phase - min(int(phase.min(initial=0)), 0), apart)
    most = by_phase.argsort()[::-1][:2] + min(int(phase.min(initial=0)), 0)
    total = max(float(by_phase.sum()), 1.0)
    shares = {Phase(each).label: float(apart[phase == each].sum()) / total for each in most.tolist()}
    parts = [
        f"{rounded_percent(share)} is {words.replace('_', ' ')}" for words, share in shares.items() if share >= TOLD
    ]
    return Told(
        "work is uneven among ranks and steps, and no rank alone is the cause",
        "give all ranks equal work: batches of equal length (sort or pack sequences by length)",
        f"of what like kernels differ by {' and '.join(parts)}",
    )


def _experts(subject: Subject) -> Iterator[Scenario]:
    kinds = subject.exchanged.matching.instances.kind
    if np.isin(kinds, UNEVEN).any() and len(subject.lags.graph.ranks) > 1:
        told = Told(
            "experts are unevenly loaded: ranks wait for those that receive most tokens",
            "spread tokens evenly over experts (a load-balancing loss, a bias per expert that follows its load, a "
            "capacity factor), or place busy experts on different ranks",
        )
        words = "tokens shared out evenly among experts"
        yield Scenario("experts", "tokens of experts", experts_alike, words, told=told)


def _stages(subject: Subject) -> Iterator[Scenario]:
    stages = subject.model.stages
    if len(stages) > 1:
        change = partial(stages_even, stages=stages)
        told = Told(
            "stages of the pipeline compute unequally long",
            "move layers between stages, until all compute equally long",
        )
        yield Scenario("stages", "layers of stages", change, "layers moved between stages", told=told)


ALIKE = Kind("alike", _alike)
EXPERTS = Kind("experts", _experts)
STAGES = Kind("stages", _stages)
