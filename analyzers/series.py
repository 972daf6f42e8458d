"""A report step by step: what each step is made of, on all ranks and on each device, and its bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.document import Report
from analyzers.entries import Window
from analyzers.gradients import gradient_steps

# What a step's windows are made of; their shares add up to 1.
PARTS = ("compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_copy_ns", "idle_ns")


@dataclass(frozen=True)
class StepFigures:
    """One step: where it begins from the run's origin, the median of its windows' spans, shares of their time together.

    `gradients_busbw_gbps` is of all ranks together; None where a step's transfers are not all known.
    """

    step: int
    start_ns: int
    span_ns: float
    shares: dict[str, float | None]
    overlap: float | None
    gradients_busbw_gbps: float | None = None


@dataclass(frozen=True)
class Series:
    """The steps of one device of one rank, or of all together."""

    rank: int | None
    device: int | str | None
    steps: list[StepFigures]


def series(document: Report) -> list[Series]:
    """All together first, then each device's."""
    bandwidths = gradient_steps(document.collectives)
    found = [Series(None, None, _steps(document.windows, bandwidths))]
    devices: dict[tuple[int, int | str], list[Window]] = {}
    for window in document.windows:
        devices.setdefault((window.rank, window.device), []).append(window)
    return found + [Series(*place, _steps(own, {})) for place, own in devices.items()]


def _steps(windows: Sequence[Window], bandwidths: dict[int, float]) -> list[StepFigures]:
    by_step: dict[int, list[Window]] = {}
    for window in windows:
        by_step.setdefault(window.step, []).append(window)
    return [_step(step, own, bandwidths.get(step)) for step, own in sorted(by_step.items())]


def _step(step: int, own: Sequence[Window], busbw_gbps: float | None) -> StepFigures:
    span_ns, comm_ns = (sum(getattr(window, name) for window in own) for name in ("span_ns", "comm_ns"))
    hidden_ns = sum(window.overlapped_comm_ns for window in own)
    return StepFigures(
        step=step,
        start_ns=min(window.start_ns for window in own),
        span_ns=float(np.median([window.span_ns for window in own])),
        shares={part: _share(sum(getattr(window, part) for window in own), span_ns) for part in PARTS},
        overlap=_share(hidden_ns, comm_ns),
        gradients_busbw_gbps=busbw_gbps,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
