"""Analyses that the parts of a report share, made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN
from analyzers.causes import Model, NoOrder, charge_rows, why_none
from analyzers.collectives import (
    Exchange,
    awaited,
    collective_rows,
    exchange,
    group_rows,
    waiting_rows,
)
from analyzers.layers import (
    BucketTimes,
    bucket_rows,
    bucket_times,
    buckets,
    layer_rows,
    layout_of,
    pipelines,
    sharded_rows,
    tensor_rows,
)
from analyzers.layers.strategies import attention_rows, expert_rows
from analyzers.rank import Breakdown, Cause, Measured, RunSummary, device_labels, has_causes
from analyzers.reporting.measures import (
    compute,
    idle_rows,
    input_summary,
    sync_cost,
)
from analyzers.reporting.typical_steps import PlacedRow, at_places, odd_gain, typical_windows
from analyzers.run import UNPROFILED, Calibration, Controls, Manifest, NumberedBy
from analyzers.scenarios import HIDDEN, TWENTIETH, Findings, Gain, Subject, find_findings, gains_of, scenarios
from analyzers.settings import best_cap
from analyzers.trace import UNEVEN_MEMBERS

Shared = TypeVar("Shared")


def shared(make: Callable[[Analyses], Shared]) -> cached_property[Shared]:
    """Return an attribute of `Analyses` that is made when it is first asked for."""
    return cached_property(make)


class Analyses:
    """What is known of a run: windows of all ranks, communication, buckets, and rows made from them."""

    def __init__(self, run: RunSummary, links: Calibration | None) -> None:
        """Match the run's communication; `links` takes the place of the run's own calibration."""
        self.exchanged: Exchange = exchange(run, links or run.calibration)
        self.run = self.exchanged.run
        self.manifest = run.manifest or Manifest()
        self.rows: Breakdown = Breakdown.joined([measured.windows for measured in self.run.measured])

    def column(self, column_of: Callable[[Measured], NDArray[Any]]) -> NDArray[Any]:
        """Join a column over all windows from each rank's."""
        return np.concatenate([column_of(measured) for measured in self.run.measured])

    @property
    def controls(self) -> Controls:
        """Return what was timed beside the profiled steps."""
        return self.manifest.controls

    # Which windows figures are of, and which steps are odd; and these windows.
    typical = shared(lambda self: typical_windows(self.rows, self.controls.unprofiled, self.controls.odd_distance()))
    typical_rows = shared(lambda self: self.rows.take(np.flatnonzero(self.typical.windows)))

    def of_typical(self, rows: Iterable[PlacedRow]) -> list[PlacedRow]:
        """Return the rows that are of these windows."""
        windows = self.typical_rows
        return at_places(
            rows, zip(windows.rank.tolist(), device_labels(windows.device), windows.step.tolist(), strict=True)
        )

    def typical_column(self, column_of: Callable[[Measured], NDArray[Any]]) -> NDArray[Any]:
        """Join a column over the windows that figures are of."""
        return self.column(column_of)[self.typical.windows]

    @property
    def median_step_ns(self) -> float:
        """Return the median span of the typical windows."""
        return float(np.median(self.typical_rows.span_ns))

    @cached_property
    def median_window(self) -> int:
        """Return the window whose span is the (lower) median of the typical ones."""
        windows = np.flatnonzero(self.typical.windows)
        return int(windows[np.argsort(self.rows.span_ns[windows], kind="stable")[(len(windows) - 1) // 2]])

    @property
    def steps(self) -> int:
        """Count the steps on all ranks, added up."""
        return int(np.unique(np.stack([self.rows.rank, self.rows.step]), axis=1).shape[1])

    # What exposed communication is made of in each window, and communication by process group, rank and step.
    exposed = shared(lambda self: self.exchanged.in_windows(self.rows))
    groups = shared(lambda self: group_rows(self.exchanged, self.rows))
    # DDP's buckets; the times of each bucket's reductions, in the order of their rows; a row per bucket, rank and step.
    buckets = shared(lambda self: buckets(self.run))
    bucket_times = shared(lambda self: bucket_times(self.exchanged, self.buckets))
    bucket_rows = shared(lambda self: bucket_rows(self.exchanged, self.buckets, self.bucket_times))
    layout = shared(lambda self: layout_of(self.buckets, self.bucket_rows))
    # A row per layer, rank and step; per collective; and what each device waited, and made others wait, per step.
    layer_rows = shared(lambda self: layer_rows(self.exchanged, self.buckets))
    collective_rows = shared(
        lambda self: collective_rows(self.exchanged, _bucket_of(self.exchanged, self.bucket_times))
    )
    waiting_rows = shared(lambda self: waiting_rows(self.exchanged))
    # Collectives and packing of sharded modules; tensor parallelism's exposed communication; pipelines with their
    # actions and bubbles; layers with experts, by step; layers with spread attention, by step and pass.
    sharded = shared(lambda self: sharded_rows(self.exchanged, self.buckets.layer))
    tensor = shared(lambda self: tensor_rows(self.exchanged))
    pipelines = shared(lambda self: pipelines(self.exchanged))
    experts = shared(lambda self: expert_rows(self.exchanged))
    attention = shared(lambda self: attention_rows(self.exchanged))
    # Idle time by phase, and by operator, Python function or module; what the loader takes in full windows.
    idle = shared(lambda self: idle_rows(self.run.measured))
    input = shared(lambda self: input_summary(self.run.in_full))
    # What synchronization costs; FLOP/s and samples per second.
    cost = shared(lambda self: sync_cost(self.run, self.rows, self.typical.windows, self.exposed, self.controls))
    computed = shared(lambda self: compute(self.run, self.controls.step_ns("unprofiled") or self.median_step_ns))

    @cached_property
    def in_full(self) -> Exchange:
        """Return the communication of full windows, which alone have host and device on one clock."""
        return exchange(self.run.of_full_windows(), self.exchanged.calibration) if self.run.is_light else self.exchanged

    @cached_property
    def causes(self) -> Model | None:
        """Return the causal model; None where the run was read without what it needs, or does not tell it."""
        return self._model[0]

    @property
    def why_no_causes(self) -> str | None:
        """Return why a run that was read with what a causal model needs has none."""
        return self._model[1]

    @cached_property
    def _model(self) -> tuple[Model | None, str | None]:
        """Return the causal model, or why there is none; neither where the run was read without what it needs."""
        if not has_causes(self.run):
            return None, None
        why = why_none(self.run)
        if why is not None:
            return None, why
        windows = Breakdown.joined([measured.windows for measured in self.run.in_full])
        typical = typical_windows(windows, self.controls.unprofiled).steps.typical
        try:
            return Model(self.in_full, self.controls, typical, self.typical.steps.typical), None
        except NoOrder as error:
            return None, str(error)

    @property
    def step_word(self) -> str:
        """Return what a window is called: a step, or a trace where no step is marked."""
        return "trace" if self.rows.unmarked.all() else "step"

    @property
    def step_ns(self) -> float:
        """Return the step that people train: the typical unprofiled one where it was timed, else the profiled one."""
        return self.controls.step_ns(UNPROFILED) or float(np.mean(self.typical_rows.span_ns))

    @cached_property
    def mean_step_ns(self) -> float:
        """Return the mean step, odd ones counted in: of unprofiled samples where there are any."""
        every = self.typical.steps.every
        return self.controls.mean_ns(UNPROFILED, every) or float(np.mean([*self.typical.lengths_ns.values()] or [0]))

    @cached_property
    def subject(self) -> Subject | None:
        """Return what scenarios change; None without a causal model."""
        if self.causes is None:
            return None
        rows = self.typical_rows
        stays_ns = rows.compute_ns.astype(np.float64)
        if self.controls.step_ns(UNPROFILED) is None:
            stays_ns += self._idle_ns(Cause.PROFILER)  # no change takes the profiler's own work away
        least_ns = min(float(stays_ns[own].mean()) for _, own in rows.by_device())
        return Subject(self.causes, self.manifest, max(self.step_ns - least_ns, 0.0), self.step_word)

    def _idle_ns(self, cause: Cause) -> NDArray[Any]:
        """Return the idle time of typical windows that has a cause."""
        return self.typical_column(lambda measured: measured.idle.ns[:, cause].sum(axis=1))

    @cached_property
    def gains(self) -> list[Gain]:
        """Return what each scenario of the graph would bring; none without a causal model."""
        if self.subject is None:
            return []
        return gains_of(self.subject, [*scenarios(self.subject)])

    @cached_property
    def cap_gain(self) -> Gain | None:
        """Return what the best bucket cap would bring; None where no other cap is told apart from the run's own."""
        if self.subject is None:
            return None
        hidden_ns = max((gain.gain_ns for gain in self.gains if gain.scenario.kind == HIDDEN.name), default=0.0)
        return best_cap(self.run, self.subject, hidden_ns)

    @cached_property
    def findings(self) -> Findings | None:
        """Return which scenarios are worth naming; None without a causal model."""
        if self.subject is None:
            return None
        odd = self.odd_gain
        besides = odd is not None and odd.gain_ns >= TWENTIETH * self.mean_step_ns
        gains = [*self.gains, *([self.cap_gain] if self.cap_gain is not None else [])]
        # Where most idle time has no known cause, as where kernels are lost, hosts are not what is too slow.
        if 2 * self._idle_ns(Cause.UNKNOWN).sum() > self.typical_rows.idle_ns.sum():
            gains = [gain for gain in gains if not (gain.scenario.of_degree and gain.scenario.of_idle)]
        return find_findings(self.subject, gains, self.awaited, besides=besides)

    # The ranks that may be called late: the others wait for them step after step.
    awaited = shared(lambda self: awaited(self.exchanged) if self.names_ranks else ())
    # What the typical step instead of odd ones would bring, where that is told apart from nothing.
    odd_gain = shared(lambda self: odd_gain(self.typical, self.manifest))
    # What the critical path of the typical steps consists of.
    charge_rows = shared(lambda self: [] if self.causes is None else charge_rows(self.causes, self.in_full))

    @property
    def names_ranks(self) -> bool:
        """Whether it is certain which rank is which, or does not matter: all of them send and compute alike."""
        calls = self.exchanged.matching.instances.call
        kinds = {call.kind for call in calls if call is not None}
        return self.run.rank_source != NumberedBy.GUESSED or kinds.isdisjoint(UNEVEN_MEMBERS)


def _bucket_of(exchanged: Exchange, times: BucketTimes) -> dict[int, int]:
    """Return the bucket that each collective reduces, by the collective's index, where its members agree."""
    known = (times.instance >= 0) & (times.bucket >= 0)
    index, bucket = exchanged.index[times.instance[known]], times.bucket[known]
    lowest, highest = np.full((2, len(exchanged.index)), UNKNOWN, dtype=np.int64)
    lowest[index] = bucket
    highest[index] = bucket
    np.minimum.at(lowest, index, bucket)
    np.maximum.at(highest, index, bucket)
    agreed = np.flatnonzero((lowest >= 0) & (lowest == highest))
    return dict(zip(agreed.tolist(), lowest[agreed].tolist(), strict=True))
