"""Notebook cells of reports and comparisons, in HTML without scripts."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.comparison import Comparison
from analyzers.reporting import Report
from analyzers.units import count, percent
from tracer.views import StepPart
from tracer.views.html.templates import filled
from tracer.views.sections import bar_shares, listed_advice, step_sentence, trust_words

# A cell is read at a glance; the page has the rest.
MOST_ADVICE = 3


@dataclass(frozen=True)
class BarPart:
    """One part of a step: how it looks, its share in percent and in words."""

    part: StepPart
    width: float
    share: str


def report_cell(report: Report) -> str:
    """Build a report's cell: the step, the problem, one bar, and what to do first."""
    summary, advised = report.summary, listed_advice(report)
    values = {
        "name": report.run.name,
        "step": step_sentence(report),
        "problem": summary.headline.sentence,
        "trust": trust_words(summary.headline),
        "bar": [BarPart(part, round(100 * share, 2), percent(share)) for part, share in bar_shares(report)],
        "advised": advised[:MOST_ADVICE],
        "more": len(advised[MOST_ADVICE:]),
        "warnings": count(len(report.run.warnings), "warning") if report.run.warnings else "",
    }
    return filled("report_cell.html", values)


def comparison_cell(comparison: Comparison) -> str:
    """Build a comparison's cell: the verdict, and the settings in which the runs differ."""
    values = {
        "a": comparison.a,
        "b": comparison.b,
        "verdict": comparison.verdict,
        "different": comparison.different,
        "warnings": count(len(comparison.warnings), "warning") if comparison.warnings else "",
    }
    return filled("comparison_cell.html", values)
