"""Types, definitions and JSON of the scaling study.

Weak and strong scaling are lists of their own, since they compare different things: with the batch per GPU fixed, the
work grows with the devices; with the global batch fixed, it is divided among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from analyzers.errors import UnreadableDocument
from analyzers.json_documents import decoded, encoded
from analyzers.notices import Notice
from analyzers.reporting import GradientBandwidth
from analyzers.run import LONGEST_NS, Epoch
from analyzers.statistics import FEWEST_BLOCKS, Spread
from analyzers.step_parts import COMM, COMPUTE, COPY, EXPOSED, IDLE, fields_of
from analyzers.texts import brief

SCALING_SCHEMA = "tracer.scaling/2"
# Where a step's time is from.
UNPROFILED, PROFILED = "unprofiled", "profiled"

# A ratio whose 95 % interval reaches further than this share of it, on either side, is not told.
TOLD = 0.1

# A length of a step, ns, and a number of samples or devices: what a study says of them is divided by.
StepNs = Annotated[float, Meta(ge=1, le=LONGEST_NS)]
Number = Annotated[int, Meta(ge=1, le=LONGEST_NS)]

# What the columns mean, in the words that every view shows.
DEFINITIONS = {
    "step": "the median of the steps timed without the profiler, of all ranks and launches, with its 95 % interval (of "
    "all steps; where launches differ by more, the range of their medians); where that is wider than 5 % of it, or not "
    "known, it is marked as uncertain; where there are none, the median window under the profiler, marked as profiled. "
    "T_N is this time on N GPUs.",
    "distortion": "profiled step / unprofiled step, the median over pairs of blocks (with rounds, of launches): not "
    "the quotient of two medians.",
    "epoch": "the data set's samples over the global batch (batch per GPU x GPUs x accumulation), the last partial "
    "batch counted as a step; derived: those steps x the step's time; measured: the median of whole epochs, the first "
    "left out as warm-up, all in one launch, and so without an interval. The step's interval gives what an epoch lies "
    "between: its whole batches at the lower end, all of its steps at the upper.",
    "told": "a speedup or efficiency has what it is with the two steps' 95 % intervals set against one another; where "
    "that reaches further than a tenth of it, on either side, or where either step is of fewer than three launches, "
    "it cannot be told, and is no figure to cite.",
    "weak": "the batch per GPU, b, is fixed, so that the work grows with N. Scaled speedup = N x T_1(b) / T_N(b) "
    "(Gustafson, Reevaluating Amdahl's Law, CACM 31(5), 1988); efficiency = T_1(b) / T_N(b).",
    "strong": "the global batch, B, is fixed, so that each GPU has B/N of it. Speedup = T_1(B) / T_N(B/N) "
    "(Amdahl, AFIPS 30, 1967); efficiency = speedup / N.",
    "measured": "lengths of unions of device activity in the traces, medians over windows (one step on one device): "
    "compute + exposed communication + exposed copies + idle = span in every window. Exposed communication is what no "
    "compute hides: waiting for other ranks, and transfer.",
    "subtraction": "what is computed without a trace, T_N(b) - T_1(b) (weak) or T_N(B/N) - T_1(B) / N (strong), shown "
    "beside the exposed communication that was measured (the mean over windows, since ranks wait for one another in "
    "turn) and used for nothing else. It cannot tell communication from packing, contention, a busier CPU, or noise; "
    "it can be negative. T is timed without the profiler, exposed communication under it: where the profiler stretches "
    "steps, part of what was measured is the profiler's.",
    "bandwidth": "bus bandwidth of the gradients' collectives: in each step, bytes x the ring's factor over transfer "
    "(nccl-tests, PERFORMANCE.md), each the sum over buckets, also of those that are reduced at once; the median over "
    "steps. By subtraction: the "
    "same bytes and factor over the subtracted time. Utilization: the time that calibration says these collectives "
    "need, over their transfer. 1 GB = 1e9 bytes.",
    "baseline": "the 1-GPU cells are shared by all strategies: nn.DataParallel on one device and DDP on one rank are "
    "not measured apart.",
    "accuracy": "on synthetic data labels are random: loss and accuracy mean nothing there.",
}


def definitions(noun: str) -> dict[str, str]:
    """Return what the columns mean, in the words for these devices."""
    return {name: meaning.replace("GPU", noun) for name, meaning in DEFINITIONS.items()}


class CellStep(msgspec.Struct, frozen=True):
    """A step's time with its 95 % interval.

    `spread`: the interval over the median. `source`: `unprofiled` or `profiled`. `uncertain`: a spread above 0.05.
    """

    median_ns: StepNs | None = None
    low_ns: StepNs | None = None
    high_ns: StepNs | None = None
    spread: float | None = None
    source: str | None = None
    uncertain: bool = False

    @property
    def is_profiled(self) -> bool:
        """Whether it is a time under the profiler."""
        return self.source == PROFILED


class EpochTime(msgspec.Struct, frozen=True):
    """An epoch's time.

    `is_assumed`: no data set is named; CIFAR-10's size is taken. `derived_ns`: from the step. `measured_ns`: over whole
    epochs but the first.
    """

    dataset: str
    is_synthetic: bool
    is_assumed: bool
    samples: int
    steps: int
    derived_ns: float | None
    measured_ns: float | None
    measured_epochs: int
    why: str | None = None  # why measured_ns is null


class CellRow(msgspec.Struct, frozen=True):
    """One cell, as asked for and as measured.

    `workload`: must agree between compared cells. `recorded_as`: run.json's strategy.
    """

    name: str
    strategy: str
    gpus: Number
    batch: Number
    state: str
    why: str | None = None
    accumulation: Number = 1
    workload: dict[str, str | None] = {}
    recorded_as: str | None = None
    devices: list[str] = []
    on_cpu: bool = False
    missing_ranks: int = 0
    step: CellStep = CellStep()
    blocks_ns: list[float] = []
    launches: int | None = None  # null: its steps were not timed, or an older version wrote the row
    hosts: list[list[str]] = []  # of each launch, in order; empty: not known
    distortion: float | None = None
    distortion_uncertain: bool = False
    epoch: EpochTime | None = None
    samples_per_s: float | None = None
    peak_memory_bytes: int | None = None
    memory_source: str | None = None
    measured: dict[str, Spread] = {}
    exposed_mean_ns: float | None = None  # over windows
    shares: dict[str, float | None] = {}
    representative: dict[str, int] = {}
    gradients: GradientBandwidth = GradientBandwidth()
    epochs: list[Epoch] = []
    warnings: list[Notice] = []

    @property
    def global_batch(self) -> int:
        """Return how many samples all devices have in one step of the optimizer."""
        return self.batch * self.gpus * self.accumulation

    @property
    def has_few_launches(self) -> bool:
        """Whether its steps do not say how launches differ."""
        return self.launches is not None and self.launches < FEWEST_BLOCKS

    def is_apart(self, other: CellRow) -> bool:
        """Whether launches of the same round of the two are known to have run on different hosts."""
        return any(set(mine).isdisjoint(its) for mine, its in zip(self.hosts, other.hosts, strict=False))

    @property
    def epoch_limits_ns(self) -> tuple[float, float] | None:
        """Return what its step's interval makes of an epoch; how long the last, partial batch takes is not known."""
        low_ns, high_ns = self.step.low_ns, self.step.high_ns
        if self.epoch is None or low_ns is None or high_ns is None or self.step.is_profiled:
            return None
        return self.epoch.samples // self.global_batch * low_ns, self.epoch.steps * high_ns

    @property
    def contradicts_epoch(self) -> bool:
        """Whether the epoch that was measured lies outside of what its step's interval makes of it."""
        limits, measured_ns = self.epoch_limits_ns, self.epoch.measured_ns if self.epoch is not None else None
        return limits is not None and measured_ns is not None and not limits[0] <= measured_ns <= limits[1]


