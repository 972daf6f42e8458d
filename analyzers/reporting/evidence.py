"""Evidence for advice, collected from a run's analyses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from analyzers.collectives import CollectiveRow, Exchange
from analyzers.layers import pipeline_summaries
from analyzers.rank import Breakdown, Cause, Measured, RunSummary, Source, joined
from analyzers.ranks import RankNumber
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.document import RunFacts
from analyzers.reporting.remedies import HOST_CAUSES, Copies, DeviceIdle, Evidence
from analyzers.run import HIGH_DISTORTION, Manifest, hosts, slowed


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
        copies=_copies_of(run.measured),
        input=analyses.input,
        idle=_idle_by_device(analyses.rows, run.measured, run.in_full),
        launches=analyses.idle.launches,
        synchronizing=analyses.idle.synchronizing,
        idle_lines=analyses.idle.lines,
        waits_by_kind=_waits_by_kind(rows),
        world_size=facts.world_size,
        is_data_parallel=_is_data_parallel(run),
        free_compute_ns=_free_compute_ns(analyses),
        complete=not any(row.partial for row in rows),
        gradient_dtypes=_gradient_dtypes(rows),
        latency_ns=_latency_ns(rows),
        host=_ranks_hosts(analyses.exchanged),
        slowed=_slowed_ranks(run),
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


def _idle_by_device(rows: Breakdown, measured: Sequence[Measured], in_full: Sequence[Measured]) -> list[DeviceIdle]:
    """Return each device's idle time by cause; `rows` are all ranks' windows in order.

    Pauses between kernels are at most those of the full windows: a light window's gaps are divided as the full one's,
    and what was a pause there may be a wait for the host here.
    """
    ns = np.concatenate([one.idle.ns.sum(axis=2) for one in measured])
    full_rows = joined([one.windows for one in in_full])
    full_ns = np.concatenate([one.idle.ns.sum(axis=2) for one in in_full])
    pauses = {place: np.median(full_ns[windows, Cause.KERNEL_GAP]) for place, windows in full_rows.by_device()}
    devices = []
    for (rank, device), windows in rows.by_device():
        median_ns = {cause: float(np.median(ns[windows, cause])) for cause in Cause}
        pause_ns = float(pauses.get((rank, device), 0.0))
        median_ns[Cause.KERNEL_GAP] = min(median_ns[Cause.KERNEL_GAP], pause_ns)
        by_host_ns = float(np.median(ns[windows][:, HOST_CAUSES].sum(axis=1)))
        devices.append(DeviceIdle(rank, device, median_ns, by_host_ns))
    return devices


def _copies_of(measured: Sequence[Measured]) -> Copies:
    """Return the means, over all windows, of what DDP copies."""

    def mean(name: str) -> float:
        return float(np.concatenate([getattr(one.cost, name) for one in measured]).mean())

    names = ("buffer_copies", "buffer_copies_ns", "gradient_copies", "gradient_copies_ns")
    return Copies(*(mean(name) for name in names))


def _is_data_parallel(run: RunSummary) -> bool:
    """Whether nn.DataParallel drives the devices."""
    return any(measured.work.source == Source.NODES for measured in run.measured)


def _gradient_dtypes(rows: Sequence[CollectiveRow]) -> frozenset[str]:
    """Return the dtypes in which gradients are reduced."""
    return frozenset(row.dtype for row in rows if row.purpose == "gradients" and row.dtype)


def _latency_ns(rows: Sequence[CollectiveRow]) -> int | None:
    """Return the shortest transfer of an all_reduce that is known exactly, about what one of no bytes would take."""
    return min(
        (row.transfer_ns for row in rows if row.kind == "all_reduce" and not row.bound and row.transfer_ns),
        default=None,
    )


def _waits_by_kind(rows: Sequence[CollectiveRow]) -> Counter[str]:
    """Return how long all members waited in collectives, by kind, ns."""
    waits: Counter[str] = Counter()
    for row in rows:
        waits[row.kind] += sum(member.wait_ns or 0 for member in row.members)
    return waits


def _ranks_hosts(exchanged: Exchange) -> dict[RankNumber, str]:
    """Return the host of each rank, where it is known."""
    return hosts(exchanged.run.manifest, exchanged.run.ranks)


def _slowed_ranks(run: RunSummary) -> dict[RankNumber, str]:
    """Return the ranks whose devices run slower than the others', and what NVML says of them."""
    return slowed(run.manifest.device_states if run.manifest is not None else None)
