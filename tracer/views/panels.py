"""Panels: lines of points, as plots and pages draw them.

A hollow point is an uncertain one, the bar through a point its 95 % interval; dashed lines are ideal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

Item = TypeVar("Item")

# Lines of a picture that are still told apart.
MOST_LINES = 16
# Of swept values, those that a page's axis has room to name.
MOST_TICKS = 10
# An interval makes the axis up to this factor of its point, so that one that says nothing does not.
REACH = 1.5
# An axis whose ends lie no further apart than by this factor has even ticks.
NARROW = 3.0


@dataclass(frozen=True)
class PlotPoint:
    """A point of a line; `low` and `high` are the ends of its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    uncertain: bool = False


@dataclass(frozen=True)
class PlotLine:
    """One line: its label, the place of its color on the ramp (0 to 1), its points, and what is ideal at each x."""

    label: str
    place: float
    points: Sequence[PlotPoint]
    ideal: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Panel:
    """One set of axes; both are logarithmic, y with a tick at each doubling where asked for.

    `ideal` is what is ideal for all lines. Where there are no lines, `empty` is written there.
    """

    title: str
    x: str
    y: str
    lines: Sequence[PlotLine]
    ideal: Sequence[tuple[float, float]] = ()
    doublings: bool = False
    empty: str = "nothing to compare"


def places(values: Iterable[int]) -> dict[int, float]:
    """Space the values, in order, evenly from 0 to 1: their places on the ramp of colors."""
    ordered = sorted(set(values))
    return {value: index / max(len(ordered) - 1, 1) for index, value in enumerate(ordered)}


def spread_out(values: Sequence[Item], most: int) -> list[Item]:
    """Return as many of the values as are asked for, at even distances, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


def ticks_of(values: Sequence[float], most: int) -> list[float]:
    """Return, of rising values on an axis of logarithms, about as many as there is room for, none too near another."""
    kept: list[float] = []
    # A hundredth less, since doublings are as even as floating point has them.
    ratio = (values[-1] / values[0]) ** (0.99 / max(most, 1))
    for value in values:
        if not kept or value >= kept[-1] * ratio:
            kept.append(value)
    return kept


def labels_of(panels: Sequence[Panel]) -> list[str]:
    """Return the labels of a row's lines, each once, in the order of their colors."""
    lines = [line for panel in panels for line in panel.lines]
    return list(dict.fromkeys(line.label for line in sorted(lines, key=attrgetter("place"))))


def told_apart(panels: Sequence[Panel]) -> list[Panel]:
    """Return a row of panels with as many lines as are told apart, the same ones in each."""
    kept = set(spread_out(labels_of(panels), MOST_LINES))
    return [replace(panel, lines=[line for line in panel.lines if line.label in kept]) for panel in panels]


def short_number(value: float) -> str:
    """Write a figure of an axis."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"
