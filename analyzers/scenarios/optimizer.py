"""An optimizer of a few launches: fused or foreach."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.causes import Lags
from analyzers.rank import EdgeKind, Section
from analyzers.scenarios.removal import launched_in, share_in, without_host_time
from analyzers.scenarios.scenario import Kind, Scenario, Subject

# So many launches a step and rank are many, and so many a fused optimizer makes.
MANY, FEW = 50, 10


def launches_per_step(lags: Lags) -> float:
    """Return how many launches a rank's optimizer makes in a typical step, the mean over ranks."""
    facts = lags.facts
    launched = launched_in(facts, Section.OPTIMIZER)
    runs = np.flatnonzero((lags.graph.edges.kind == EdgeKind.RUN) & lags.in_course)
    count = int(launched[facts.activity[runs]].sum())
    return count / (len(lags.calibrated.course.steps) * len(lags.graph.ranks))


def of_few_launches(lags: Lags) -> Lags:
    """Return the lags with the optimizer's host time as of a few launches, and no gaps between its kernels."""
    facts, graph = lags.facts, lags.graph
    launched = launched_in(facts, Section.OPTIMIZER)
    share = share_in(facts, Section.OPTIMIZER) * (1 - FEW / launches_per_step(lags))
    of_point = facts.activity_of_point
    source, target = of_point[graph.edges.source], of_point[graph.edges.target]
    between = (graph.edges.kind == EdgeKind.STREAM) & (source >= 0) & (target >= 0)
    between &= launched[source] & launched[target]
    return without_host_time(lags, share).at(between, np.minimum(lags.ns[between], 0))


def find(subject: Subject) -> Iterator[Scenario]:
    """Yield the scenario where the optimizer makes many launches."""
    if launches_per_step(subject.lags) >= MANY:
        words = "an optimizer of a few launches (fused=True, or foreach=True)"
        yield Scenario("optimizer", "Optimizer.step", of_few_launches, words)


OPTIMIZER = Kind("optimizer", "fused=True, or foreach=True", find)
