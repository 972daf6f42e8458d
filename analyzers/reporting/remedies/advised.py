"""`Advice`, and the median step that its figures are measured by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

import msgspec
import numpy as np

from analyzers.arrays import Int64
from analyzers.layers import LayerRow, ShardedCollective, TensorWindow
from analyzers.lazy_fields import LazyStruct
from analyzers.units import duration, percent, rounded_percent


class Advice(msgspec.Struct, frozen=True):
    """What to change, what that would bring (ns per step), and what was measured. Programs go by the code.

    `figure_ns` is what it would bring at most, or, where `scenario` names a change of the graph of causes, the gain of
    that, which lies in `interval_ns`; `at` is the rank that it is about, if one. `problem` is the sentence that a
    headline needs, and the first of `because`; `share` is the gain's, of a step.
    """

    code: str
    text: str
    figure_ns: int
    because: str
    problem: str = ""
    share: float = 0.0
    at: str | None = None
    scenario: str | None = None
    interval_ns: tuple[int, int] | None = None


def advised(code: str, text: str, figure_ns: float, problem: str, detail: str = "", at: str | None = None) -> Advice:
    """Build a piece of advice from the problem in a sentence, and what else was measured."""
    return Advice(code, text, round(figure_ns), "; ".join(filter(None, [problem, detail])), problem, at=at)


class StepTime(LazyStruct, frozen=True):
    """The median step of a run, ns, and the number of windows that it is the median of.

    `step_word` is what a window is called: a step, or a trace where no step is marked; `mean_ns` the mean step, None
    where it is not known.
    """

    step_ns: float
    windows: int
    step_word: str = "step"
    mean_ns: float | None = None

    def share(self, ns: float) -> str:
        """Write a time as it is in a step, and as a share of the step."""
        return f"{duration(ns)} per {self.step_word} ({percent(ns / self.whole_ns)})"

    @property
    def whole_ns(self) -> float:
        """Return what shares are of: the mean step, so that they agree with shares of all steps' time."""
        return self.mean_ns or self.step_ns

    def part(self, ns: float) -> str:
        """Write a time as one says how much of the step it is: `63 % of the step`."""
        return f"{rounded_percent(ns / self.whole_ns)} of the {self.step_word}"

    def typical(self, parts: Iterable[tuple[LayerRow | ShardedCollective | TensorWindow, int]]) -> int:
        """Return the median, over typical windows, of what the rows of each add up to, ns."""
        total: Counter[tuple[int, int | str, int]] = Counter()
        for row, ns in parts:
            if row.step is not None:
                total[row.rank, row.device, row.step] += ns
        return self._median(list(total.values()))

    def typical_of(self, window: Int64, ns: Int64) -> int:
        """Return the same for columns: the window that each entry is of, as any numbers, and its time."""
        _, which = np.unique(window, return_inverse=True)
        total = np.zeros(int(which.max(initial=-1)) + 1, dtype=np.int64)
        np.add.at(total, which, ns)
        return self._median(total.tolist())

    def _median(self, total: list[int]) -> int:
        sums = sorted([*total, *[0] * (self.windows - len(total))])
        return round(median(sums)) if sums else 0
