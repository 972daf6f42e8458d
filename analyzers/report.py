"""All analyses of a run -> one Report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.activity import device_label
from analyzers.advice import Evidence, advice
from analyzers.bandwidth import traffic
from analyzers.breakdown import Breakdown, joined
from analyzers.buckets import Buckets, buckets
from analyzers.calibration import Calibration
from analyzers.contention import NOT_KNOWN
from analyzers.controls import HIGH_DISTORTION, Controls
from analyzers.digest import Advice, DeviceSummary, Input, Representative, Summary, SyncCost
from analyzers.document import REPORT_SCHEMA, ControlFigures, Links, Report, RunFacts
from analyzers.entries import BucketRow, LayerRow, Timeline, WaitingRow, Window
from analyzers.exchange import Exchange, exchange
from analyzers.forwards import Source
from analyzers.layers import layer_rows, layer_warnings
from analyzers.manifest import Manifest
from analyzers.reducing import bucket_rows, bucket_warnings, layout_of
from analyzers.rows import (
    bandwidth_rows,
    clock_row,
    collective_rows,
    copy_rows,
    exchange_warnings,
    natural,
    unmatched_rows,
    waiting_rows,
)
from analyzers.run import Run, world_size
from analyzers.spread import over_devices
from analyzers.summaries import bucket_summaries, input_summary, layer_summaries, spreads
from analyzers.summary import Measured, RankSummary, RunSummary, summary_of
from analyzers.synccost import cost_warnings, distortion_warnings, sync_cost
from analyzers.timeline import timeline
from analyzers.units import ms, percent

Int64 = NDArray[np.int64]

# What a window's span is made of; the four add up to it.
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_MEASURED = (*PARTS, "comm_ns", "copy_ns", "overlapped_comm_ns")
# What exposed communication is made of.
EXPOSED = ("exposed_wait_ns", "exposed_transfer_ns")


def report(source: Run | RunSummary, links: Calibration | None = None) -> Report:
    """Everything that can be said of a run; `links` takes the place of the calibration that lies beside it."""
    run = summary_of(source) if isinstance(source, Run) else source
    found = _found(run, links)
    exchanged, rows = found.exchanged, found.rows
    reduced = bucket_rows(exchanged, found.buckets)
    warnings = [
        *_unmarked_warnings(rows),
        *_outside_warnings(rows),
        *exchange_warnings(exchanged),
        *bucket_warnings(found.buckets),
        *layer_warnings(run, found.buckets),
        *cost_warnings(run),
    ]
    waits, layers = waiting_rows(exchanged), layer_rows(exchanged, found.buckets)
    cost = sync_cost(run, rows, found.transfer_ns, (run.manifest or Manifest()).controls.sync_cost_ns())
    facts = run_facts(run, exchanged, [*warnings, *distortion_warnings(cost)])
    return Report(
        schema=REPORT_SCHEMA,
        run=facts,
        windows=_windows(found),
        collectives=collective_rows(exchanged, _bucket_of(reduced)),
        unmatched=unmatched_rows(exchanged),
        waiting=waits,
        buckets=reduced,
        layers=layers,
        timeline=_timeline(found),
        traffic=traffic(exchanged.matching, exchanged.transfers, _steps(rows)),
        summary=_summary(
            found, (reduced, layers), cost, advice(_evidence(found, facts, (reduced, layers, waits), cost))
        ),
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """What all parts of the report look at: windows of all ranks, communication, buckets."""

    run: RunSummary
    exchanged: Exchange
    buckets: Buckets
    rows: Breakdown
    transfer_ns: Int64
    unmatched_ns: Int64

    def column(self, of: Callable[[Measured], Int64]) -> Int64:
        """A column of all windows from each rank's."""
        return np.concatenate([of(measured) for measured in self.run.measured])

    def mean(self, of: Callable[[Measured], Int64]) -> float:
        """The mean of such a column."""
        return float(self.column(of).mean())

    @cached_property
    def input(self) -> Input | None:
        """What the loader takes in full windows."""
        return input_summary(self.run.in_full)

    @cached_property
    def median_window(self) -> int:
        """The window whose span is the (lower) median."""
        return int(np.argsort(self.rows.span_ns, kind="stable")[(len(self.rows) - 1) // 2])


def _steps(rows: Breakdown) -> int:
    """How many steps all ranks have, added up."""
    return int(np.unique(np.stack([rows.rank, rows.step]), axis=1).shape[1])


def _found(run: RunSummary, links: Calibration | None) -> _Found:
    exchanged = exchange(run, links or run.calibration)
    rows = joined([measured.windows for measured in run.measured])
    return _Found(run, exchanged, buckets(run), rows, *exchanged.in_windows(rows))


def _caution(controls: ControlFigures, manifest: Manifest | None) -> str:
    """What advice has to say where the profiler may have made what it measured."""
    if manifest is None or manifest.controls.unprofiled is None:
        return ""
    if controls.distortion is None:
        return "; how much of this is the profiler's doing is not known"
    stretched = controls.distortion > HIGH_DISTORTION
    return "; but the profiler stretches this step, and this may be its doing" if stretched else ""


def _bucket_of(rows: Sequence[BucketRow]) -> dict[int, int]:
    """The bucket that each collective reduces, by the collective's index, where its members agree."""
    said: dict[int, set[int]] = {}
    for row in rows:
        if row.collective is not None and row.bucket is not None:
            said.setdefault(row.collective, set()).add(row.bucket)
    return {index: next(iter(numbers)) for index, numbers in said.items() if len(numbers) == 1}


def _timeline(found: _Found) -> Timeline:
    """The window of median length."""
    counts = np.cumsum([0, *(len(measured.windows) for measured in found.run.measured)])
    rank = int(np.searchsorted(counts, found.median_window, side="right")) - 1
    bucket_of = {
        int(found.exchanged.first_row[rank]) + kernel: bucket
        for kernel, bucket in zip(
            found.run.measured[rank].reductions.kernel.tolist(), found.buckets.number[rank].tolist(), strict=True
        )
        if bucket >= 0
    }
    return timeline(found.exchanged, rank, found.median_window - int(counts[rank]), bucket_of)


def _evidence(
    found: _Found,
    facts: RunFacts,
    rows: tuple[Sequence[BucketRow], Sequence[LayerRow], Sequence[WaitingRow]],
    cost: SyncCost | None,
) -> Evidence:
    return Evidence(
        step_ns=float(np.median(found.rows.span_ns)),
        windows=len(found.rows),
        buckets=rows[0],
        layers=rows[1],
        waiting=rows[2],
        cost=cost,
        buffer_copies=found.mean(lambda measured: measured.cost.buffer_copies),
        buffer_copies_ns=found.mean(lambda measured: measured.cost.buffer_copies_ns),
        gradient_copies=found.mean(lambda measured: measured.cost.gradient_copies),
        gradient_copies_ns=found.mean(lambda measured: measured.cost.gradient_copies_ns),
        input=found.input,
        is_data_parallel=any(measured.work.source == Source.NODES for measured in found.run.measured),
        caution=_caution(facts.controls, found.run.manifest),
        input_caution=_caution(
            control_figures((found.run.manifest or Manifest()).controls, "full"), found.run.manifest
        ),
    )


def _windows(found: _Found) -> list[Window]:
    rows, exchanged = found.rows, found.exchanged
    known = ("rank", "step", "span_ns", *_MEASURED)
    columns: dict[str, list[Any]] = {name: getattr(rows, name).tolist() for name in known}
    columns["device"] = [device_label(device) for device in rows.device.tolist()]
    columns["start_ns"] = (rows.start_ns - exchanged.clocks.shift_ns(rows.rank) - exchanged.origin_ns).tolist()
    columns["overlap"] = [None if np.isnan(share) else share for share in rows.overlap.tolist()]
    columns["packing_ns"] = found.column(lambda measured: measured.work.packing_ns).tolist()
    columns["exposed_transfer_ns"] = found.transfer_ns.tolist()
    columns["exposed_wait_ns"] = (rows.exposed_comm_ns - found.transfer_ns).tolist()
    columns["unmatched_comm_ns"] = found.unmatched_ns.tolist()
    input_idle = found.column(lambda measured: measured.fetching.input_idle_ns)
    columns["input_idle_ns"] = [natural(ns) for ns in input_idle.tolist()]
    contention = found.column(lambda measured: measured.cost.contention_ns)
    columns["contention_ns"] = [ns if ns != NOT_KNOWN else None for ns in contention.tolist()]
    ordered = [columns[name] for name in Window.__struct_fields__]
    return [Window(*record) for record in zip(*ordered, strict=True)]


def run_facts(run: RunSummary, exchanged: Exchange, more_warnings: Sequence[str]) -> RunFacts:
    """The facts of a run, with all its warnings."""
    manifest = run.manifest or Manifest()
    header = run.ranks[0].header
    window = "light" if run.is_light else "full"
    controls = control_figures(manifest.controls, window)
    warnings = [
        *_distortion_warning(manifest.controls, window),
        *run.warnings,
        *more_warnings,
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
        warnings=warnings,
        memory=manifest.memory,
        dataset=manifest.dataset,
        epochs=manifest.epochs,
    )


def _links(devices: list[str], manifest: Manifest, exchanged: Exchange) -> Links:
    """What is known of the links: as calibration found them, if it went over the run's own; else as run.json says."""
    measured = exchanged.calibration.links if exchanged.calibration is not None else None
    if measured is not None and not exchanged.is_of_other_links:
        return Links(devices, manifest.transport or measured.transport, measured.limit_gbps, measured.source)
    return Links(devices, manifest.transport, None, "run.json" if manifest.transport else None)


def _versions(trace: RankSummary) -> dict[str, str | None]:
    """What a trace without a manifest says of versions."""
    header = trace.header
    said = {
        "nccl": header.distributed.get("nccl_version"),
        "cuda": _cuda_version(header.cuda_runtime_version),
        "driver_cuda": _cuda_version(header.cuda_driver_version),
    }
    return {name: version for name, version in said.items() if version}


def _cuda_version(number: int | None) -> str | None:
    # CUDA numbers 13.0 as 13000: cudaRuntimeGetVersion.
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def control_figures(controls: Controls, window: str) -> ControlFigures:
    """The medians of the controls, against the windows that times come from."""
    return ControlFigures(
        unprofiled_step_ns=controls.step_ns("unprofiled"),
        nosync_step_ns=controls.step_ns("nosync"),
        profiled_step_ns=controls.step_ns(window),
        distortion=controls.distortion(window),
        sync_cost_ns=controls.sync_cost_ns(),
        blocks_ns=controls.blocks_ns(),
    )


def _distortion_warning(controls: Controls, window: str) -> list[str]:
    """What leads the report where the profiler changed, or may have changed, what it measured."""
    unprofiled, profiled, distortion = controls.unprofiled, getattr(controls, window), controls.distortion(window)
    if unprofiled is None or profiled is None or not (unprofiled.has_samples and profiled.has_samples):
        return []
    if distortion is None:
        return [
            f"what the profiler adds is not known, since steps scatter: {unprofiled.in_words()} without it, "
            f"{profiled.in_words()} with it; idle time and waiting may be larger here than without it"
        ]
    if distortion <= HIGH_DISTORTION:
        return []
    stretched = f"the profiler stretches this step {distortion:.2f} times"
    words = f"{unprofiled.in_words()} to {profiled.in_words()}"
    return [f"{stretched} ({words}): idle time and waiting are larger here than without it"]


def _unmarked_warnings(rows: Breakdown) -> list[str]:
    """Where a trace marks no steps, its window may hold many of them, or one."""
    ranks = sorted(set(rows.rank[rows.unmarked].tolist()))
    if not ranks:
        return []
    which = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return [f"no ProfilerStep holds the launches of rank {which}: each device's whole trace is one window, step 0"]


def _outside_warnings(rows: Breakdown) -> list[str]:
    outside = rows.take(rows.outside_ns > 0)
    if not len(outside):
        return []
    longest = int(outside.outside_ns.max())
    return [f"device activity outside of the profiled steps is left out: at most {ms(longest)} a device"]


def _summary(
    found: _Found,
    lists: tuple[Sequence[BucketRow], Sequence[LayerRow]],
    cost: SyncCost | None,
    advised: list[Advice],
) -> Summary:
    rows, exchanged, transfer_ns = found.rows, found.exchanged, found.transfer_ns
    measures = {name: getattr(rows, name) for name in ("span_ns", *_MEASURED, "overlap")}
    measures |= {"exposed_wait_ns": rows.exposed_comm_ns - transfer_ns, "exposed_transfer_ns": transfer_ns}
    measures["packing_ns"] = found.column(lambda measured: measured.work.packing_ns)
    total_ns = int(rows.span_ns.sum())
    shares = {part: _share(measures[part].sum(), total_ns) for part in (*PARTS, *EXPOSED)}
    shares["overlap"] = _share(rows.overlapped_comm_ns.sum(), int(rows.comm_ns.sum()))
    median = found.median_window
    layout, devices = layout_of(found.buckets, lists[0]), _by_device(rows, measures)
    return Summary(
        windows=spreads(measures),
        by_device=devices,
        shares=shares,
        representative=Representative(
            int(rows.rank[median]), device_label(int(rows.device[median])), int(rows.step[median])
        ),
        verdict=_verdict(rows, shares),
        communication=bandwidth_rows(exchanged),
        copies=copy_rows(exchanged),
        unmatched_share=exchanged.unmatched_share,
        advice=advised,
        buckets=bucket_summaries(lists[0], layout),
        layers=layer_summaries(lists[1]),
        layers_from=found.run.measured[0].work.source,
        layout=layout,
        sync_cost=cost,
        input=found.input,
        over_devices=over_devices(devices),
    )


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None


def _by_device(rows: Breakdown, measures: dict[str, NDArray[Any]]) -> list[DeviceSummary]:
    """For each rank and device the same measures as over all windows."""
    found = []
    for (rank, device), own in rows.by_device():
        own_spreads = spreads({name: values[own] for name, values in measures.items()})
        found.append(DeviceSummary(rank, device_label(device), own_spreads))
    return found


def _of_exposed(shares: dict[str, float | None]) -> str:
    """How much of the exposed communication was waiting, where there is any."""
    if not shares["exposed_comm_ns"]:
        return ""
    return f" ({percent(shares['exposed_wait_ns'])} waiting, {percent(shares['exposed_transfer_ns'])} transfer)"


def _verdict(rows: Breakdown, shares: dict[str, float | None]) -> str:
    """One sentence: the step, what it is made of, how much communication is hidden."""
    step = f"A step takes {ms(float(np.median(rows.span_ns)))} (median)"
    if rows.unmarked.all():
        step = f"The whole trace, in which no step is marked, takes {ms(float(np.median(rows.span_ns)))} (median)"
    parts = (
        f"{percent(shares['compute_ns'])} compute, {percent(shares['exposed_comm_ns'])} exposed communication"
        f"{_of_exposed(shares)}, {percent(shares['exposed_copy_ns'])} exposed copies, {percent(shares['idle_ns'])} idle"
    )
    if shares["overlap"] is None:
        return f"{step}: {parts}; there is no communication."
    return f"{step}: {parts}; {percent(shares['overlap'])} of communication is hidden behind compute."
