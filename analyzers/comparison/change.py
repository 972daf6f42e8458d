"""Change of one figure between two runs, beyond the steps' spread.

A difference is marked as changed if the test finds it, corrected for all figures of its table and for what steps carry
over from the step before, and it is at least `LEAST_SHARE` of A's figure: another launch of the same thing differs,
too, by what the steps of one launch do not show.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from analyzers.arrays import Float64
from analyzers.comparison.permutation_test import Significance, shift_interval, significance
from analyzers.comparison.serial import OF_BLOCKS, OF_STEPS, correlation, freed
from analyzers.statistics import LEAST_SHARE, Limits

# The chance that a table of figures that did not change has any that is marked.
LEVEL = 0.05

State = Literal["changed", "correlated", "within", "small", "too_few", "same", "only_a", "only_b"]
Key = TypeVar("Key", bound=Hashable)

METHOD = (
    "permutation test over whole steps (rank sums; a step's value is the median over its ranks; a control's block "
    "counts as one), each less what it may carry over from the one before, corrected for all figures of a table by "
    "the least p of each permutation (Westfall and Young 1993); the step without the profiler stands alone"
)


METHOD_OF_LAUNCHES = (
    "permutation test over launches (rank sums; a launch's value is the median over its steps), corrected for all "
    "figures of a table by the least p of each permutation (Westfall and Young 1993); the step without the profiler "
    "stands alone"
)


class Method(msgspec.Struct, frozen=True):
    """The test.

    `method`: in words. `level`: the chance of any mark in a table without change. `least_change`: the least share
    marked.
    """

    method: str = METHOD
    level: float = LEVEL
    least_change: float = LEAST_SHARE


class Change(msgspec.Struct, frozen=True):
    """One figure in A and B, medians, and what the test says.

    `difference`: B less A. `relative`: over A. `a_steps`, `b_steps`: of controls blocks. `adjusted_p`: corrected for
    its table. `apart`: all steps of one run lie beyond the other's. `state`: `small` is below `least_change`, `within`
    the steps' spread. `interval`: of controls. `correlation`: what that of neighbouring steps was taken to be.
    """

    a: float | None
    b: float | None
    difference: float | None
    relative: float | None
    a_steps: int
    b_steps: int
    p: float | None
    adjusted_p: float | None
    apart: bool
    state: State
    interval: Limits | None = None
    correlation: float | None = None

    @property
    def is_marked(self) -> bool:
        """Whether it changed by more than its steps' own spread."""
        return self.state == "changed"

    @property
    def changed(self) -> bool | None:
        """Whether it changed; None where that cannot be told."""
        return None if self.state in ("too_few", "only_a", "only_b") else self.is_marked


@dataclass(frozen=True)
class Samples:
    """One figure of one run: its median over steps, and each step's own over what was measured in it."""

    median: float | None
    steps: Mapping[int, float]


NOTHING = Samples(None, {})


def pooled(values: Iterable[tuple[int | None, float | None]]) -> Samples:
    """Pool values by step, from any ranks; what is unknown, or in no step, is left out.

    The median is over steps, which the test is over. That over all values says little of two ranks of which one waits:
    it lies between two humps, wherever their edges happen to be.
    """
    by_step: dict[int, list[float]] = {}
    for step, value in values:
        if step is not None and value is not None:
            by_step.setdefault(step, []).append(value)
    steps = {step: _median(step_values) for step, step_values in by_step.items()}
    return Samples(_median(steps.values()) if steps else None, steps)


def _median(values: Iterable[float]) -> float:
    """As numpy's, which takes twenty times as long for the few values of a step."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def over_launches(launches: Sequence[Samples]) -> Samples:
    """Return a figure of several launches: each is one sample, its median; what a launch does not know is left out."""
    medians = {number: launch.median for number, launch in enumerate(launches) if launch.median is not None}
    return Samples(float(np.median([*medians.values()])) if medians else None, medians)


Pair = tuple[Samples, Samples]


@dataclass(frozen=True, eq=False)
class _Tested:
    """What the test says of a table's figures: of their steps as they are, and in the end."""

    as_they_are: Significance
    p: Float64
    adjusted_p: Float64
    correlation: Float64 | None = None


def changes(pairs: Mapping[Key, Pair], assumed: float | None = OF_STEPS) -> dict[Key, Change]:
    """Judge the figures in one table, corrected for all; figures that neither run has are left out.

    `assumed` is the correlation of neighbours, steps or blocks, that is withstood however few there are; None: they
    are launches, which know nothing of one another.
    """
    present = {key: pair for key, pair in pairs.items() if any(samples.median is not None for samples in pair)}
    testable = [
        pair for pair in present.values() if all(samples.median is not None and samples.steps for samples in pair)
    ]
    tested = _tested(_matrix([a for a, _ in testable]), _matrix([b for _, b in testable]), assumed)
    column_of = {id(pair): number for number, pair in enumerate(testable)}
    return {key: _change(pair, tested, column_of.get(id(pair))) for key, pair in present.items()}


