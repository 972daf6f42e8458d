"""Times of collectives over calibrated, fitted or given links, any group size.

    time = latency + bytes x factor(n) / bandwidth        factor(n) = 2 (n - 1) / n of all-reduces, what a ring moves

From one group size to another the part that grows with the bytes goes with the factor (nccl-tests, doc/PERFORMANCE.md),
and latency with the depth of a tree, log2 n (NCCL uses double binary trees where rings would take too many hops).
Between hosts every byte passes a host's network card, so that the slower of the two sets the bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from analyzers.arrays import Float64, Int64, distinct
from analyzers.collectives import Exchange, purposes
from analyzers.errors import NotReplayable, Option
from analyzers.rank import Purpose, RunSummary
from analyzers.run import Calibration, curve
from analyzers.settings.assumption import Assumption, borrowed
from analyzers.trace import Collective, bus_factor

GIVE_LINKS = ("give ", Option("links", "FILE"), " (`tracer calibrate` writes one)")


class Timing(Protocol):
    """How long a collective takes a group of so many."""

    @property
    def group_size(self) -> int:
        """Return the number of members."""

    def time_ns(self, nbytes: ArrayLike) -> Float64:
        """Return the time for each size, in ns."""


@dataclass(frozen=True)
class Affine:
    """A time that grows with the size: latency in ns, and bus bandwidth in GB/s."""

    group_size: int
    latency_ns: float
    busbw_gbps: float
    collective: str = "all_reduce"

    def time_ns(self, nbytes: ArrayLike) -> Float64:
        """Return the time for each size, in ns."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        factor = bus_factor(self.collective, self.group_size)
        return np.asarray(self.latency_ns + sizes * factor / self.busbw_gbps, dtype=np.float64)


@dataclass(frozen=True)
class Hosts:
    """GPUs of each host, and what a host's network cards carry one way, all together, in GB/s."""

    gpus: int
    gbps: float


@dataclass(frozen=True)
class LinkModel:
    """Timings of a kind of collective by group size; in training it takes `strain` times as long as `timings` say.

    `source` says in words where the timings come from.
    """

    timings: Mapping[int, Timing]
    source: str
    strain: float = 1.0
    hosts: Hosts | None = None
    collective: str = "all_reduce"

    def for_collective(self, collective: str) -> LinkModel:
        """Return given links, which have one bus bandwidth, for another kind of collective."""
        timings = {size: replace(each, collective=collective) for size, each in self.timings.items()}  # type: ignore[type-var]
        return replace(self, timings=timings, collective=collective)

    def collective_ns(self, nbytes: ArrayLike, gpus: int) -> Float64:
        """Return how long collectives of these sizes take so many GPUs, in ns."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        if gpus < 2:
            return np.zeros_like(sizes)
        timing = self.timings[self.nearest(gpus)]
        latency_ns = self.strain * timing.time_ns(0.0)
        moving_ns = self.strain * timing.time_ns(sizes) - latency_ns
        if timing.group_size != gpus:
            latency_ns = latency_ns * log2(gpus) / log2(timing.group_size)
            moving_ns = moving_ns * bus_factor(self.collective, gpus) / bus_factor(self.collective, timing.group_size)
        if self.hosts is not None and gpus > self.hosts.gpus:
            moving_ns = np.maximum(moving_ns, sizes * bus_factor(self.collective, gpus) / self.hosts.gbps)
        return np.asarray(latency_ns + moving_ns, dtype=np.float64)

    def nearest(self, gpus: int) -> int:
        """Return the group size to time so many GPUs by: their own, else the largest below, else the smallest."""
        below = [size for size in self.timings if size <= gpus]
        return max(below) if below else min(self.timings)

    def busbw_gbps(self, nbytes: ArrayLike, gpus: int) -> float | None:
        """Return the bus bandwidth that collectives of these sizes get, all together, in GB/s."""
        total_ns = float(self.collective_ns(nbytes, gpus).sum())
        return float(np.sum(nbytes)) * bus_factor(self.collective, gpus) / total_ns if total_ns else None


NO_LINKS = LinkModel({}, "nothing")


def calibrated(calibration: Calibration, source: str, collective: str = "all_reduce") -> LinkModel | None:
    """Return the links from a calibration; None where it does not have the collective."""
    sizes = sorted({row.group_size for row in calibration.rows if row.collective == collective})
    curves = {size: timing for size in sizes if (timing := curve(calibration, collective, size)) is not None}
    return LinkModel(curves, source, collective=collective) if curves else None


def fitted(nbytes: Float64, time_ns: Float64, gpus: int, source: str, collective: str = "all_reduce") -> LinkModel:
    """Fit latency and bandwidth to a run's transfers, by least squares of relative errors; neither is negative."""
    weighted = np.stack([1 / time_ns, nbytes / time_ns], axis=1)
    latency_ns, ns_per_byte = (float(x) for x in np.linalg.lstsq(weighted, np.ones(len(time_ns)), rcond=None)[0])
    if latency_ns < 0 or ns_per_byte <= 0 or len(np.unique(nbytes)) < 2:
        latency_ns, ns_per_byte = 0.0, float(np.median(time_ns / nbytes))
    affine = Affine(gpus, latency_ns, bus_factor(collective, gpus) / ns_per_byte, collective)
    return LinkModel({gpus: affine}, source, collective=collective)


