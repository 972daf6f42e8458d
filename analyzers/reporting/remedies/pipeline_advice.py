"""Rules of advice on pipelines: microbatches and schedules."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.layers import PipelineSummary
from analyzers.reporting.remedies.advised import Advice, advised
from analyzers.reporting.remedies.observations import Evidence
from analyzers.units import rounded_percent


def advice_on_pipelines(evidence: Evidence) -> Iterator[Advice]:
    """Yield what the parts of each pipeline's bubble give reason for."""
    for pipeline in evidence.pipelines:
        if pipeline.span_ns is not None:
            yield from _of_pipeline(evidence, pipeline)


def _of_pipeline(evidence: Evidence, pipeline: PipelineSummary) -> Iterator[Advice]:
    stages, microbatches = len(pipeline.stages), pipeline.microbatches
    empty = rounded_percent((stages - 1) / (microbatches + stages - 1))
    bubble = (
        f"the pipeline's schedule leaves GPUs empty: {pipeline.schedule} over {stages} stages with {microbatches} "
        f"microbatches, {empty} even if stages were equal and messages free"
    )
    # Both launch as much work in more and smaller pieces: no remedy where hosts already come too late by more.
    late_ns = min((one.rest_ns for one in pipeline.stages if one.rest_ns is not None), default=0)
    if pipeline.more_microbatches_ns is not None and pipeline.more_microbatches_ns >= late_ns:
        yield advised(
            "more_microbatches",
            f"train with {2 * microbatches} microbatches instead of {microbatches}",
            pipeline.more_microbatches_ns,
            bubble,
            f"(p - 1) / (m + p - 1); replayed with twice as many microbatches of half the length, the step is "
            f"{evidence.share(pipeline.more_microbatches_ns)} shorter",
        )
    if pipeline.interleaved_ns is not None and pipeline.interleaved_ns >= late_ns:
        yield advised(
            "interleaved_stages",
            "cut stages in two and give each rank two of them (ScheduleInterleaved1F1B)",
            pipeline.interleaved_ns,
            bubble,
            f"replayed with two stages per rank, the step is {evidence.share(pipeline.interleaved_ns)} shorter, with "
            "twice as many messages",
        )
