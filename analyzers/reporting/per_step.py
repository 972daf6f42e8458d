"""Figures per step: parts of the time, and the bandwidth of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from analyzers.collectives import CollectiveRow, GroupWindow, line_names
from analyzers.reporting.document import Report, Window
from analyzers.reporting.measures import IDLE_CAUSES
from analyzers.reporting.typical_steps import PlacedRow, at_places
from analyzers.statistics import Spread, ratio, spreads, whole
from analyzers.step_parts import SPLIT_PARTS, fields_of

GRADIENTS = "gradients"


class GradientBandwidth(msgspec.Struct, frozen=True):
    """Collectives that reduce gradients, over steps.

    `bus_bytes`: times the ring's factor.
    """

    bytes: int | None = None
    bus_bytes: float | None = None
    transfer_ns: Spread = Spread(0)
    busbw_gbps: Spread = Spread(0)
    utilization: Spread = Spread(0)
    bound: bool = False
    why: str | None = None

    @property
    def calibrated_gbps(self) -> float | None:
        """Return what the links gave for these collectives when they were calibrated."""
        return whole(self.busbw_gbps.median, self.utilization.median)


def gradient_bandwidth(rows: Sequence[CollectiveRow], nbytes: int | None) -> GradientBandwidth:
    """Return bus bandwidth for the gradients' collectives, step by step: a step's bytes and transfers each added up.

    `nbytes` are the bytes a step that a rank's gradients are, unmatched ones too.
    """
    gradients = [row for row in rows if row.purpose == GRADIENTS and row.step is not None]
    if not gradients:
        return GradientBandwidth(nbytes, why="no gradients are reduced" if nbytes == 0 else "none could be matched")
    if len({(row.group_name, tuple(row.group)) for row in gradients}) > 1:
        return GradientBandwidth(nbytes, why="gradients are reduced in several groups at once")
    steps = list(_whole_steps(gradients).values())
    if not steps:
        return GradientBandwidth(nbytes, why="no step's transfers are all known")
    medians = spreads(
        {
            "transfer_ns": np.array([_transfer_ns(rows) for rows in steps]),
            "busbw_gbps": np.array([_bus_bytes(rows) / _transfer_ns(rows) for rows in steps]),
            "utilization": np.array([_utilization(rows) for rows in steps]),
        }
    )
    factor = sum(map(_bus_bytes, steps)) / sum(map(_bytes, steps))
    return GradientBandwidth(
        bytes=nbytes,
        bus_bytes=None if nbytes is None else nbytes * factor,
        transfer_ns=medians["transfer_ns"],
        busbw_gbps=medians["busbw_gbps"],
        utilization=medians["utilization"],
        bound=any(row.bound for rows in steps for row in rows),
    )


def gradient_steps(rows: Sequence[CollectiveRow]) -> dict[int, float]:
    """Return bus bandwidth, GB/s, for the gradients' collectives, by step, where all in the step are known."""
    if gradient_bandwidth(rows, None).why is not None:
        return {}
    gradients = [row for row in rows if row.purpose == GRADIENTS and row.step is not None]
    return {
        step: _bus_bytes(step_rows) / _transfer_ns(step_rows) for step, step_rows in _whole_steps(gradients).items()
    }


def _whole_steps(rows: Sequence[CollectiveRow]) -> dict[int, list[CollectiveRow]]:
    """Return the steps in which every collective is known: a step without its large ones has another bandwidth."""
    steps: dict[int, list[CollectiveRow]] = {}
    for row in rows:
        if row.step is not None:
            steps.setdefault(row.step, []).append(row)
    known_steps = {
        step: step_rows
        for step, step_rows in steps.items()
        if all(row.busbw_gbps and row.transfer_ns and not row.partial for row in step_rows)
    }
    most = max(map(_bytes, known_steps.values()), default=0)
    return {step: step_rows for step, step_rows in known_steps.items() if _bytes(step_rows) == most}


def _bytes(rows: Sequence[CollectiveRow]) -> int:
    return sum(row.bytes or 0 for row in rows)


def _transfer_ns(rows: Sequence[CollectiveRow]) -> int:
    return sum(row.transfer_ns or 0 for row in rows)


def _bus_bytes(rows: Sequence[CollectiveRow]) -> float:
    """Multiply bytes by the ring's factor, which is what bandwidth times time gives back."""
    return sum((row.busbw_gbps or 0.0) * (row.transfer_ns or 0) for row in rows)


def _utilization(rows: Sequence[CollectiveRow]) -> float:
    """Divide these collectives' calibrated time by their transfer; NaN where any was not calibrated."""
    if any(row.utilization_at_size is None for row in rows):
        return float("nan")
    return sum((row.utilization_at_size or 0.0) * (row.transfer_ns or 0) for row in rows) / _transfer_ns(rows)