@dataclass(frozen=True)
class Traffic:
    """A kind of collective for a purpose, and how to call it."""

    kind: Collective
    purpose: Purpose
    words: str

    @property
    def label(self) -> str:
        """Return the name of the collective."""
        return self.kind.label


REDUCTIONS = Traffic(Collective.ALL_REDUCE, Purpose.GRADIENTS, "all-reduces")
GATHERS = Traffic(Collective.ALL_GATHER, Purpose.PARAMETERS, "all-gathers")
SCATTERS = Traffic(Collective.REDUCE_SCATTER, Purpose.GRADIENTS, "reduce-scatters")


@dataclass(frozen=True, eq=False)
class Transferred:
    """Collectives of one kind, a row each: the step, bytes and transfer.

    `bound`: transfers are upper bounds, since ranks are missing.
    """

    traffic: Traffic
    step: Int64
    nbytes: Float64
    time_ns: Float64
    bound: bool

    def ratio(self, links: LinkModel, gpus: int) -> float:
        """Return how many times as long as alone over these links the median step's collectives take all together."""
        alone_ns = links.collective_ns(self.nbytes, gpus)
        step = distinct(self.step).index
        return float(np.median(np.bincount(step, self.time_ns) / np.bincount(step, alone_ns)))


def transfers_of(exchanged: Exchange, traffic: Traffic) -> Transferred:
    """Return a run's collectives of one kind; of some ranks alone, bounds."""
    instances, transfers = exchanged.matching.instances, exchanged.transfers
    usable = (instances.kind == traffic.kind) & (purposes(exchanged.matching) == traffic.purpose)
    usable &= (transfers.nbytes > 0) & (transfers.transfer_ns > 0)
    exact = usable & ~transfers.bound
    rows = np.flatnonzero(exact if exact.any() else usable)
    return Transferred(
        traffic=traffic,
        step=instances.step[rows],
        nbytes=transfers.nbytes[rows].astype(np.float64),
        time_ns=transfers.transfer_ns[rows].astype(np.float64),
        bound=bool(usable.any() and not exact.any()),
    )


# A calibration whose times are this far from a run's own transfers is of other links than the run had.
OTHER_LINKS = 1.5
# How many times as long as alone collectives take in training, where a run does not tell: resnet50, vgg16 and
# transformer in bf16 on 2 and 4 x H200, over NVLink and host memory (torch 2.11, NCCL 2.28.9), took 1.02 to 1.24.
BUSY_LINKS = 1.05


@dataclass(frozen=True)
class RunLinks:
    """The links that a run had, those that predictions are made for, and what is assumed of the latter."""

    own: LinkModel
    asked: LinkModel
    assumptions: list[Assumption]
    as_given: bool = False  # somebody says what the latter are, and nothing was measured of them


