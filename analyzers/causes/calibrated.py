"""Calibrate a replay to the step without the profiler.

    full window's lags -> light window's durations -> hosts by their controls -> unknown remainders released, or the
    share that meets the unprofiled step -> where hosts set the pace, one common factor that meets it

What is not known for certain is reckoned in several ways side by side: `Variant`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.arrays import UNKNOWN, Float64, Int64
from analyzers.causes.hosts import Hosts, Shares, hosts_of, shares_of
from analyzers.causes.pace import Course
from analyzers.ranks import RankNumber
from analyzers.run import UNPROFILED, Controls
from analyzers.statistics import median_interval, odd_steps

# A replay answers to hosts where halving all of their time shortens it by more than a twentieth.
ANSWERS = 0.05
# The least and the largest common factor of hosts.
LEAST_FACTOR, MOST_FACTOR = 0.25, 3.0
# So many shares of unknown remainders, and factors, are tried at once.
TRIED = 5


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to reckon: what share of unknown remainders is kept, and what is left of each rank's host."""

    kept: float
    hosts: Shares


# The variants in which all of the unknown remainders are released, and kept.
RELEASED, KEPT = 1, 2


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A course at the step that people train. The first variant is the likeliest.

    `controlled_ns` is the step by the controls alone, `unprofiled_ns` None where no such step was timed, `factor`
    common to all hosts of the first variant.
    """

    course: Course
    hosts: Hosts
    variants: tuple[Variant, ...]
    controlled_ns: float
    factor: float
    unprofiled_ns: float | None
    answers: bool  # whether its pace answers to hosts

    @property
    def replay_error(self) -> float | None:
        """Return the step by the controls alone over the unprofiled step, less 1."""
        return self.controlled_ns / self.unprofiled_ns - 1 if self.unprofiled_ns else None

    @cached_property
    def lags(self) -> Float64:
        """Return what each of the run's edges takes, a column for each variant."""
        return _weighed(self.course.graph.edge_rank, _parts_of(self.hosts), self.variants)

    def host_shares(self) -> Float64:
        """Return what is left of dense time on each of the run's edges, a column for each variant."""
        rank = self.course.graph.edge_rank
        return np.stack([np.r_[variant.hosts.share, 1.0][rank] for variant in self.variants], axis=1)


def _parts_of(hosts: Hosts) -> Float64:
    """Return what each edge takes in parts, a column each: hosts' dense and excess time, all else known, unknown."""
    edges = hosts.course.graph.edges
    known_ns = np.where(edges.light_ns >= 0, edges.light_ns, edges.lag_ns - edges.unknown_ns)
    unknown_ns = np.where((edges.light_ns >= 0) | hosts.is_host, 0, edges.unknown_ns)
    columns = (hosts.dense_ns, hosts.excess_ns, np.where(hosts.is_host, 0, known_ns), unknown_ns)
    return np.stack(columns, axis=1).astype(np.float64)


def _weighed(rank: Int64, parts: Float64, variants: Sequence[Variant]) -> Float64:
    """Return what something takes in each variant, given its parts and the place of the rank whose host it has."""
    dense_ns, excess_ns, known_ns, unknown_ns = (column[:, None] for column in parts.T)
    kept = np.array([variant.kept for variant in variants])
    dense, excess = (np.stack(of, axis=1) for of in zip(*(variant.hosts.left for variant in variants), strict=True))
    weighed: Float64 = dense_ns * dense[rank] + excess_ns * excess[rank]
    weighed += known_ns
    if kept.any():
        weighed += unknown_ns * kept
    return weighed


@dataclass(frozen=True, eq=False)
class _Trial:
    """The course's chains in parts, so that many variants are tried at little cost."""

    course: Course
    rank: Int64
    parts: Float64

    @classmethod
    def of(cls, hosts: Hosts) -> _Trial:
        course = hosts.course
        edge = course.edges.edge
        contracted, rank = course.contracted, course.graph.edge_rank[edge]
        # A chain has the host of one rank at most.
        of_chain, of_host = np.full(len(contracted.chains), UNKNOWN), hosts.is_host[edge]
        of_chain[contracted.chain_of[of_host]] = rank[of_host]
        return cls(course, of_chain, contracted.sums(_parts_of(hosts).take(edge, axis=0)))

    def paces(self, variants: Sequence[Variant]) -> list[float]:
        """Return the step of each of several variants."""
        paces: list[float] = self.course.pace(_weighed(self.rank, self.parts, variants)).tolist()
        return paces


