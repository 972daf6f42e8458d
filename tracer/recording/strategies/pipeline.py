"""Pipeline parallelism by torch.distributed.pipelining: schedule, microbatches, stages."""

from __future__ import annotations

from typing import Any

from analyzers.run import RecordedPipeline
from tracer.recording.strategies.program import Program, stages_of
from tracer.recording.strategies.protocol import RecordedStrategy


class Pipelining(RecordedStrategy):
    """Layers divided into stages on different ranks, batches into microbatches."""

    name = "pipeline"

    def describe(self, program: Program) -> dict[str, Any] | None:
        """Return the schedule that trains: one with a loss before one that evaluates."""
        if not program.schedules:
            return None
        schedule = max(program.schedules, key=lambda schedule: getattr(schedule, "_loss_fn", None) is not None)
        stages = stages_of(schedule)
        group = getattr(stages[0], "group", None)
        rank = str(program.rank)
        return {
            "pipeline": RecordedPipeline(
                schedule=type(schedule).__name__,
                microbatches=_whole(getattr(schedule, "_n_microbatches", None)),
                stages=_whole(getattr(stages[0], "num_stages", None)),
                stages_of_rank={rank: [int(stage.stage_index) for stage in stages]},
                group_of_rank={} if group is None else {rank: str(group.group_name)},
            )
        }


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
