"""Gains by two replays, and findings, each worth its gain on top.

alone       copies 61.9    synchronize 7.5    buffers 0.2        the largest first
on top      copies 61.9    synchronize 0.3                       less than half of its own: the same finding, not listed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzers.arrays import Float64
from analyzers.causes import KEPT, Lags
from analyzers.ranks import RankNumber
from analyzers.scenarios.scenario import LEAST_SHARE, Scenario, Subject
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


# A rank is late, and a finding large, from a twentieth of the step on; uneven work is told from a tenth on.
TWENTIETH, TENTH = 0.05, 0.1
# With less than this share of its gain left on top of others a finding is the same as one of them.
SAME = 0.5
UNEVEN = "alike"


@dataclass(frozen=True)
class Findings:
    """Findings, the largest gain first, and what they bring together; of degree what would come on top of them."""

    listed: tuple[Gain, ...]
    of_degree: tuple[Gain, ...]
    together_ns: float


@dataclass(frozen=True)
class _Taken:
    """The changes that are taken: what all edges take with them, and who replays that, where not the graph alone.

    `idle_ns`: what is left of idle time and waiting.
    """

    lags: Lags
    idle_ns: float
    replayed_by: Scenario | None = None

    def with_(self, scenario: Scenario) -> _Taken:
        replayed_by = scenario if scenario.replay is not None else self.replayed_by
        return replace(self, lags=scenario.change(self.lags), replayed_by=replayed_by)

    def step_lengths(self) -> Float64:
        """Return how long steps take, by step and variant."""
        if self.replayed_by is not None and self.replayed_by.replay is not None:
            return self.replayed_by.replay(self.lags)
        return self.lags.step_lengths(self.lags)[:, 0]

    def gains(self, asked: Sequence[Scenario], lengths: Float64) -> list[Gain]:
        """Return what further scenarios would bring, each by itself, where steps take `lengths` without them."""
        if self.replayed_by is None:
            return gains_on(self.lags, lengths, asked, self.idle_ns)
        after = [self.with_(scenario).step_lengths() for scenario in asked]
        return [gain_between(scenario, lengths, of, self.idle_ns) for scenario, of in zip(asked, after, strict=True)]


def find_findings(
    subject: Subject, gains: Sequence[Gain], awaited: Collection[RankNumber], *, besides: bool = False
) -> Findings:
    """Return the findings among gains; `awaited` are ranks for which the others wait in nearly all steps.

    Those of degree are findings only where no other brings a twentieth of the step (`besides`: one that is not among
    these gains does), and only those with a remedy.
    """
    step_ns = float(subject.model.step_lengths[:, 0].mean())
    taken, lengths = _Taken(subject.lags, subject.most_idle_ns), subject.model.step_lengths
    listed: list[Gain] = []

    def take(some: Iterable[Gain]) -> None:
        nonlocal taken, lengths
        for gain in some:
            after = taken.with_(gain.scenario)
            # On top of nothing a gain is what it is alone.
            after_ns = after.step_lengths() if listed else gain.lengths_ns
            after_lengths = bounded(gain.scenario, lengths, after_ns, taken.idle_ns)
            on_top = gain_between(gain.scenario, lengths, after_lengths)
            if on_top.gain_ns >= SAME * gain.gain_ns and _is_enough(on_top, step_ns):
                left_ns = taken.idle_ns - on_top.gain_ns * gain.scenario.of_idle
                taken, lengths = replace(after, idle_ns=max(left_ns, 0.0)), after_lengths
                listed.append(gain)

    # Of two that are equal to the replay's own error the one of a rank is the more specific.
    ordered = sorted(gains, key=lambda gain: -gain.gain_ns * (1 + OWN_ERROR * is_of_rank(gain.scenario)))
    told = [gain for gain in ordered if gain.scenario.told.remedy and _is_enough(gain, step_ns)]
    of_place = [gain for gain in told if not gain.scenario.of_degree and gain.scenario.kind != UNEVEN]
    # Of a rank that the others wait for.
    take(gain for gain in of_place if gain.scenario.rank is None or gain.scenario.rank in awaited)
    if not any(is_of_rank(gain.scenario) for gain in listed):
        take(gain for gain in told if gain.scenario.kind == UNEVEN and gain.gain_ns >= TENTH * step_ns)
    if not besides and not any(gain.gain_ns >= TWENTIETH * step_ns for gain in listed):
        take(gain for gain in told if gain.scenario.of_degree and gain.gain_ns >= TWENTIETH * step_ns)
    found = {gain.scenario.kind for gain in listed}
    degrees = [gain.scenario for gain in ordered if gain.scenario.of_degree and gain.scenario.kind not in found]
    on_top = taken.gains(degrees, lengths)
    by_gain = sorted(listed, key=lambda gain: -gain.gain_ns)
    together_ns = step_ns - float(lengths[:, 0].mean())
    return Findings(tuple(by_gain), tuple(sorted(on_top, key=lambda gain: -gain.gain_ns)), together_ns)


def _is_enough(gain: Gain, step_ns: float) -> bool:
    """Whether a gain matters, is told apart from nothing, and rests on dependencies that are known."""
    least = TWENTIETH if is_of_rank(gain.scenario) else LEAST_SHARE
    return gain.reliable and gain.gain_ns >= least * step_ns and gain.interval_ns[0] > 0


def is_of_rank(scenario: Scenario) -> bool:
    """Whether a scenario is of one rank."""
    return scenario.rank is not None
