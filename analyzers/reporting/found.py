"""Advice from findings: what to do, and its gain.

findings    copies 61.9 of 91.0                      first: the headline's problem and remedy
of degree   then: one CUDA graph 1.6 more            a line below, on top of all findings
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.reporting.analyses import Analyses
from analyzers.reporting.remedies import Advice
from analyzers.scenarios import ODD, TENTH, Gain, printed_interval


@dataclass(frozen=True)
class Found:
    """Advice with a gain, the largest first; of degree what comes on top; and what all findings bring together.

    With one on odd steps that is per mean step.

    `suspected` is a rank that the others wait for step after step, whose gain is not told apart from nothing.
    """

    listed: list[Advice]
    of_degree: list[Advice]
    together_ns: int
    suspected: Advice | None = None


def found_advice(analyses: Analyses) -> Found:
    """Return what the findings of a run advise; nothing where it has no graph of causes, nor odd steps."""
    findings, step_ns, odd = analyses.findings, analyses.step_ns, analyses.odd_gain
    listed = [] if findings is None else [_advice(gain, step_ns) for gain in findings.listed]
    if odd is not None:
        listed.append(_advice(odd, analyses.mean_step_ns))
    listed.sort(key=lambda piece: -piece.figure_ns)
    degrees = [] if findings is None else [_advice(gain, step_ns) for gain in findings.of_degree]
    together_ns = (0.0 if findings is None else findings.together_ns) + (0.0 if odd is None else odd.gain_ns)
    suspected = next((_advice(gain, step_ns) for gain in analyses.gains if _is_suspected(analyses, gain)), None)
    return Found(listed, degrees, round(together_ns), suspected)


def _is_suspected(analyses: Analyses, gain: Gain) -> bool:
    is_awaited = gain.scenario.rank is not None and gain.scenario.rank in analyses.awaited
    return is_awaited and gain.gain_ns >= TENTH * analyses.step_ns and gain.interval_ns[0] <= 0


def _advice(gain: Gain, step_ns: float) -> Advice:
    scenario = gain.scenario
    low_ns, high_ns = map(round, gain.interval_ns)
    return Advice(
        scenario.kind,
        scenario.told.remedy,
        scenario.told.because,
        scenario.place,
        gain_ns=round(gain.gain_ns),
        interval_ns=(low_ns, high_ns),
        scenario=scenario.kind,
        problem=scenario.told.problem,
        share=min(gain.gain_ns / step_ns, 1.0) if step_ns else 0.0,
        of_degree=scenario.of_degree,
        words=scenario.words,
        value=scenario.value,
        within_ns=printed_interval(scenario.kind, (low_ns, high_ns), max(step_ns - gain.gain_ns, 0.0)),
    )


def is_odd(piece: Advice) -> bool:
    """Whether a piece of advice is on odd steps, whose share is of the mean step."""
    return piece.scenario == ODD
