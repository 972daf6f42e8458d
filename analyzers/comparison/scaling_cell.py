"""One cell of a sweep: step time, epoch time, step parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from analyzers.comparison.scaling_document import MEASURES, PROFILED, UNPROFILED, CellRow, CellStep, EpochTime
from analyzers.rank import CPU_DEVICE, RunSummary, device_label
from analyzers.reporting import GRADIENTS, Report, Window, gradient_bandwidth, report, typical_of
from analyzers.run import LONGEST_NS, SINGLE, Cell, Control, Controls, Dataset, Epoch, Manifest
from analyzers.statistics import Limits, Spread, median_interval
from analyzers.step_parts import EXPOSED, PARTS, SPLIT_PARTS, fields_of
from analyzers.units import NS_PER_S

# An epoch of a run that names no data set: CIFAR-10's training images (Krizhevsky, 2009).
ASSUMED = Dataset("CIFAR-10", 50_000, True)
# A figure whose 95 % interval is wider than this share of it is uncertain.
WIDE = 0.05
# What cells that are compared must have in common, of their manifest's settings.
SETTINGS = ("amp", "image_size", "channels_last", "compile")


def missing(cell: Cell, why: str | None) -> CellRow:
    """Return the row for a cell without figures."""
    return CellRow(cell.name, cell.strategy, cell.gpus, cell.batch, cell.state, why)


def measured(cell: Cell, run: RunSummary) -> CellRow:
    """Return the row for a recorded cell; without figures where the recording is another cell's."""
    manifest = run.manifest or Manifest()
    if mismatch := _another(cell, manifest):
        return missing(cell, mismatch)
    summarized = report(run)
    accumulation = accumulation_of(manifest)
    global_batch = cell.batch * cell.gpus * accumulation
    step = step_time(manifest.controls, summarized)
    controls = summarized.run.controls
    return replace(
        missing(cell, None),
        accumulation=accumulation,
        workload=_workload(manifest) if run.manifest else {},
        recorded_as=manifest.strategy,
        devices=summarized.run.devices,
        on_cpu=summarized.summary.representative.device == device_label(CPU_DEVICE),
        missing_ranks=summarized.run.world_size - len(summarized.run.ranks),
        step=step,
        blocks_ns=controls.blocks_ns.get(UNPROFILED, []),
        launches=(launches := _launches(manifest.controls.unprofiled)),
        hosts=manifest.hosts_of_launches or [manifest.hosts] * (launches == 1 and bool(manifest.hosts)),
        distortion=controls.distortion,
        distortion_uncertain=controls.distortion is not None
        and _is_uncertain(controls.distortion, controls.interval("distortion")),
        epoch=epoch_time(manifest, global_batch, step),
        samples_per_s=NS_PER_S * global_batch / step.median_ns if step.median_ns else None,
        peak_memory_bytes=max(manifest.memory.peak_bytes.values(), default=None) if manifest.memory else None,
        memory_source=manifest.memory.source if manifest.memory else None,
        measured=_windows(summarized),
        exposed_mean_ns=float(np.mean([window.exposed_comm_ns for window in typical_of(summarized.windows)])),
        shares={name: summarized.summary.shares.get(name) for name in fields_of(SPLIT_PARTS)},
        representative=_representative(summarized),
        gradients=gradient_bandwidth(summarized.collectives, summarized.traffic.get(GRADIENTS)),
        epochs=manifest.epochs,
        warnings=summarized.run.warnings,
    )


def _another(cell: Cell, manifest: Manifest) -> str | None:
    """Return why a recording is not the cell's, if its run.json says so; on one device any strategy will do."""
    if manifest.batch_per_gpu not in (None, cell.batch):
        return f"its run.json is of batch {manifest.batch_per_gpu}, not {cell.batch}"
    if cell.strategy != SINGLE and manifest.strategy not in (None, cell.strategy):
        return f"its run.json is of strategy {manifest.strategy}, not {cell.strategy}"
    if manifest.devices and len(manifest.devices) != cell.gpus:
        return f"its run.json is of {len(manifest.devices)} devices, not {cell.gpus}"
    return None


def accumulation_of(manifest: Manifest) -> int:
    """Return how many batches' gradients are added before the optimizer steps; 1 where the manifest does not say."""
    batches = manifest.settings.get("grad_accumulation")
    return batches if isinstance(batches, int) and not isinstance(batches, bool) and 1 <= batches <= LONGEST_NS else 1


