"""Types and JSON of comparisons of runs and of sweeps.

A is the baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from analyzers.comparison.change import Change, Method, State
from analyzers.json_documents import encoded
from analyzers.notices import Notice
from analyzers.reporting import Bar
from analyzers.statistics import LEAST_SHARE

SCHEMA = "tracer.compare/2"
SWEEPS_SCHEMA = "tracer.compare-sweeps/1"

Changes = dict[str, Change]


class Difference(msgspec.Struct, frozen=True):
    """A setting in which two runs differ, in words."""

    what: str
    a: str | None
    b: str | None


class Layouts(msgspec.Struct, frozen=True):
    """DDP's buckets in both runs."""

    a_bytes: list[int | None]
    b_bytes: list[int | None]
    same: bool | None
    why: str | None = None


class BucketChange(msgspec.Struct, frozen=True):
    """A bucket that both runs have."""

    bucket: int
    bytes: int | None
    measures: Changes


class LayerChange(msgspec.Struct, frozen=True):
    """A layer or line."""

    layer: str
    type: str
    measures: Changes


class GroupChange(msgspec.Struct, frozen=True):
    """A line of process groups, by its name."""

    name: str
    measures: Changes


class CollectiveChange(msgspec.Struct, frozen=True):
    """Collectives of one kind, group size, bytes and purpose."""

    kind: str
    group_size: int
    bytes: int | None
    purpose: str
    a_count: int
    b_count: int
    measures: Changes


class PartChange(msgspec.Struct, frozen=True):
    """One part of the mean profiled step.

    `state`: its change's; null if medians hide it.
    """

    part: str
    a_ns: float
    b_ns: float
    difference_ns: float
    state: State | None


class StepAccount(msgspec.Struct, frozen=True):
    """The mean typical profiled step of A and of B; parts' differences add up to the step's.

    `is_opposed`: the unprofiled step changed by 1 % or more, and this one not in the same way.
    """

    a_span_ns: float
    b_span_ns: float
    difference_ns: float
    parts: list[PartChange]
    is_opposed: bool

    @property
    def lines(self) -> list[PartChange]:
        """Return the parts that changed, and of others the longest, up to MOST_LINES in all; then the rest as one.

        None that did not change takes less than LEAST_SHARE of the longer step.
        """
        by_length = sorted(self.parts, key=lambda part: (part.state == "changed", max(part.a_ns, part.b_ns)))
        least_ns, kept = LEAST_SHARE * self.longest_ns, by_length[-MOST_LINES:]
        large = [
            part
            for part in self.parts
            if part.state == "changed" or (part in kept and max(part.a_ns, part.b_ns) >= least_ns)
        ]
        small = [part for part in self.parts if part not in large]
        a_ns, b_ns = sum(part.a_ns for part in small), sum(part.b_ns for part in small)
        return large + ([PartChange(REST, a_ns, b_ns, b_ns - a_ns, None)] if small else [])

    @property
    def longest_ns(self) -> float:
        """Return the longer of both steps."""
        return max(self.a_span_ns, self.b_span_ns)


class PromisedGain(msgspec.Struct, frozen=True):
    """What a piece of A's advice was to bring."""

    code: str
    at: str | None
    problem: str
    gain_ns: int
    within_ns: list[int]


class Promise(msgspec.Struct, frozen=True):
    """Advice of A that B no longer needs, its gains, and what came.

    `came_ns`: how much shorter B's step is.
    """

    gains: list[PromisedGain]
    together_ns: int
    came_ns: float | None
    came_within_ns: list[float] | None


# So many parts have lines, but for more that changed.
MOST_LINES = 9
# What stands for all small parts together.
REST = "rest"


class Comparison(msgspec.Struct, frozen=True):
    """Two runs, A the baseline, and what changed: docs/measuring.md, What changed between two runs.

    `a_launches`, `b_launches`: of several each is one step. `totals`: all buckets of a step on one rank. `promise`:
    advice of A that B no longer needs. `odd_gone`: what A's odd steps cost, where B has none.
    """

    schema: str
    a: str
    b: str
    a_launches: int
    b_launches: int
    verdict: str
    test: Method
    different: list[Difference]
    warnings: list[Notice]
    layouts: Layouts
    controls: Changes
    step: Changes
    parts: Changes
    idle: Changes
    totals: Changes
    buckets: list[BucketChange]
    layers: list[LayerChange]
    collectives: list[CollectiveChange]
    groups: list[GroupChange]
    account: StepAccount | None = None  # null where either run has no windows
    promise: Promise | None = None  # null where none of A's advice was followed in B, as far as B's tells
    a_bar: Bar | None = None  # the step that people train, of the first of A's launches; null in older documents
    b_bar: Bar | None = None
    odd_gone: PromisedGain | None = None

    @property
    def trained_bars(self) -> list[tuple[str, Bar]]:
        """Return the bars of A and B by their letters; none where either is not of a step without the profiler."""
        bars = [(name, bar) for name, bar in (("A", self.a_bar), ("B", self.b_bar)) if bar is not None]
        return bars if [bar.of for _, bar in bars] == ["unprofiled"] * 2 else []

    @property
    def are_launches(self) -> bool:
        """Whether launches are the sample, and not the steps of one run each."""
        return self.a_launches > 1 or self.b_launches > 1

    @property
    def states(self) -> Counter[State]:
        """Return how many figures are in each state."""
        return Counter(figure.change.state for figure in self.figures())

    def __repr__(self) -> str:
        return f"Comparison({self.a} -> {self.b})\n{self.verdict}"

    def figures(self) -> Iterator[FigureOf]:
        """Yield every figure, table by table."""
        for name in ("controls", "step", "parts", "idle", "totals"):
            yield from _of(name, "", getattr(self, name))
        for bucket in self.buckets:
            yield from _of("buckets", f"bucket {bucket.bucket}", bucket.measures)
        for line in self.groups:
            yield from _of("groups", line.name, line.measures)
        for group in self.collectives:
            subject = f"{group.kind} of {group.group_size}, {group.bytes} B, {group.purpose}"
            yield from _of("collectives", subject, group.measures)
        for layer in self.layers:
            yield from _of("layers", layer.layer, layer.measures)


class FigureOf(NamedTuple):
    """A figure, the table that it stands in, and what it is of: nothing where it is of the whole step."""

    table: str
    of: str
    measure: str
    change: Change


def _of(table: str, subject: str, measures: Changes) -> Iterator[FigureOf]:
    return (FigureOf(table, subject, measure, change) for measure, change in measures.items())


class CellChange(msgspec.Struct, frozen=True):
    """One cell of two sweeps: `step_ns`, `weak_efficiency` and `strong_efficiency`."""

    strategy: str
    gpus: int
    batch: int
    measures: Changes
    why: list[str]


class SweepComparison(msgspec.Struct, frozen=True):
    """Two sweeps, cell by cell: those of the same strategy, devices and batch."""

    schema: str
    a: str
    b: str
    verdict: str
    test: Method
    warnings: list[Notice]
    cells: list[CellChange]

    def __repr__(self) -> str:
        return f"SweepComparison({self.a} -> {self.b})\n{self.verdict}"


def comparison_json(document: Comparison | SweepComparison) -> str:
    """Return a comparison as one JSON document."""
    return encoded(document)
