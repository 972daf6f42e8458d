"""Summary of a report: medians with their spread, shares, verdict, headline, advice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Float64
from analyzers.causes import charges_summary
from analyzers.collectives import Exchange, bandwidth_rows, copy_rows, group_summaries
from analyzers.layers import bucket_summaries, layer_summaries, pipeline_summaries
from analyzers.lazy_fields import lazy
from analyzers.notices import Code
from analyzers.rank import Breakdown, LayerSource, RankSummary, device_label
from analyzers.rank.kernels import Precision, Ranked, peak_flops_per_s
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.bar import bar_of, mark_length
from analyzers.reporting.document import ControlFigures, Representative, RunFacts, Summary
from analyzers.reporting.found import found_advice
from analyzers.reporting.headline import DrawnFrom, advice_of_sentence, headline, why_unresolved
from analyzers.reporting.measures import DeviceSummary, idle_parts, idle_places, over_devices
from analyzers.reporting.remedies import Advice, Evidence, advice_at_most
from analyzers.reporting.trust import Judged, judged
from analyzers.reporting.typical_steps import Steps, odd_words
from analyzers.run import Manifest
from analyzers.statistics import Limits, is_told_apart, ratio, spreads, spreads_by
from analyzers.step_parts import COMM, COMPUTE, EXPOSED, IDLE, IDLE_PARTS, PARTS, fields_of
from analyzers.trace import Collective
from analyzers.units import ms, percent

MEASURED = (*fields_of(PARTS), "comm_ns", "copy_ns", "overlapped_comm_ns")
# Behind its share idle time is called idle.
_PARTS = {part.field: part.words for part in PARTS} | {IDLE.field: IDLE.label}
# From this difference of a part's share on (10 points), ranks are said to differ.
APART = 0.1
# A step whose interval is wider than this share of it is named with the interval.
WIDE = 0.05
# Smaller shares would be printed as 0.0 %.
SHOWN = 0.0005
# From so many times on a ratio of steps is written as that.
TIMES = 2


def summary_of_report(analyses: Analyses, facts: RunFacts) -> Summary:
    """Return medians, shares, the verdict, the headline and advice."""
    evidence = evidence_of(analyses)
    found, bounds, bar = found_advice(analyses), advice_at_most(evidence), bar_of(analyses)
    rows, exchanged = analyses.typical_rows, analyses.exchanged
    measures = _measures(analyses)
    total_ns = int(rows.span_ns.sum())
    shares = {part: ratio(measures[part].sum(), total_ns) for part in fields_of((*PARTS, *EXPOSED, *IDLE_PARTS))}
    shares["overlap"] = ratio(rows.overlapped_comm_ns.sum(), int(rows.comm_ns.sum()))
    median, devices = analyses.median_window, _by_device(rows, measures)
    rests_on = judged(analyses, facts, bar)
    bandwidths = bandwidth_rows(exchanged)
    drawn = DrawnFrom(
        facts,
        rows,
        shares,
        bar,
        exchanged.transfer_is_bound,
        found,
        bounds,
        bandwidths,
        analyses.step_word,
        analyses.step_ns,
        analyses.mean_step_ns,
        idle_places(analyses.run.measured),
    )
    return Summary(
        windows=lazy(lambda: spreads(measures)),
        by_device=devices,
        shares=shares,
        representative=Representative(
            int(analyses.rows.rank[median]),
            device_label(int(analyses.rows.device[median])),
            int(analyses.rows.step[median]),
        ),
        steps=analyses.typical.steps,
        verdict=verdict(facts, rows, shares, exchanged.transfer_is_bound, analyses.typical.steps),
        headline=headline(drawn, rests_on.trust(*_named(drawn))),
        transfer_is_bound=exchanged.transfer_is_bound,
        communication=bandwidths,
        copies=lazy(lambda: copy_rows(exchanged)),
        unmatched_share=exchanged.unmatched_share,
        advice=[_graded(piece, rests_on) for piece in (*found.listed, *bounds)],
        buckets=lazy(lambda: bucket_summaries(analyses.of_typical(analyses.bucket_rows), analyses.layout)),
        layers=lazy(lambda: layer_summaries(analyses.of_typical(analyses.layer_rows))),
        layers_from=Counter(measured.work.source for measured in analyses.run.measured).most_common(1)[0][0],
        layout=lazy(lambda: analyses.layout),
        sync_cost=analyses.cost,
        input=analyses.input,
        over_devices=over_devices(devices),
        groups=lazy(lambda: group_summaries(exchanged, analyses.rows, analyses.groups)),
        pipelines=list(evidence.pipelines),
        charges=lazy(
            lambda: None if analyses.causes is None else charges_summary(analyses.causes, analyses.charge_rows)
        ),
        bar=bar,
        of_degree=[_graded(piece, rests_on) for piece in found.of_degree],
        advice_together_ns=found.together_ns if analyses.findings is not None or found.listed else None,
    )


def _named(drawn: DrawnFrom) -> tuple[int | None, Limits | None]:
    """Return the gain that the sentence names, and what it lies between; None where it names none."""
    advice = advice_of_sentence(drawn)
    return (None, None) if advice is None else (advice.gain_ns, advice.within_ns)


def _graded(piece: Advice, rests_on: Judged) -> Advice:
    """Grade a piece of advice as the sentence is that names one."""
    trust, why = rests_on.trust(piece.gain_ns, piece.within_ns, "the gain")
    return msgspec.structs.replace(piece, trust=trust, why=why)


def _measures(analyses: Analyses) -> dict[str, NDArray[Any]]:
    """Return the figures of typical windows that a summary has, by name."""
    rows = analyses.typical_rows
    measures = {name: getattr(rows, name) for name in ("span_ns", *MEASURED, "overlap")}
    measures |= {name: getattr(analyses.exposed, name)[analyses.typical.windows] for name in fields_of(EXPOSED)}
    measures["packing_ns"] = analyses.typical_column(lambda measured: measured.work.packing_ns)
    measures |= dict(zip(fields_of(IDLE_PARTS), analyses.typical_column(idle_parts).T, strict=True))
    return measures


def _by_device(rows: Breakdown, measures: dict[str, NDArray[Any]]) -> list[DeviceSummary]:
    """Return for each rank and device the same measures as over all ranks' windows."""
    devices = [*rows.by_device()]
    own_spreads = spreads_by([selected for _, selected in devices], measures)
    return [
        DeviceSummary(rank, device_label(device), own)
        for ((rank, device), _), own in zip(devices, own_spreads, strict=True)
    ]


