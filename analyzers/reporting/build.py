"""`report`: all analyses, facts and notices of a run in one Report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from analyzers.arrays import typed_rows
from analyzers.collectives import Exchange, clock_row, exchange_warnings, traffic, unmatched_rows
from analyzers.layers import bucket_warnings, layer_warnings, pipeline_notices
from analyzers.layers.strategies import expert_notices
from analyzers.lazy_fields import lazy
from analyzers.notices import Code, Notice, Weight
from analyzers.rank import NOT_KNOWN, Breakdown, RankSummary, RunSummary, device_labels, summary_of
from analyzers.ranks import RankIndex
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.document import REPORT_SCHEMA, ControlFigures, LinkFacts, Report, RunFacts, Window
from analyzers.reporting.measures import (
    compute_notices,
    cost_warnings,
    distortion_warnings,
    kernel_rows,
    region_rows,
    window_causes,
)
from analyzers.reporting.step_timeline import Timeline, timeline
from analyzers.reporting.summary import summary_of_report
from analyzers.reporting.typical_steps import Steps
from analyzers.run import Calibration, Controls, Manifest, Run, device_notices, host_notices, world_size
from analyzers.scenarios import Subject
from analyzers.texts import listed, typed
from analyzers.units import ms

# So many kernels are named that may communicate.
_SUSPECTS = 3


def report(source: Run | RunSummary, links: Calibration | None = None) -> Report:
    """Return everything that can be said of a run; `links` takes the place of the calibration that lies beside it."""
    run = summary_of(source, causes=True) if isinstance(source, Run) else source
    analyses = Analyses(run, links)
    exchanged = analyses.exchanged
    facts = run_facts(analyses)
    return Report(
        schema=REPORT_SCHEMA,
        run=facts,
        windows=lazy(lambda: _windows(analyses)),
        collectives=lazy(lambda: analyses.collective_rows),
        unmatched=lazy(lambda: unmatched_rows(exchanged)),
        waiting=lazy(lambda: analyses.waiting_rows),
        buckets=lazy(lambda: analyses.bucket_rows),
        layers=lazy(lambda: analyses.layer_rows),
        kernels=lazy(lambda: kernel_rows(run, lambda usage: usage.kernels)),
        operators=lazy(lambda: kernel_rows(run, lambda usage: usage.operators)),
        compute=analyses.computed,
        timeline=lazy(lambda: _timeline(analyses)),
        traffic=lazy(lambda: traffic(exchanged.matching, exchanged.transfers, analyses.steps)),
        summary=summary_of_report(analyses, facts),
        idle=lazy(lambda: analyses.idle),
        groups=lazy(lambda: analyses.groups),
        experts=lazy(lambda: analyses.experts),
        attention=lazy(lambda: analyses.attention),
        pipeline=lazy(lambda: [row for pipeline in analyses.pipelines for row in pipeline.rows]),
        sharded=lazy(lambda: analyses.sharded),
        regions=lazy(lambda: region_rows(run)),
        tensor=lazy(lambda: analyses.tensor),
        charges=lazy(lambda: analyses.charge_rows),
    )


def _timeline(analyses: Analyses) -> Timeline:
    """Return the timeline of the window with the median length."""
    counts = np.cumsum([0, *(len(measured.windows) for measured in analyses.run.measured)])
    index = RankIndex(int(np.searchsorted(counts, analyses.median_window, side="right")) - 1)
    bucket_of = {
        int(analyses.exchanged.first_row[index]) + kernel: bucket
        for kernel, bucket in zip(
            analyses.run.measured[index].reductions.kernel.tolist(),
            analyses.buckets.number[index].tolist(),
            strict=True,
        )
        if bucket >= 0
    }
    return timeline(analyses.exchanged, index, analyses.median_window - int(counts[index]), bucket_of)


def _windows(analyses: Analyses) -> list[Window]:
    rows, exchanged = analyses.rows, analyses.exchanged
    contention_ns = analyses.column(lambda measured: measured.cost.contention_ns)
    return typed_rows(
        Window,
        rows,
        device=device_labels(rows.device),
        start_ns=rows.start_ns - exchanged.clocks.shift_ns(rows.rank) - exchanged.origin_ns,
        overlap=rows.overlap,
        packing_ns=analyses.column(lambda measured: measured.work.packing_ns),
        idle=window_causes(analyses.run.measured),
        input_idle_ns=analyses.column(lambda measured: measured.fetching.input_idle_ns),
        typical=analyses.typical.windows,
        contention_ns=[ns if ns != NOT_KNOWN else None for ns in contention_ns.tolist()],
        **analyses.exposed.columns(),
    )


def run_facts(analyses: Analyses) -> RunFacts:
    """Return the facts of a run, with all its warnings and notes."""
    run, exchanged, manifest = analyses.run, analyses.exchanged, analyses.manifest
    header = run.ranks[0].header
    window = "light" if run.is_light else "full"
    controls = control_figures(manifest.controls, window, analyses.typical.steps.every)
    notices = [
        *_distortion_warning(controls),
        *run.warnings,
        *_silence_warning(run),
        *device_notices(manifest.device_states),
        *host_notices(manifest.host_states),
        *notices_of(analyses),
        *manifest.controls.why_null(),
        *manifest.why_null(),
    ]
    names = manifest.devices or sorted({name for trace in run.ranks for name in trace.header.device_names})
    return RunFacts(
        name=run.name,
        world_size=world_size(manifest, run.ranks),
        ranks=[trace.rank for trace in run.ranks],
        devices=names,
        backend=manifest.backend or header.distributed.get("backend"),
        strategy=manifest.strategy,
        model=manifest.model,
        batch_per_gpu=manifest.batch_per_gpu,
        bucket_cap_mb=manifest.bucket_cap_mb,
        versions=manifest.versions or _versions(run.ranks[0]),
        origin_ns=str(exchanged.origin_ns),
        times_from=window,
        controls=controls,
        clock=clock_row(exchanged),
        links=_links(names, manifest, exchanged),
        warnings=[notice for notice in notices if notice.code.facts.weight is not Weight.NOTE],
        notes=[notice for notice in notices if notice.code.facts.weight is Weight.NOTE],
        memory=manifest.memory,
        device_states=manifest.device_states,
        training=manifest.training,
        dataset=manifest.dataset,
        epochs=manifest.epochs,
        rank_source=run.rank_source,
        steps_inferred=any(rank.inferred for rank in run.ranks),
    )


def _links(devices: list[str], manifest: Manifest, exchanged: Exchange) -> LinkFacts:
    """Return what is known of the links: as calibration found them if it used the run's own, else as run.json says."""
    measured = exchanged.calibration.links if exchanged.calibration is not None else None
    if measured is not None and not exchanged.is_of_other_links:
        return LinkFacts(devices, manifest.transport or measured.transport, measured.limit_gbps, measured.source)
    return LinkFacts(devices, manifest.transport, None, "run.json" if manifest.transport else None)


