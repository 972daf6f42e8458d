"""`Advice`, and the median step that its figures are measured by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import msgspec

from analyzers.layers import BucketRow, LayerRow, ShardedCollective, TensorWindow
from analyzers.units import duration, percent


class Advice(msgspec.Struct, frozen=True):
    """What to change, what that would bring at most (ns a step), and what was measured. Programs go by the code."""

    code: str
    text: str
    figure_ns: int
    because: str


@dataclass(frozen=True)
class StepTime:
    """The median step of a run, ns, and the number of windows that it is the median of."""

    step_ns: float
    windows: int

    def share(self, ns: float) -> str:
        """Write a time as it is a step, and as a share of the step."""
        return f"{duration(ns)} a step ({percent(ns / self.step_ns)})"

    def typical(self, parts: Iterable[tuple[BucketRow | LayerRow | ShardedCollective | TensorWindow, int]]) -> int:
        """Return the median, over all windows, of what each window's rows add up to, ns: one odd step is no reason."""
        total: Counter[tuple[int, int | str, int]] = Counter()
        for row, ns in parts:
            if row.step is not None:
                total[row.rank, row.device, row.step] += ns
        sums = sorted([*total.values(), *[0] * (self.windows - len(total))])
        return round(median(sums)) if sums else 0
