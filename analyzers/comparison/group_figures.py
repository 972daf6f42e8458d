"""Exposed communication of process groups of two runs, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.comparison.change import NOTHING, Pair, Samples, pooled
from analyzers.reporting import Report, group_steps

# The first is what a line is named with where only one run has it.
MEASURES = ("exposed_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unresolved_ns", "comm_ns")


def group_pairs(a: Report, b: Report) -> dict[tuple[str, str], Pair]:
    """Return each line's figures in both runs by its name; nothing where both runs have but one line.

    Lines are the same that have the same name: groups' numbers may differ between launches. A line that is all of a
    run's communication is compared as that, among the parts of the step. A report saved before there were groups has
    none, and nothing to compare.
    """
    if any(not report.groups and any(window.comm_ns for window in report.windows) for report in (a, b)):
        return {}
    of_a, of_b = (dict(_samples(report)) for report in (a, b))
    if max(len(of_a), len(of_b)) < 2:
        return {}
    alone = dict.fromkeys(MEASURES, NOTHING)
    return {
        (name, measure): (of_a.get(name, alone)[measure], of_b.get(name, alone)[measure])
        for name in dict.fromkeys([*of_a, *of_b])
        for measure in MEASURES
    }


def _samples(report: Report) -> Iterator[tuple[str, dict[str, Samples]]]:
    """Yield each line's figures in the summary's order."""
    for name, steps in group_steps(report).items():
        yield (
            name,
            {
                measure: pooled((step, 0 if row is None else getattr(row, measure)) for step, row in steps)
                for measure in MEASURES
            },
        )