def _versions(trace: RankSummary) -> dict[str, str | None]:
    """Return what a trace without a manifest says about versions."""
    header = trace.header
    recorded = {
        "nccl": header.distributed.get("nccl_version"),
        "cuda": _cuda_version(header.cuda_runtime_version),
        "driver_cuda": _cuda_version(header.cuda_driver_version),
    }
    return {name: version for name, version in recorded.items() if version}


def _cuda_version(number: int | None) -> str | None:
    # CUDA numbers 13.0 as 13000: cudaRuntimeGetVersion.
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def control_figures(controls: Controls, window: str, every: int | None) -> ControlFigures:
    """Return the medians of the controls, against the windows that times come from; odd steps come `every` so many."""
    intervals = {
        "unprofiled_step_ns": controls.interval_ns("unprofiled"),
        "nosync_step_ns": controls.interval_ns("nosync"),
        "profiled_step_ns": controls.interval_ns(window),
        "distortion": controls.distortion_interval(window),
        "sync_cost_ns": controls.sync_cost_interval_ns(),
    }
    return ControlFigures(
        unprofiled_step_ns=controls.step_ns("unprofiled"),
        unprofiled_mean_ns=controls.mean_ns("unprofiled", every),
        unprofiled_timed=controls.unprofiled.timed_steps if controls.unprofiled is not None else 0,
        unprofiled_odd=controls.unprofiled.odd_steps if controls.unprofiled is not None else 0,
        odd_every=every,
        nosync_step_ns=controls.step_ns("nosync"),
        profiled_step_ns=controls.step_ns(window),
        distortion=controls.distortion(window),
        sync_cost_ns=controls.sync_cost_ns(),
        host_step_ns={str(rank): round(ns) for rank, ns in controls.host_step_ns().items()},
        intervals_ns={name: list(limits) for name, limits in intervals.items() if limits is not None},
        blocks_ns=controls.blocks_ns(),
    )


def _silence_warning(run: RunSummary) -> list[Notice]:
    """Warn where ranks that train together seem not to communicate, with what may be communication after all."""
    ranks = world_size(run.manifest, run.ranks)
    if ranks == 1 or any(len(measured.communication) for measured in run.measured):
        return []
    total_ns: Counter[str] = Counter()
    for rank in run.ranks:
        total_ns.update(rank.suspects)
    listed = ", ".join(f"{name[:60]!r} ({ms(ns)})" for name, ns in total_ns.most_common(_SUSPECTS))
    suspects = (
        f"the longest kernels on streams of their own: {listed}" if listed else "no kernel has a stream of its own"
    )
    text = f"no communication was found in a run of {ranks} ranks: it counts as compute, or was not recorded"
    return [Notice(Code.COMMUNICATION_NOT_FOUND, f"{text} ({suspects})")]