def calibrate(course: Course, controls: Controls) -> Calibrated:
    """Bring a course to the step that people train: docs/measuring.md, Charges."""
    hosts = hosts_of(course)
    # A single step has no pace, which the unprofiled one is.
    unprofiled_ns = controls.step_ns(UNPROFILED) if len(course.marks) else None
    likeliest, *ends = [shares_of(hosts, host_ns) for host_ns in _host_times(controls)]
    all_shares = (likeliest, *ends)
    trial = _Trial.of(hosts)
    asked = [Variant(0, shares.times(factor)) for factor in (1.0, 0.5) for shares in all_shares]
    kept_ns, *paces = trial.paces([Variant(1, likeliest), *asked])
    as_is, halved = paces[: len(all_shares)], paces[len(all_shares) :]
    answers = [half < whole * (1 - ANSWERS) for whole, half in zip(as_is, halved, strict=True)]
    kept, controlled_ns = 0.0, paces[0]
    if unprofiled_ns is not None and paces[0] < unprofiled_ns < kept_ns:
        kept, controlled_ns = _kept_share(trial, likeliest, unprofiled_ns), unprofiled_ns
    variants = [Variant(kept, shares) for shares in all_shares]
    factors = [1.0] * len(variants)
    if unprofiled_ns is not None and any(answers):
        solved = _common_factors(trial, variants, list(zip(as_is, halved, strict=True)), unprofiled_ns)
        factors = [factor if matters else 1.0 for factor, matters in zip(solved, answers, strict=True)]
    first, *others = [
        replace(variant, hosts=variant.hosts.times(factor)) for variant, factor in zip(variants, factors, strict=True)
    ]
    either = (replace(first, kept=0.0), replace(first, kept=1.0))
    return Calibrated(course, hosts, (first, *either, *others), controlled_ns, factors[0], unprofiled_ns, answers[0])


def _host_times(controls: Controls) -> list[Mapping[RankNumber, float]]:
    """Return what a step takes each rank's host: as is likeliest, and at the ends of what that lies between."""
    samples = {rank: np.array(ns, dtype=np.float64) for rank, ns in controls.host_samples_ns().items()}
    limits = {rank: median_interval([ns[~odd_steps(ns)]]) for rank, ns in samples.items()}
    known = {rank: between for rank, between in limits.items() if between is not None}
    ends = [{rank: between[end] for rank, between in known.items()} for end in (0, 1)] if known else []
    return [controls.host_step_ns(), *ends]


def _kept_share(trial: _Trial, shares: Shares, step_ns: float) -> float:
    """Return the share of unknown remainders with which the replayed step is the one asked for."""
    tried = np.linspace(0, 1, TRIED)
    return float(np.interp(step_ns, trial.paces([Variant(float(kept), shares) for kept in tried]), tried))


def _common_factors(
    trial: _Trial, variants: Sequence[Variant], paces: Sequence[tuple[float, float]], step_ns: float
) -> list[float]:
    """Return for each variant the factor of all hosts with which the replayed step is the one asked for.

    `paces` are the steps at factors 1 and 1/2. The step is convex in the factor and piecewise linear, so that the line
    through these two bounds the factor on one side, and what lies between two factors near each other is known.
    """
    tried = [np.linspace(*_between(whole, half, step_ns), TRIED) for whole, half in paces]
    asked = [
        replace(of, hosts=of.hosts.times(float(factor)))
        for of, factors in zip(variants, tried, strict=True)
        for factor in factors
    ]
    steps = np.maximum.accumulate(np.array(trial.paces(asked)).reshape(len(variants), -1), axis=1)
    return [float(np.interp(step_ns, of, factors)) for of, factors in zip(steps, tried, strict=True)]


def _between(whole_ns: float, half_ns: float, step_ns: float) -> tuple[float, float]:
    """Return the least and the largest factor with which a step may be the one asked for.

    step   half ....../ whole      a line through both lies above the step between them, and below it elsewhere
    factor  1/2  ^     1
    """
    guess = 1 - (whole_ns - step_ns) / (2 * max(whole_ns - half_ns, 1.0))
    other = 1.0 if step_ns >= half_ns else LEAST_FACTOR
    low, high = sorted((float(np.clip(guess, LEAST_FACTOR, MOST_FACTOR)), other))
    return low, high
