"""Steps that nothing marks, inferred where two signs agree in period.

optimizer        |step|           |step|           |step|      a range that repeats, every 5 launches
launches   f f b b o      f f b b o      f f b b o             what is launched repeats, every 5 launches
steps     |0             |1             |2             |       each ends as the optimizer's range does

Periods are counted in launches: a host that pauses stretches times, not counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.arrays import Int64, joint
from analyzers.run.named_steps import (
    OPTIMIZER_STEP,
    find_repeated,
    keep_outermost,
    launched_rows,
    mark_steps,
    repeated,
)
from analyzers.trace import OPTIMIZER, Category, Events, Kind

# Periods are the same that differ by so much of them at most.
_ALIKE = 0.01
# What repeats makes up so much of what was launched.
_COVERED, _IN_ORDER = 0.5, 0.75
# A step at the trace's end is whole if it has the last so many launches of another, at the end or in their place.
_COMPARED = 8
# An optimizer's range is there once a step by what it means; that another or two ranges are there twice may be chance.
_FEWEST_OTHERS = 3


@dataclass(frozen=True)
class Inferred:
    """What tells a rank's steps: the range with which each ends or begins, and what repeats as often as that."""

    name: str
    period_ns: int
    steps: int
    is_end: bool
    later: int  # so many launches later than the range ends or begins, negative before
    agrees: str

    @property
    def cut(self) -> tuple[str, int]:
        """Return what all ranks of a run have to share: by which range they are cut, and where."""
        return self.name, self.later

    @property
    def where(self) -> str:
        """Return where a step ends or begins, as a clause."""
        verb = "ends" if self.is_end else "begins"
        count = f"{abs(self.later):,} launch{'es' if abs(self.later) > 1 else ''}"
        apart = f" {count} {'after' if self.later > 0 else 'before'}" if self.later else ""
        return f"each {verb}{apart} where a range called {self.name!r} {verb}"


def infer_steps(events: Events) -> tuple[Events, Inferred | None]:
    """Return the rows with marks of steps 0, 1, ... and what tells these; the same rows and None where nothing does."""
    collectives, launches = _read_launches(events)
    ranges = list(_find_ranges(events, launches))
    for marker in _choose_markers(ranges):
        agrees = next(_find_agreeing(marker, ranges, (collectives, launches)), None)
        if agrees is not None:
            edges, later = _find_edges(events, marker, launches)
            steps = len(edges) - 1
            period_ns = repeated(events, marker.name, marker.rows).period_ns
            inferred = Inferred(marker.name, period_ns, steps, marker.is_optimizer, later, agrees)
            return mark_steps(events, marker.rows[:steps], edges[:-1], edges[1:]), inferred
    return events, None