def _workload(manifest: Manifest) -> dict[str, str | None]:
    settings = {name: manifest.settings.get(name) for name in SETTINGS}
    settings |= {"model": manifest.model, "data": _data(manifest), "device": ", ".join(sorted(set(manifest.devices)))}
    # A setting that an older recording does not name is one that was off.
    return {name: str(value) if value else None for name, value in settings.items()}


def _data(manifest: Manifest) -> str:
    if manifest.dataset is not None:
        return "synthetic" if manifest.dataset.is_synthetic else manifest.dataset.name
    return "synthetic" if manifest.settings.get("data", "synthetic") == "synthetic" else "from disk"


def step_time(controls: Controls, summarized: Report) -> CellStep:
    """Return a step without the profiler; under it, where there was no such step."""
    unprofiled = control_time(controls.unprofiled)
    return unprofiled if unprofiled.median_ns else _window_time(typical_of(summarized.windows))


def _launches(unprofiled: Control | None) -> int:
    """Return how many launches a cell's step is of; windows under the profiler are of one."""
    return len(unprofiled.blocks_ns) or 1 if unprofiled is not None and unprofiled.by_launch else 1


def control_time(control: Control | None) -> CellStep:
    """Return a control as a step's time."""
    if control is None or control.median_ns is None:
        return CellStep()
    return _time(control.median_ns, control.interval_ns, UNPROFILED)


def _window_time(windows: Sequence[Window]) -> CellStep:
    """Return windows under the profiler as a step's time: one block of steps, a window each on every device."""
    spans: dict[int, list[int]] = {}
    for window in windows:
        if window.span_ns > 0:
            spans.setdefault(window.step, []).append(window.span_ns)
    if not spans:
        return CellStep()
    steps = np.full((len(spans), max(map(len, spans.values()))), np.nan)
    for row, step_spans in enumerate(spans.values()):
        steps[row, : len(step_spans)] = step_spans
    # Ranks of a step depend on one another: only steps are what chance drew.
    median_ns, limits = float(np.nanmedian(steps)), median_interval([np.nanmedian(steps, axis=1)])
    return _time(median_ns, limits and (min(limits[0], median_ns), max(limits[1], median_ns)), PROFILED)


def _time(median_ns: float, limits: Limits | None, source: str) -> CellStep:
    low, high = limits or (None, None)
    spread = (limits[1] - limits[0]) / median_ns if limits is not None else None
    return CellStep(median_ns, low, high, spread, source, _is_uncertain(median_ns, limits))


def _is_uncertain(value: float, limits: Limits | None) -> bool:
    """Whether a figure's interval is wide, or not known."""
    return limits is None or limits[1] - limits[0] > WIDE * value


def epoch_time(manifest: Manifest, global_batch: int, step: CellStep) -> EpochTime:
    """Return an epoch's time: its steps, the last one with what is left; and whole epochs where some were timed."""
    dataset = manifest.dataset if manifest.dataset and manifest.dataset.samples > 0 else ASSUMED
    steps = -(-dataset.samples // global_batch)
    times = [epoch.time_ns for epoch in after_warmup(manifest.epochs)]
    why = "no epoch was timed" if not manifest.epochs else "the only epoch was warm-up"
    return EpochTime(
        dataset=dataset.name,
        is_synthetic=dataset.is_synthetic,
        is_assumed=dataset is ASSUMED,
        samples=dataset.samples,
        steps=steps,
        derived_ns=steps * step.median_ns if step.median_ns else None,
        measured_ns=float(np.median(times)) if times else None,
        measured_epochs=len(times),
        why=None if times else why,
    )


def after_warmup(epochs: Sequence[Epoch]) -> Sequence[Epoch]:
    """Return the epochs whose time is a measurement: all but the first."""
    return sorted(epochs, key=lambda epoch: epoch.epoch)[1:]


def _windows(summarized: Report) -> dict[str, Spread]:
    """Return the report's medians that the study shows; `input_idle_ns` where a loader's ranges are in the traces."""
    shown = {name: spread for name, spread in summarized.summary.windows.items() if name in MEASURES}
    # The idle time that waits for input is a figure of the full windows; a report may have none.
    waits = summarized.summary.input
    return shown | ({"input_idle_ns": waits.idle_ns} if waits is not None else {})


def _representative(summarized: Report) -> dict[str, int]:
    """Return the window with the median length, whose parts add up to its span."""
    window = summarized.representative_window
    return {name: getattr(window, name) for name in ("span_ns", *fields_of((*PARTS, *EXPOSED)))}