def verdict(
    run: RunFacts, rows: Breakdown, shares: Mapping[str, float | None], transfer_is_bound: bool, steps: Steps
) -> str:
    """Say what a step takes, what it is made of, how much communication is hidden, and which ranks differ.

    `rows` are the typical windows, and `shares` are of their time added up.
    """
    exposed = _exposed(run, shares, transfer_is_bound)
    parts = [
        f"{percent(shares[name])} {label}{exposed if name == COMM.field else ''}"
        for name, label in _PARTS.items()
        if shares[name] or name in (COMPUTE.field, IDLE.field)
    ]
    made_of = f"{', '.join(parts)}{_hidden(run, rows, shares)}" if rows.span_ns.any() else "nothing takes any time"
    return " ".join([f"{_step(run, rows)}: {made_of}.", *odd_words(steps), *_ranks_differ(rows)])


def _step(run: RunFacts, rows: Breakdown) -> str:
    """Name the step that people train, where it was timed, and how far the one is stretched that shares are of."""
    mark_ns = mark_length(rows)
    # Of the device's part the median stands beside the mark's; shares are of the mean step.
    profiled = ms(float(np.mean(rows.span_ns) if mark_ns is None else np.median(rows.span_ns)))
    unprofiled_ns = run.controls.unprofiled_step_ns
    if rows.unmarked.all():
        return f"The whole trace, in which no step is marked, takes {profiled} (mean)"
    if unprofiled_ns is None and mark_ns is not None:
        return f"A step takes {ms(mark_ns)} under the profiler, and the device's part of it {profiled} (medians)"
    if unprofiled_ns is None:
        return f"A step takes {profiled} under the profiler (mean)"
    limits = run.controls.interval("unprofiled_step_ns")
    is_wide = limits is not None and limits[1] - limits[0] > WIDE * unprofiled_ns
    known = run.controls.known("unprofiled_step_ns") if is_wide else ""
    stretched = _stretched(run.controls) or f", and {ms(mark_ns) if mark_ns else profiled} while it is profiled"
    whole = "profiled step" if mark_ns is None else f"device's part of the profiled step, {profiled}"
    average = f", {words}" if (words := run.controls.on_average()) else ""
    return f"A step takes {ms(unprofiled_ns)}{known}{average}{stretched}. Of the {whole}"


