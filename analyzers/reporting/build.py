"""`report`: all analyses of a run in one Report."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Int64, natural
from analyzers.collectives import (
    CollectiveRow,
    Exchange,
    ExposedParts,
    GroupWindow,
    WaitingRow,
    bandwidth_rows,
    collective_rows,
    copy_rows,
    exchange,
    exchange_warnings,
    group_rows,
    group_summaries,
    traffic,
    unmatched_rows,
    waiting_rows,
)
from analyzers.layers import (
    BucketRow,
    Buckets,
    LayerRow,
    ShardedRows,
    TensorWindow,
    bucket_rows,
    bucket_summaries,
    bucket_warnings,
    buckets,
    layer_rows,
    layer_summaries,
    layer_warnings,
    layout_of,
    pipeline_notices,
    pipeline_summaries,
    pipelines,
    sharded_rows,
    tensor_rows,
)
from analyzers.layers.strategies import attention_rows, expert_notices, expert_rows
from analyzers.notices import Code, Notice
from analyzers.rank import NOT_KNOWN, Breakdown, Measured, RunSummary, device_label, joined, summary_of
from analyzers.ranks import RankIndex
from analyzers.reporting.document import (
    REPORT_SCHEMA,
    Report,
    Representative,
    RunFacts,
    Summary,
    Window,
)
from analyzers.reporting.headline import Findings, headline
from analyzers.reporting.measures import (
    IDLE_PARTS,
    DeviceSummary,
    IdleRows,
    Input,
    SyncCost,
    compute,
    compute_notices,
    cost_warnings,
    distortion_warnings,
    idle_parts,
    idle_rows,
    input_summary,
    kernel_rows,
    over_devices,
    region_rows,
    sync_cost,
    window_causes,
)
from analyzers.reporting.remedies import (
    Evidence,
    advice,
    copies_of,
    gradient_dtypes,
    idle_by_device,
    is_data_parallel,
    latency_ns,
    ranks_hosts,
    slowed_ranks,
    waits_by_kind,
)
from analyzers.reporting.run_facts import run_facts
from analyzers.reporting.step_timeline import Timeline, timeline
from analyzers.reporting.verdict import verdict
from analyzers.run import HIGH_DISTORTION, Calibration, Manifest, Run
from analyzers.statistics import ratio, spreads
from analyzers.units import ms

# What a window's span is made of; the four add up to it.
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_MEASURED = (*PARTS, "comm_ns", "copy_ns", "overlapped_comm_ns")
# What exposed communication is made of.
EXPOSED = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unresolved_ns")


def report(source: Run | RunSummary, links: Calibration | None = None) -> Report:
    """Return everything that can be said of a run; `links` takes the place of the calibration that lies beside it."""
    run = summary_of(source) if isinstance(source, Run) else source
    analyses = _found(run, links)
    exchanged, rows = analyses.exchanged, analyses.rows
    reduced = bucket_rows(exchanged, analyses.buckets)
    experts, attention = expert_rows(exchanged), attention_rows(exchanged)
    piped = pipelines(exchanged)
    warnings = [
        *_unmarked_warnings(run, rows),
        *_outside_warnings(rows),
        *exchange_warnings(exchanged),
        *bucket_warnings(analyses.buckets),
        *layer_warnings(run, analyses.buckets),
        *pipeline_notices(piped),
        *cost_warnings(run),
        *expert_notices(exchanged, experts),
    ]
    waits, layers = waiting_rows(exchanged), layer_rows(exchanged, analyses.buckets)
    sharded, tensor = sharded_rows(exchanged, analyses.buckets.layer), tensor_rows(exchanged)
    controls = (run.manifest or Manifest()).controls
    cost = sync_cost(run, rows, analyses.exposed, controls)
    computed = compute(run, controls.step_ns("unprofiled") or float(np.median(rows.span_ns)))
    facts = run_facts(run, exchanged, [*warnings, *distortion_warnings(cost), *compute_notices(computed)])
    collectives, idle = collective_rows(exchanged, _bucket_of(reduced)), idle_rows(run.measured)
    groups = group_rows(exchanged, rows)
    evidence = _evidence(analyses, facts, (reduced, layers, waits, sharded, tensor), (collectives, idle, cost))
    evidence = replace(
        evidence, pipelines=pipeline_summaries(piped, _schedule(run.manifest)), experts=experts, attention=attention
    )
    return Report(
        schema=REPORT_SCHEMA,
        run=facts,
        windows=_windows(analyses),
        collectives=collectives,
        unmatched=unmatched_rows(exchanged),
        waiting=waits,
        buckets=reduced,
        layers=layers,
        kernels=kernel_rows(run, lambda usage: usage.kernels),
        operators=kernel_rows(run, lambda usage: usage.operators),
        compute=computed,
        timeline=_timeline(analyses),
        traffic=traffic(exchanged.matching, exchanged.transfers, _steps(rows)),
        summary=_summary(analyses, facts, (reduced, layers, groups), cost, evidence),
        idle=idle,
        groups=groups,
        experts=experts,
        attention=attention,
        pipeline=[row for pipeline in piped for row in pipeline.rows],
        sharded=sharded,
        regions=region_rows(run),
        tensor=tensor,
    )


@dataclass(frozen=True, eq=False)
class _Analyses:
    """What all parts of the report look at: windows of all ranks, communication, buckets."""

    run: RunSummary
    exchanged: Exchange
    buckets: Buckets
    rows: Breakdown
    exposed: ExposedParts

    def column(self, column_of: Callable[[Measured], Int64]) -> Int64:
        """Join a column over all windows from each rank's."""
        return np.concatenate([column_of(measured) for measured in self.run.measured])

    @cached_property
    def input(self) -> Input | None:
        """Return what the loader takes in full windows."""
        return input_summary(self.run.in_full)

    @cached_property
    def median_window(self) -> int:
        """Return the window whose span is the (lower) median."""
        return int(np.argsort(self.rows.span_ns, kind="stable")[(len(self.rows) - 1) // 2])


def _steps(rows: Breakdown) -> int:
    """Count the steps on all ranks, added up."""
    return int(np.unique(np.stack([rows.rank, rows.step]), axis=1).shape[1])


def _found(run: RunSummary, links: Calibration | None) -> _Analyses:
    exchanged = exchange(run, links or run.calibration)
    rows = joined([measured.windows for measured in run.measured])
    return _Analyses(run, exchanged, buckets(run), rows, exchanged.in_windows(rows))


def _input_caution(manifest: Manifest | None) -> str:
    """Return what advice on the input has to say, which is of full windows: what they add no verdict says."""
    if manifest is None or manifest.controls.unprofiled is None:
        return ""
    distortion = manifest.controls.distortion("full")
    if distortion is None:
        return "; how much of this is the profiler's doing is not known"
    limits = manifest.controls.distortion_interval("full")
    stretched = distortion > HIGH_DISTORTION and (limits is None or limits[0] > 1)
    return "; but the profiler stretches this step, and this may be its doing" if stretched else ""


def _bucket_of(rows: Sequence[BucketRow]) -> dict[int, int]:
    """Return the bucket that each collective reduces, by the collective's index, where its members agree."""
    numbers_of: dict[int, set[int]] = {}
    for row in rows:
        if row.collective is not None and row.bucket is not None:
            numbers_of.setdefault(row.collective, set()).add(row.bucket)
    return {index: next(iter(numbers)) for index, numbers in numbers_of.items() if len(numbers) == 1}


def _timeline(analyses: _Analyses) -> Timeline:
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


def _evidence(
    analyses: _Analyses,
    facts: RunFacts,
    rows: tuple[Sequence[BucketRow], Sequence[LayerRow], Sequence[WaitingRow], ShardedRows, Sequence[TensorWindow]],
    others: tuple[Sequence[CollectiveRow], IdleRows, SyncCost | None],
) -> Evidence:
    (reduced, layers, waits, sharded, tensor), (collectives, idle, cost) = rows, others
    return Evidence(
        step_ns=float(np.median(analyses.rows.span_ns)),
        windows=len(analyses.rows),
        step_word="trace" if analyses.rows.unmarked.all() else "step",
        buckets=reduced,
        layers=layers,
        sharded=sharded.collectives,
        tensor=tensor,
        waiting=waits,
        cost=cost,
        copies=copies_of(analyses.run.measured),
        input=analyses.input,
        idle=idle_by_device(analyses.rows, analyses.run.measured, analyses.run.in_full),
        launches=idle.launches,
        synchronizing=idle.synchronizing,
        idle_lines=idle.lines,
        waits_by_kind=waits_by_kind(collectives),
        world_size=facts.world_size,
        is_data_parallel=is_data_parallel(analyses.run),
        complete=not any(row.partial for row in collectives),
        gradient_dtypes=gradient_dtypes(collectives),
        latency_ns=latency_ns(collectives),
        host=ranks_hosts(analyses.exchanged),
        slowed=slowed_ranks(analyses.run),
        input_caution=_input_caution(analyses.run.manifest),
        environment=(analyses.run.manifest or Manifest()).environment,
        is_async_tp_on=_is_async_tp_on(analyses.run.manifest),
    )


def _schedule(manifest: Manifest | None) -> str | None:
    """Return the class of a pipeline's schedule, as run.json has it."""
    recorded = manifest.parallelism if manifest is not None else None
    return recorded.pipeline.schedule if recorded is not None and recorded.pipeline is not None else None


def _is_async_tp_on(manifest: Manifest | None) -> bool:
    """Whether run.json says that Inductor was to run collectives beside matrix products."""
    recorded = manifest.parallelism if manifest is not None else None
    compiled = recorded.compiled if recorded is not None else None
    return bool(compiled is not None and compiled.micro_pipeline_tp)


def _windows(analyses: _Analyses) -> list[Window]:
    rows, exchanged = analyses.rows, analyses.exchanged
    names = ("rank", "step", "span_ns", *_MEASURED)
    columns: dict[str, list[Any]] = {name: getattr(rows, name).tolist() for name in names}
    columns["device"] = [device_label(device) for device in rows.device.tolist()]
    columns["start_ns"] = (rows.start_ns - exchanged.clocks.shift_ns(rows.rank) - exchanged.origin_ns).tolist()
    columns["overlap"] = [None if np.isnan(share) else share for share in rows.overlap.tolist()]
    columns["packing_ns"] = analyses.column(lambda measured: measured.work.packing_ns).tolist()
    columns |= {name: getattr(analyses.exposed, name).tolist() for name in (*EXPOSED, "unmatched_comm_ns")}
    input_idle = analyses.column(lambda measured: measured.fetching.input_idle_ns)
    columns["idle"] = window_causes(analyses.run.measured)
    columns["input_idle_ns"] = [natural(ns) for ns in input_idle.tolist()]
    contention = analyses.column(lambda measured: measured.cost.contention_ns)
    columns["contention_ns"] = [ns if ns != NOT_KNOWN else None for ns in contention.tolist()]
    ordered = [columns[name] for name in Window.__struct_fields__]
    return [Window(*record) for record in zip(*ordered, strict=True)]


def _unmarked_warnings(run: RunSummary, rows: Breakdown) -> list[Notice]:
    """Warn where a trace marks no steps: its window may hold many of them, or one."""
    ranks = sorted(set(rows.rank[rows.unmarked].tolist()))
    if not ranks:
        return []
    listed = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    text = f"no ProfilerStep holds the launches of rank {listed}: each device's whole trace is one window, step 0"
    candidates = [name for rank in run.ranks if rank.rank in ranks for name in rank.step_candidates]
    if not candidates:
        return [Notice(Code.STEPS_ARE_NOT_MARKED, text)]
    ((name, _),) = Counter(candidates).most_common(1)
    remedy = f"annotations called {name!r} repeat, and may be the steps: --steps {shlex.quote(name)}"
    return [Notice(Code.STEPS_ARE_NOT_MARKED, text, remedy)]


def _outside_warnings(rows: Breakdown) -> list[Notice]:
    outside = rows.take(rows.outside_ns > 0)
    if not len(outside):
        return []
    longest = int(outside.outside_ns.max())
    text = f"device activity outside of the profiled steps is left out: at most {ms(longest)} a device"
    return [Notice(Code.ACTIVITY_OUTSIDE_STEPS, text)]


def _summary(
    analyses: _Analyses,
    facts: RunFacts,
    lists: tuple[Sequence[BucketRow], Sequence[LayerRow], Sequence[GroupWindow]],
    cost: SyncCost | None,
    evidence: Evidence,
) -> Summary:
    advised = advice(evidence)
    rows, exchanged = analyses.rows, analyses.exchanged
    measures = {name: getattr(rows, name) for name in ("span_ns", *_MEASURED, "overlap")}
    measures |= {name: getattr(analyses.exposed, name) for name in EXPOSED}
    measures["packing_ns"] = analyses.column(lambda measured: measured.work.packing_ns)
    measures |= dict(zip(IDLE_PARTS, analyses.column(idle_parts).T, strict=True))
    total_ns = int(rows.span_ns.sum())
    shares = {part: ratio(measures[part].sum(), total_ns) for part in (*PARTS, *EXPOSED, *IDLE_PARTS)}
    shares["overlap"] = ratio(rows.overlapped_comm_ns.sum(), int(rows.comm_ns.sum()))
    median = analyses.median_window
    layout, devices = layout_of(analyses.buckets, lists[0]), _by_device(rows, measures)
    bandwidths, over = bandwidth_rows(exchanged), over_devices(devices)
    return Summary(
        windows=spreads(measures),
        by_device=devices,
        shares=shares,
        representative=Representative(
            int(rows.rank[median]), device_label(int(rows.device[median])), int(rows.step[median])
        ),
        verdict=verdict(facts, rows, shares, exchanged.transfer_is_bound),
        headline=headline(
            Findings(facts, rows, shares, exchanged.transfer_is_bound, advised, bandwidths, evidence, over)
        ),
        transfer_is_bound=exchanged.transfer_is_bound,
        communication=bandwidths,
        copies=copy_rows(exchanged),
        unmatched_share=exchanged.unmatched_share,
        advice=advised,
        buckets=bucket_summaries(lists[0], layout),
        layers=layer_summaries(lists[1]),
        layers_from=Counter(measured.work.source for measured in analyses.run.measured).most_common(1)[0][0],
        layout=layout,
        sync_cost=cost,
        input=analyses.input,
        over_devices=over,
        groups=group_summaries(exchanged, rows, lists[2]),
        pipelines=list(evidence.pipelines),
    )


def _by_device(rows: Breakdown, measures: dict[str, NDArray[Any]]) -> list[DeviceSummary]:
    """Return for each rank and device the same measures as over all windows."""
    summaries = []
    for (rank, device), selected in rows.by_device():
        own_spreads = spreads({name: values[selected] for name, values in measures.items()})
        summaries.append(DeviceSummary(rank, device_label(device), own_spreads))
    return summaries
