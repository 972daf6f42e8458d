"""Recorded runs without their ProfilerSteps: are their windows, inferred, those with marks?

`python -m tests.support.unmarked` prints a line for each run at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import analyzers
from analyzers.rank.columns import activities
from analyzers.rank.columns.windows import profiler_steps, windows
from analyzers.run import RankTrace
from analyzers.run.inferred_steps import Inferred, infer_steps
from analyzers.run.named_steps import step_candidates
from analyzers.trace import Events
from tests.support.samples import RUNS, load

Bounds = list[tuple[int, int, int]]


@dataclass(frozen=True)
class Outcome:
    """One rank: its marked windows, those inferred without marks (device, start, end), and what these were told by."""

    marked: Bounds
    without: Bounds
    inferred: Inferred | None
    candidates: tuple[str, ...]

    def __str__(self) -> str:
        if self.inferred is None:
            named = ", ".join(self.candidates)
            return f"not inferred: {f'nothing agrees with {named}' if named else 'no range that may be a step repeats'}"
        cut = "equal" if self.marked == self.without else "another cut"
        return f"{cut}: {self.inferred.where}; {self.inferred.agrees}"


def bounds(trace: RankTrace, events: Events) -> Bounds:
    """The windows of a rank's devices, at the full window's times, by the steps that are marked in some rows."""
    found = []
    for activity in activities(replace(trace, events=events, timed=events)):
        tiles = windows(activity, profiler_steps(events))
        found += [
            (activity.device, *times) for times in zip(tiles.start_ns.tolist(), tiles.end_ns.tolist(), strict=True)
        ]
    return found


def outcome(trace: RankTrace) -> Outcome:
    """A rank's windows with its marks and without."""
    is_mark = np.zeros(len(trace.events), dtype=bool)
    is_mark[trace.events.steps] = True
    unmarked = trace.events.take(~is_mark)
    events, inferred = infer_steps(unmarked)
    named = tuple(one.name for one in step_candidates(unmarked))
    return Outcome(bounds(trace, trace.events), bounds(trace, events), inferred, named)


def outcomes(run: Path) -> Iterator[Outcome]:
    """Those of a run's ranks that have steps to find: two at least."""
    for rank in load(run).ranks:
        if len(rank.events.steps) > 1:
            yield outcome(rank)


def main() -> None:
    """Print the table."""
    for run in RUNS:
        try:
            ranks = list(analyzers.load(run).ranks)
        except analyzers.AnalysisError as error:
            print(f"{run.parent.name}/{run.name}: refused: {str(error)[:60]}")
            continue
        marks = [len(rank.events.steps) for rank in ranks]
        said = {str(outcome(rank)) for rank in ranks}
        line = f"{run.parent.name}/{run.name}: {len(ranks)} ranks, {max(marks)} marked steps: {'; '.join(sorted(said))}"
        print(line)


if __name__ == "__main__":
    main()