def _stretched(controls: ControlFigures) -> str | None:
    """Say how much longer a step takes while it is profiled; no figure where chance may have made it."""
    if controls.distortion is None:
        return None
    limits = controls.interval("distortion")
    if limits is not None and not is_told_apart(limits, 1.0):
        least, most = (_more(limit) for limit in limits)
        return f"; whether it takes longer while it is profiled cannot be told (between {least} and {most})"
    return f", and {_more(controls.distortion)} while it is profiled"


def _more(distortion: float) -> str:
    """Write a ratio of steps: `22.7 % more`, `5.3 % less`, `2.48 times as long`."""
    if distortion >= TIMES:
        return f"{distortion:.2f} times as long"
    return f"{percent(abs(distortion - 1))} {'less' if distortion < 1 else 'more'}"


def _exposed(run: RunFacts, shares: Mapping[str, float | None], is_bound: bool) -> str:
    """Return what exposed communication is made of; what may be either is called neither."""
    waiting, transfer, unresolved = (shares[f"exposed_{part}_ns"] or 0.0 for part in ("wait", "transfer", "unresolved"))
    if not waiting + transfer + unresolved:
        return ""
    if not waiting + transfer:
        return f" (waiting or transfer: not known, since {why_unresolved(run)})"
    # Of partial collectives waiting is a lower bound, and transfer is not known.
    some_are_missing = len(run.ranks) < run.world_size
    told = [f"{'at least ' if some_are_missing else ''}{percent(waiting)} waiting"]
    if transfer or not unresolved:
        told.append(f"{'at most ' if is_bound and transfer else ''}{percent(transfer)} transfer")
    return f" ({', '.join([*told, *([f'{percent(unresolved)} unresolved'] if unresolved >= SHOWN else [])])})"


def _hidden(run: RunFacts, rows: Breakdown, shares: Mapping[str, float | None]) -> str:
    if shares["overlap"] is not None:
        hidden = percent(shares["overlap"])
        if any(notice.code == Code.TRANSFER_NOT_SHOWN for notice in run.warnings):
            return (
                f"; how much of communication is hidden behind compute is not known: {hidden} of its kernels' time is"
            )
        return f"; {hidden} of communication is hidden behind compute"
    several = run.world_size > 1 or len(np.unique(rows.device)) > 1
    return "; no communication was found" if several else ""


def _ranks_differ(rows: Breakdown) -> Iterator[str]:
    """Name the two ranks that differ most in what their time is made of, where they do."""
    devices = list(rows.by_device())
    names = list(_PARTS)
    spans = np.array([max(int(rows.span_ns[windows].sum()), 1) for _, windows in devices], dtype=np.float64)
    shares: Float64 = np.array(
        [[getattr(rows, name)[windows].sum() for name in names] for _, windows in devices], dtype=np.float64
    )
    shares /= spans[:, None]
    part = int(np.argmax(np.ptp(shares, axis=0)))
    low, high = int(np.argmin(shares[:, part])), int(np.argmax(shares[:, part]))
    if shares[high, part] - shares[low, part] < APART:
        return
    several = len({device for (_, device), _ in devices}) > 1 and len({rank for (rank, _), _ in devices}) == 1
    least, most = (
        f"device {device_label(key[1])}" if several else f"rank {key[0]}" for key in (devices[low][0], devices[high][0])
    )
    lowest, highest = percent(shares[low, part]), percent(shares[high, part])
    yield f"Ranks differ: {_PARTS[names[part]]} takes {lowest} of {least}'s time and {highest} of {most}'s."


# Kernels of matrix products and convolutions in FP32 outside of tensor cores, as cuBLAS, cuDNN and CUTLASS name them.
_PRODUCTS = re.compile(r"sgemm|ffma|simt|scudnn|fmha_cutlass[FB]_f32|implicit_convolve|convolve_common_engine")
_OF_TENSOR_CORES = re.compile(r"tf32|bf16|bfloat16|f16|half|1688|16816|tensor_?op|nvjet", re.IGNORECASE)
# cuDNN's copies between layouts, and batch norm in NCHW.
_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw|batch_norm_(?!.*channels_last)|bn_(?:fw|bw)(?!.*nhwc)", re.IGNORECASE)


