"""All analyses of a run -> one Report, to and from JSON. METRICS fixes the JSON's keys; keys may be added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.activity import device_label
from analyzers.breakdown import Breakdown, joined
from analyzers.controls import HIGH_DISTORTION, Controls
from analyzers.errors import AnalysisError
from analyzers.manifest import Manifest
from analyzers.run import Run, world_size
from analyzers.summary import RankSummary, RunSummary, summary_of
from analyzers.units import ms, percent

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "tracer.report/1"
NOT_COMPUTED = (
    "null or empty, since no analysis fills them yet: packing, exposed wait and transfer, clock, collectives, "
    "unmatched, buckets, layers, traffic, advice"
)
# What a window's span is made of; the four add up to it.
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_MEASURED = (*PARTS, "comm_ns", "copy_ns", "overlapped_comm_ns")
MEASURES = ("span_ns", *_MEASURED, "overlap")


class Spread(msgspec.Struct, frozen=True):
    """A median with its quartiles and extremes, over `count` values; all null where there is none."""

    count: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    minimum: float | None = None
    maximum: float | None = None


class ControlFigures(msgspec.Struct, frozen=True):
    """Medians of the run's controls, ns a step; null with the reason among the warnings."""

    unprofiled_step_ns: int | None = None
    nosync_step_ns: int | None = None
    profiled_step_ns: int | None = None
    distortion: float | None = None
    sync_cost_ns: int | None = None


class Clock(msgspec.Struct, frozen=True):
    """Offsets between ranks' clocks; null until collectives are matched across ranks."""

    offsets_ns: dict[str, int] | None = None
    spread_ns: dict[str, int] | None = None
    applied: bool = False


class Links(msgspec.Struct, frozen=True):
    """What the ranks communicate over; null where the run does not say."""

    devices: list[str] = []
    transport: str | None = None
    limit_gbps: float | None = None
    source: str | None = None


class RunFacts(msgspec.Struct, frozen=True):
    """What is known of the run itself."""

    name: str
    world_size: int
    ranks: list[int]
    devices: list[str]
    backend: str | None
    strategy: str | None
    model: str | None
    batch_per_gpu: int | None
    bucket_cap_mb: float | None
    versions: dict[str, str | None]
    origin_ns: str
    times_from: str
    controls: ControlFigures
    clock: Clock
    links: Links
    warnings: list[str]


class Window(msgspec.Struct, frozen=True):
    """One profiled step on one device of one rank; `start_ns` from the run's earliest event. See METRICS."""

    rank: int
    device: int | str
    step: int
    start_ns: int
    span_ns: int
    compute_ns: int
    packing_ns: int | None
    comm_ns: int
    copy_ns: int
    overlapped_comm_ns: int
    exposed_comm_ns: int
    exposed_wait_ns: int | None
    exposed_transfer_ns: int | None
    exposed_copy_ns: int
    idle_ns: int
    overlap: float | None


class Representative(msgspec.Struct, frozen=True):
    """The window of median span: the one step in which printed lines add up."""

    rank: int
    device: int | str
    step: int


class DeviceSummary(msgspec.Struct, frozen=True):
    """The measures of all windows of one device of one rank."""

    rank: int
    device: int | str
    windows: dict[str, Spread]


class Summary(msgspec.Struct, frozen=True):
    """Medians with their spread, over all windows and over each device's; shares of all windows' time together."""

    windows: dict[str, Spread]
    by_device: list[DeviceSummary]
    shares: dict[str, float | None]
    representative: Representative
    verdict: str
    advice: list[dict[str, Any]] = []
    buckets: dict[str, Spread] | None = None
    layers: dict[str, Spread] | None = None


class Report(msgspec.Struct, frozen=True):
    """What METRICS calls the report. Lists that no analysis fills yet are empty; what is unknown is null."""

    schema: str
    run: RunFacts
    windows: list[Window]
    collectives: list[dict[str, Any]]
    unmatched: list[dict[str, Any]]
    buckets: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    traffic: dict[str, Any] | None
    summary: Summary


def report(source: Run | RunSummary) -> Report:
    """Everything that can be said of a run."""
    run = summary_of(source) if isinstance(source, Run) else source
    rows = joined([measured.windows for measured in run.measured])
    origin_ns = min(measured.earliest_ns for measured in run.measured)
    facts = _facts(run, origin_ns, [*_unmarked_warnings(rows), *_outside_warnings(rows), NOT_COMPUTED])
    return Report(
        schema=SCHEMA,
        run=facts,
        windows=_windows(rows, origin_ns),
        collectives=[],
        unmatched=[],
        buckets=[],
        layers=[],
        traffic=None,
        summary=_summary(rows),
    )


