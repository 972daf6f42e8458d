"""Causal models of samples and of simulated runs, and a replay in plain Python to judge theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import analyzers
from analyzers.arrays import Float64, Int64
from analyzers.causes.model import Model
from analyzers.causes.pace import Course, CourseEdges
from analyzers.rank.dependencies import Edges, Points
from analyzers.rank.summary import summary_of
from analyzers.reporting.analyses import Analyses
from analyzers.run import Manifest
from analyzers.scenarios import Gain, Subject, gains_of, scenarios
from tests.support import samples

# The replay's own error, where nothing better is known: a twentieth of the step with a change.
OWN_ERROR = 0.05


@cache
def analyzed(path: Path) -> Analyses:
    """The analyses of a run, of which its causal model is one."""
    return Analyses(samples.summary_of(path), None)


def model_of(path: Path) -> Model:
    """The causal model of a run that has one."""
    return of_analyses(analyzed(path))


def of_analyses(analyses: Analyses) -> Model:
    """The causal model, which must be there."""
    assert analyses.causes is not None
    return analyses.causes


def read_anew(folder: Path) -> Model:
    """The causal model of a run as the code is now, patched or not."""
    return of_analyses(Analyses(summary_of(analyzers.load(folder), causes=True), None))


@cache
def gains(model: Model) -> list[Gain]:
    """What all scenarios bring that a run can have, the largest first."""
    subject = Subject(model, Manifest())
    return gains_of(subject, [*scenarios(subject)])


def definite(model: Model) -> list[Gain]:
    """What scenarios bring that are found and not asked for, the largest first."""
    return [gain for gain in gains(model) if not gain.scenario.of_degree]


def gain_of(model: Model, kind: str, at: str | None = None) -> float:
    """What a scenario brings, ns: 0 where the run has no such scenario."""
    return sum(gain.gain_ns for gain in gains(model) if gain.scenario.kind == kind and at in (None, gain.scenario.at))


def of_places(gains: Iterable[Gain]) -> list[Gain]:
    """The gains of ranks and stages."""
    return [gain for gain in gains if gain.scenario.kind == "straggler"]


def least_ns(gain: Gain) -> float:
    """The lower end of a gain's interval, less the replay's own error."""
    return gain.interval_ns[0] - OWN_ERROR * gain.step_ns


def stragglers(model: Model) -> list[str]:
    """The ranks and stages whose gain is above a twentieth of the step, and more than the replay's own error."""
    twentieth = model.walked.step_ns / 20
    found = [gain for gain in of_places(gains(model)) if gain.gain_ns > twentieth and least_ns(gain) > 0]
    return [gain.scenario.at for gain in found]


def unexplained(points: Points, edges: Edges) -> Int64:
    """How long each point with edges lies behind the latest of them: 0 for all where lags give recorded times."""
    latest = np.full(len(points), np.iinfo(np.int64).min)
    np.maximum.at(latest, edges.target, points.time_ns[edges.source] + edges.lag_ns)
    bound = np.unique(edges.target)
    behind: Int64 = points.time_ns[bound] - latest[bound]
    return behind


# A replay in plain Python


@dataclass
class PlainReplay:
    """A course replayed edge by edge: `edges` as the course has them, those of one target side by side in order."""

    edges: list[tuple[int, int, int, bool, int]]
    begun_ns: list[float]

    @classmethod
    def of(cls, edges: CourseEdges, position: Int64, begun_ns: Float64) -> PlainReplay:
        """`position` is each point's place in an order in which sources stand before targets."""
        order = np.argsort(position[edges.target], kind="stable")
        rows = zip(
            order.tolist(),
            edges.source[order].tolist(),
            edges.target[order].tolist(),
            edges.earlier[order].tolist(),
            edges.step[order].tolist(),
            strict=True,
        )
        return cls([*rows], begun_ns.tolist())

    def times(self, lags: Sequence[float], visits: Sequence[int]) -> list[list[float]]:
        """All points' times after each visit of a step, as they were last; `lags` by edge."""
        now, after = [*self.begun_ns], []
        for place in visits:
            before, reached = [*now], set()
            for edge, source, target, earlier, step in self.edges:
                if step == place:
                    arrival = (before if earlier else now)[source] + lags[edge]
                    now[target] = max(now[target], arrival) if target in reached else arrival
                    reached.add(target)
            after.append([*now])
        return after

    def path(self, lags: Sequence[float], visits: Sequence[int], node: int) -> list[tuple[int, float]]:
        """The edges that bind, from a point of the last visit back to the beginning, and when each one's target is."""
        after = [[*self.begun_ns], *self.times(lags, visits)]
        into: dict[int, list[tuple[int, int, bool]]] = {}
        for edge, source, target, earlier, _ in self.edges:
            into.setdefault(target, []).append((edge, source, earlier))
        visit, path = len(visits), []
        while visit and node in into:
            latest = max(
                (after[visit - earlier][source] + lags[edge], edge, source, earlier)
                for edge, source, earlier in into[node]
            )
            path.append((latest[1], latest[0]))
            node, visit = latest[2], visit - latest[3]
        return path


def plain_replay(course: Course) -> PlainReplay:
    """The course of a run, to be replayed edge by edge."""
    return PlainReplay.of(course.edges, course.contracted.position, course.begun_ns)


def visits_of(course: Course) -> list[int]:
    """The steps that a course visits, by their place among the typical ones: whole rounds, and the first again."""
    steps = len(course.steps)
    return [number % steps for number in range(2 * course.settling * steps + 1)] if len(course.marks) else [0]


def all_times(course: Course, lags: Float64) -> Float64:
    """Times of the course's points that are not contracted, after each visit: by visit, point and scenario."""
    contracted = course.contracted
    kept = np.unique(contracted.chains.target)
    replayed = contracted.replay(course.begun_ns, contracted.sums(lags), visits_of(course))
    return np.stack([times[kept] for times in replayed])


def lags_of(model: Model) -> Float64:
    """What the course's edges take in the likeliest variant."""
    calibrated = model.calibrated
    lags: Float64 = calibrated.lags[calibrated.course.edges.edge, 0]
    return lags
