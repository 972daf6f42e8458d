"""`Scenario`: a change of a run, a function of lags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Float64, Int64, Mask, values_at
from analyzers.causes import Charge, Lags, Model
from analyzers.collectives import Exchange
from analyzers.rank import EdgeKind
from analyzers.ranks import RankNumber
from analyzers.run import Manifest
from analyzers.scenarios.time_slices import TimeSlices, find_time_slices

# Of less than this share of the step nothing is found.
LEAST_SHARE = 0.01
Value = float | str | None


@dataclass(frozen=True)
class Told:
    """What is wrong, in a clause; what to do about it; and what was measured: who, where, how often, how much."""

    problem: str = ""
    remedy: str = ""
    because: str = ""


UNTOLD = Told()


@dataclass(frozen=True)
class Scenario:
    """A change of a run: its kind, the place it is at, what it makes of the lags, and the value that is tried.

    `words` say what there would be, behind "with". `of_degree`: how much of it is asked for, not found; such a scenario
    has a cure where it tells a remedy. `of_idle`: it takes away idle time and waiting alone. `replay` is how long steps
    take (by step and variant) where more than lags changes, given what all else takes.
    """

    kind: str
    at: str
    change: Callable[[Lags], Lags]
    words: str
    value: Value = None
    told: Told = UNTOLD
    of_degree: bool = False
    of_idle: bool = False
    replay: Callable[[Lags], Float64] | None = None

    @property
    def place(self) -> str:
        """Return the place that it is at, without the part of a rank or stage: `rank 1`, `DataLoader`."""
        return self.at.partition(":")[0]

    @property
    def rank(self) -> RankNumber | None:
        """Return the rank that it is of, None for most."""
        word, _, number = self.place.partition(" ")
        return RankNumber(int(number)) if word == "rank" else None


@dataclass(frozen=True, eq=False)
class Subject:
    """The run that scenarios change, what run.json says of it, and the most that its ranks idle and wait in a step.

    `step_word` is what a step is called: a trace where none is marked.
    """

    model: Model
    manifest: Manifest
    most_idle_ns: float = np.inf
    step_word: str = "step"

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
        path = self._path[list(causes)]
        return float((path if places is None else path[:, list(places)]).sum() / max(self._path.sum(), 1))

    @cached_property
    def _path(self) -> Float64:
        """Return how long the critical path is in each cause, by rank's place, ns; what is of no rank comes last."""
        charges, ranks = self.model.walked.charges, len(self.lags.graph.ranks)
        place = np.where(charges.rank == UNKNOWN, ranks, charges.rank)
        cell = charges.cause.astype(np.int64) * (ranks + 1) + place
        total = np.bincount(cell, charges.ns, len(Charge) * (ranks + 1))
        return total.astype(np.float64).reshape(len(Charge), ranks + 1)

    def nbytes(self, instance: Int64) -> Int64:
        """Return the bytes of collectives, by number, -1 where nothing tells."""
        return values_at(self.exchanged.transfers.nbytes, instance)

    def dtypes(self, instance: Int64) -> list[str]:
        """Return the data types of collectives, by number, empty where nothing tells."""
        calls = self.exchanged.matching.instances.call
        return [call.dtype if (call := calls[number]) is not None else "" for number in instance.tolist()]

    def per_step(self, edges: Mask, ns: Int64 | None = None) -> float:
        """Count edges of a rank's typical step, or add up times of them: the mean over ranks and steps."""
        times = self.lags.common.times_in_course[edges]
        total = float((times if ns is None else times * ns[edges]).sum())
        return total / (len(self.model.calibrated.course.steps) * len(self.lags.graph.ranks))

    def busiest(self, edges: Mask, ns: Int64) -> tuple[str | None, float]:
        """Return the operator or range around some edges in which these take longest, and how many it has a step."""
        chosen = edges & self.lags.common.in_course
        place = self.lags.facts.place
        names = place[chosen]
        if not len(names):
            return None, 0.0
        longest = int(np.bincount(names + 1, ns[chosen]).argmax()) - 1
        name = self.lags.facts.names[longest] if longest >= 0 else None
        return name, self.per_step(chosen & (place == longest))

    @cached_property
    def time_slices(self) -> dict[int, TimeSlices]:
        """Return how devices pause that another process shares, by the rank's place; others have no entry."""
        return find_time_slices(self.lags)

    @property
    def recorded_ns(self) -> Int64:
        """Return what each edge takes as recorded, from its source to its target."""
        points, edges = self.lags.graph.points, self.lags.graph.edges
        return points.time_ns[edges.target] - points.time_ns[edges.source]

    @property
    def launches(self) -> Mask:
        """Whether edges are launches that something runs after."""
        launches: Mask = self.lags.graph.edges.kind == EdgeKind.LAUNCH
        return launches


@dataclass(frozen=True)
class Kind:
    """A kind of scenarios: its name, and which of them a run can have."""

    name: str
    find: Callable[[Subject], Iterator[Scenario]]


def everywhere(
    scenario: Scenario, applies: Callable[[Subject], bool], tell: Callable[[Subject], Told] = lambda subject: UNTOLD
) -> Kind:
    """Return a kind of which a run has one scenario, where it applies; `tell` says what is known of it there."""

    def find(subject: Subject) -> Iterator[Scenario]:
        if applies(subject):
            yield replace(scenario, told=tell(subject))

    return Kind(scenario.kind, find)