@dataclass(frozen=True, eq=False)
class _Sequence:
    """What was launched, in order: when, and a number for what each was."""

    name: str
    at_ns: Int64
    what: Int64

    def between(self, instants_ns: Int64) -> Int64:
        """Return how many launches lie between each two instants."""
        return np.diff(np.searchsorted(self.at_ns, instants_ns))

    def has_period_of(self, instants_ns: Int64) -> bool:
        """Whether it repeats as often as instants do: with their period, and with no part of it.

        From a period before the first to one behind the last, since what a process sets up does not repeat. One thing
        over and over has no order that could repeat.
        """
        places = np.searchsorted(self.at_ns, instants_ns)
        period = int(np.median(np.diff(places)))
        near = self.what[max(places[0] - period, 0) : places[-1] + period]
        parts = (period // divisor for divisor in _prime_factors(period))
        return period > 1 and _repeats(near, period) and not any(_repeats(near, part) for part in parts)


@dataclass(frozen=True, eq=False)
class _Range:
    """A range that repeats, its rows by start, and how many launches lie between its edges.

    A step may end with an optimizer's, or begin with another: these are its edges. `is_outermost`: none lies in a range
    of another name.
    """

    name: str
    rows: Int64
    start_ns: Int64
    end_ns: Int64
    launches: _Sequence
    is_outermost: bool

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_optimizer(self) -> bool:
        return self.name.startswith(OPTIMIZER_STEP)

    @property
    def edge_ns(self) -> Int64:
        return self.end_ns if self.is_optimizer else self.start_ns

    @cached_property
    def launched(self) -> Int64:
        return self.launches.between(self.edge_ns)

    @cached_property
    def period(self) -> float:
        return float(np.median(self.launched))

    @property
    def covers(self) -> bool:
        return len(self) * self.period >= max(_COVERED * len(self.launches.at_ns), 1)

    @property
    def is_even(self) -> bool:
        """Whether as much is launched in each, and nothing outside that is in none, as before and after layers."""
        first, last = np.searchsorted(self.launches.at_ns, self.edge_ns[[0, -1]])
        outside, inside = np.r_[self.launches.what[:first], self.launches.what[last:]], self.launches.what[first:last]
        return bool(np.ptp(self.launched) == 0 and np.isin(outside, inside).all())


def _read_launches(events: Events) -> tuple[_Sequence, _Sequence]:
    """Return the collectives, by all that they say, and all that was launched, by name."""
    rows, at_ns = launched_rows(events)
    # What one call launches, as of a graph, may run in any order.
    order = np.lexsort((events.name[rows], at_ns))
    rows, at_ns = rows[order], at_ns[order]
    communicates = events.on_device[rows] & (events.kind[rows] == Kind.COMM)
    comm = rows[communicates]
    what = joint(events.name[comm], events.call[comm], events.nbytes[comm])
    collectives = _Sequence("the sequence of its collectives", at_ns[communicates], what)
    return collectives, _Sequence("the sequence of what is launched", at_ns, joint(events.name[rows]))


def _find_ranges(events: Events, launches: _Sequence) -> Iterator[_Range]:
    """Yield the outermost ranges of each name that repeats, and of each optimizer's steps."""
    named = {name: rows for name, rows in find_repeated(events).items() if not name.startswith(OPTIMIZER_STEP)}
    steps = events.rows_named(OPTIMIZER_STEP)
    steps = steps[np.isin(events.category[steps], (Category.ANNOTATION, Category.OPERATOR))]
    named |= {events.names[code]: steps[events.name[steps] == code] for code in np.unique(events.name[steps]).tolist()}
    outermost = keep_outermost(events, np.flatnonzero(events.category == Category.ANNOTATION))
    for name, repeats in named.items():
        rows = keep_outermost(events, repeats)
        is_outermost = bool(np.isin(rows, outermost).all())
        yield _Range(name, rows, events.start_ns[rows], events.end_ns[rows], launches, is_outermost)


def _choose_markers(ranges: Sequence[_Range]) -> list[_Range]:
    """Return ranges with which steps may end or begin, the longest period first.

    Where an optimizer steps it alone tells steps, since what else repeats may be a part of its batch. Of several it is
    the one that steps most rarely, of these the last one. Elsewhere a range around each layer repeats as well, but in a
    range around the model, and after the last one more is launched.
    """
    optimizers = [one for one in ranges if one.is_optimizer]
    if optimizers:
        rarest = min(optimizers, key=lambda one: (len(one), -int(one.end_ns[-1])))
        return [rarest] if len(rarest) > 1 and rarest.covers else []
    others = [one for one in ranges if len(one) >= _FEWEST_OTHERS and one.is_outermost and one.covers and one.is_even]
    return sorted(others, key=lambda one: (-one.period, int(one.start_ns[0])))


def _find_agreeing(marker: _Range, ranges: Sequence[_Range], sequences: Sequence[_Sequence]) -> Iterator[str]:
    """Yield what agrees with a range in period and does not follow from it."""
    yield from (sequence.name for sequence in sequences if sequence.has_period_of(marker.edge_ns))
    for other in ranges:
        is_often = min(len(marker), len(other)) >= _FEWEST_OTHERS
        if is_often and abs(marker.period - other.period) <= _ALIKE * marker.period and _take_turns(marker, other):
            yield f"a range called {other.name!r}"


def _take_turns(one: _Range, other: _Range) -> bool:
    """Whether two ranges are there once each in turn, neither around the other, and not both an optimizer's."""
    if one.name.startswith(OPTIMIZER) and other.name.startswith(OPTIMIZER):
        return False
    start_ns, end_ns = np.r_[one.start_ns, other.start_ns], np.r_[one.end_ns, other.end_ns]
    order = np.argsort(start_ns, kind="stable")
    is_apart = start_ns[order][1:] >= np.maximum.accumulate(end_ns[order])[:-1]
    return bool((is_apart & (np.diff(order >= len(one)))).all())


def _find_edges(events: Events, marker: _Range, launches: _Sequence) -> tuple[Int64, int]:
    """Return where steps begin and end, and how many launches later than the range's edges that is.

    At these, and at the trace's own where the step there is whole. Or what lies outside of them at both of the trace's
    ends is one step together: then each has what is launched on the other side of the edge, as a loss that is fetched.
    """
    edges, at_ns = marker.edge_ns, launches.at_ns
    begin, end = events.start_ns[~events.on_device].min(keepdims=True), at_ns[-1:] + 1
    places = np.searchsorted(at_ns, edges)
    head, *between, tail = np.split(launches.what, places)
    if marker.is_optimizer and _is_whole(head[::-1], [part[::-1] for part in between]):
        return np.r_[begin, edges], 0
    if not marker.is_optimizer and _is_whole(tail, between):
        return np.r_[edges, end], 0
    if all(np.array_equal(np.r_[tail, head], part) for part in between):
        later = len(tail) if marker.is_optimizer else -len(head)
        inside = places + later
        return np.r_[begin, at_ns[inside[(inside > 0) & (inside < len(at_ns))]], end], later
    return edges, 0


def _repeats(what: Int64, period: int) -> bool:
    """Whether a stretch of two periods at least, and of most of it, equals itself that many launches later."""
    differs = np.flatnonzero(what[period:] != what[:-period])
    longest = int(np.diff(np.r_[-1, differs, len(what) - period]).max()) - 1
    return longest >= period and longest + period >= _IN_ORDER * len(what)


def _is_whole(part: Int64, others: Sequence[Int64]) -> bool:
    """Whether a part, which the trace may cut, is as long as one of the others and has what that one ends with.

    With what follows as long as another, as what a process sets up before its first step, it is no step.
    """
    return any(
        0 < (1 - _ALIKE) * len(other) <= len(part) < 2 * len(other)
        and any(np.array_equal(shown[-_COMPARED:], other[-_COMPARED:]) for shown in (part, part[: len(other)]))
        for other in others
    )


def _prime_factors(number: int) -> list[int]:
    """Return the prime factors of a number, each once."""
    factors = []
    for divisor in range(2, int(number**0.5) + 1):
        if number % divisor == 0:
            factors.append(divisor)
            while number % divisor == 0:
                number //= divisor
    return factors + [number] * (number > 1)