def mean_step(windows: Sequence[Window]) -> dict[str, float]:
    """Return the mean span of windows and what it is made of, idle time by cause, which adds up; none of no windows."""
    if not windows:
        return {}
    parts = {
        name: sum(getattr(window, name) for window in windows) for name in ("span_ns", *fields_of(SPLIT_PARTS[:-1]))
    }
    parts |= {
        f"idle_{cause}_ns": sum(getattr(window.idle, f"{cause}_ns") for window in windows) for cause in IDLE_CAUSES
    }
    return {name: total_ns / len(windows) for name, total_ns in parts.items()}


def mean_steps(document: Report) -> dict[tuple[int, int | str], dict[str, float]]:
    """Return the mean typical step of each device of each rank, as `mean_step` has it."""
    return {device: mean_step(typical_of(windows)) for device, windows in _by_device(document).items()}


def _by_device(document: Report) -> dict[tuple[int, int | str], list[Window]]:
    devices: dict[tuple[int, int | str], list[Window]] = {}
    for window in document.windows:
        devices.setdefault((window.rank, window.device), []).append(window)
    return devices


def typical_of(windows: Iterable[Window]) -> list[Window]:
    """Return the windows that a summary's figures are of."""
    return [window for window in windows if window.typical]


def rows_of_typical(document: Report, rows: Iterable[PlacedRow]) -> list[PlacedRow]:
    """Return the rows that are of those windows."""
    return at_places(rows, ((window.rank, window.device, window.step) for window in typical_of(document.windows)))


@dataclass(frozen=True)
class StepFigures:
    """One step: where it begins from the run's origin, the median of its windows' spans, shares of their time together.

    `gradients_busbw_gbps` is of all ranks together; None where a step's transfers are not all known. `groups_ns` is
    what of each process group is exposed, the median over the ranks that have it: of all ranks together, where a run
    has several.
    """

    step: int
    start_ns: int
    span_ns: float
    shares: dict[str, float | None]
    overlap: float | None
    gradients_busbw_gbps: float | None = None
    groups_ns: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepSeries:
    """The steps of one device of one rank, or of all together."""

    rank: int | None
    device: int | str | None
    steps: list[StepFigures]


def series(document: Report) -> list[StepSeries]:
    """Return the series over all devices together first, then each device's."""
    bandwidths, groups = gradient_steps(document.collectives), _exposed_groups(document)
    together = [
        replace(figures, groups_ns=groups.get(figures.step, {})) for figures in _steps(document.windows, bandwidths)
    ]
    all_devices = [StepSeries(None, None, together)]
    devices = _by_device(document).items()
    return all_devices + [StepSeries(*device, _steps(windows, {})) for device, windows in devices]


def _steps(windows: Sequence[Window], bandwidths: dict[int, float]) -> list[StepFigures]:
    by_step: dict[int, list[Window]] = {}
    for window in windows:
        by_step.setdefault(window.step, []).append(window)
    return [_step(step, step_windows, bandwidths.get(step)) for step, step_windows in sorted(by_step.items())]


def _step(step: int, windows: Sequence[Window], busbw_gbps: float | None) -> StepFigures:
    span_ns, comm_ns = (sum(getattr(window, name) for window in windows) for name in ("span_ns", "comm_ns"))
    hidden_ns = sum(window.overlapped_comm_ns for window in windows)
    return StepFigures(
        step=step,
        start_ns=min(window.start_ns for window in windows),
        span_ns=float(np.median([window.span_ns for window in windows])),
        shares={
            part: ratio(sum(getattr(window, part) for window in windows), span_ns) for part in fields_of(SPLIT_PARTS)
        },
        overlap=ratio(hidden_ns, comm_ns),
        gradients_busbw_gbps=busbw_gbps,
    )


def group_steps(document: Report) -> dict[str, list[tuple[int, GroupWindow | None]]]:
    """Return the steps of each line of the groups' table, in the table's order: those of all ranks that have the line.

    In a step without it, which is None here, it took no time.
    """
    names = line_names(row.line for row in document.groups)
    steps: dict[int, dict[int, None]] = {}
    for window in document.windows:
        steps.setdefault(window.rank, {})[window.step] = None
    lines: dict[str, dict[tuple[int, int], GroupWindow]] = {line.name: {} for line in document.summary.groups}
    for row in document.groups:
        lines.setdefault(names[row.line], {})[row.rank, row.step] = row
    return {
        name: [
            (step, rows.get((rank, step)))
            for rank in dict.fromkeys(rank for rank, _ in rows)
            for step in steps.get(rank, ())
        ]
        for name, rows in lines.items()
    }


def _exposed_groups(document: Report) -> dict[int, dict[str, float]]:
    """Return what of each line is exposed, step by step; nothing where there is but one line."""
    lines = group_steps(document)
    exposed: dict[int, dict[str, list[int]]] = {}
    for name, rows in lines.items() if len(lines) > 1 else ():
        for step, row in rows:
            exposed.setdefault(step, {}).setdefault(name, []).append(0 if row is None else row.exposed_ns)
    return {
        step: {name: float(np.median(values)) for name, values in of_step.items()} for step, of_step in exposed.items()
    }
