"""`no_sync()` around all but the last of accumulated batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.arrays import values_at
from analyzers.causes import Lags
from analyzers.rank import EdgeKind, Section
from analyzers.scenarios.removal import launched_in, relieved, running, share_in, without_activities, without_host_time
from analyzers.scenarios.scenario import Kind, Scenario, Subject, Told
from analyzers.trace import Kind as Work


def without_early(lags: Lags) -> Lags:
    """Return the lags without what synchronizes gradients before each step's last forward, and its strain."""
    gone = launched_in(lags.facts, Section.EARLY)
    relieving = relieved(lags, running(lags.facts, gone & (lags.facts.of_activities("kind") == Work.COMM)))
    return without_host_time(without_activities(relieving, gone), share_in(lags.facts, Section.EARLY))


def find(subject: Subject) -> Iterator[Scenario]:
    """Yield the scenario where the same is reduced before a step's last forward as after it."""
    graph, facts = subject.lags.graph, subject.lags.facts
    early = launched_in(facts, Section.EARLY) & (facts.of_activities("kind") == Work.COMM)
    transfers = np.flatnonzero(graph.edges.kind == EdgeKind.TRANSFER)
    member = facts.activity_of_point[graph.edges.target[transfers]]
    like = graph.like_instance[graph.instance[transfers]]
    before, after = np.unique(like[early[member]]), np.unique(like[~early[member]])
    if len(before) and np.isin(before, after).all():
        reduced = early & (facts.of_activities("kind") == Work.COMM)
        runs = (graph.edges.kind == EdgeKind.RUN) & values_at(reduced, facts.activity, 0).astype(bool)
        told = Told(
            "gradients are synchronized in every accumulated batch",
            "put all but the last accumulated batch under model.no_sync()",
            f"{subject.per_step(runs):.3g} all-reduces per {subject.step_word} come before the last forward",
        )
        words = "no_sync() around all but the last batch"
        yield Scenario("accumulation", "all but the last of accumulated batches", without_early, words, told=told)


ACCUMULATION = Kind("accumulation", find)
