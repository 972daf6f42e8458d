"""Advice at the gain that the graph of causes has.

advice    buffers, at most 0.33 ms        the local rule sees what lies open; the replay, what then comes sooner
replayed  buffers 0.95 (0.25 to 1.64)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from analyzers.reporting.remedies.advised import Advice
from analyzers.scenarios import KINDS, Gain, Scenario, Subject, gains_of
from analyzers.statistics import LEAST_SHARE

# The kind of scenario that each piece of advice comes to.
SCENARIOS = {
    "buffers": "buffers",
    "input": "input",
    "synchronizing_calls": "synchronize",
    "straggler": "straggler",
    "expert_imbalance": "experts",
    "even_stages": "stages",
}
# From this share of the step on a replayed gain comes before what is known at most.
FOUND = 0.1


def is_found(piece: Advice) -> bool:
    """Whether a piece of advice has a replayed gain that matters."""
    return piece.scenario is not None and piece.share >= FOUND


def replayed(advice: Sequence[Advice], subject: Subject | None) -> list[Advice]:
    """Return advice with its scenario's gain where the graph has one; without a graph as it is.

    Nothing is replayed but what is advised.
    """
    if subject is None:
        return [*advice]
    kinds = {SCENARIOS.get(piece.code) for piece in advice}
    found = [scenario for kind in KINDS if kind.name in kinds for scenario in kind.find(subject)]
    asked = [scenario for scenario in found if any(_is_of(piece, scenario) for piece in advice)]
    return at_gains(advice, gains_of(subject, asked), {scenario.kind for scenario in found})


def at_gains(advice: Sequence[Advice], gains: Sequence[Gain], kinds: Collection[str]) -> list[Advice]:
    """Return advice at gains, which come largest first: those that matter, then what brings most.

    What would bring less than 1 % of the step so, or is not told apart from nothing, is no advice; nor is a rank that
    has no scenario where others have one (`kinds`): it has nothing on the critical path.
    """
    told = []
    for piece in advice:
        gain = next((gain for gain in gains if _is_of(piece, gain.scenario)), None)
        if gain is not None or SCENARIOS.get(piece.code) not in kinds:
            told.append(_told(piece, gain))
    kept = [piece for piece in told if piece is not None]
    return sorted(kept, key=lambda piece: (not is_found(piece), -piece.figure_ns))


def _is_of(piece: Advice, scenario: Scenario) -> bool:
    """Whether a scenario is of what is advised, and of the rank that it is about."""
    place = scenario.at.partition(":")[0]
    return SCENARIOS.get(piece.code) == scenario.kind and piece.at in (None, place)


def _told(piece: Advice, gain: Gain | None) -> Advice | None:
    """Return a piece of advice at a gain; as it is where there is none that can be relied on."""
    if gain is None or not gain.reliable:
        return piece
    before_ns = gain.step_ns + gain.gain_ns
    if gain.gain_ns < LEAST_SHARE * before_ns or gain.interval_ns[0] <= 0:
        return None
    low_ns, high_ns = gain.interval_ns
    return msgspec.structs.replace(
        piece,
        figure_ns=round(gain.gain_ns),
        share=gain.gain_ns / before_ns,
        scenario=gain.scenario.kind,
        interval_ns=(round(low_ns), round(high_ns)),
    )
