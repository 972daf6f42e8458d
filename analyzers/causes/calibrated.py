"""The course at the step that people train: light durations, hosts without the profiler, unknown remainders.

    full window's lags -> light window's durations -> hosts by their controls -> unknown remainders released, or the
    share that meets the unprofiled step -> where hosts set the pace, one common factor that meets it
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.causes.hosts import Hosts, hosts_of
from analyzers.causes.pace import Course
from analyzers.run import UNPROFILED, Controls

# A replay answers to hosts where halving all of their time shortens it by more than a twentieth.
ANSWERS = 0.05
# Common factors that are tried, and how often between the two best.
FACTORS = np.linspace(0.25, 2.0, 15)
REFINED = 2


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A course with what its lags are without the profiler.

    `factor` is common to all hosts; `kept` the share of unknown remainders that is kept; `unscaled_ns` the step by the
    controls alone, `step_ns` the step with the factor; `unprofiled_ns` is None where no such step was timed.
    """

    course: Course
    hosts: Hosts
    factor: float
    kept: float
    unscaled_ns: float
    step_ns: float
    unprofiled_ns: float | None
    answers_to_hosts: bool

    @property
    def replay_error(self) -> float | None:
        """Return the step by the controls alone over the unprofiled step, less 1."""
        return self.unscaled_ns / self.unprofiled_ns - 1 if self.unprofiled_ns else None

    def lags(self) -> Float64:
        """Return the lag of each of the course's edges."""
        return _lags(self.course, self.hosts, np.array([self.factor]), np.array([self.kept]))[:, 0]


def calibrate(course: Course, controls: Controls) -> Calibrated:
    """Bring a course to the step that people train: METRICS, Charges."""
    hosts = hosts_of(course, controls)
    unprofiled = controls.step_ns(UNPROFILED)
    released, kept, halved = course.pace(_lags(course, hosts, np.array([1, 1, 0.5]), np.array([0, 1, 0]))).tolist()
    share = 0.0
    if unprofiled is not None and released < unprofiled:
        share = 1.0 if kept <= unprofiled and kept > released else 0.0
        if released < unprofiled < kept:
            share = _meet(course, hosts, unprofiled)
        elif kept <= unprofiled:
            share = 0.0
    unscaled = released if share == 0 else float(unprofiled or released)
    answers = halved < released * (1 - ANSWERS)
    factor, step = 1.0, unscaled
    if unprofiled is not None and answers and share == 0:
        factor, step = _solve(course, hosts, unprofiled)
    return Calibrated(course, hosts, factor, share, unscaled, step, unprofiled, answers)


def _lags(course: Course, hosts: Hosts, factor: Float64, kept: Float64) -> Float64:
    graph = course.graph
    edges = graph.edges
    lag_ns = np.where(edges.light_ns >= 0, edges.light_ns, edges.lag_ns).astype(np.float64)
    is_host = hosts.dense_ns + hosts.excess_ns > 0
    scaled = hosts.scaled(graph.edge_rank, factor)
    unknown = edges.unknown_ns[:, None] * (1 - kept)
    lags = np.where(is_host[:, None], scaled, lag_ns[:, None] - unknown)
    return lags[course.edges.edge]


def _meet(course: Course, hosts: Hosts, step_ns: float) -> float:
    shares = np.linspace(0, 1, 16)
    paces = course.pace(_lags(course, hosts, np.ones(16), shares))
    return float(np.interp(step_ns, paces, shares))


def _solve(course: Course, hosts: Hosts, step_ns: float) -> tuple[float, float]:
    """Return the common factor of hosts with which the replayed step is the one asked for, as near as it comes."""
    factors = FACTORS
    for _ in range(REFINED):
        paces = np.maximum.accumulate(course.pace(_lags(course, hosts, factors, np.zeros(len(factors)))))
        at = int(np.clip(np.searchsorted(paces, step_ns), 1, len(factors) - 1))
        low, high = factors[at - 1], factors[at]
        factors = np.linspace(low, high, 9)
    paces = np.maximum.accumulate(course.pace(_lags(course, hosts, factors, np.zeros(len(factors)))))
    best = int(np.abs(paces - step_ns).argmin())
    return float(factors[best]), float(paces[best])
