"""Evidence for bounds of advice, collected from a run's analyses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from analyzers.collectives import Exchange
from analyzers.layers import pipeline_summaries
from analyzers.lazy_fields import lazy
from analyzers.rank import LayerSource, RankSummary
from analyzers.rank.kernels import Precision, Ranked, peak_flops_per_s
from analyzers.reporting.analyses import Analyses
from analyzers.reporting.remedies import Evidence
from analyzers.run import Manifest
from analyzers.trace import Collective

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
    """Return what devices of nn.DataParallel stand still or expose in a step; None for other runs."""
    if not any(measured.work.source == LayerSource.NODES for measured in analyses.run.measured):
        return None
    rows = analyses.typical_rows
    least = np.min([np.mean((rows.idle_ns + rows.exposed_comm_ns)[own]) for _, own in rows.by_device()])
    return float(least)


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
