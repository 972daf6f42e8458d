"""An optimizer of a few launches: fused or foreach."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.causes import Lags
from analyzers.rank import EdgeKind, Section
from analyzers.scenarios.removal import launched_in, share_in, without_host_time
from analyzers.scenarios.scenario import Kind, Scenario, Subject, Told
from analyzers.units import rounded_percent

# So many launches a step and rank are many, and so many a fused optimizer makes.
MANY, FEW = 50, 10


def launches_per_step(lags: Lags) -> float:
    """Return how many launches a rank's optimizer makes in a typical step, the mean over ranks."""
    facts = lags.facts
    launched = launched_in(facts, Section.OPTIMIZER)
    runs = np.flatnonzero((lags.graph.edges.kind == EdgeKind.RUN) & lags.common.in_course)
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
        yield Scenario("optimizer", "Optimizer.step", of_few_launches, words, told=_tell(subject))


def _tell(subject: Subject) -> Told:
    """Say which optimizer it is, and what of all launches are its own."""
    launches, training = launches_per_step(subject.lags), subject.manifest.training
    share = launches / max(subject.per_step(subject.lags.graph.edges.kind == EdgeKind.RUN), 1)
    optimizers = training.optimizers if training is not None else []
    name = optimizers[0].name if len(optimizers) == 1 else "the optimizer"
    has = f"; {name} has foreach=False" if len(optimizers) == 1 and optimizers[0].foreach is False else ""
    if _is_foreach(subject.lags):
        problem, remedy = f"{name} makes many launches, although it is of foreach", f"give {name} fused=True"
    else:
        problem, remedy = f"{name} launches kernels parameter by parameter", f"give {name} fused=True, or foreach=True"
    return Told(
        problem, remedy, f"{launches:,.0f} launches per {subject.step_word}, {rounded_percent(share)} of all{has}"
    )


def _is_foreach(lags: Lags) -> bool:
    """Whether most of what an optimizer launches takes many parameters at once."""
    of_many = np.array(["multi_tensor_apply" in name for name in lags.facts.names], dtype=bool)
    launched = launched_in(lags.facts, Section.OPTIMIZER)
    return bool(of_many[lags.facts.name_of_activity[launched]].mean() > 0.5) if launched.any() else False


OPTIMIZER = Kind("optimizer", find)