def _distortion_warning(controls: ControlFigures) -> list[Notice]:
    """Warn first where the profiler changed what it measured; by how much is the verdict's to say."""
    if not controls.is_stretched:
        return []
    text = "the profiler stretches this step: idle time and waiting are larger here than without it"
    return [Notice(Code.PROFILER_DISTORTS, text)]


def notices_of(analyses: Analyses) -> Iterator[Notice]:
    """Yield warnings and notes on steps, communication, buckets, layers, strategies, costs and FLOP/s."""
    run, exchanged = analyses.run, analyses.exchanged
    yield from _unmarked_warnings(run, analyses.rows)
    yield from _inferred_notes(run)
    yield from _outside_warnings(analyses.rows)
    yield from _start_note(analyses.typical.steps)
    yield from exchange_warnings(exchanged)
    yield from bucket_warnings(analyses.buckets)
    yield from layer_warnings(run, analyses.buckets)
    yield from pipeline_notices(analyses.pipelines)
    yield from cost_warnings(run)
    yield from expert_notices(exchanged, analyses.experts)
    yield from distortion_warnings(analyses.cost)
    yield from compute_notices(analyses.computed, run.remedies)
    yield from _shared_devices(analyses.subject)
    if analyses.why_no_causes is not None:
        yield Notice(Code.CHARGES_ARE_NULL, f"what steps consist of is not known (charges): {analyses.why_no_causes}")


def _shared_devices(subject: Subject | None) -> Iterator[Notice]:
    if subject is not None:
        for place, slices in subject.time_slices.items():
            text = f"rank {subject.lags.graph.ranks[place]}'s GPU {slices}"
            yield Notice(Code.DEVICE_IS_SHARED, text, Code.DEVICE_IS_SHARED.facts.do)


def _unmarked_warnings(run: RunSummary, rows: Breakdown) -> list[Notice]:
    """Warn where a trace marks no steps: its window may hold many of them, or one."""
    ranks = sorted(set(rows.rank[rows.unmarked].tolist()))
    if not ranks:
        return []
    named = listed(ranks, 8)
    text = f"no ProfilerStep holds the launches of rank {named}: each device's whole trace counts as one step, step 0"
    text += _say_unlike([rank for rank in run.ranks if rank.rank in ranks], len(ranks) < len(run.ranks))
    candidates = [one for rank in run.ranks if rank.rank in ranks for one in rank.step_candidates]
    if not candidates:
        return [Notice(Code.STEPS_ARE_NOT_MARKED, text, run.remedies.steps)]
    ((name, _),) = Counter(one.name for one in candidates).most_common(1)
    first = next(one for one in candidates if one.name == name)
    often = f"{first.count:,} times, every {ms(first.period_ns)}"
    remedy = f"annotations called {name!r} repeat ({often}), and may be the steps: --steps {typed(name)}"
    return [Notice(Code.STEPS_ARE_NOT_MARKED, text, remedy)]


def _say_unlike(ranks: Sequence[RankSummary], others_are_marked: bool) -> str:
    """Return what would tell the steps of which ranks, where it does not for all alike; nothing where nothing would."""
    if not any(rank.unlike for rank in ranks):
        return ""
    told = defaultdict(list)
    for rank in ranks:
        count = rank.unlike and f"{rank.unlike.steps:,} step{'s' if rank.unlike.steps > 1 else ''}"
        told[f"{rank.unlike.where}, {count}" if rank.unlike else "nothing"].append(str(rank.rank))
    clauses = [f"of rank {listed(numbers, 8)} {what}" for what, numbers in told.items()]
    clauses += ["of the others marks"] * others_are_marked
    return f"; what would tell steps differs: {'; '.join(clauses[:8])}"


def _inferred_notes(run: RunSummary) -> Iterator[Notice]:
    """Say what steps were told by that nothing marks."""
    inferred = next((rank.inferred for rank in run.ranks if rank.inferred is not None), None)
    if inferred is None:
        return
    text = (
        f"no ProfilerStep marks steps: {inferred.where}, every {ms(inferred.period_ns)} in the median; "
        f"{inferred.agrees} repeats as often"
    )
    do = f"{run.remedies.steps}, or name another range with `--steps`"
    yield Notice(Code.STEPS_ARE_INFERRED, text, do)


def _start_note(steps: Steps) -> list[Notice]:
    start = steps.profile_start
    if start is None:
        return []
    text = f"step {start.step}, in which the profile starts, counts in no figure: it is {start.why}"
    return [Notice(Code.PROFILE_START_LEFT_OUT, text)]


def _outside_warnings(rows: Breakdown) -> list[Notice]:
    outside = rows.take(rows.outside_ns > 0)
    if not len(outside):
        return []
    longest = int(outside.outside_ns.max())
    text = f"device activity outside of the profiled steps is left out: at most {ms(longest)} per device"
    return [Notice(Code.ACTIVITY_OUTSIDE_STEPS, text)]