def links_of(
    run: RunSummary,
    exchanged: Exchange,
    gpus: int,
    given: LinkModel | Calibration | None,
    traffic: Traffic = REDUCTIONS,
) -> RunLinks:
    """Return a run's links, and those that are asked for: `given`, or its own; of one GPU there may be none.

    Raises NotReplayable where several GPUs have neither.
    """
    transfers, words = transfers_of(exchanged, traffic), traffic.words
    curves = calibrated(given, "the given calibration", traffic.label) if isinstance(given, Calibration) else None
    if isinstance(given, Calibration) and curves is None:
        remedy = f"measure it with `tracer calibrate --collectives {traffic.label}`"
        raise NotReplayable(f"{run.name}: the given calibration has no {traffic.label}: {remedy}")
    own_transfers = _own(run, transfers, gpus, curves)
    if isinstance(given, LinkModel):
        assumption = Assumption(f"{words} take what the given bandwidth and latency say")
        asked = given.for_collective(traffic.label)
        return RunLinks(own_transfers.links if own_transfers is not None else asked, asked, [assumption], as_given=True)
    if own_transfers is None and gpus == 1:
        return RunLinks(NO_LINKS, NO_LINKS, [])
    if own_transfers is None:
        raise no_links(run.name)
    if curves is None or own_transfers.links.timings is curves.timings:
        return RunLinks(own_transfers.links, own_transfers.links, [own_transfers.words])
    # How much longer collectives take beside compute does not depend on the links they take.
    strain = own_transfers.links.strain if own_transfers.is_measured else BUSY_LINKS
    text = f"{words} take {strain:.2f} times what the given calibration says of them alone"
    assumption = Assumption(text) if own_transfers.is_measured else borrowed(text)
    return RunLinks(own_transfers.links, replace(curves, strain=strain), [assumption])


def no_links(name: str) -> NotReplayable:
    """Return the error of a run whose links are asked about and not known."""
    return NotReplayable(f"{name}: nothing tells of the links; ", *GIVE_LINKS, ", or ", Option("bus_gbps", "GB/S"))


@dataclass(frozen=True)
class _OwnTransfers:
    """The links that a run had; `is_measured`: its transfers tell how much longer they take than alone."""

    links: LinkModel
    words: Assumption
    is_measured: bool = False


def _own(run: RunSummary, transfers: Transferred, gpus: int, given: LinkModel | None) -> _OwnTransfers | None:
    """Take the calibration beside the run, else a given one that fits its transfers, else these alone."""
    words, label = transfers.traffic.words, transfers.traffic.label
    beside = calibrated(run.calibration, "the run's own calibration", label) if run.calibration is not None else None
    curves = beside or given
    exact = bool(len(transfers.nbytes)) and not transfers.bound
    if curves is not None and exact and gpus in curves.timings:
        ratio = transfers.ratio(curves, gpus)
        if beside is not None or 1 / OTHER_LINKS < ratio < OTHER_LINKS:
            strain = ratio
            links = replace(curves, strain=strain)
            return _OwnTransfers(
                links,
                Assumption(f"{words} take {strain:.2f} times what was measured of them alone, as in this run"),
                is_measured=True,
            )
    elif curves is not None and (beside is not None or not len(transfers.nbytes)):
        return _OwnTransfers(
            replace(curves, strain=BUSY_LINKS),
            borrowed(f"{words} take {BUSY_LINKS:.2f} times what was measured of them alone"),
        )
    if not len(transfers.nbytes):
        return None
    bounds = ", which are upper bounds since ranks are missing" if transfers.bound else ""
    # Of all-reduces people say links and no more.
    what = "" if transfers.traffic == REDUCTIONS else f", for {words},"
    text = f"latency and bandwidth of the links{what} are fitted to this run's own transfers{bounds}"
    links = fitted(transfers.nbytes, transfers.time_ns, gpus, "this run's transfers", label)
    return _OwnTransfers(links, Assumption(f"{text}: sizes far from them are guesses"))
