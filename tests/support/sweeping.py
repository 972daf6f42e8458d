"""Sweeps made by hand: cells whose steps take what is said, and folders of small recordings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzers.comparison.scaling import scaling
from analyzers.comparison.scaling_document import CellRow, CellStep, Scaling
from analyzers.reporting.per_step import GradientBandwidth
from analyzers.run.controls import control
from analyzers.run.manifest import MANIFEST, SWEEP, Manifest
from analyzers.run.sweep import SINGLE, Sweep
from analyzers.statistics import Spread
from tests.support.kineto_files import write, write_run

MS = 1_000_000


def spread(value: float) -> Spread:
    return Spread(4, value, value, value, value, value)


def timed(milliseconds: float, scatter: float = 0.0, source: str = "unprofiled") -> CellStep:
    """A step's time; its interval's ends are half of `scatter` away on both sides."""
    ns = milliseconds * MS
    return CellStep(ns, ns * (1 - scatter / 2), ns * (1 + scatter / 2), scatter, source, scatter > 0.05)


def cell(strategy: str, gpus: int, batch: int, step: CellStep | float, exposed_ms: float = 0.0, **more: Any) -> CellRow:
    """A cell that was measured; a tenth of its step is idle, 1 kB of gradients goes over the ring in 0.1 ms."""
    step = step if isinstance(step, CellStep) else timed(step)
    span, exposed = step.median_ns or 0.0, exposed_ms * MS
    parts = {
        "compute_ns": 0.9 * span - exposed,
        "exposed_wait_ns": exposed / 4,
        "exposed_transfer_ns": exposed * 3 / 4,
        "exposed_unresolved_ns": 0.0,
        "exposed_copy_ns": 0.0,
        "idle_ns": 0.1 * span,
    }
    measured = {"span_ns": span, "comm_ns": exposed, "exposed_comm_ns": exposed} | parts
    bus_bytes = 1000 * 2 * (gpus - 1) / gpus
    gradients = GradientBandwidth(1000, bus_bytes, spread(1e5), spread(bus_bytes / 1e5), spread(0.5))
    return CellRow(
        name=f"{strategy}{gpus}-batch{batch}",
        strategy=strategy,
        gpus=gpus,
        batch=batch,
        state="done",
        step=step,
        measured={name: spread(value) for name, value in measured.items()},
        exposed_mean_ns=exposed,
        shares={name: value / (span or 1) for name, value in parts.items()},
        gradients=gradients if gpus > 1 else GradientBandwidth(0, why="no gradients are reduced"),
        **more,
    )


def studied(cells: Sequence[CellRow], name: str = "by hand") -> Scaling:
    return scaling(Sweep(name=name), cells)


def entry(strategy: str, gpus: int, batch: int, state: str = "done", **more: Any) -> dict[str, Any]:
    """A cell as sweep.json has it."""
    name = f"{strategy}{gpus}-batch{batch}"
    return {"name": name, "strategy": strategy, "gpus": gpus, "batch": batch, "state": state} | more


def write_sweep(folder: Path, cells: Iterable[Any], **more: Any) -> Path:
    """A sweep.json."""
    document = {"schema": "tracer.sweep/1", "name": folder.name, "cells": list(cells)} | more
    write(folder / SWEEP, json.dumps(document))
    return folder


def write_cell(
    folder: Path, strategy: str, gpus: int, batch: int, samples_ms: Sequence[float] = (1, 1, 1), **manifest: Any
) -> dict[str, Any]:
    """A small recording in a sweep's folder; its entry in sweep.json."""
    found = entry(strategy, gpus, batch)
    place = write_run(folder / found["name"], range(gpus), gpus)
    unprofiled = control({0: [[round(sample * MS)] for sample in samples_ms]})
    document: Mapping[str, Any] = {
        "schema": Manifest().schema,
        "strategy": "ddp" if strategy == SINGLE else strategy,
        "batch_per_gpu": batch,
        "devices": ["card"] * gpus,
        "controls": {"unprofiled": {"steps_ns": unprofiled.steps_ns, "by_launch": True}},
    }
    write(place / MANIFEST, json.dumps(document | manifest))
    return found
