"""Gains: two replays, as it is and with a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzers.arrays import Float64
from analyzers.causes import KEPT, Lags
from analyzers.scenarios.scenario import Scenario, Subject
from analyzers.statistics import Limits

# From so many steps on the gain is known by its mean over them, else by their range.
ENOUGH_STEPS = 6
NORMAL = 1.959964
# With unknown remainders kept as recorded a gain has at least this share left.
RELIABLE = 0.75
# The replay's own error, where nothing better is known: of 17 gains that are known 7 lay in their interval without it,
# and 15 with it (docs/measuring.md, Gains). Of other caps it is half of that.
OWN_ERROR, OF_SETTINGS = 0.05, 0.025
# Kinds that are no scenarios of the graph: settings, and steps unlike most, of which nothing is replayed.
CAPS, FSDP, ODD = "caps", "fsdp", "odd"


@dataclass(frozen=True)
class Gain:
    """What a scenario brings: the step with it, what that is less, ns, and what the latter lies between.

    `lengths_ns` are steps with it, by step and variant. It is not `reliable` where most of it comes of remainders that
    no dependency explains.
    """

    scenario: Scenario
    step_ns: float
    gain_ns: float
    interval_ns: Limits
    reliable: bool
    lengths_ns: Float64 = field(default_factory=lambda: np.zeros((0, 0)), compare=False, repr=False)


def own_error(kind: str | None) -> float:
    """Return the replay's own error for a kind of change, as a share of the step with it."""
    return {ODD: 0.0, CAPS: OF_SETTINGS, FSDP: OF_SETTINGS}.get(kind or "", OWN_ERROR)


def printed_interval(kind: str | None, interval_ns: tuple[int, int], after_ns: float) -> tuple[int, int]:
    """Return what a gain is printed to lie between: its interval with the replay's own error on either side.

    `after_ns` is the step with the change. What brings something in every replay is not said to cost.
    """
    low_ns, high_ns = interval_ns
    apart_ns = round(own_error(kind) * after_ns)
    least_ns = low_ns - apart_ns
    return max(least_ns, 0) if low_ns > 0 else least_ns, high_ns + apart_ns


def gains_of(subject: Subject, asked: Sequence[Scenario]) -> list[Gain]:
    """Return what each of some scenarios brings, the largest first."""
    return gains_on(subject.lags, subject.model.step_lengths, asked, subject.most_idle_ns)


def gains_on(lags: Lags, before_ns: Float64, asked: Sequence[Scenario], most_idle_ns: float) -> list[Gain]:
    """Return what each of some scenarios brings by itself on top of lags with which steps take `before_ns`."""
    if not asked:
        return []
    after = lags.lengths_of(scenario.change(lags) for scenario in asked).swapaxes(0, 1)
    gains = [gain_between(scenario, before_ns, of, most_idle_ns) for scenario, of in zip(asked, after, strict=True)]
    return sorted(gains, key=lambda gain: -gain.gain_ns)


def bounded(scenario: Scenario, before_ns: Float64, after_ns: Float64, most_idle_ns: float) -> Float64:
    """Return how long steps take with a scenario: one of idle time and waiting brings no more than there is."""
    return np.maximum(after_ns, before_ns - most_idle_ns) if scenario.of_idle else after_ns


def gain_between(scenario: Scenario, before_ns: Float64, after_ns: Float64, most_idle_ns: float = np.inf) -> Gain:
    """Return a gain from the lengths of steps (rows) in all variants (columns), without and with the scenario.

    One of idle time and waiting alone brings no more than there is, `most_idle_ns`.
    """
    after_ns = bounded(scenario, before_ns, after_ns, most_idle_ns)
    by_step = before_ns[:, 0] - after_ns[:, 0]
    by_variant = (before_ns - after_ns).mean(axis=0)
    if len(by_step) >= ENOUGH_STEPS:
        apart = NORMAL * by_step.std(ddof=1) / np.sqrt(len(by_step))
        steps = (by_step.mean() - apart, by_step.mean() + apart)
    else:
        steps = (by_step.min(), by_step.max())
    low, high = min(by_variant.min(), steps[0]), max(by_variant.max(), steps[1])
    reliable = bool(by_variant[0] <= 0 or by_variant[KEPT] >= RELIABLE * by_variant[0])
    step_ns, gain_ns = float(after_ns[:, 0].mean()), float(by_variant[0])
    return Gain(scenario, step_ns, gain_ns, (float(low), float(high)), reliable, after_ns)
