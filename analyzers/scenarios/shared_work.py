"""Work shared out evenly: among stages, experts, ranks and steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.causes import Lags
from analyzers.scenarios.scenario import Kind, Scenario, Subject
from analyzers.trace import Collective

# Ranks that do other work than each other by their own choice: experts' tokens.
UNEVEN = (Collective.ALL_TO_ALL, Collective.DISPATCH, Collective.COMBINE)


def all_alike(lags: Lags) -> Lags:
    """Return the lags with kernels at the mean of ranks and steps, and transfers at the median of their like."""
    likes = lags.kernels
    return _transfers_at_median(lags.at(likes.edge, _at_mean(lags.ns[likes.edge], likes.in_any_step)))


def experts_alike(lags: Lags) -> Lags:
    """Return the lags with kernels at the mean of ranks, step by step, and transfers at the median of their like."""
    likes = lags.kernels
    return _transfers_at_median(lags.at(likes.edge, _at_mean(lags.ns[likes.edge], likes.key)))


def stages_even(lags: Lags, stages: Mapping[int, Collection[int]]) -> Lags:
    """Return the lags with the sum of each stage's kernels at the mean of all stages'."""
    changed, likes = lags.ns.copy(), lags.kernels
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
    rows, key = lags.transfers
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
        yield Scenario("alike", "all ranks", all_alike, "work shared out evenly among ranks and steps")


def _experts(subject: Subject) -> Iterator[Scenario]:
    kinds = subject.exchanged.matching.instances.kind
    if np.isin(kinds, UNEVEN).any() and len(subject.lags.graph.ranks) > 1:
        yield Scenario("experts", "tokens of experts", experts_alike, EXPERTS.cure)


def _stages(subject: Subject) -> Iterator[Scenario]:
    stages = subject.model.stages
    if len(stages) > 1:
        yield Scenario("stages", "layers of stages", partial(stages_even, stages=stages), STAGES.cure)


ALIKE = Kind("alike", "work shared out evenly", _alike)
EXPERTS = Kind("experts", "tokens shared out evenly among experts", _experts)
STAGES = Kind("stages", "layers moved between stages", _stages)
