"""Section on compute: longest kernels and operators, FLOP/s, samples per second."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.reporting import Compute, KernelRow, RegionKernel, Report
from analyzers.statistics import LEAST_SHARE
from analyzers.units import NS_PER_US, percent
from tracer.views import HELP, Field, Heading, Paragraph, Place, Section, Table, count, field, table

MOST_KERNELS = 10
# A name longer than this is cut, since C++ templates spell out whole programs.
LONGEST_NAME = 64
# What nearly all kernels' names have, and tells nothing.
_LEFT_OUT = ("void ", "at::native::", "(anonymous namespace)::")


_CALLS: Sequence[Field[KernelRow | RegionKernel]] = (
    field("total_ns", "ms", "All calls added up, over all profiled steps."),
    Field("calls", help=HELP["calls"], cell=lambda row: f"{row.calls:,}"),
    Field("median us", help=HELP["median_ns"], cell=lambda row: f"{row.median_ns / NS_PER_US:,.1f}"),
)
_REGIONS: Sequence[Field[RegionKernel]] = (
    *_CALLS,
    Field("place", help="The place in the CUDA graph.", cell=lambda row: "-" if row.place is None else str(row.place)),
    Field("region", True, help="The compiled region or CUDA graph.", cell=lambda row: row.region),
    Field("fused operators, or kernel", True, cell=lambda row: short(row.fused or row.name)),
)


def compute_section(report: Report, most: int = MOST_KERNELS) -> Section:
    """Show what one rank's devices spent their time on, and how fast the run computes."""
    rank = report.summary.representative.rank
    lists = [[row for row in rows if row.rank == rank][:most] for rows in (report.kernels, report.operators)]
    if not any(lists):
        return []
    windows = sum(window.rank == rank for window in report.windows)
    where = f"rank {rank}, {count(windows, 'window')}; share of all kernels' and copies' time"
    titles = (f"Longest kernels ({where})", "Operators by the time of the kernels that they launch")
    tables = [
        block
        for title, noun, rows in zip(titles, ("kernel", "operator"), lists, strict=True)
        if rows
        for block in (Heading(title), _table(noun, rows))
    ]
    regions = _regions(report, rank, most) if most > MOST_KERNELS else []
    return [*tables, *regions, *map(Paragraph, rate_lines(report))]


def _table(noun: str, rows: Sequence[KernelRow]) -> Table:
    fields: Sequence[Field[KernelRow]] = (
        field("share", "share"),
        *_CALLS,
        Field("kind", True, cell=lambda row: row.kind),
        Field(noun, True, cell=lambda row: short(row.name)),
    )

    def place(row: KernelRow) -> Place | None:
        return Place(rank=row.rank, kernel=row.name) if noun == "kernel" else None

    return table(fields, rows, place=place, subject=len(fields) - 1, whole_name=lambda row: row.name)


def _regions(report: Report, rank: int, most: int) -> Section:
    """List kernels of compiled regions by the operators fused in them, and those of CUDA graphs in their order."""
    rows = [row for row in report.regions if row.rank == rank][:most]
    if not rows:
        return []
    return [
        Heading("Kernels of compiled regions, and of CUDA graphs by their place in the graph"),
        table(_REGIONS, rows, subject=len(_REGIONS) - 1, whole_name=lambda row: row.fused or row.name),
    ]


def short(name: str) -> str:
    """Return a kernel's name without what it shares with all others, cut where it is long."""
    for words in _LEFT_OUT:
        name = name.replace(words, "")
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..."


def rate_lines(report: Report) -> list[str]:
    """Say how many FLOPs a second, where they are known (else a note says why not), and how many samples."""
    return [line for line in (_whole(report.compute), _counted(report.compute), _samples(report)) if line]


def _whole(compute: Compute) -> str:
    if compute.flops_per_s is None:
        return ""
    reached = f"Each device computes {rate(compute.flops_per_s)} over the step"
    if compute.utilization is not None and compute.peak_flops_per_s is not None:
        reached += f", {percent(compute.utilization)} of its peak ({rate(compute.peak_flops_per_s)}, dense)"
    else:
        reached += "; its peak is not known"
    work = f"FLOPs are known, from shapes, for {percent(compute.coverage)} of compute time"
    return f"{reached}. This is hardware utilization: recomputation counts. {work}."


def _counted(compute: Compute) -> str:
    if compute.counted_flops_per_s is None or not compute.counted_flops or (compute.coverage or 0.0) < LEAST_SHARE:
        return ""
    of_peak = f", {percent(compute.counted_utilization)} of the peak" if compute.counted_utilization is not None else ""
    precision = next(iter(compute.precisions), "")
    share = f"{percent(compute.coverage)} of compute time; those with known shapes"
    reached = f"{rate(compute.counted_flops_per_s)}{of_peak} (mostly {precision})"
    return f"While matrix products, convolutions and attention run ({share}), they reach {reached}."


def _samples(report: Report) -> str:
    if report.compute.samples_per_s is None:
        return ""
    source = "without the profiler" if report.run.controls.unprofiled_step_ns is not None else "under the profiler"
    return (
        f"The run processes {report.compute.samples_per_s:,.0f} samples per second on all devices together, {source}."
    )


def rate(flops_per_s: float) -> str:
    """Write FLOP/s as `168.7 TFLOP/s`."""
    for unit, name in ((1e15, "P"), (1e12, "T"), (1e9, "G")):
        if flops_per_s >= unit:
            return f"{flops_per_s / unit:,.4g} {name}FLOP/s"
    return f"{flops_per_s / 1e6:,.4g} MFLOP/s"
