"""What advice looks at, put together from a run's analyses."""

from __future__ import annotations

import numpy as np

from analyzers.layers import pipeline_summaries
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.document import RunFacts
from analyzers.reporting.remedies import (
    Evidence,
    copies_of,
    gradient_dtypes,
    idle_by_device,
    is_data_parallel,
    latency_ns,
    ranks_hosts,
    slowed_ranks,
    waits_by_kind,
)
from analyzers.run import HIGH_DISTORTION, Manifest


def evidence_of(analyses: Analyses, facts: RunFacts) -> Evidence:
    """Collect what rules of advice look at."""
    run, manifest, rows = analyses.run, analyses.manifest, analyses.collective_rows
    return Evidence(
        step_ns=analyses.median_step_ns,
        windows=len(analyses.rows),
        mean_ns=float(np.mean(analyses.rows.span_ns)),
        step_word="trace" if analyses.rows.unmarked.all() else "step",
        buckets=analyses.bucket_rows,
        layers=analyses.layer_rows,
        sharded=analyses.sharded.collectives,
        tensor=analyses.tensor,
        waiting=analyses.waiting_rows,
        cost=analyses.cost,
        copies=copies_of(run.measured),
        input=analyses.input,
        idle=idle_by_device(analyses.rows, run.measured, run.in_full),
        launches=analyses.idle.launches,
        synchronizing=analyses.idle.synchronizing,
        idle_lines=analyses.idle.lines,
        waits_by_kind=waits_by_kind(rows),
        world_size=facts.world_size,
        is_data_parallel=is_data_parallel(run),
        free_compute_ns=_free_compute_ns(analyses),
        complete=not any(row.partial for row in rows),
        gradient_dtypes=gradient_dtypes(rows),
        latency_ns=latency_ns(rows),
        host=ranks_hosts(analyses.exchanged),
        slowed=slowed_ranks(run),
        input_caution=_input_caution(manifest),
        environment=manifest.environment,
        torch_version=facts.versions.get("torch"),
        is_async_tp_on=_is_async_tp_on(manifest),
        pipelines=pipeline_summaries(analyses.pipelines, _schedule(manifest)),
        experts=analyses.experts,
        attention=analyses.attention,
    )


def _free_compute_ns(analyses: Analyses) -> float:
    """Return the median time per window in which compute runs with no communication beside it, ns."""
    return float(np.median(analyses.rows.compute_ns - analyses.rows.overlapped_comm_ns))


def _input_caution(manifest: Manifest) -> str:
    """Return what advice on the input has to say, which is of full windows: what they add no verdict says."""
    if manifest.controls.unprofiled is None:
        return ""
    distortion = manifest.controls.distortion("full")
    if distortion is None:
        return "; how much of this the profiler causes is not known"
    limits = manifest.controls.distortion_interval("full")
    stretched = distortion > HIGH_DISTORTION and (limits is None or limits[0] > 1)
    return "; but the profiler slows this step, and may cause part of this" if stretched else ""


def _schedule(manifest: Manifest) -> str | None:
    """Return the class of a pipeline's schedule, as run.json has it."""
    recorded = manifest.parallelism
    return recorded.pipeline.schedule if recorded is not None and recorded.pipeline is not None else None


def _is_async_tp_on(manifest: Manifest) -> bool:
    """Whether run.json says that Inductor was to run collectives beside matrix products."""
    recorded = manifest.parallelism
    compiled = recorded.compiled if recorded is not None else None
    return bool(compiled is not None and compiled.micro_pipeline_tp)
