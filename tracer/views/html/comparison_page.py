"""Page of a comparison of two runs or two sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.comparison import Comparison, SweepComparison
from analyzers.units import ms
from tracer.views import CAUSE_PARTS, StepPart, in_legend
from tracer.views.html.templates import filled
from tracer.views.sections import changed_means, comparison_tables, comparison_title


@dataclass(frozen=True)
class RunBar:
    """A run's median parts of a step, drawn to one scale with the other's; `rest` is what it is shorter by, ns."""

    name: str
    step: str
    parts: list[tuple[str, float, str]]
    rest: float


def comparison_html(comparison: Comparison | SweepComparison) -> str:
    """Build the comparison's page: one HTML file, which loads nothing and runs nothing."""
    bars = _bars(comparison) if isinstance(comparison, Comparison) else []
    values = {
        "title": comparison_title(comparison),
        "verdict": comparison.verdict,
        "warnings": [str(warning) for warning in comparison.warnings],
        "tables": comparison_tables(comparison),
        "bars": bars,
        "parts": in_legend(CAUSE_PARTS),
        "legend": _legend(bars),
        "meanings": _meanings(comparison),
    }
    return filled("compare.html", values)


def _legend(bars: Sequence[RunBar]) -> list[StepPart]:
    """Return what a legend has for the parts that either bar has."""
    drawn = {look for bar in bars for look, length, _ in bar.parts if length}
    return [part for part in in_legend(CAUSE_PARTS) if part.field in drawn]


def _bars(comparison: Comparison) -> list[RunBar]:
    """Build a bar per run from its median parts, both to one scale."""
    medians = {**comparison.parts, **comparison.idle}
    lengths = {
        name: [(part, getattr(medians.get(part.field), side, None) or 0.0) for part in CAUSE_PARTS]
        for name, side in (("A", "a"), ("B", "b"))
    }
    whole = {name: sum(length for _, length in parts) for name, parts in lengths.items()}
    longest = max(whole.values())
    return [
        RunBar(
            name,
            ms(getattr(comparison.step.get("span_ns"), name.lower(), None) or 0),
            [(part.look or part.field, length, f"{part.label} {ms(length)}") for part, length in parts],
            longest - whole[name],
        )
        for name, parts in lengths.items()
    ]


def _meanings(comparison: Comparison | SweepComparison) -> list[tuple[str, str]]:
    return [
        ("A, B", "medians over steps, of which each is the median over its ranks; A is the baseline."),
        ("steps", "how many steps (of controls, blocks of steps) of A and of B the test has."),
        ("p", "corrected for all figures of the table."),
        ("changed", " ".join(changed_means(comparison))),
        (
            "steps correlated",
            "steps come apart, but resemble the ones before: another launch may differ as much. Record more launches.",
        ),
        ("not told apart", "chance sets steps as far apart too often to tell (p above 5 %): a change, or none."),
        (
            "too few steps",
            "not even steps of which all of one run lie beyond all of the other's (apart) would be told from chance: "
            "record more, with --active and --rounds.",
        ),
        ("below 1 %", "beyond the steps' spread, but less than another launch of the same thing may differ by."),
    ]
