"""`Advice`, and the median step that its figures are measured by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from analyzers.layers import LayerRow, PipelineSummary, ShardedCollective, TensorWindow
from analyzers.layers.strategies import AttentionRow
from analyzers.lazy_fields import LazyStruct
from analyzers.reporting.measures import SyncCost
from analyzers.units import duration, percent, rounded_percent


class Advice(msgspec.Struct, frozen=True):
    """What to change, what that would bring, and what was measured.

    `code`: its `scenario`; without a gain `data_parallel`, `contention`, `more_microbatches`, `interleaved_stages`,
    `attention_imbalance`, `attention_transfer`, `reduce_scatter_group`, `max_connections`, `larger_units`,
    `sharded_transfer`, `async_tp`, `fp32`, `layout`. `at`: the place, as `rank 1`; null is the whole step. `scenario`:
    as in `tracer whatif --only`: `straggler`, `alike`, `experts`, `stages`, `input`, `synchronize`, `copies`,
    `allocator`, `gc`, `buffers`, `accumulation`, `optimizer`, `coalesce`, `unused`, `caps`, `odd`; of degree `hook`,
    `graph`, `links`, `hidden`, `host`. `of_degree`: how much is asked for, not found. `words`: behind "with". `value`:
    what is tried; of a rank `compute`, `host`, `input`. `gain_ns`: by replay (of odd steps, of samples), in
    `interval_ns`; in `within_ns` with the replay's own error, as printed. `trust`, `why`: as in Headline, of this gain.
    """

    code: str
    text: str
    because: str
    at: str | None = None
    gain_ns: int | None = None
    interval_ns: tuple[int, int] | None = None
    at_most_ns: int | None = None
    scenario: str | None = None
    problem: str = ""
    share: float = 0.0
    of_degree: bool = False
    words: str = ""
    value: float | str | None = None
    within_ns: tuple[int, int] | None = None
    trust: str | None = None
    why: str | None = None

    @property
    def rank(self) -> int | None:
        """Return the rank that it is about, None for most."""
        word, _, number = (self.at or "").partition(" ")
        return int(number) if word == "rank" else None

    @property
    def figure_ns(self) -> int:
        """Return the gain, or what it is at most."""
        return self.gain_ns if self.gain_ns is not None else self.at_most_ns or 0


def advised(code: str, text: str, at_most_ns: float, problem: str, detail: str = "", at: str | None = None) -> Advice:
    """Build a piece of advice that brings so much at most, from the problem in a clause, and what else was measured."""
    return Advice(code, text, detail, at, at_most_ns=round(at_most_ns), problem=problem)


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
        sums = sorted([*total.values(), *[0] * (self.windows - len(total))])
        return round(median(sums)) if sums else 0


class Evidence(StepTime, frozen=True):
    """Rows of typical steps, the median step, and means over windows.

    `trained_ns` is the step that people train, of which shares are. `free_compute_ns` is compute with no
    communication beside it, which could hide some, None where it is not known. `latency_ns` is the shortest
    transfer of an all_reduce, None where none is known. `environment` is what run.json has of it. `driven_ns` is
    what nn.DataParallel's one process leaves its devices idle, and exposes of their transfers, None of other runs.
    `products_ns` are a step's FP32 products and convolutions outside of tensor cores, `layout_ns` its layout copies
    and batch norms outside of channels_last, on the rank that has most.
    """

    trained_ns: float = 0.0
    sharded: Sequence[ShardedCollective] = ()
    tensor: Sequence[TensorWindow] = ()
    cost: SyncCost | None = None
    free_compute_ns: float | None = None
    latency_ns: int | None = None
    environment: Mapping[str, str] = {}
    is_async_tp_on: bool = False
    attention: Sequence[AttentionRow] = ()
    pipelines: Sequence[PipelineSummary] = ()
    driven_ns: float | None = None
    products_ns: float = 0.0
    layout_ns: float = 0.0
