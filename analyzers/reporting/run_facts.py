"""Facts of a run: devices, versions, controls, clocks, links, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analyzers.collectives import Exchange, clock_row
from analyzers.notices import Code, Notice, Weight
from analyzers.rank import RankSummary, RunSummary
from analyzers.reporting.document import ControlFigures, LinkFacts, RunFacts
from analyzers.run import Controls, Manifest, device_notices, world_size
from analyzers.units import ms

# So many kernels are named that may communicate.
_SUSPECTS = 3


def run_facts(run: RunSummary, exchanged: Exchange, more_warnings: Sequence[Notice]) -> RunFacts:
    """Return the facts of a run, with all its warnings and notes."""
    manifest = run.manifest or Manifest()
    header = run.ranks[0].header
    window = "light" if run.is_light else "full"
    controls = control_figures(manifest.controls, window)
    notices = [
        *_distortion_warning(controls),
        *run.warnings,
        *_silence_warning(run),
        *device_notices(manifest.device_states),
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
        warnings=[notice for notice in notices if notice.code.facts.weight is not Weight.NOTE],
        notes=[notice for notice in notices if notice.code.facts.weight is Weight.NOTE],
        memory=manifest.memory,
        device_states=manifest.device_states,
        dataset=manifest.dataset,
        epochs=manifest.epochs,
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


def control_figures(controls: Controls, window: str) -> ControlFigures:
    """Return the medians of the controls, against the windows that times come from."""
    intervals = {
        "unprofiled_step_ns": controls.interval_ns("unprofiled"),
        "nosync_step_ns": controls.interval_ns("nosync"),
        "profiled_step_ns": controls.interval_ns(window),
        "distortion": controls.distortion_interval(window),
        "sync_cost_ns": controls.sync_cost_interval_ns(),
    }
    return ControlFigures(
        unprofiled_step_ns=controls.step_ns("unprofiled"),
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