def to_json(document: Report) -> str:
    """The report as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()


def from_json(text: str | bytes) -> Report:
    """A report that `to_json` wrote. Raises AnalysisError where the text is something else."""
    try:
        document = msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as error:
        raise AnalysisError(f"no report ({error}); make one with `tracer report RUN --json`") from error
    if document.schema != SCHEMA:
        raise AnalysisError(
            f"a report of schema {document.schema!r}, not {SCHEMA!r}; make it anew with `tracer report`"
        )
    return document


def windows_frame(document: Report) -> pd.DataFrame:
    """The report's windows, a row each, in the JSON's units and order."""
    import pandas as pd

    return pd.DataFrame([msgspec.structs.asdict(window) for window in document.windows])


def _windows(rows: Breakdown, origin_ns: int) -> list[Window]:
    known = ("rank", "step", "span_ns", *_MEASURED)
    columns: dict[str, list[Any]] = {name: getattr(rows, name).tolist() for name in known}
    columns["device"] = [device_label(device) for device in rows.device.tolist()]
    columns["start_ns"] = (rows.start_ns - origin_ns).tolist()
    columns["overlap"] = [None if np.isnan(share) else share for share in rows.overlap.tolist()]
    columns |= {name: [None] * len(rows) for name in ("packing_ns", "exposed_wait_ns", "exposed_transfer_ns")}
    ordered = [columns[name] for name in Window.__struct_fields__]
    return [Window(*record) for record in zip(*ordered, strict=True)]


def _facts(run: RunSummary, origin_ns: int, more_warnings: Sequence[str]) -> RunFacts:
    manifest = run.manifest or Manifest()
    header = run.ranks[0].header
    window = "light" if run.is_light else "full"
    controls = _control_figures(manifest.controls, window)
    warnings = [
        *_distortion_warning(manifest.controls, window),
        *run.warnings,
        *more_warnings,
        *manifest.controls.why_null(),
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
        origin_ns=str(origin_ns),
        times_from=window,
        controls=controls,
        clock=Clock(),
        links=Links(devices=names, transport=manifest.transport, source="run.json" if manifest.transport else None),
        warnings=warnings,
    )


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


def _control_figures(controls: Controls, window: str) -> ControlFigures:
    return ControlFigures(
        unprofiled_step_ns=controls.step_ns("unprofiled"),
        nosync_step_ns=controls.step_ns("nosync"),
        profiled_step_ns=controls.step_ns(window),
        distortion=controls.distortion(window),
        sync_cost_ns=controls.sync_cost_ns(),
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


def _summary(rows: Breakdown) -> Summary:
    total_ns = int(rows.span_ns.sum())
    shares = {part: _share(getattr(rows, part).sum(), total_ns) for part in PARTS}
    shares["overlap"] = _share(rows.overlapped_comm_ns.sum(), int(rows.comm_ns.sum()))
    median = _median_window(rows)
    return Summary(
        windows=_measures(rows),
        by_device=_by_device(rows),
        shares=shares,
        representative=Representative(
            int(rows.rank[median]), device_label(int(rows.device[median])), int(rows.step[median])
        ),
        verdict=_verdict(rows, shares),
    )


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None


def _median_window(rows: Breakdown) -> int:
    """Index of the window whose span is the (lower) median."""
    return int(np.argsort(rows.span_ns, kind="stable")[(len(rows) - 1) // 2])


def _by_device(rows: Breakdown) -> list[DeviceSummary]:
    """For each rank and device the same measures as over all windows."""
    devices = np.unique(np.stack([rows.rank, rows.device]), axis=1).T
    each = [(rank, device, rows.take((rows.rank == rank) & (rows.device == device))) for rank, device in devices]
    return [DeviceSummary(int(rank), device_label(int(device)), _measures(own)) for rank, device, own in each]


def _measures(rows: Breakdown) -> dict[str, Spread]:
    return {name: _spread(getattr(rows, name)) for name in MEASURES}


def _spread(values: NDArray[Any]) -> Spread:
    known = values[~np.isnan(values)]
    if not len(known):
        return Spread(0)
    low, median, high = (float(value) for value in np.percentile(known, [25, 50, 75]))
    return Spread(len(known), median, low, high, float(known.min()), float(known.max()))


def _verdict(rows: Breakdown, shares: dict[str, float | None]) -> str:
    """One sentence: the step, what it is made of, how much communication is hidden."""
    step = f"A step takes {ms(float(np.median(rows.span_ns)))} (median)"
    if rows.unmarked.all():
        step = f"The whole trace, in which no step is marked, takes {ms(float(np.median(rows.span_ns)))} (median)"
    parts = (
        f"{percent(shares['compute_ns'])} compute, {percent(shares['exposed_comm_ns'])} exposed communication, "
        f"{percent(shares['exposed_copy_ns'])} exposed copies, {percent(shares['idle_ns'])} idle"
    )
    if shares["overlap"] is None:
        return f"{step}: {parts}; there is no communication."
    return f"{step}: {parts}; {percent(shares['overlap'])} of communication is hidden behind compute."