def device_noun(cells: Iterable[CellRow]) -> str:
    """Return what a study's devices are called: on a CPU they are ranks."""
    return "rank" if any(cell.on_cpu for cell in cells) else "GPU"


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of two steps' times, and what their intervals make of it.

    `few_blocks`: fewer than three launches.
    """

    value: float
    low: float | None
    high: float | None
    uncertain: bool
    profiled: bool = False
    few_blocks: bool = False

    @property
    def is_told(self) -> bool:
        """Whether it may be cited: no further than a tenth of it, on either side, lies what it may be instead."""
        if self.low is None or self.high is None or self.few_blocks:
            return False
        return max(self.value - self.low, self.high - self.value) <= TOLD * self.value


class Subtraction(msgspec.Struct, frozen=True):
    """What subtracting times calls communication, beside what was measured.

    `error_ns`: the estimate less exposed communication. `ratio`: over it.
    """

    estimate_ns: float
    low_ns: float | None
    high_ns: float | None
    uncertain: bool
    measured_ns: float | None
    error_ns: float | None
    ratio: float | None
    busbw_gbps: float | None
    utilization: float | None
    why: str | None = None
    profiled: bool = False


class WeakRow(msgspec.Struct, frozen=True):
    """A cell against the 1-GPU cell of its batch per GPU.

    `ideal_step_ns`: at an efficiency of 1. `scaled_speedup`: `efficiency` times `gpus`.
    """

    cell: str
    strategy: str
    gpus: int
    batch: int
    baseline: str | None = None
    step_ns: float | None = None
    ideal_step_ns: float | None = None
    epoch_ns: float | None = None
    ideal_epoch_ns: float | None = None
    scaled_speedup: Ratio | None = None
    efficiency: Ratio | None = None
    subtraction: Subtraction | None = None
    why: str | None = None

    @property
    def speedup(self) -> Ratio | None:
        """Return the scaled speedup."""
        return self.scaled_speedup


class StrongRow(msgspec.Struct, frozen=True):
    """A cell against the 1-GPU cell of its global batch.

    `efficiency`: `speedup` over `gpus`.
    """

    cell: str
    strategy: str
    gpus: int
    batch: int
    global_batch: int
    baseline: str | None = None
    step_ns: float | None = None
    ideal_step_ns: float | None = None
    speedup: Ratio | None = None
    efficiency: Ratio | None = None
    subtraction: Subtraction | None = None
    why: str | None = None


class Scaling(msgspec.Struct, frozen=True):
    """A sweep's study: `weak` and `strong` have a row for each of `cells`, in order.

    `limits`: what made each strategy's step longer on most devices than on one.
    """

    schema: str
    name: str
    command: list[str]
    settings: dict[str, Any]
    cells: list[CellRow]
    weak: list[WeakRow]
    strong: list[StrongRow]
    definitions: dict[str, str]
    warnings: list[Notice]
    verdict: str = ""
    limits: list[str] = []

    __repr__ = brief

    @property
    def device_noun(self) -> str:
        """Return what its devices are called."""
        return device_noun(self.cells)


def scaling_json(study: Scaling) -> str:
    """Return the study as one JSON document."""
    return encoded(study)


def scaling_from_json(text: str | bytes) -> Scaling:
    """Read a study that `to_json` wrote. Raises UnreadableDocument where the text is something else."""
    remedy = "make one of the sweep's recordings with `tracer sweep --report DIR --json`"
    study = decoded(text, Scaling, SCALING_SCHEMA, remedy)
    for place in _too_large(msgspec.json.decode(text)["cells"], "cells"):
        raise UnreadableDocument(
            f"{place} is beyond 2^54, which no time in ns (half a year) or other figure is; {remedy}"
        )
    return study


def _too_large(value: Any, place: str) -> Iterator[str]:
    """Yield where in a document numbers are larger than anything that is measured."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _too_large(inner, f"{place}.{name}")
    elif isinstance(value, int | float) and abs(value) > LONGEST_NS:
        yield place


# Of a window's measures, those that the study shows; of its span's parts, those that shares are given of.
MEASURES = (
    *("span_ns", COMPUTE.field, "comm_ns", *fields_of((COMM, *EXPOSED, COPY, IDLE))),
    *("input_idle_ns", "overlap"),
)
