"""`Scenario`: a change of a run, a function of lags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from analyzers.arrays import Int64, values_at
from analyzers.causes import Charge, Lags, Model
from analyzers.collectives import Exchange

# Of less than this share of the step nothing is found.
LEAST_SHARE = 0.01
Value = float | str | None


@dataclass(frozen=True)
class Scenario:
    """A change of a run: its kind, the place it is at, what it makes of the lags, and the value that is tried.

    `words` say what there would be, behind "with". `of_degree`: how much of it is asked for, not found.
    """

    kind: str
    at: str
    change: Callable[[Lags], Lags]
    words: str
    value: Value = None
    of_degree: bool = False


@dataclass(frozen=True, eq=False)
class Subject:
    """The run that scenarios change."""

    model: Model

    @property
    def exchanged(self) -> Exchange:
        """Return the communication of full windows."""
        return self.model.exchanged

    @property
    def lags(self) -> Lags:
        """Return what edges take as they are."""
        return self.model.lags

    def on_path(self, causes: tuple[Charge, ...], places: tuple[int, ...] | None = None) -> float:
        """Return what share of the critical path some causes have, on the ranks at some places or on all."""
        charges = self.model.walked.charges
        chosen = np.isin(charges.cause, causes)
        if places is not None:
            chosen &= np.isin(charges.rank, places)
        return float(charges.ns[chosen].sum() / max(charges.ns.sum(), 1))

    def nbytes(self, instance: Int64) -> Int64:
        """Return the bytes of collectives, by number, -1 where nothing tells."""
        return values_at(self.exchanged.transfers.nbytes, instance)

    def dtypes(self, instance: Int64) -> list[str]:
        """Return the data types of collectives, by number, empty where nothing tells."""
        calls = self.exchanged.matching.instances.call
        return [call.dtype if (call := calls[number]) is not None else "" for number in instance.tolist()]


@dataclass(frozen=True)
class Kind:
    """A kind of scenarios: its name, how a cure is called, and which of them a run can have."""

    name: str
    cure: str
    find: Callable[[Subject], Iterator[Scenario]]


def everywhere(
    name: str, cure: str, at: str, change: Callable[[Lags], Lags], applies: Callable[[Subject], bool], words: str = ""
) -> Kind:
    """Return a kind of which a run has one scenario, where it applies; without `words` its cure says what there is."""
    return Kind(name, cure, partial(_one, Scenario(name, at, change, words or cure), applies))


def _one(scenario: Scenario, applies: Callable[[Subject], bool], subject: Subject) -> Iterator[Scenario]:
    if applies(subject):
        yield scenario
