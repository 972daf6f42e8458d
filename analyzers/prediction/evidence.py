"""A run's step as measured, and what makes predictions doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from analyzers.notices import Code, Notice
from analyzers.rank import CPU_DEVICE, RunSummary
from analyzers.reporting import Analyses
from analyzers.run import UNPROFILED, Manifest, world_size
from analyzers.settings import MEASURED_ON, Assumption
from analyzers.units import percent

# A replay that misses the run's own step by more than this misses others, too.
OFF = 0.05


class MeasuredFrom(StrEnum):
    """Where a measured step is from; the values are what documents hold."""

    UNPROFILED = "unprofiled control"
    LIGHT = "light window"
    FULL = "full window"

    __str__ = str.__str__


def measured_step(analyses: Analyses) -> tuple[int, MeasuredFrom, float]:
    """Return the step as measured, where it is from, and to what share of it it is known."""
    step_ns, controls = round(analyses.step_ns), analyses.controls
    if controls.step_ns(UNPROFILED) is None:
        low, high = (float(ns) for ns in np.percentile(analyses.typical_rows.span_ns, [25, 75]))
        source = MeasuredFrom.LIGHT if analyses.run.is_light else MeasuredFrom.FULL
        return step_ns, source, (high - low) / step_ns
    low, high = controls.interval_ns(UNPROFILED) or (step_ns, step_ns)
    return step_ns, MeasuredFrom.UNPROFILED, (high - low) / 2 / step_ns


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


def on_cpus(run: RunSummary) -> bool:
    """Whether a run computes on CPUs."""
    return any((measured.windows.device == CPU_DEVICE).any() for measured in run.measured)


def run_doubts(run: RunSummary, manifest: Manifest, *, answers_to_hosts: bool) -> list[Notice]:
    """Say why no prediction for other GPUs or links can be trusted, if so."""
    ranks, size = len(run.ranks), world_size(manifest, run.ranks)
    cores = "on a CPU run communication takes cores away from compute, which is not modelled"
    notices = {
        Notice(Code.CONTROLS_MISSING, "CPUs set the pace, and no step was timed without the profiler"): (
            answers_to_hosts and manifest.controls.step_ns(UNPROFILED) is None
        ),
        Notice(Code.RANKS_MISSING, f"{ranks} of {size} ranks are in the run"): ranks < size,
        Notice(Code.CORES_ARE_SHARED, cores): on_cpus(run),
    }
    return [notice for notice, holds in notices.items() if holds]
