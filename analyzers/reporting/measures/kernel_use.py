"""Kernels and operators by time, FLOP/s against the peak, samples per second."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from analyzers.arrays import none_if_negative
from analyzers.notices import Code, Notice
from analyzers.rank import RankSummary, RunSummary
from analyzers.rank.kernels import Precision, Ranked, Usage, peak_flops_per_s
from analyzers.run import Manifest, world_size
from analyzers.statistics import ratio
from analyzers.trace import Remedies
from analyzers.units import NS_PER_S, percent

# Of less of the compute's time FLOPs are known, and the whole's are not said.
LEAST_COVERAGE = 0.8


class KernelRow(msgspec.Struct, frozen=True):
    """One kernel, or one operator by what it launched: docs/measuring.md, What compute is.

    `kind`: `compute`, `comm`, `copy`.
    """

    rank: int
    name: str
    kind: str
    calls: int
    total_ns: int
    median_ns: float
    share: float | None


class RegionKernel(msgspec.Struct, frozen=True):
    """A kernel of a compiled region, or at a place of a CUDA graph, over all windows of a rank.

    `region`: compiled, or a CUDA graph. `fused`: operators, as `add_mul`.
    """

    rank: int
    region: str
    place: int | None
    name: str
    fused: str | None
    kind: str
    calls: int
    total_ns: int
    median_ns: float


# Inductor's name of a kernel: its kind (pointwise, reduction, persistent, template, foreach), what it fused, a number.
_FUSED = re.compile(r"triton_(?:[a-z]+_)?fused_(.+)_\d+")


def region_rows(run: RunSummary) -> list[RegionKernel]:
    """Return each rank's kernels of compiled regions and CUDA graphs, graphs' in their order."""
    return [
        RegionKernel(
            number,
            row.region,
            none_if_negative(row.place),
            kernel.name,
            match[1] if (match := _FUSED.fullmatch(kernel.name)) is not None else None,
            *(kernel.kind, kernel.calls, kernel.total_ns, kernel.median_ns),
        )
        for _, number, measured in run.numbered()
        for row in measured.usage.regions
        for kernel in [row.kernel]
    ]


class Compute(msgspec.Struct, frozen=True):
    """FLOPs of one step on one device: docs/measuring.md, What compute is.

    `coverage`: under 80 % the keys before are null. `counted_flops`: like all `counted_`, of kernels with a count.
    """

    flops: int | None = None
    flops_per_s: float | None = None
    peak_flops_per_s: float | None = None
    utilization: float | None = None
    coverage: float | None = None
    samples_per_s: float | None = None
    counted_flops: int = 0
    counted_flops_per_s: float | None = None
    counted_utilization: float | None = None
    precisions: dict[str, float] = {}


def kernel_rows(run: RunSummary, of: Callable[[Usage], Sequence[Ranked]]) -> list[KernelRow]:
    """Return each rank's kernels, or operators, the longest first."""
    return [
        KernelRow(number, row.name, row.kind, row.calls, row.total_ns, row.median_ns, row.share)
        for _, number, measured in run.numbered()
        for row in of(measured.usage)
    ]


def compute(run: RunSummary, step_ns: float | None) -> Compute:
    """Return the FLOP/s of a run's devices, and its samples per second in steps of a given length.

    Utilization is the time that the FLOPs would take at the peak of their precision over the time that steps took.
    """
    usages = [measured.usage for measured in run.measured]
    compute_ns, counted_ns = (sum(getattr(usage, name) for usage in usages) for name in ("compute_ns", "counted_ns"))
    spans = np.concatenate([measured.windows.span_ns for measured in run.measured])
    counts = list(_counts(run))
    total = sum(count.flops for count in counts)
    at_peak_s = _at_peak_s(counts)
    found = Compute(
        coverage=ratio(counted_ns, compute_ns),
        samples_per_s=_samples_per_s(run, step_ns),
        counted_flops=round(total / len(spans)),
        counted_flops_per_s=ratio(total * NS_PER_S, counted_ns),
        counted_utilization=_over(at_peak_s, counted_ns),
        precisions=_precisions(counts),
    )
    if found.coverage is None or found.coverage < LEAST_COVERAGE or not total:
        return found
    span_ns = int(spans.sum())
    return msgspec.structs.replace(
        found,
        flops=found.counted_flops,
        flops_per_s=ratio(total * NS_PER_S, span_ns),
        peak_flops_per_s=ratio(total, at_peak_s) if at_peak_s else None,
        utilization=_over(at_peak_s, span_ns),
    )