def evidence_of(analyses: Analyses) -> Evidence:
    """Collect what rules of advice look at."""
    manifest, exchanged = analyses.manifest, analyses.exchanged
    steps = set(analyses.typical.steps.typical)
    return Evidence(
        step_ns=analyses.median_step_ns,
        windows=len(analyses.typical_rows),
        mean_ns=float(np.mean(analyses.typical_rows.span_ns)),
        step_word=analyses.step_word,
        trained_ns=analyses.step_ns,
        sharded=lazy(lambda: analyses.of_typical(analyses.sharded.collectives)),
        tensor=analyses.of_typical(analyses.tensor),
        cost=analyses.cost,
        free_compute_ns=_free_compute_ns(analyses),
        latency_ns=_latency_ns(exchanged),
        environment=manifest.environment,
        is_async_tp_on=_is_async_tp_on(manifest),
        pipelines=pipeline_summaries(analyses.pipelines, _schedule(manifest)),
        attention=[row for row in analyses.attention if row.step in steps],
        driven_ns=_driven_ns(analyses),
        products_ns=_in_kernels(analyses, _is_product) if _has_tensor_cores(analyses) else 0.0,
        layout_ns=_in_kernels(analyses, lambda kernel: bool(_LAYOUT.search(kernel.name))),
    )


def _is_product(kernel: Ranked) -> bool:
    return bool(_PRODUCTS.search(kernel.name)) and not _OF_TENSOR_CORES.search(kernel.name)


def _has_tensor_cores(analyses: Analyses) -> bool:
    names = analyses.manifest.devices or [name for rank in analyses.run.ranks for name in _devices(rank)]
    return any(peak_flops_per_s(name, Precision.BFLOAT16) for name in names)


def _devices(rank: RankSummary) -> Iterator[str]:
    yield from rank.header.device_names


def _in_kernels(analyses: Analyses, is_chosen: Callable[[Ranked], bool]) -> float:
    """Return how long some kernels that compute take per window, on the rank where they take longest, ns."""
    totals = []
    for measured in analyses.run.measured:
        chosen = (kernel for kernel in measured.usage.kernels if kernel.kind == "compute")
        totals.append(sum(k.total_ns for k in chosen if is_chosen(k)) / max(len(measured.windows), 1))
    return max(totals, default=0.0)


def _driven_ns(analyses: Analyses) -> float | None:
    """Return what devices of nn.DataParallel stand still or expose in the step that people train; None for other runs.

    That step less what the busiest device computes and copies: while it is profiled, devices idle for longer.
    """
    if not any(measured.work.source == LayerSource.NODES for measured in analyses.run.measured):
        return None
    rows = analyses.typical_rows
    works_ns = max(float(np.mean((rows.compute_ns + rows.exposed_copy_ns)[own])) for _, own in rows.by_device())
    return max(analyses.step_ns - works_ns, 0.0)


def _free_compute_ns(analyses: Analyses) -> float:
    """Return the median time per window in which compute runs with no communication beside it, ns."""
    rows = analyses.typical_rows
    return float(np.median(rows.compute_ns - rows.overlapped_comm_ns))


def _schedule(manifest: Manifest) -> str | None:
    """Return the class of a pipeline's schedule, as run.json has it."""
    recorded = manifest.parallelism
    return recorded.pipeline.schedule if recorded is not None and recorded.pipeline is not None else None


def _is_async_tp_on(manifest: Manifest) -> bool:
    """Whether run.json says that Inductor was to run collectives beside matrix products."""
    recorded = manifest.parallelism
    compiled = recorded.compiled if recorded is not None else None
    return bool(compiled is not None and compiled.micro_pipeline_tp)


def _latency_ns(exchanged: Exchange) -> int | None:
    """Return the shortest transfer of an all_reduce that is known exactly, about what one of no bytes would take."""
    transferred = exchanged.transfers
    is_exact = (exchanged.matching.instances.kind == Collective.ALL_REDUCE) & ~transferred.bound
    known_ns = transferred.transfer_ns[is_exact & (transferred.transfer_ns > 0)]
    return int(known_ns.min()) if len(known_ns) else None
