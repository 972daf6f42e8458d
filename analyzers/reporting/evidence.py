"""Evidence for advice, collected from a run's analyses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, distinct, medians
from analyzers.collectives import Exchange, purposes
from analyzers.layers import BucketTimes, LineCommunication, line_communication, pipeline_summaries
from analyzers.lazy_fields import lazy
from analyzers.rank import Breakdown, Cause, LayerSource, Measured, Purpose, RunSummary
from analyzers.ranks import RankNumber
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.document import RunFacts
from analyzers.reporting.remedies import HOST_CAUSES, Copies, DeviceIdle, Evidence
from analyzers.run import HIGH_DISTORTION, Manifest, NumberedBy, find_held_up, find_slowed, hosts
from analyzers.trace import UNEVEN_MEMBERS, Collective


def evidence_of(analyses: Analyses, facts: RunFacts) -> Evidence:
    """Collect what rules of advice look at."""
    run, manifest, exchanged = analyses.run, analyses.manifest, analyses.exchanged
    steps = set(analyses.typical.steps.typical)
    return Evidence(
        step_ns=analyses.median_step_ns,
        windows=len(analyses.typical_rows),
        mean_ns=float(np.mean(analyses.typical_rows.span_ns)),
        step_word="trace" if analyses.rows.unmarked.all() else "step",
        recorded_windows=len(analyses.rows),
        buckets=_typical_buckets(analyses),
        layers=lazy(lambda: analyses.of_typical(analyses.layer_rows)),
        of_lines=_typical_lines(analyses),
        sharded=lazy(lambda: analyses.of_typical(analyses.sharded.collectives)),
        tensor=analyses.of_typical(analyses.tensor),
        waiting=lazy(lambda: analyses.of_typical(analyses.waiting_rows)),
        cost=analyses.cost,
        copies=_copies_of(analyses),
        input=analyses.input,
        idle=_idle_by_device(analyses, run.in_full),
        launches=analyses.of_typical(analyses.idle.launches),
        synchronizing=analyses.idle.synchronizing,
        idle_lines=lazy(lambda: analyses.idle.lines),
        waits_by_kind=_waits_by_kind(exchanged),
        world_size=facts.world_size,
        is_data_parallel=any(measured.work.source == LayerSource.NODES for measured in run.measured),
        free_compute_ns=_free_compute_ns(analyses),
        complete=not exchanged.matching.instances.partial.any(),
        gradient_dtypes=_gradient_dtypes(exchanged),
        latency_ns=_latency_ns(exchanged),
        host=hosts(exchanged.run.manifest, exchanged.run.ranks),
        slowed=find_slowed(manifest.device_states),
        held_up=find_held_up(manifest.host_states),
        input_caution=_input_caution(manifest),
        environment=manifest.environment,
        torch_version=facts.versions.get("torch"),
        is_async_tp_on=_is_async_tp_on(manifest),
        pipelines=pipeline_summaries(analyses.pipelines, _schedule(manifest)),
        experts=[row for row in analyses.experts if row.step in steps],
        attention=[row for row in analyses.attention if row.step in steps],
        names_ranks=_names_ranks(run, exchanged),
    )


def _typical_buckets(analyses: Analyses) -> BucketTimes:
    """Return the reductions of typical windows."""
    times, windows = analyses.bucket_times, analyses.typical_rows
    places = [np.r_[getattr(times, name), getattr(windows, name)] for name in ("rank", "device", "step")]
    place = distinct(*places).index
    return times.take(np.isin(place[: len(times)], place[len(times) :]))


def _typical_lines(analyses: Analyses) -> LineCommunication:
    """Return what lines' communication adds up to in typical windows."""
    lines = line_communication(analyses.exchanged)
    return lines.take(analyses.typical.windows[lines.window])


def _names_ranks(run: RunSummary, exchanged: Exchange) -> bool:
    """Whether it is certain which rank is which, or does not matter: all of them send and compute alike."""
    calls = exchanged.matching.instances.call
    kinds = {call.kind for call in calls if call is not None}
    return run.rank_source != NumberedBy.GUESSED or kinds.isdisjoint(UNEVEN_MEMBERS)


