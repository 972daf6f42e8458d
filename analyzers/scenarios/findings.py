"""Findings: cures, each worth its gain on top of those before it.

alone       copies 61.9    synchronize 7.5    buffers 0.2        the largest first
on top      copies 61.9    synchronize 0.3                       less than half of its own: the same finding, not listed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from analyzers.arrays import Float64
from analyzers.causes import Lags
from analyzers.ranks import RankNumber
from analyzers.scenarios.gains import OWN_ERROR, Gain, bounded, gain_between, gains_on
from analyzers.scenarios.scenario import LEAST_SHARE, Scenario, Subject

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
    """The changes that are taken: what all edges take with them, and who replays that, where not the graph alone."""

    subject: Subject
    lags: Lags
    replayed_by: Scenario | None = None

    def with_(self, scenario: Scenario) -> _Taken:
        return _Taken(
            self.subject, scenario.change(self.lags), scenario if scenario.replay is not None else self.replayed_by
        )

    def step_lengths(self) -> Float64:
        """Return how long steps take, by step and variant."""
        if self.replayed_by is not None and self.replayed_by.replay is not None:
            return self.replayed_by.replay(self.lags)
        return self.lags.step_lengths(self.lags)[:, 0]

    def gains(self, asked: Sequence[Scenario], lengths: Float64) -> list[Gain]:
        """Return what further scenarios would bring, each by itself, where steps take `lengths` without them."""
        most_idle_ns = self.subject.most_idle_ns
        if self.replayed_by is None:
            return gains_on(self.lags, lengths, asked, most_idle_ns)
        after = [self.with_(scenario).step_lengths() for scenario in asked]
        return [gain_between(scenario, lengths, of, most_idle_ns) for scenario, of in zip(asked, after, strict=True)]


def find_findings(
    subject: Subject, gains: Sequence[Gain], awaited: Collection[RankNumber], *, besides: bool = False
) -> Findings:
    """Return the findings among gains; `awaited` are ranks for which the others wait in nearly all steps.

    Those of degree are findings only where no other brings a twentieth of the step (`besides`: one that is not among
    these gains does), and only those with a remedy.
    """
    step_ns = float(subject.model.step_lengths[:, 0].mean())
    taken, lengths = _Taken(subject, subject.lags), subject.model.step_lengths
    listed: list[Gain] = []

    def take(some: Iterable[Gain]) -> None:
        nonlocal taken, lengths
        for gain in some:
            after = taken.with_(gain.scenario)
            # On top of nothing a gain is what it is alone.
            after_ns = after.step_lengths() if listed else gain.lengths_ns
            after_lengths = bounded(gain.scenario, lengths, after_ns, subject.most_idle_ns)
            on_top = gain_between(gain.scenario, lengths, after_lengths, subject.most_idle_ns)
            if on_top.gain_ns >= SAME * gain.gain_ns and _is_enough(on_top, step_ns):
                taken, lengths = after, after_lengths
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
