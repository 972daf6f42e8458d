"""Pipelines in figures: medians by stage, gains of other schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np

from analyzers.layers.strategies.pipeline import Pipeline, PipelineRow, PipelineStep
from analyzers.layers.strategies.pipeline_replay import SCHEDULES, dependencies, replay, schedule_name
from analyzers.rank import ActionKind

# Stages on each rank in the interleaved schedule that advice compares with: the fewest that interleave.
INTERLEAVED = 2
_FORWARD = ActionKind.FORWARD.label


class PipelineStage(msgspec.Struct, frozen=True):
    """Medians of one stage's microbatches' `busy_ns`, and of its bubble."""

    stage: int | None
    rank: int
    forward_ns: float | None
    backward_ns: float | None
    bubble_ns: float
    schedule_ns: float | None
    imbalance_ns: float | None
    rest_ns: float | None

    @property
    def microbatch_ns(self) -> float:
        """Return what a microbatch takes, forward and backward."""
        return (self.forward_ns or 0) + (self.backward_ns or 0)


class PipelineSummary(msgspec.Struct, frozen=True):
    """One pipeline, medians over steps: docs/measuring.md, Pipelines.

    `schedule`: 1F1B or GPipe as actions show, else run.json's word. `slowest`: the stage. `slower_by_ns`: than the
    others' mean. `span_ns`: with free messages. `even_stages_ns`: how much shorter even stages make that.
    `more_microbatches_ns`: then twice as many. `interleaved_ns`: or two stages a rank.
    """

    ranks: list[int]
    microbatches: int
    schedule: str | None
    stages: list[PipelineStage]
    slowest: int | None
    slower_by_ns: float | None
    span_ns: float | None
    even_stages_ns: float | None
    more_microbatches_ns: float | None
    interleaved_ns: float | None


def pipeline_summaries(pipelines: Sequence[Pipeline], recorded: str | None = None) -> list[PipelineSummary]:
    """Return each pipeline's figures; `recorded` is the class of the schedule as run.json has it."""
    return [_summary(pipeline, recorded) for pipeline in pipelines if pipeline.rows]


def _summary(pipeline: Pipeline, recorded: str | None) -> PipelineSummary:
    stages = _stages(pipeline.rows)
    slowest, slower_by_ns = _slowest(stages) if pipeline.steps else (None, None)
    names = Counter(schedule_name(step.orders) for step in pipeline.steps)
    shown = names.most_common(1)[0][0] if names else None
    makespans = [step.makespan_ns for step in pipeline.steps]
    doubled = [doubled_ns(step) for step in pipeline.steps]
    interleaved = [interleaved_ns(step) for step in pipeline.steps]
    return PipelineSummary(
        ranks=list(pipeline.ranks),
        microbatches=max(sum(action.kind == _FORWARD for action in row.actions) for row in pipeline.rows),
        schedule=shown or (recorded.removeprefix("Schedule") if recorded else None),
        stages=stages,
        slowest=slowest,
        slower_by_ns=slower_by_ns,
        span_ns=_median([measured for _, measured in makespans]),
        even_stages_ns=_median([measured - equal for equal, measured in makespans]),
        more_microbatches_ns=_gain(makespans, doubled),
        interleaved_ns=_gain(makespans, interleaved),
    )


def _stages(rows: Sequence[PipelineRow]) -> list[PipelineStage]:
    by_stage: dict[tuple[int, int | None], list[PipelineRow]] = {}
    for row in rows:
        by_stage.setdefault((row.rank, row.stage), []).append(row)
    stages = [
        PipelineStage(
            stage=stage,
            rank=rank,
            forward_ns=_of_microbatch(of_stage, is_forward=True),
            backward_ns=_of_microbatch(of_stage, is_forward=False),
            bubble_ns=median(row.bubble_ns for row in of_stage),
            schedule_ns=_median([row.schedule_ns for row in of_stage if row.schedule_ns is not None]),
            imbalance_ns=_median([row.imbalance_ns for row in of_stage if row.imbalance_ns is not None]),
            rest_ns=_median([row.rest_ns for row in of_stage if row.rest_ns is not None]),
        )
        for (rank, stage), of_stage in by_stage.items()
    ]
    return sorted(stages, key=lambda one: (one.stage is None, one.stage or 0, one.rank))


def _of_microbatch(rows: Sequence[PipelineRow], is_forward: bool) -> float | None:
    """Return the median, over microbatches and steps, of the time of their forwards or backwards, whole or apart."""
    total: Counter[tuple[int, int]] = Counter()
    for row in rows:
        for action in row.actions:
            if (action.kind == _FORWARD) == is_forward:
                total[row.step, action.microbatch] += action.busy_ns
    return _median(list(total.values()))


def _slowest(stages: Sequence[PipelineStage]) -> tuple[int | None, float | None]:
    # Of several stages on a rank only their sum binds.
    if len(stages) < 2 or len({stage.rank for stage in stages}) < len(stages):
        return None, None
    longest = max(stages, key=lambda stage: stage.microbatch_ns)
    others = [stage.microbatch_ns for stage in stages if stage is not longest]
    return longest.stage, longest.microbatch_ns - sum(others) / len(others)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _gain(makespans: Sequence[tuple[int, int]], changed: Sequence[int | None]) -> float | None:
    """Return the median of what changed schedules save against equal stages."""
    known = [equal - other for (equal, _), other in zip(makespans, changed, strict=True) if other is not None]
    return _median(known)


def doubled_ns(step: PipelineStep) -> int | None:
    """Return what a step would take with equal stages and twice the microbatches, each of half the time.

    The schedule is replayed: of 1F1B and GPipe the bubble is p - 1 microbatches, p the stages, so that it halves
    (Huang et al. 2019, arXiv:1811.06965, section 2.3). None for other schedules.
    """
    name = schedule_name(step.orders)
    if name is None:
        return None
    microbatches = sum(action[0] == ActionKind.FORWARD for action in step.orders[0])
    orders = SCHEDULES[name](len(step.orders), 2 * microbatches)
    half = {kind: ns // 2 for kind, ns in _equal_ns(step).items()}
    dur_ns = np.array([half[action[0]] for order in orders for action in order], dtype=np.int64)
    start_ns = replay([len(order) for order in orders], dependencies(orders), dur_ns)
    return None if start_ns is None else int((start_ns + dur_ns).max())


def interleaved_ns(step: PipelineStep) -> int | None:
    """Return what a step would take with equal stages cut in two, two of them on each rank, under interleaved 1F1B.

    Its bubble is that of 1F1B over the stages on a rank (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2). None
    for schedules other than 1F1B and GPipe, and where microbatches are no multiple of the ranks, as it wants them.
    """
    ranks = len(step.orders)
    microbatches = sum(action[0] == ActionKind.FORWARD for action in step.orders[0])
    if schedule_name(step.orders) is None or microbatches % ranks:
        return None
    microbatch_ns = sum(_equal_ns(step).values())
    return microbatches * microbatch_ns + (ranks - 1) * microbatch_ns // INTERLEAVED


def _equal_ns(step: PipelineStep) -> dict[ActionKind, int]:
    """Return how long an action of each kind takes where stages are equal."""
    kinds = [action[0] for order in step.orders for action in order]
    return dict(zip(kinds, step.dur_ns[:, 0].tolist(), strict=True))