def _free_compute_ns(analyses: Analyses) -> float:
    """Return the median time per window in which compute runs with no communication beside it, ns."""
    rows = analyses.typical_rows
    return float(np.median(rows.compute_ns - rows.overlapped_comm_ns))


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


def _idle_by_device(analyses: Analyses, in_full: Sequence[Measured]) -> list[DeviceIdle]:
    """Return each device's idle time by cause, in typical windows.

    Pauses between kernels are at most those of the full windows: a light window's gaps are divided as the full one's,
    and what was a pause there may be a wait for the host here.
    """
    ns = analyses.typical_column(lambda one: one.idle.ns.sum(axis=2))
    full_rows = Breakdown.joined([one.windows for one in in_full])
    full_ns = np.concatenate([one.idle.ns.sum(axis=2) for one in in_full])
    pauses = {place: pause_ns for place, (pause_ns,) in _medians(full_rows, full_ns[:, [Cause.KERNEL_GAP]])}
    devices = []
    for (rank, device), (*by_cause, by_host_ns) in _medians(
        analyses.typical_rows, np.c_[ns, ns[:, HOST_CAUSES].sum(axis=1)]
    ):
        median_ns = dict(zip(Cause, by_cause, strict=True))
        median_ns[Cause.KERNEL_GAP] = min(median_ns[Cause.KERNEL_GAP], pauses.get((rank, device), 0.0))
        devices.append(DeviceIdle(rank, device, median_ns, by_host_ns))
    return devices


def _medians(rows: Breakdown, columns: Int64) -> Iterator[tuple[tuple[RankNumber, int], list[float]]]:
    """Yield the medians of columns over the windows of each device."""
    devices = [*rows.by_device()]
    order = np.concatenate([windows for _, windows in devices])
    device = np.repeat(np.arange(len(devices)), [len(windows) for _, windows in devices])
    figures = [medians(column, device, len(devices)) for column in columns[order].T]
    yield from zip((place for place, _ in devices), np.stack(figures, axis=1).tolist(), strict=True)


def _copies_of(analyses: Analyses) -> Copies:
    """Return the means, over typical windows, of what DDP copies."""

    def mean(name: str) -> float:
        return float(analyses.typical_column(lambda one: getattr(one.cost, name)).mean())

    names = ("buffer_copies", "buffer_copies_ns", "gradient_copies", "gradient_copies_ns")
    return Copies(*(mean(name) for name in names))


def _gradient_dtypes(exchanged: Exchange) -> frozenset[str]:
    """Return the dtypes in which gradients are reduced."""
    calls = exchanged.matching.instances.call
    reduced = np.flatnonzero(purposes(exchanged.matching) == Purpose.GRADIENTS).tolist()
    return frozenset(call.dtype for call in map(calls.__getitem__, reduced) if call is not None and call.dtype)


def _latency_ns(exchanged: Exchange) -> int | None:
    """Return the shortest transfer of an all_reduce that is known exactly, about what one of no bytes would take."""
    transferred = exchanged.transfers
    is_exact = (exchanged.matching.instances.kind == Collective.ALL_REDUCE) & ~transferred.bound
    known_ns = transferred.transfer_ns[is_exact & (transferred.transfer_ns > 0)]
    return int(known_ns.min()) if len(known_ns) else None


def _waits_by_kind(exchanged: Exchange) -> dict[str, int]:
    """Return how long all members waited in collectives, by kind, ns; a copy between two devices is of both."""
    instances, rows = exchanged.matching.instances, exchanged.matching.instances.members
    kinds, which = np.unique(instances.kind[instances.of_member], return_inverse=True)
    devices = np.where(exchanged.matching.table.peer[rows] != UNKNOWN, 2, 1)
    waited_ns = np.zeros(len(kinds), dtype=np.int64)
    np.add.at(waited_ns, which, np.maximum(exchanged.transfers.wait_ns, 0) * devices)
    return {Collective(kind).label: ns for kind, ns in zip(kinds.tolist(), waited_ns.tolist(), strict=True)}
