"""What an all-reduce takes: on links as they were measured, fitted or given, for groups of other sizes, over hosts.

    time = latency + bytes x factor(n) / bandwidth        factor(n) = 2 (n - 1) / n, what a ring moves for each byte

From one group size to another the part that grows with the bytes goes with the factor (nccl-tests, doc/PERFORMANCE.md),
and latency with the depth of a tree, log2 n (NCCL uses double binary trees where rings would take too many hops).
Between hosts every byte passes a host's network card, so that the slower of the two sets the bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analyzers.calibration import Calibration, bus_factor, curve

Float64 = NDArray[np.float64]


class Timing(Protocol):
    """How long an all-reduce takes a group of so many."""

    @property
    def group_size(self) -> int:
        """Of how many."""

    def time_ns(self, nbytes: ArrayLike) -> Float64:
        """For each size, in ns."""


@dataclass(frozen=True)
class Affine:
    """A time that grows with the size: latency in ns, and bus bandwidth in GB/s."""

    group_size: int
    latency_ns: float
    busbw_gbps: float

    def time_ns(self, nbytes: ArrayLike) -> Float64:
        """The time of each size, in ns."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        factor = bus_factor("all_reduce", self.group_size)
        return np.asarray(self.latency_ns + sizes * factor / self.busbw_gbps, dtype=np.float64)


@dataclass(frozen=True)
class Hosts:
    """GPUs of each host, and what a host's network cards carry one way, all together, in GB/s."""

    gpus: int
    gbps: float


@dataclass(frozen=True)
class Links:
    """Timings by group size; all-reduces take `strain` times as long in training as `timings` say of them alone.

    `source` says in words where the timings come from.
    """

    timings: Mapping[int, Timing]
    source: str
    strain: float = 1.0
    hosts: Hosts | None = None

    def all_reduce_ns(self, nbytes: ArrayLike, gpus: int) -> Float64:
        """How long all-reduces of these sizes take so many GPUs, in ns."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        if gpus < 2:
            return np.zeros_like(sizes)
        known = self.timings[self.nearest(gpus)]
        latency_ns = self.strain * known.time_ns(0.0)
        moving_ns = self.strain * known.time_ns(sizes) - latency_ns
        if known.group_size != gpus:
            latency_ns = latency_ns * log2(gpus) / log2(known.group_size)
            moving_ns = moving_ns * bus_factor("all_reduce", gpus) / bus_factor("all_reduce", known.group_size)
        if self.hosts is not None and gpus > self.hosts.gpus:
            moving_ns = np.maximum(moving_ns, sizes * bus_factor("all_reduce", gpus) / self.hosts.gbps)
        return np.asarray(latency_ns + moving_ns, dtype=np.float64)

    def nearest(self, gpus: int) -> int:
        """The group size whose timing stands for so many GPUs: their own, else the largest below, else the smallest."""
        below = [size for size in self.timings if size <= gpus]
        return max(below) if below else min(self.timings)

    def busbw_gbps(self, nbytes: ArrayLike, gpus: int) -> float | None:
        """The bus bandwidth that reductions of these sizes get, all together, in GB/s."""
        total_ns = float(self.all_reduce_ns(nbytes, gpus).sum())
        return float(np.sum(nbytes)) * bus_factor("all_reduce", gpus) / total_ns if total_ns else None


def calibrated(calibration: Calibration, source: str) -> Links | None:
    """The links of a calibration file, None where it has no all-reduce."""
    sizes = sorted({row.group_size for row in calibration.rows if row.collective == "all_reduce"})
    curves = {size: found for size in sizes if (found := curve(calibration, "all_reduce", size)) is not None}
    return Links(curves, source) if curves else None


def fitted(nbytes: Float64, time_ns: Float64, gpus: int, source: str) -> Links:
    """Latency and bandwidth from the transfers of a run, by least squares of relative errors; neither is negative."""
    weighted = np.stack([1 / time_ns, nbytes / time_ns], axis=1)
    latency_ns, ns_per_byte = (float(x) for x in np.linalg.lstsq(weighted, np.ones(len(time_ns)), rcond=None)[0])
    if latency_ns < 0 or ns_per_byte <= 0 or len(np.unique(nbytes)) < 2:
        latency_ns, ns_per_byte = 0.0, float(np.median(time_ns / nbytes))
    return Links({gpus: Affine(gpus, latency_ns, bus_factor("all_reduce", gpus) / ns_per_byte)}, source)
