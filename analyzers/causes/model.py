"""`Model`: the causal model of a run, made when asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from analyzers.arrays import Float64
from analyzers.causes.calibrated import KEPT, RELEASED, Calibrated, calibrate
from analyzers.causes.changes import Common, Facts, Lags, facts_of, of_any_step
from analyzers.causes.charges import Walked, charges_of
from analyzers.causes.critical_path import Replayed, replay
from analyzers.causes.joining import RunGraph, join
from analyzers.causes.light_times import without_odd
from analyzers.causes.pace import course_of
from analyzers.collectives import Exchange
from analyzers.layers import pipelines
from analyzers.memory import machine_memory
from analyzers.rank import RunSummary
from analyzers.ranks import RankNumber
from analyzers.run import Controls
from analyzers.texts import listed
from analyzers.units import megabytes

# So many ranks are named.
MOST_NAMED = 8
# What a model takes at most for each edge that is recorded: measured, with scenarios, where all steps are typical, and
# with the ranks' own graphs.
BYTES_PER_EDGE = 800


class Model:
    """One graph of all ranks' typical steps at the step that people train."""

    def __init__(self, exchanged: Exchange, controls: Controls, typical: list[int], light: Collection[int]) -> None:
        """Join the ranks' graphs, and bring their typical steps to the step that people train.

        `exchanged` is the communication of full windows, `typical` and `light` are the numbers of the steps that are
        typical in full and in light windows. Raises NoOrder where what waits for what runs in a circle.
        """
        self.exchanged, self._light = exchanged, light
        graph = self._joined()
        course = course_of(graph, typical).over(of_any_step(facts_of(graph, {})))
        self.calibrated: Calibrated = calibrate(course, controls)
        # By their control, or by the step whose pace they set.
        self.knows_hosts = bool(controls.host_samples_ns()) or self.calibrated.answers

    def _joined(self) -> RunGraph:
        """Return one graph of all recorded steps."""
        run = self.exchanged.run
        parts = [(rank, measured.graph) for _, rank, measured in run.numbered() if measured.graph is not None]
        graph = join(parts, self.exchanged)
        return without_odd(graph, facts_of(graph, {}), self._light)

    @property
    def graph(self) -> RunGraph:
        """Return the graph of the typical steps, and of all others what tells of any step."""
        return self.calibrated.course.graph

    @property
    def unknown_share(self) -> float:
        """Return the share of a step, as recorded, that waits for what is not known."""
        released, kept = self.step_lengths.mean(axis=0)[[RELEASED, KEPT]]
        return float((kept - released) / kept) if kept else 0.0

    @cached_property
    def recorded(self) -> Facts:
        """Return what is known of all edges, those of steps that are not typical too, joined again."""
        return facts_of(self._joined(), self.stages)

    @cached_property
    def stages(self) -> dict[int, set[int]]:
        """Return the places of the ranks of each stage of a pipeline, where each rank has one."""
        place = {rank: place for place, rank in enumerate(self.graph.ranks)}
        stages: dict[int, set[int]] = {}
        for pipeline in pipelines(self.exchanged):
            for row in pipeline.rows:
                if row.stage is not None:
                    stages.setdefault(row.stage, set()).add(place[RankNumber(row.rank)])
        held = [of for places in stages.values() for of in places]
        return dict(sorted(stages.items())) if len(held) == len(set(held)) else {}

    @cached_property
    def facts(self) -> Facts:
        """Return what is known of each edge."""
        return facts_of(self.graph, self.stages)

    @cached_property
    def lags(self) -> Lags:
        """Return what edges take, in every variant."""
        return Lags(Common(self.calibrated, self.facts), self.calibrated.lags)

    @cached_property
    def walked(self) -> Walked:
        """Return what the critical path consists of."""
        return charges_of(self.calibrated, self.facts, self._replayed)

    @cached_property
    def _replayed(self) -> Replayed:
        """Return the replay of all variants as they are."""
        return replay(self.calibrated.course, self.lags.chains)

    @property
    def step_lengths(self) -> Float64:
        """Return how long each typical step takes (rows), in all variants (columns)."""
        return self._replayed.step_lengths


def why_none(run: RunSummary) -> str | None:
    """Return why a run that was read with what a model needs has none; None where nothing is in its way."""
    graphs = {rank: measured.graph for rank, measured in zip(run.ranks, run.in_full, strict=True)}
    without = [rank.rank for rank, graph in graphs.items() if graph is None]
    if without:
        return f"no launches of kernels are recorded on {_named(without)}"
    unmarked = [rank.rank for rank, graph in graphs.items() if graph is not None and not len(graph.steps)]
    # Without any mark devices' whole traces count; CPUs' are cut by marks alone.
    is_empty = not any(len(graph.points) for graph in graphs.values() if graph is not None)
    if is_empty or (unmarked and len(unmarked) < len(graphs)):
        return f"no steps are marked on {_named(unmarked or [rank.rank for rank in graphs])}"
    taken = BYTES_PER_EDGE * sum(len(graph.edges) for graph in graphs.values() if graph is not None)
    if taken > machine_memory():
        return f"one graph of all ranks takes up to {megabytes(taken)} of memory, more than there is here"
    return None


def _named(ranks: Sequence[RankNumber]) -> str:
    return f"rank {listed(ranks, MOST_NAMED)}"
