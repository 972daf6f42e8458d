"""`Model`: the causal model of a run, made when asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import Float64
from analyzers.causes.calibrated import KEPT, Calibrated, calibrate
from analyzers.causes.changes import Facts, Lags, facts_of
from analyzers.causes.charges import Walked, charges_of
from analyzers.causes.critical_path import Replayed, replay
from analyzers.causes.joining import RunGraph, join
from analyzers.causes.light_times import without_odd
from analyzers.causes.pace import course_of
from analyzers.causes.scenarios import Scenario, scenarios
from analyzers.collectives import Exchange
from analyzers.layers import pipelines
from analyzers.rank import RunSummary
from analyzers.ranks import RankNumber
from analyzers.run import Controls
from analyzers.statistics import Limits
from analyzers.texts import listed

# From so many steps on the gain is known by its mean over them, else by their range.
ENOUGH_STEPS = 6
NORMAL = 1.959964
# With unknown remainders kept as recorded a gain has at least this share left.
RELIABLE = 0.75
# So many ranks are named.
MOST_NAMED = 8
# So many scenarios are replayed at once: more take more memory, and no less time.
AT_ONCE = 12


@dataclass(frozen=True)
class Gain:
    """What a scenario brings: the step with it, what that is less, ns, and what the latter lies between.

    It is not `reliable` where most of it comes of remainders that no dependency explains.
    """

    scenario: Scenario
    step_ns: float
    gain_ns: float
    interval_ns: Limits
    reliable: bool


class Model:
    """One graph of all ranks' typical steps at the step that people train."""

    def __init__(self, exchanged: Exchange, controls: Controls, typical: list[int], light: Collection[int]) -> None:
        """Join the ranks' graphs, and bring their typical steps to the step that people train.

        `exchanged` is the communication of full windows, `typical` and `light` are the numbers of the steps that are
        typical in full and in light windows. Raises NoOrder where what waits for what runs in a circle.
        """
        parts = [(rank, measured.graph) for _, rank, measured in exchanged.run.numbered() if measured.graph is not None]
        graph = join(parts, exchanged)
        self.graph: RunGraph = without_odd(graph, facts_of(graph, {}), light)
        self._exchanged = exchanged
        self.calibrated: Calibrated = calibrate(course_of(self.graph, typical), controls)

    @cached_property
    def _stages(self) -> dict[int, set[int]]:
        """Return the places of the ranks of each stage of a pipeline, where each rank has one."""
        place = {rank: place for place, rank in enumerate(self.graph.ranks)}
        stages: dict[int, set[int]] = {}
        for pipeline in pipelines(self._exchanged):
            for row in pipeline.rows:
                if row.stage is not None:
                    stages.setdefault(row.stage, set()).add(place[RankNumber(row.rank)])
        held = [of for places in stages.values() for of in places]
        return dict(sorted(stages.items())) if len(held) == len(set(held)) else {}

    @cached_property
    def facts(self) -> Facts:
        """Return what is known of each edge."""
        return facts_of(self.graph, self._stages)

    @cached_property
    def lags(self) -> Lags:
        """Return what edges take, in every variant."""
        return Lags(self.calibrated, self.facts, self.calibrated.lags)

    @cached_property
    def walked(self) -> Walked:
        """Return what the critical path consists of."""
        return charges_of(self.calibrated, self.facts, self._replayed)

    @cached_property
    def _replayed(self) -> Replayed:
        """Return the replay of all variants as they are."""
        return replay(self.calibrated.course, self.lags.chains)

    @cached_property
    def gains(self) -> list[Gain]:
        """Return what each scenario that this run can have brings, the largest first."""
        asked = list(scenarios(self.lags, self.walked, self._stages))
        before = self._replayed.step_lengths
        gains = []
        for first in range(0, len(asked), AT_ONCE):
            some = asked[first : first + AT_ONCE]
            after = self.lags.step_lengths(*(scenario.change(self.lags) for scenario in some))
            gains += [_gain(scenario, before, after[:, place]) for place, scenario in enumerate(some)]
        return sorted(gains, key=lambda gain: -gain.gain_ns)


def _gain(scenario: Scenario, before_ns: Float64, after_ns: Float64) -> Gain:
    """Return a gain from the lengths of steps (rows) in all variants (columns), without and with the scenario."""
    by_step = before_ns[:, 0] - after_ns[:, 0]
    by_variant = (before_ns - after_ns).mean(axis=0)
    if len(by_step) >= ENOUGH_STEPS:
        apart = NORMAL * by_step.std(ddof=1) / np.sqrt(len(by_step))
        steps = (by_step.mean() - apart, by_step.mean() + apart)
    else:
        steps = (by_step.min(), by_step.max())
    low, high = min(by_variant.min(), steps[0]), max(by_variant.max(), steps[1])
    reliable = bool(by_variant[0] <= 0 or by_variant[KEPT] >= RELIABLE * by_variant[0])
    return Gain(scenario, float(after_ns[:, 0].mean()), float(by_variant[0]), (float(low), float(high)), reliable)


def why_none(run: RunSummary) -> str | None:
    """Return why a run that was read with what a model needs has none; None where nothing is in its way."""
    graphs = {rank: measured.graph for rank, measured in zip(run.ranks, run.in_full, strict=True)}
    without = [rank.rank for rank, graph in graphs.items() if graph is None]
    if without:
        return f"no launches of kernels are recorded on {_named(without)}"
    unmarked = [rank.rank for rank, graph in graphs.items() if graph is not None and not len(graph.steps)]
    if unmarked and len(unmarked) < len(graphs):
        return f"no steps are marked on {_named(unmarked)}"
    return None


def _named(ranks: Sequence[RankNumber]) -> str:
    return f"rank {listed(ranks, MOST_NAMED)}"
