"""Typical and odd steps: which windows figures are of, and why.

step      3     4     5     6     7     8
         |----||----||---------||----||---------||--|
                          odd            odd     the last lacks its host's part
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.rank import Breakdown
from analyzers.run import Control
from analyzers.statistics import TENTH, even_distance, odd_steps
from analyzers.step_parts import COMM, IDLE, PARTS, Part
from analyzers.units import count, ms


class OddStep(msgspec.Struct, frozen=True):
    """A step that is longer than the typical ones, by its longest window, ns; `why` names the part that is."""

    step: int
    span_ns: int
    why: str


class Steps(msgspec.Struct, frozen=True):
    """Steps that figures are of, and those that they are not of; `every` is the distance of the odd ones, if even.

    Odd steps are of so many `pauses`: one that a rank makes before its first kernel is in its window before, and in the
    window that others wait in. Distances are between pauses.
    `profile_start` is the first step where the profile's start made it longer: it is neither typical nor odd.
    """

    typical: list[int]
    odd: list[OddStep]
    every: int | None = None
    pauses: int = 0
    profile_start: OddStep | None = None


class Placed(Protocol):
    """A row of one window, or of a part of it."""

    @property
    def rank(self) -> int:
        """Return its rank."""

    @property
    def device(self) -> int | str:
        """Return its device's label."""

    @property
    def step(self) -> int | None:
        """Return its step; None for what is in none."""


PlacedRow = TypeVar("PlacedRow", bound=Placed)


def at_places(rows: Iterable[PlacedRow], windows: Iterable[tuple[int, int | str, int]]) -> list[PlacedRow]:
    """Return the rows that are of these windows, which are each a rank, a device, a step."""
    places = set(windows)
    return [row for row in rows if (row.rank, row.device, row.step) in places]


@dataclass(frozen=True)
class TypicalWindows:
    """The steps of a run by kind, and which of its windows, in order, figures are of."""

    steps: Steps
    windows: Mask


def typical_windows(rows: Breakdown, unprofiled: Control | None) -> TypicalWindows:
    """Tell typical steps from odd ones: docs/measuring.md, Typical and odd steps.

    A step is as long as the longest of its windows. The last window of a cycle counts only where it is its only one.
    """
    counted = ~rows.ends_cycle | np.r_[True, rows.ends_cycle][: len(rows)]
    number, index = np.unique(rows.step[counted], return_inverse=True)
    span_ns = np.zeros(len(number), dtype=np.int64)
    np.maximum.at(span_ns, index, rows.span_ns[counted])
    may_be_odd = unprofiled is None or unprofiled.median_ns is None or unprofiled.odd_steps > 0
    starts = 0 if may_be_odd else _starts_profile(span_ns)
    odd = np.zeros(len(number), dtype=bool)
    odd[starts:] = odd_steps(span_ns[starts:].astype(np.float64))
    odd[:1] &= may_be_odd
    is_typical = ~odd
    is_typical[:starts] = False
    windows = counted & np.isin(rows.step, number[is_typical])
    found = {step: _longer(rows, counted, windows, step) for step in number[~is_typical].tolist()}
    start = found.pop(int(number[0])) if starts else None
    pauses = {_pause(found, step) for step in found}
    steps = Steps(
        number[is_typical].tolist(),
        [one.step for one in found.values()],
        even_distance([*pauses]),
        len(pauses),
        None if start is None else start.step,
    )
    return TypicalWindows(steps, windows)


def odd_words(steps: Steps) -> Iterator[str]:
    """Say in a sentence each which steps figures are not of, and why."""
    if steps.odd:
        worst = max(steps.odd, key=lambda step: step.span_ns)
        apart = f", {steps.every} steps apart" if steps.every is not None and steps.every > 1 else ""
        is_odd, longest = "is odd", f"step {worst.step}"
        if len(steps.odd) > 1:
            is_odd, longest = "are odd", f"the longest, step {worst.step},"
        by = f" by {count(steps.pauses, 'pause')}" if steps.pauses < len(steps.odd) else ""
        many = f"{len(steps.odd)} of {len(steps.odd) + len(steps.typical)} steps {is_odd}{by}{apart}"
        yield f"{many}, and left out of these shares: {longest} is {worst.why}."
    if steps.profile_start is not None:
        start = steps.profile_start
        yield f"Step {start.step}, in which the profile starts, is {start.why}, and left out, too."


def _starts_profile(span_ns: Int64) -> int:
    """Return 1 where the first step is longer than the others by a tenth, as the profile's start makes it."""
    if len(span_ns) < 2:
        return 0
    others_ns = np.median(span_ns[1:])
    return int(span_ns[0] - others_ns >= others_ns / TENTH)


@dataclass(frozen=True)
class _Longer:
    """A step that is longer than the typical ones, the part that is most, and which marks hold its pause, -1: none."""

    step: OddStep
    most: Part
    pause_in: int


def _pause(longer: Mapping[int, _Longer], step: int) -> int:
    """Return the step that the pause of an odd step is in: by the marks on the host, which not all windows have.

    rank 0     |3         |4     a pause of step 4 on the host of rank 0, in its window of step 3 (idle), and in step 4
    rank 1     |3   |4         w       of rank 1, which waits for it: one pause, with marks and without
    """
    found, following = longer[step], longer.get(step + 1)
    if found.most is not IDLE:
        return step
    if found.pause_in != UNKNOWN:
        return found.pause_in
    return step + 1 if following is not None and following.most is COMM else step


def _longer(rows: Breakdown, counted: Mask, typical: Mask, step: int) -> _Longer:
    """Say by how much a step's longest window exceeds its device's typical ones, and in which part most."""
    own = np.flatnonzero(counted & (rows.step == step))
    longest = own[np.argmax(rows.span_ns[own])]
    same = typical & (rows.rank == rows.rank[longest]) & (rows.device == rows.device[longest])
    if not same.any():
        same = typical
    more_ns = {part: _excess(getattr(rows, part.field), longest, same) for part in PARTS}
    most = max(more_ns, key=lambda part: more_ns[part])
    whole_ns = _excess(rows.span_ns, longest, same)
    why = f"{ms(whole_ns)} longer than the typical step, most of it ({ms(more_ns[most])}) {most.words}"
    pause_in = int(rows.pause_in[longest])
    if most is IDLE and pause_in not in (UNKNOWN, step):
        why = f"{why} (on the CPU in ProfilerStep#{pause_in})"
    return _Longer(OddStep(step, int(rows.span_ns[longest]), why), most, pause_in)


def _excess(column: Int64, window: np.intp, others: Mask) -> float:
    return float(column[window] - np.median(column[others]))