def _tested(a: Float64, b: Float64, assumed: float | None) -> _Tested:
    """Test steps as they are, and where that finds anything, freed of what they carry over: both have to find it."""
    found = significance(a, b)
    if assumed is None or not (found.adjusted_p <= LEVEL).any():
        return _Tested(found, found.p, found.adjusted_p)
    carried = correlation(a, b, assumed)
    also = significance(freed(a, carried), freed(b, carried))
    return _Tested(found, np.maximum(found.p, also.p), np.maximum(found.adjusted_p, also.adjusted_p), carried)


def with_intervals(
    judged: Mapping[Key, Change], pairs: Mapping[Key, Pair], assumed: float | None = OF_BLOCKS
) -> dict[Key, Change]:
    """Add what each difference lies between to figures that were judged; `assumed` as in `changes`."""
    return {key: _with_interval(change, *pairs[key], assumed) for key, change in judged.items()}


def _with_interval(change: Change, a: Samples, b: Samples, assumed: float | None) -> Change:
    of_a, of_b = (np.array([*samples.steps.values()], dtype=np.float64) for samples in (a, b))
    limits = interval(of_a, of_b, assumed)
    return change if limits is None else replace(change, interval=limits)


def interval(a: Float64, b: Float64, assumed: float | None = OF_BLOCKS) -> Limits | None:
    """Return what the difference of two runs' blocks lies between: it holds 0 unless `changes` finds them apart.

    `assumed` as in `changes`. None where there are too few blocks, or launches, to tell.
    """
    as_they_are = shift_interval(a, b, LEVEL)
    if assumed is None:
        return as_they_are
    columns = a[:, np.newaxis], b[:, np.newaxis]
    (carried,) = correlation(*columns, assumed)
    freed_a, freed_b = (freed(column, carried).ravel() for column in columns)
    scaled = shift_interval(freed_a, freed_b, LEVEL)
    if as_they_are is None or scaled is None:
        return None
    # Of a difference, being freed leaves as much as of a step.
    limits = [float(limit / (1 - carried)) for limit in scaled]
    return min(as_they_are[0], limits[0]), max(as_they_are[1], limits[1])


def _matrix(columns: Sequence[Samples]) -> Float64:
    """Build a row for each step that any of the figures has, a column for each figure."""
    steps = sorted({step for samples in columns for step in samples.steps})
    rows = [[samples.steps.get(step, np.nan) for samples in columns] for step in steps]
    return np.array(rows, dtype=np.float64).reshape(len(steps), len(columns))


def _change(pair: Pair, tested: _Tested, column: int | None) -> Change:
    a, b = pair
    counts = (len(a.steps), len(b.steps))
    if a.median is None or b.median is None:
        alone: State = "only_b" if a.median is None else "only_a"
        return Change(a.median, b.median, None, None, *counts, None, None, False, alone)
    difference = b.median - a.median
    relative = difference / abs(a.median) if a.median else None
    if column is None:
        untested: State = "too_few" if difference else "same"
        return Change(a.median, b.median, difference, relative, *counts, None, None, False, untested)
    p, adjusted, apart = float(tested.p[column]), float(tested.adjusted_p[column]), _apart(a, b)
    carried = float(tested.correlation[column]) if tested.correlation is not None else None
    state = _state(tested, column, difference, LEAST_SHARE * abs(a.median), apart)
    return Change(a.median, b.median, difference, relative, *counts, p, adjusted, apart, state, correlation=carried)


def _state(tested: _Tested, column: int, difference: float, least: float, apart: bool) -> State:
    if difference == 0:
        return "same"
    if tested.as_they_are.adjusted_p[column] <= LEVEL:
        if abs(difference) < least:
            return "small"
        return "changed" if tested.adjusted_p[column] <= LEVEL else "correlated"
    return "too_few" if apart or tested.as_they_are.least_p[column] > LEVEL else "within"


def enough(a_steps: int, b_steps: int) -> bool:
    """Whether so many steps of one figure could ever be told from chance: its least p, two-sided, has to reach."""
    return 2 / comb(a_steps + b_steps, a_steps) <= LEVEL


def _apart(a: Samples, b: Samples) -> bool:
    lows, highs = zip(*((min(samples.steps.values()), max(samples.steps.values())) for samples in (a, b)), strict=True)
    return bool(lows[0] > highs[1] or lows[1] > highs[0])
