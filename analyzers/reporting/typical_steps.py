"""Typical and odd steps: windows of figures, costs of odd ones.

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
from analyzers.run import UNPROFILED, Control, Controls, Manifest, control, odd_collections_ns
from analyzers.scenarios import COLLECT_LESS, LEAST_SHARE, ODD, Gain, Scenario, Told
from analyzers.statistics import TENTH, even_distance, odd_steps
from analyzers.step_parts import COMM, IDLE, PARTS, Part
from analyzers.units import count, ms

# Where the typical unprofiled step is so many times the profiled one, odd steps lie outside of the profile.
OUTSIDE = 1.5
_REMEDY = (
    "find out what these steps do besides training (a checkpoint, an evaluation, logging, gc.collect()), and do it "
    "less often, or in another thread"
)
_REMEDY_OF_BLOCK = (
    "record again; if it comes back, find out what else this host and its GPUs do then (other processes, clocks)"
)


class OddStep(msgspec.Struct, frozen=True):
    """A step longer than the typical ones.

    `span_ns`: of its longest window.
    """

    step: int
    span_ns: int
    why: str


class Steps(msgspec.Struct, frozen=True):
    """Typical steps and others: docs/measuring.md, Typical and odd steps.

    `every`: the distance of odd steps, if even. `pauses`: how many make them.
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
    lengths_ns: Mapping[int, int]  # of typical and odd steps, by number


def typical_windows(rows: Breakdown, unprofiled: Control | None, every: int | None = None) -> TypicalWindows:
    """Tell typical steps from odd ones: docs/measuring.md, Typical and odd steps.

    `every` is the distance of odd steps that controls tell, where windows do not: a pause before the first window is in
    none.
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
        even_distance([*pauses]) or every,
        len(pauses),
        None if start is None else start.step,
    )
    kept = np.arange(len(number)) >= starts
    lengths = dict(zip(number[kept].tolist(), span_ns[kept].tolist(), strict=True))
    return TypicalWindows(steps, windows, lengths)


def ordinal(number: int) -> str:
    """Write `second`, `third`, `7th`."""
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def odd_words(steps: Steps) -> Iterator[str]:
    """Say in a sentence each which steps figures are not of, and why."""
    if steps.odd:
        worst = max(steps.odd, key=lambda step: step.span_ns)
        apart = f" (every {ordinal(steps.every)})" if steps.every is not None and steps.every > 1 else ""
        is_odd, longest = "is odd", f"step {worst.step}"
        if len(steps.odd) > 1:
            is_odd, longest = "are odd", f"the longest, step {worst.step},"
        by = f" by {count(steps.pauses, 'pause')}" if steps.pauses < len(steps.odd) else ""
        many = f"{len(steps.odd)} of {len(steps.odd) + len(steps.typical)} steps {is_odd}{apart}{by}"
        yield f"{many}, and left out of these shares: {longest} is {worst.why}."
    if steps.profile_start is not None:
        start = steps.profile_start
        yield f"Step {start.step}, in which the profile starts, is {start.why}, and left out."


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
    of_it = f", most of it ({ms(more_ns[most])}) {most.words}"
    if more_ns[most] > whole_ns * (1 + 1 / TENTH):
        of_it = f" ({ms(more_ns[most])} more {most.words}, less of all else)"
    why = f"{ms(whole_ns)} longer than the typical step{of_it}"
    pause_in = int(rows.pause_in[longest])
    if most is IDLE and pause_in not in (UNKNOWN, step):
        why = f"{why} (on the CPU in ProfilerStep#{pause_in})"
    return _Longer(OddStep(step, int(rows.span_ns[longest]), why), most, pause_in)


def _excess(column: Int64, window: np.intp, others: Mask) -> float:
    return float(column[window] - np.median(column[others]))


def odd_gain(typical: TypicalWindows, manifest: Manifest) -> Gain | None:
    """Return what the typical step instead of odd ones would bring per step, on average.

    Of unprofiled samples where there are any, else of profiled steps. None where it is below 1 % of the mean step, or
    not told apart from nothing.
    """
    controls, unprofiled = manifest.controls, manifest.controls.unprofiled
    profiled = control({0: [[*typical.lengths_ns.values()]]})
    timed = unprofiled if unprofiled is not None and unprofiled.median_ns else profiled
    every = typical.steps.every
    cost, mean_ns = timed.odd_cost_ns(every), timed.mean_ns(every) or 0
    if cost is None:
        return _outside(controls)
    gain_ns, limits = cost
    if gain_ns < LEAST_SHARE * mean_ns or limits[0] <= 0:
        return None
    return Gain(
        _scenario(typical.steps, timed, odd_collections_ns(manifest.host_states, timed)),
        mean_ns - gain_ns,
        gain_ns,
        limits,
        reliable=True,
    )


def _scenario(steps: Steps, timed: Control, collections_ns: float) -> Scenario:
    longer = f"{ms(timed.odd_longer_ns)} longer than the typical one"
    which, take = f"{timed.odd_steps} of {count(timed.timed_steps, 'timed step')}", "take"
    remedy = _REMEDY
    if steps.every is not None and steps.every > 1:
        which, take = f"every {ordinal(steps.every)} step", "takes"
    elif timed.odd_steps == 1:
        take = "takes"
    elif timed.slow_block is not None:
        which += ", all in block {} of {},".format(*timed.slow_block)
        remedy = _REMEDY_OF_BLOCK
    if collections_ns > timed.odd_longer_ns / 2:
        longer += f", {ms(min(collections_ns, timed.odd_longer_ns))} of it in Python's garbage collector"
        remedy = COLLECT_LESS
    worst = max(steps.odd, key=lambda step: step.span_ns, default=None)
    because = f"step {worst.step} is {worst.why}" if worst is not None else ""
    words = f"no odd steps ({which.rstrip(',')})"
    told = Told(f"{which} {take} {longer}", remedy, because)
    return Scenario(ODD, "odd steps", lambda lags: lags, words, told=told)


def _outside(controls: Controls) -> Gain | None:
    """Return the same where typical unprofiled steps are far longer than profiled ones: what makes them so is there."""
    step_ns = controls.step_ns(UNPROFILED)
    profiled_ns = controls.step_ns("light") or controls.step_ns("full")
    limits = controls.interval_ns(UNPROFILED)
    if step_ns is None or profiled_ns is None or limits is None or step_ns <= OUTSIDE * profiled_ns:
        return None
    told = Told(
        f"steps outside of the profile take {ms(step_ns - profiled_ns)} longer than those within it",
        _REMEDY,
        f"{ms(step_ns)} where nothing is profiled, {ms(profiled_ns)} while profiled",
    )
    scenario = Scenario(ODD, "steps outside of the profile", lambda lags: lags, "no odd steps", told=told)
    within = (limits[0] - profiled_ns, limits[1] - profiled_ns)
    return Gain(scenario, float(profiled_ns), float(step_ns - profiled_ns), within, reliable=True)
