"""A run's own transfers, against what links say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from analyzers.arrays import Float64, Int64, distinct
from analyzers.collectives import Exchange, purposes
from analyzers.rank import Purpose
from analyzers.trace import Collective


class Alone(Protocol):
    """Links that say how long collectives of these sizes take so many GPUs."""

    def collective_ns(self, nbytes: ArrayLike, gpus: int) -> Float64:
        """Return the time for each size, in ns."""


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

    def ratio(self, links: Alone, gpus: int) -> float:
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
