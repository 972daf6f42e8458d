"""How much longer collectives take in training than alone.

all_reduce      ##########======      beside compute (#) and after it (=), a little less slow
compute      ooooooooooooo

what it would take alone = time beside compute / beside + time after it / after
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from analyzers.arrays import Float64, Int64
from analyzers.collectives import Exchange, purposes
from analyzers.rank import Purpose
from analyzers.trace import Collective

# What compute does to transfers can be told from the rest where each of the two is at least this share of their time.
TOLD_APART = 0.1
NINE_OF_TEN = 0.9


class Alone(Protocol):
    """Links that say how long collectives of these sizes take so many GPUs."""

    def collective_ns(self, nbytes: ArrayLike, gpus: int) -> Float64:
        """Return the time for each size, in ns."""


@dataclass(frozen=True)
class Strain:
    """How many times as long as alone a collective takes beside compute, and after it.

    Nine of ten lie within `reach` of that, as a share.
    """

    beside: float = 1.0
    after: float = 1.0
    reach: float = 0.0

    def slowed(self, by: float | None = None) -> Strain:
        """Return the strain that is larger by a share, or at the end of its reach."""
        share = self.reach if by is None else by
        return Strain(self.beside * (1 + share), self.after * (1 + share))

    def __str__(self) -> str:
        if self.beside == self.after:
            return f"{self.beside:.2f} times what was measured of them alone"
        return (
            f"{self.beside:.2f} times what was measured of them alone beside compute, {self.after:.2f} times after it"
        )


UNSTRAINED = Strain()


@dataclass(frozen=True)
class Traffic:
    """A kind of collective for a purpose, and how to call it; `bends`: it may go faster when compute has ended."""

    kind: Collective
    purpose: Purpose
    words: str
    bends: bool = False

    @property
    def label(self) -> str:
        """Return the name of the collective."""
        return self.kind.label


REDUCTIONS = Traffic(Collective.ALL_REDUCE, Purpose.GRADIENTS, "all-reduces", bends=True)
GATHERS = Traffic(Collective.ALL_GATHER, Purpose.PARAMETERS, "all-gathers")
SCATTERS = Traffic(Collective.REDUCE_SCATTER, Purpose.GRADIENTS, "reduce-scatters")


@dataclass(frozen=True, eq=False)
class Transferred:
    """Collectives of one kind, a row each: the step, bytes, transfer, and the share of it that has compute beside it.

    `bound`: transfers are upper bounds, since ranks are missing.
    """

    traffic: Traffic
    step: Int64
    nbytes: Float64
    time_ns: Float64
    beside: Float64
    bound: bool

    def ratio(self, links: Alone, gpus: int) -> float:
        """Return how much longer the median step's collectives take, all together, than alone over these links."""
        alone_ns = links.collective_ns(self.nbytes, gpus)
        steps, step_index = np.unique(self.step, return_inverse=True)
        count = len(steps)
        return float(np.median(np.bincount(step_index, self.time_ns, count) / np.bincount(step_index, alone_ns, count)))

    def strain(self, links: Alone, gpus: int) -> Strain:
        """Return how much longer collectives take than alone, beside compute and after it; else one ratio for both.

        Both are known where enough time was spent in each, by least squares over the step's collectives, of each of
        which its median counts; and where compute makes transfers longer: else something else does.
        """
        alone_ns = links.collective_ns(self.nbytes, gpus)
        usual_alone_ns, usual_ns, usual_beside = (self._usual(each) for each in (alone_ns, self.time_ns, self.beside))
        parts_ns = np.stack([usual_beside * usual_ns, (1 - usual_beside) * usual_ns], axis=1)
        fast_beside = fast_after = 1 / self.ratio(links, gpus)
        if self.traffic.bends and parts_ns.sum(axis=0).min() >= TOLD_APART * usual_ns.sum():
            beside, after = (float(x) for x in np.linalg.lstsq(parts_ns, usual_alone_ns, rcond=None)[0])
            if 0 < beside < after:
                fast_beside, fast_after = beside, after
        expected_ns = alone_ns / (self.beside * fast_beside + (1 - self.beside) * fast_after)
        reach = float(np.quantile(np.abs(np.log(self.time_ns / expected_ns)), NINE_OF_TEN))
        return Strain(1 / fast_beside, 1 / fast_after, reach)

    def _usual(self, column: Float64) -> Float64:
        """Return the medians over steps of a column, one for each of a step's collectives."""
        place = _places(self.step)
        return np.array([np.median(column[place == each]) for each in range(int(place.max()) + 1)])


def _places(step: Int64) -> Int64:
    """Return the place of each row among those of its step, in their order."""
    order = np.argsort(step, kind="stable")
    first = np.r_[True, np.diff(step[order]) != 0]
    places = np.empty(len(step), dtype=np.int64)
    places[order] = np.arange(len(step)) - np.maximum.accumulate(np.where(first, np.arange(len(step)), 0))
    return places


def transfers_of(exchanged: Exchange, traffic: Traffic) -> Transferred:
    """Return a run's collectives of one kind, in the order in which they began; of some ranks alone, bounds."""
    instances, transfers, table = exchanged.matching.instances, exchanged.transfers, exchanged.matching.table
    usable = (instances.kind == traffic.kind) & (purposes(exchanged.matching) == traffic.purpose)
    usable &= (transfers.nbytes > 0) & (transfers.transfer_ns > 0)
    exact = usable & ~transfers.bound
    rows = np.flatnonzero(exact if exact.any() else usable)
    # Of each member what is exposed is waiting first, then transfer (docs/measuring.md).
    alone_ns = np.maximum(table.exposed_ns[instances.members] - np.maximum(transfers.wait_ns, 0), 0)
    first, members = instances.first[:-1], np.diff(instances.first)
    exposed = np.add.reduceat(alone_ns, first) / (members * np.maximum(transfers.transfer_ns, 1))
    rows = rows[np.argsort(np.minimum.reduceat(transfers.start_ns, first)[rows], kind="stable")]
    return Transferred(
        traffic=traffic,
        step=instances.step[rows],
        nbytes=transfers.nbytes[rows].astype(np.float64),
        time_ns=transfers.transfer_ns[rows].astype(np.float64),
        beside=1 - np.clip(exposed[rows], 0, 1),
        bound=bool(usable.any() and not exact.any()),
    )
