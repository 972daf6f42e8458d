"""A run's step as measured, and what speaks against predictions of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from analyzers.arrays import Float64
from analyzers.notices import Code, Notice
from analyzers.prediction.assumption import MEASURED_ON, Assumption
from analyzers.rank import CPU_DEVICE, Breakdown, RunSummary
from analyzers.reporting import typical_windows
from analyzers.run import HIGH_DISTORTION, Manifest, world_size
from analyzers.units import percent

# A replay that misses the run's own step by more than this misses others, too.
OFF = 0.05


class MeasuredFrom(StrEnum):
    """Where a measured step is from; the values are what documents hold."""

    UNPROFILED = "unprofiled control"
    LIGHT = "light window"
    FULL = "full window"

    __str__ = str.__str__


def typical_steps(run: RunSummary) -> frozenset[int]:
    """Return the steps whose windows are typical on all devices."""
    rows = Breakdown.joined([measured.windows for measured in run.measured])
    unprofiled = run.manifest.controls.unprofiled if run.manifest is not None else None
    typical = typical_windows(rows, unprofiled).windows
    return frozenset(rows.step[typical].tolist()) - frozenset(rows.step[~typical].tolist())


def measured_step(run: RunSummary, manifest: Manifest, span_ns: Float64) -> tuple[int, MeasuredFrom, float]:
    """Return the step as measured, where it is from, and to what share of it it is known."""
    unprofiled = manifest.controls.step_ns("unprofiled")
    if unprofiled is None:
        low, median_ns, high = (float(ns) for ns in np.percentile(span_ns, [25, 50, 75]))
        return round(median_ns), MeasuredFrom.LIGHT if run.is_light else MeasuredFrom.FULL, (high - low) / median_ns
    low, high = manifest.controls.interval_ns("unprofiled") or (unprofiled, unprofiled)
    return unprofiled, MeasuredFrom.UNPROFILED, (high - low) / 2 / unprofiled


def replay_doubts(error: float) -> list[Notice]:
    """Say that the replay misses the run's own step."""
    text = f"the replay of the run's own settings is off by {percent(abs(error))}"
    return [Notice(Code.REPLAY_IS_OFF, text)] if abs(error) > OFF else []


def borrowing(run: RunSummary, manifest: Manifest, assumptions: Sequence[Assumption]) -> list[Notice]:
    """Say that figures of another device are used, or of one that may be another."""
    count = sum(assumption.is_borrowed for assumption in assumptions)
    names = manifest.devices or sorted({name for summary in run.ranks for name in summary.header.device_names})
    if not count or (names and all(MEASURED_ON in name for name in names)):
        return []
    figures = "a figure that was" if count == 1 else f"{count} figures that were"
    devices = ", ".join(dict.fromkeys(names)) if names else "devices of which nothing says what they are"
    text = f"{figures} measured on {MEASURED_ON}s are used for {devices}; see what this rests on"
    return [Notice(Code.FIGURES_OF_ANOTHER_DEVICE, text.replace("are used", "is used") if count == 1 else text)]


def run_doubts(run: RunSummary, manifest: Manifest) -> list[Notice]:
    """Say why no prediction of this run can be trusted, if so."""
    controls = manifest.controls
    window = "light" if run.is_light else "full"
    distortion = controls.distortion(window)
    dtypes = {parameter.dtype for parameter in manifest.parameters}
    ranks, size = len(run.ranks), world_size(manifest, run.ranks)
    stretched = f"under the profiler steps take {percent(distortion or 1.0)} of the time of unprofiled ones"
    cores = "on a CPU run communication takes cores away from compute, which is not modelled"
    mixed = "parameters of several dtypes are cut into buckets as if they had one"
    notices = {
        Notice(Code.CONTROLS_MISSING, "no step was timed without the profiler: predictions are for profiled steps"): (
            controls.step_ns("unprofiled") is None
        ),
        Notice(Code.PROFILER_DISTORTS, stretched): (
            distortion is not None and not 1 / HIGH_DISTORTION <= distortion <= HIGH_DISTORTION
        ),
        Notice(Code.RANKS_MISSING, f"{ranks} of {size} ranks are in the run"): ranks < size,
        Notice(Code.CORES_ARE_SHARED, cores): any(
            CPU_DEVICE in (measured.schedules or {}) for measured in run.measured
        ),
        Notice(Code.DTYPES_DIFFER, mixed): len(dtypes) > 1,
    }
    return [notice for notice, holds in notices.items() if holds]
