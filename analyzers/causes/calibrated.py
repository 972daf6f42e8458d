"""The course at the step that people train: light durations, hosts without the profiler, unknown remainders.

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
# Common factors of hosts: the farthest, and how many are tried at once, so many times.
LEAST_FACTOR, MOST_FACTOR = 0.1, 2.5
TRIED, REFINED = 9, 3


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to reckon: what share of unknown remainders is kept, and what is left of each rank's host."""

    kept: float
    hosts: Shares


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
    hosts, unprofiled_ns = hosts_of(course), controls.step_ns(UNPROFILED)
    shares = shares_of(hosts, controls.host_step_ns())
    released_ns, kept_ns = _paces(hosts, [Variant(0, shares), Variant(1, shares)])
    kept = 0.0
    if unprofiled_ns is not None and released_ns < unprofiled_ns < kept_ns:
        kept = _kept_share(hosts, shares, unprofiled_ns)
    (controlled_ns,) = _paces(hosts, [Variant(kept, shares)])
    factors = {
        name: _common_factor(hosts, Variant(kept, of), unprofiled_ns)
        for name, of in (("", shares), *_ends(hosts, controls))
    }
    factor = factors.pop("")
    likeliest = Variant(kept, shares.times(factor))
    others = [Variant(kept, of.times(factors[name])) for name, of in _ends(hosts, controls)]
    variants = (likeliest, replace(likeliest, kept=0.0), replace(likeliest, kept=1.0), *others)
    return Calibrated(course, hosts, variants, controlled_ns, factor, unprofiled_ns)


def _paces(hosts: Hosts, variants: Sequence[Variant]) -> list[float]:
    """Return the step of each of several variants."""
    lags = np.stack([lags_of(hosts, variant) for variant in variants], axis=1)
    paces: list[float] = hosts.course.pace(lags[hosts.course.edges.edge]).tolist()
    return paces


def _ends(hosts: Hosts, controls: Controls) -> list[tuple[str, Shares]]:
    """Return what is left of hosts at the lower and at the upper ends of their controls."""
    limits = {rank: limits for rank, ns in controls.host_samples_ns().items() if (limits := _limits(ns)) is not None}
    if not limits:
        return []
    ends: list[tuple[str, Mapping[RankNumber, float]]] = [
        ("low", {rank: low for rank, (low, _) in limits.items()}),
        ("high", {rank: high for rank, (_, high) in limits.items()}),
    ]
    return [(name, shares_of(hosts, host_ns)) for name, host_ns in ends]


def _limits(samples_ns: Sequence[int]) -> tuple[float, float] | None:
    ns = np.array(samples_ns, dtype=np.float64)
    return median_interval([ns[~odd_steps(ns)]])


def _kept_share(hosts: Hosts, shares: Shares, step_ns: float) -> float:
    """Return the share of unknown remainders with which the replayed step is the one asked for."""
    tried = np.linspace(0, 1, TRIED)
    return float(np.interp(step_ns, _paces(hosts, [Variant(float(kept), shares) for kept in tried]), tried))


def _common_factor(hosts: Hosts, variant: Variant, step_ns: float | None) -> float:
    """Return the factor of all hosts with which the replayed step is the one asked for; 1 where hosts do not matter."""
    (as_is, halved) = _paces(hosts, [variant, replace(variant, hosts=variant.hosts.times(0.5))])
    if step_ns is None or halved >= as_is * (1 - ANSWERS):
        return 1.0
    low, high = LEAST_FACTOR, MOST_FACTOR
    for _ in range(REFINED):
        factors = np.linspace(low, high, TRIED)
        tried = [replace(variant, hosts=variant.hosts.times(float(factor))) for factor in factors]
        paces = np.maximum.accumulate(_paces(hosts, tried))
        at = int(np.clip(np.searchsorted(paces, step_ns), 1, TRIED - 1))
        low, high = float(factors[at - 1]), float(factors[at])
    steps = paces[at - 1 : at + 1]
    return float(np.interp(step_ns, steps, [low, high]))
