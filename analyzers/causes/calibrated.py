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

from analyzers.arrays import Float64
from analyzers.causes.hosts import Hosts, Shares, hosts_of, shares_of
from analyzers.causes.pace import Course
from analyzers.ranks import RankNumber
from analyzers.run import UNPROFILED, Controls
from analyzers.statistics import median_interval, odd_steps

# A replay answers to hosts where halving all of their time shortens it by more than a twentieth.
ANSWERS = 0.05
# The least and the largest common factor of hosts, and those that are tried around a guess.
LEAST_FACTOR, MOST_FACTOR = 0.25, 3.0
NEARBY = np.array([0.75, 0.9, 0.97, 1.0, 1.03, 1.1, 1.25])
# Shares of unknown remainders that are tried.
TRIED = 12


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

    @property
    def replay_error(self) -> float | None:
        """Return the step by the controls alone over the unprofiled step, less 1."""
        return self.controlled_ns / self.unprofiled_ns - 1 if self.unprofiled_ns else None

    @cached_property
    def lags(self) -> Float64:
        """Return what each of the run's edges takes, a column for each variant."""
        return np.stack([lags_of(self.hosts, variant) for variant in self.variants], axis=1)

    def host_shares(self) -> Float64:
        """Return what is left of dense time on each of the run's edges, a column for each variant."""
        rank = self.course.graph.edge_rank
        return np.stack([np.r_[variant.hosts.share, 1.0][rank] for variant in self.variants], axis=1)


def lags_of(hosts: Hosts, variant: Variant) -> Float64:
    """Return what each of the run's edges takes in one variant."""
    edges = hosts.course.graph.edges
    lag_ns = np.where(edges.light_ns >= 0, edges.light_ns, edges.lag_ns - edges.unknown_ns * (1 - variant.kept))
    return np.where(hosts.is_host, hosts.scaled(variant.hosts), lag_ns)


def calibrate(course: Course, controls: Controls) -> Calibrated:
    """Bring a course to the step that people train: docs/measuring.md, Charges."""
    hosts = hosts_of(course)
    # A single step has no pace, which the unprofiled one is.
    unprofiled_ns = controls.step_ns(UNPROFILED) if len(course.marks) else None
    likeliest, *ends = [shares_of(hosts, host_ns) for host_ns in _host_times(controls)]
    all_shares = (likeliest, *ends)
    asked = [Variant(0, shares.times(factor)) for factor in (1.0, 0.5) for shares in all_shares]
    kept_ns, *paces = _paces(hosts, [Variant(1, likeliest), *asked])
    as_is, halved = paces[: len(all_shares)], paces[len(all_shares) :]
    answers = [half < whole * (1 - ANSWERS) for whole, half in zip(as_is, halved, strict=True)]
    kept, controlled_ns = 0.0, paces[0]
    if unprofiled_ns is not None and paces[0] < unprofiled_ns < kept_ns:
        kept, controlled_ns = _kept_share(hosts, likeliest, unprofiled_ns), unprofiled_ns
    variants = [Variant(kept, shares) for shares in all_shares]
    factors = [1.0] * len(variants)
    if unprofiled_ns is not None and any(answers):
        solved = _common_factors(hosts, variants, list(zip(as_is, halved, strict=True)), unprofiled_ns)
        factors = [factor if matters else 1.0 for factor, matters in zip(solved, answers, strict=True)]
    first, *others = [
        replace(variant, hosts=variant.hosts.times(factor)) for variant, factor in zip(variants, factors, strict=True)
    ]
    either = (replace(first, kept=0.0), replace(first, kept=1.0))
    return Calibrated(course, hosts, (first, *either, *others), controlled_ns, factors[0], unprofiled_ns)


def _paces(hosts: Hosts, variants: Sequence[Variant]) -> list[float]:
    """Return the step of each of several variants."""
    lags = np.stack([lags_of(hosts, variant) for variant in variants], axis=1)
    paces: list[float] = hosts.course.pace(lags[hosts.course.edges.edge]).tolist()
    return paces


def _host_times(controls: Controls) -> list[Mapping[RankNumber, float]]:
    """Return what a step takes each rank's host: as is likeliest, and at the ends of what that lies between."""
    samples = {rank: np.array(ns, dtype=np.float64) for rank, ns in controls.host_samples_ns().items()}
    limits = {rank: median_interval([ns[~odd_steps(ns)]]) for rank, ns in samples.items()}
    known = {rank: between for rank, between in limits.items() if between is not None}
    ends = [{rank: between[end] for rank, between in known.items()} for end in (0, 1)] if known else []
    return [controls.host_step_ns(), *ends]


def _kept_share(hosts: Hosts, shares: Shares, step_ns: float) -> float:
    """Return the share of unknown remainders with which the replayed step is the one asked for."""
    tried = np.linspace(0, 1, TRIED)
    return float(np.interp(step_ns, _paces(hosts, [Variant(float(kept), shares) for kept in tried]), tried))


def _common_factors(
    hosts: Hosts, variants: Sequence[Variant], paces: Sequence[tuple[float, float]], step_ns: float
) -> list[float]:
    """Return for each variant the factor of all hosts with which the replayed step is the one asked for.

    `paces` are the steps at factors 1 and 1/2. The step is piecewise linear in the factor and convex: what lies between
    two factors that are near each other is known.
    """
    guesses = [1 - (whole - step_ns) / (2 * max(whole - half, 1.0)) for whole, half in paces]
    near = [np.clip(guess, LEAST_FACTOR, MOST_FACTOR) * NEARBY for guess in guesses]
    found = _solved(hosts, variants, near, step_ns)
    if None in found:
        widely = _solved(
            hosts, variants, [np.geomspace(LEAST_FACTOR, MOST_FACTOR, len(NEARBY))] * len(variants), step_ns
        )
        near = [(factor or MOST_FACTOR) * NEARBY for factor in widely]
        found = _solved(hosts, variants, near, step_ns)
    return [LEAST_FACTOR if factor is None else factor for factor in found]


def _solved(
    hosts: Hosts, variants: Sequence[Variant], factors: Sequence[Float64], step_ns: float
) -> list[float | None]:
    """Return for each variant the factor, between those tried, with which the step comes out; None for none."""
    asked = [
        replace(of, hosts=of.hosts.times(float(factor)))
        for of, tried in zip(variants, factors, strict=True)
        for factor in tried
    ]
    paces = np.maximum.accumulate(np.array(_paces(hosts, asked)).reshape(len(variants), -1), axis=1)
    return [
        float(np.interp(step_ns, of, tried)) if of[0] <= step_ns <= of[-1] else None
        for of, tried in zip(paces, factors, strict=True)
    ]
