"""Spread over devices' medians, outliers, and representative devices.

A device's *own time* is its step less its exposed waiting. Where ranks synchronize, all steps are about as long, and
the slowest is not the one whose step is longest but the one that waits least: the others wait for it.

An outlier lies beyond the quartiles of all devices by more than three times their distance (Tukey's far-out fences:
of a normal distribution one value in 400,000), and by more than 1 % of the median step, from which on advice is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from analyzers.arrays import Float64
from analyzers.statistics import LEAST_SHARE, Spread, spreads
from analyzers.step_parts import COMM, COMPUTE, COPY, IDLE, WAITING, fields_of


class DeviceSummary(msgspec.Struct, frozen=True):
    """One device's measures."""

    rank: int
    device: int | str
    windows: dict[str, Spread]


class ChosenDevice(msgspec.Struct, frozen=True):
    """A device that stands for others, by its own time."""

    rank: int
    device: int | str
    own_ns: float


class Outlier(msgspec.Struct, frozen=True):
    """A device one of whose medians lies far from all."""

    rank: int
    device: int | str
    measure: str
    value_ns: float
    median_ns: float


class OverDevices(msgspec.Struct, frozen=True):
    """Devices' medians.

    `slowest`, `median`, `fastest`: by own time, a step less its exposed waiting. `outliers`: far beyond the quartiles.
    """

    devices: int
    medians: dict[str, Spread]
    slowest: ChosenDevice
    median: ChosenDevice
    fastest: ChosenDevice
    outliers: list[Outlier]


FENCE = 3.0
# Of fewer, quartiles say nothing.
LEAST_DEVICES = 8

# What devices are compared by.
MEASURES = ("span_ns", *fields_of((COMPUTE, COMM, WAITING, COPY, IDLE)))
SHOWN = (*MEASURES, "comm_ns", "copy_ns", "overlap", "own_ns")


def over_devices(devices: Sequence[DeviceSummary]) -> OverDevices | None:
    """Return the spread of devices' medians; None for one device."""
    if len(devices) < 2:
        return None
    medians = {name: _medians(devices, name) for name in SHOWN if name != "own_ns"}
    medians["own_ns"] = medians["span_ns"] - medians["exposed_wait_ns"]
    order = np.argsort(-medians["own_ns"], kind="stable")
    chosen = [int(order[position]) for position in (0, len(order) // 2, -1)]
    slowest, median, fastest = (_chosen(devices[position], float(medians["own_ns"][position])) for position in chosen)
    return OverDevices(len(devices), spreads(medians), slowest, median, fastest, _outliers(devices, medians))


def _medians(devices: Sequence[DeviceSummary], name: str) -> Float64:
    values: list[Any] = [device.windows[name].median for device in devices]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _chosen(device: DeviceSummary, own_ns: float) -> ChosenDevice:
    return ChosenDevice(device.rank, device.device, own_ns)


def _outliers(devices: Sequence[DeviceSummary], medians: Mapping[str, Float64]) -> list[Outlier]:
    """Return what stands out, farthest first: for each device every measure that does."""
    if len(devices) < LEAST_DEVICES:
        return []
    least = LEAST_SHARE * float(np.median(medians["span_ns"]))
    distances: list[tuple[float, Outlier]] = []
    for name in MEASURES:
        values = medians[name]
        low, middle, high = (float(value) for value in np.percentile(values, [25, 50, 75]))
        margin = max(FENCE * (high - low), least)
        for position in np.flatnonzero((values < low - margin) | (values > high + margin)).tolist():
            device, value = devices[position], float(values[position])
            distances.append((abs(value - middle), Outlier(device.rank, device.device, name, value, middle)))
    return [outlier for _, outlier in sorted(distances, key=lambda item: -item[0])]