def compute_notices(found: Compute, remedies: Remedies) -> list[Notice]:
    """Say why FLOP/s of the step, or their share of the peak, are null."""
    if found.utilization is not None:
        return []
    if found.flops_per_s is not None:
        return [
            Notice(
                Code.FLOPS_ARE_NULL,
                "utilization is not known, since the device's peak at these precisions is not known",
            )
        ]
    if not found.counted_flops:
        text = "FLOP/s are not known: no matrix operator in the trace has shapes"
        return [Notice(Code.FLOPS_ARE_NULL, text, remedies.shapes)]
    text = (
        f"FLOP/s of the step are not known: only {percent(found.coverage)} of compute time has known FLOPs, and "
        f"{100 * LEAST_COVERAGE:.0f} % are needed"
    )
    return [Notice(Code.FLOPS_ARE_NULL, text)]


@dataclass(frozen=True)
class _Count:
    """FLOPs at one precision on one sort of device; its name is empty where the trace does not say it."""

    device_name: str
    precision: Precision
    flops: int


def _counts(run: RunSummary) -> Iterator[_Count]:
    for summary, measured in zip(run.ranks, run.measured, strict=True):
        names = _names(run.manifest or Manifest(), summary)
        for count in measured.usage.counts:
            alone = next(iter(names)) if len(set(names)) == 1 else ""
            name = alone or (names[count.device] if 0 <= count.device < len(names) else "")
            yield _Count(name, count.precision, count.flops)


def _names(manifest: Manifest, summary: RankSummary) -> Sequence[str]:
    """The names of a rank's devices by index; those of run.json where the trace has none, and all are alike."""
    names = summary.header.device_names
    return names or (tuple(manifest.devices[:1]) if len(set(manifest.devices)) == 1 else ())


def _at_peak_s(counts: Sequence[_Count]) -> float | None:
    """How long the FLOPs would take at the devices' peaks; None where there are none, or a peak is unknown."""
    seconds = 0.0
    for count in counts:
        peak = peak_flops_per_s(count.device_name, count.precision)
        if peak is None and count.flops:
            return None
        seconds += count.flops / peak if peak else 0.0
    return seconds or None


def _over(at_peak_s: float | None, whole_ns: int) -> float | None:
    return None if at_peak_s is None else ratio(at_peak_s * NS_PER_S, whole_ns)


def _precisions(counts: Sequence[_Count]) -> dict[str, float]:
    """The share of each precision among counted FLOPs, the largest first."""
    total = sum(count.flops for count in counts)
    sums: dict[str, int] = {}
    for count in counts:
        sums[str(count.precision)] = sums.get(str(count.precision), 0) + count.flops
    largest = sorted(sums.items(), key=lambda item: -item[1])
    return {name: flops / total for name, flops in largest if flops}


def _samples_per_s(run: RunSummary, step_ns: float | None) -> float | None:
    """Return what all devices of the run take in, None where the batch is not known."""
    manifest = run.manifest or Manifest()
    batches = manifest.settings.get("grad_accumulation", 1)
    if manifest.batch_per_gpu is None or not step_ns or not isinstance(batches, int):
        return None
    devices = max(len(np.unique(measured.windows.device)) for measured in run.measured)
    return manifest.batch_per_gpu * batches * devices * world_size(manifest, run.ranks) * NS_PER_S / step_ns
