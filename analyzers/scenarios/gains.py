"""Gains: two replays, as it is and with a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Float64
from analyzers.causes import KEPT
from analyzers.scenarios.scenario import Scenario, Subject
from analyzers.statistics import Limits

# From so many steps on the gain is known by its mean over them, else by their range.
ENOUGH_STEPS = 6
NORMAL = 1.959964
# With unknown remainders kept as recorded a gain has at least this share left.
RELIABLE = 0.75
# So many scenarios are replayed at once: more take more memory, and no less time.
AT_ONCE = 12


@dataclass(frozen=True)
class Gain:
    """What a scenario brings: the step with it, what that is less, ns, and what the latter lies between.

    It is not `reliable` where most of it comes of remainders that no dependency explains.
    """

    scenario: Scenario
    step_ns: float
    gain_ns: float
    interval_ns: Limits
    reliable: bool


def gains_of(subject: Subject, asked: Sequence[Scenario]) -> list[Gain]:
    """Return what each of some scenarios brings, the largest first."""
    lags, before = subject.lags, subject.model.step_lengths
    gains = []
    for first in range(0, len(asked), AT_ONCE):
        some = asked[first : first + AT_ONCE]
        after = lags.step_lengths(*(scenario.change(lags) for scenario in some))
        gains += [gain_between(scenario, before, after[:, place]) for place, scenario in enumerate(some)]
    return sorted(gains, key=lambda gain: -gain.gain_ns)


def gain_between(scenario: Scenario, before_ns: Float64, after_ns: Float64) -> Gain:
    """Return a gain from the lengths of steps (rows) in all variants (columns), without and with the scenario."""
    by_step = before_ns[:, 0] - after_ns[:, 0]
    by_variant = (before_ns - after_ns).mean(axis=0)
    if len(by_step) >= ENOUGH_STEPS:
        apart = NORMAL * by_step.std(ddof=1) / np.sqrt(len(by_step))
        steps = (by_step.mean() - apart, by_step.mean() + apart)
    else:
        steps = (by_step.min(), by_step.max())
    low, high = min(by_variant.min(), steps[0]), max(by_variant.max(), steps[1])
    reliable = bool(by_variant[0] <= 0 or by_variant[KEPT] >= RELIABLE * by_variant[0])
    return Gain(scenario, float(after_ns[:, 0].mean()), float(by_variant[0]), (float(low), float(high)), reliable)
