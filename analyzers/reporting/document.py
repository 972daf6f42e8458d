"""Types and JSON of the report."""

from __future__ import annotations

from collections import Counter

import msgspec

from analyzers.causes import ChargeRow, ChargesSummary
from analyzers.collectives import (
    BandwidthRow,
    ClockRow,
    CollectiveRow,
    CopyRow,
    GroupSummary,
    GroupWindow,
    UnmatchedRow,
    WaitingRow,
)
from analyzers.json_documents import compact, decoded, encoded
from analyzers.layers import (
    BucketRow,
    BucketSummary,
    LayerRow,
    LayerSummary,
    Layout,
    PipelineRow,
    PipelineSummary,
    ShardedRows,
    TensorWindow,
)
from analyzers.layers.strategies import AttentionRow, ExpertRow
from analyzers.lazy_fields import LazyStruct, evaluated
from analyzers.notices import Notice
from analyzers.reporting.bar import Bar
from analyzers.reporting.measures import (
    Compute,
    DeviceSummary,
    IdleCauses,
    IdleRows,
    Input,
    KernelRow,
    OverDevices,
    RegionKernel,
    SyncCost,
)
from analyzers.reporting.remedies import Advice
from analyzers.reporting.step_timeline import Timeline
from analyzers.reporting.typical_steps import Steps
from analyzers.run import HIGH_DISTORTION, Dataset, DeviceState, Epoch, Memory, NumberedBy, TrainingSettings
from analyzers.statistics import LEAST_SHARE, TENTH, Limits, Spread, is_told_apart
from analyzers.texts import brief
from analyzers.units import between_ms, ms


class Window(msgspec.Struct, frozen=True):
    """One profiled step on one device: docs/measuring.md, Where a window's time went.

    `exposed_transfer_ns`: a bound where `summary.transfer_is_bound`.
    """

    rank: int
    device: int | str
    step: int
    start_ns: int
    span_ns: int
    compute_ns: int
    packing_ns: int
    comm_ns: int
    copy_ns: int
    overlapped_comm_ns: int
    exposed_comm_ns: int
    exposed_wait_ns: int
    exposed_transfer_ns: int
    exposed_unresolved_ns: int
    exposed_copy_ns: int
    idle_ns: int
    overlap: float | None
    unmatched_comm_ns: int
    contention_ns: int | None
    idle: IdleCauses
    input_idle_ns: int | None = None  # of idle_ns; null where host and device are not of the same steps
    typical: bool = True


class Representative(msgspec.Struct, frozen=True):
    """The typical window of median span, in which printed lines add up."""

    rank: int
    device: int | str
    step: int

    @property
    def place(self) -> tuple[int, int | str, int]:
        """Return by what it is known among all windows."""
        return self.rank, self.device, self.step


class Summary(LazyStruct, frozen=True):
    """What typical windows come to.

    `windows`: by measure, as `shares`, idle time as `idle_input_ns` and so on. `representative`: of median span.
    `advice`: gains from a tenth of the step on, then the rest, each the largest first. `layers_from`: `modules`,
    `fsdp`, `operators`, `nodes` of the backward. `charges`: null if no launches are recorded, or nobody asked.
    `advice_together_ns`: all replayed at once.
    """

    windows: dict[str, Spread]
    by_device: list[DeviceSummary]
    shares: dict[str, float | None]
    representative: Representative
    verdict: str
    headline: Headline
    transfer_is_bound: bool  # of exposed transfer some is a bound: it is at most what is said
    communication: list[BandwidthRow]
    copies: list[CopyRow]
    unmatched_share: float | None
    advice: list[Advice]
    buckets: list[BucketSummary]
    layers: list[LayerSummary]
    layers_from: str
    layout: Layout | None
    sync_cost: SyncCost | None
    input: Input | None = None  # null where no trace has a loader's ranges
    over_devices: OverDevices | None = None  # null for one device
    groups: list[GroupSummary] = msgspec.field(default_factory=list)
    pipelines: list[PipelineSummary] = msgspec.field(default_factory=list)
    steps: Steps = Steps([], [])
    charges: ChargesSummary | None = None  # null where what had to come before what is not known
    bar: Bar | None = None  # what the step that people train is made of; null in documents of tracer.report/2
    of_degree: list[Advice] = msgspec.field(default_factory=list)
    advice_together_ns: int | None = None

    __repr__ = brief


REPORT_SCHEMA, OLDER_REPORTS = "tracer.report/3", ("tracer.report/2",)


class MarkedRank(msgspec.Struct, frozen=True):
    """A rank that stands out.

    `mark`: `late` or `slow`.
    """

    rank: int
    mark: str
    why: str | None


class Headline(msgspec.Struct, frozen=True):
    """The first screen's sentence: docs/measuring.md, The headline.

    `step_ns`: unprofiled. `profiled_step_ns`: the median window. `share`: of the step; of odd steps, of the mean one.
    `trust`: `high`, `fair`, `low`. `code`: of the advice, `compute`, or a part: `idle`, `exposed_wait`,
    `exposed_transfer`, `exposed_unresolved`, `exposed_copy`. `mark_ns`: the host's mark, where windows cover less than
    nine tenths of it. `step_word`: `trace` where no step is marked. `gain_ns`: null for a bound.
    """

    step_ns: float | None
    profiled_step_ns: float
    problem: str | None
    share: float | None
    remedy: str | None
    trust: str
    why: str | None
    sentence: str = ""
    code: str | None = None
    communication: str | None = None
    marked: list[MarkedRank] = []
    mark_ns: float | None = None
    step_word: str = "step"
    gain_ns: int | None = None

    @property
    def is_of_part(self) -> bool:
        """Whether shares are of the device's part of a step alone."""
        return self.step_ns is None and self.mark_ns is not None


# From here on an interval's ends tell less than what they are of.
MOST_APART = 2


class ControlFigures(msgspec.Struct, frozen=True):
    """The controls' medians: docs/measuring.md, What the profiler does to it: light and full windows, controls.

    `unprofiled_mean_ns`: with odd steps. `host_step_ns`: what launching a step takes, by rank. `intervals_ns`,
    `blocks_ns`: by the same names; intervals are of 95 %.
    """

    unprofiled_step_ns: int | None = None
    unprofiled_mean_ns: int | None = None
    unprofiled_timed: int = 0
    unprofiled_odd: int = 0
    odd_every: int | None = None
    nosync_step_ns: int | None = None
    profiled_step_ns: int | None = None
    distortion: float | None = None
    sync_cost_ns: int | None = None
    host_step_ns: dict[str, int] = {}
    intervals_ns: dict[str, list[float]] = {}
    blocks_ns: dict[str, list[float]] = {}

    def interval(self, name: str) -> Limits | None:
        """Return what a control lies between; None where that is not known."""
        limits = self.intervals_ns.get(name)
        return (limits[0], limits[1]) if limits is not None else None

    def known(self, name: str) -> str:
        """Say what a control lies between, `(between 7 and 9 ms)`; empty where that is not known.

        One that is wider than a factor of two is no knowledge: then it says what the control's blocks of steps took.
        """
        limits, blocks_ns = self.interval(name), self.blocks_ns.get(name.removesuffix("_step_ns"), [])
        if limits is None:
            return ""
        if len(blocks_ns) < 2 or limits[1] <= MOST_APART * limits[0]:
            return f" ({between_ms(limits)})"
        took = [ms(ns).removesuffix(" ms") for ns in blocks_ns]
        return f" (not known: blocks of steps took {', '.join(took[:-1])} and {took[-1]} ms)"

    def on_average(self) -> str:
        """Say how long the mean unprofiled step is; empty where odd steps make it by less than a tenth longer."""
        typical_ns, mean_ns = self.unprofiled_step_ns, self.unprofiled_mean_ns
        if typical_ns is None or mean_ns is None or mean_ns - typical_ns < typical_ns / TENTH:
            return ""
        if self.odd_every is not None:
            return f"{ms(mean_ns)} on average"
        is_odd = "is odd" if self.unprofiled_odd == 1 else "are odd"
        return f"{ms(mean_ns)} on average ({self.unprofiled_odd} of {self.unprofiled_timed} timed steps {is_odd})"

    @property
    def is_stretched(self) -> bool:
        """Whether the profiler stretches the step by more than a little, as far as is told apart from not at all."""
        limits = self.interval("distortion")
        told = limits is None or limits[0] > 1
        return self.distortion is not None and self.distortion > HIGH_DISTORTION and told

    @property
    def is_sync_cost_told(self) -> bool:
        """Whether steps with and without synchronization are told apart, as far as is known."""
        return is_told_apart(self.interval("sync_cost_ns"))


class LinkFacts(msgspec.Struct, frozen=True):
    """What ranks communicate over.

    `limit_gbps`: one way. `source`: who says so, or why nobody does.
    """

    devices: list[str] = []
    transport: str | None = None
    limit_gbps: float | None = None
    source: str | None = None


class RunFacts(msgspec.Struct, frozen=True):
    """What is known of the run, much of it from run.json.

    `ranks`: those read. `origin_ns`: the epoch time of time 0. `times_from`: `light` or `full` windows. `rank_source`:
    `run.json`, `trace`, `file` (its name, or `--rank`), `guessed`.
    """

    name: str
    world_size: int
    ranks: list[int]
    devices: list[str]
    backend: str | None
    strategy: str | None
    model: str | None
    batch_per_gpu: int | None
    bucket_cap_mb: float | None
    versions: dict[str, str | None]
    origin_ns: str
    times_from: str
    controls: ControlFigures
    clock: ClockRow
    links: LinkFacts
    warnings: list[Notice]
    notes: list[Notice]
    memory: Memory | None = None
    device_states: dict[str, list[DeviceState]] | None = None
    training: TrainingSettings | None = None  # not recorded by 0.2 and before
    dataset: Dataset | None = None
    epochs: list[Epoch] = []
    rank_source: str = NumberedBy.TRACE
    steps_inferred: bool = False

    __repr__ = brief

    @property
    def notices(self) -> list[Notice]:
        """Return all that is said of the run: the warnings, then the notes."""
        return [*self.warnings, *self.notes]


class Report(LazyStruct, frozen=True):
    """All that text, page, CSV and TensorBoard show.

    `kernels`, `operators`: each rank's 50 longest. `traffic`: bytes of a step and rank, by purpose.
    """

    schema: str
    run: RunFacts
    windows: list[Window]
    collectives: list[CollectiveRow]
    unmatched: list[UnmatchedRow]
    waiting: list[WaitingRow]
    buckets: list[BucketRow]
    layers: list[LayerRow]
    kernels: list[KernelRow]
    operators: list[KernelRow]
    compute: Compute
    timeline: Timeline
    traffic: dict[str, int | None]
    summary: Summary
    idle: IdleRows
    sharded: ShardedRows = ShardedRows()
    regions: list[RegionKernel] = msgspec.field(default_factory=list)
    tensor: list[TensorWindow] = msgspec.field(default_factory=list)
    groups: list[GroupWindow] = msgspec.field(default_factory=list)
    pipeline: list[PipelineRow] = msgspec.field(default_factory=list)
    experts: list[ExpertRow] = msgspec.field(default_factory=list)
    attention: list[AttentionRow] = msgspec.field(default_factory=list)
    charges: list[ChargeRow] = msgspec.field(default_factory=list)

    @property
    def representative_window(self) -> Window:
        """Return the window that the summary names."""
        chosen = self.summary.representative
        return next(row for row in self.windows if (row.rank, row.device, row.step) == chosen.place)

    def __repr__(self) -> str:
        return f"Report({self.run.name})\nMain problem: {self.summary.headline.sentence}"


def to_json(document: Report) -> str:
    """Return the report as one JSON document."""
    return encoded(evaluated(document))


DIGEST_SCHEMA = "tracer.summary/1"
# A digest is for one look: of more groups those with the most exposed communication.
MOST_GROUPS = 8


class DigestGroup(msgspec.Struct, frozen=True):
    """One line of process groups: medians per step."""

    name: str
    comm_ns: float | None
    exposed_ns: float | None


class Digest(msgspec.Struct, frozen=True):
    """What a report comes to, in some kilobytes, under the report's names.

    `groups`: the eight most exposed. `warnings`, `notes`: how many of each code.
    """

    schema: str
    run: str
    model: str | None
    strategy: str | None
    world_size: int
    ranks: int
    devices: list[str]
    headline: Headline
    verdict: str
    shares: dict[str, float | None]
    bar: Bar | None
    advice: list[Advice]
    of_degree: list[Advice]
    advice_together_ns: int | None
    groups: list[DigestGroup]
    groups_left_out: int
    warnings: dict[str, int]
    notes: dict[str, int]


def digest(document: Report) -> Digest:
    """Return what a report comes to."""
    run, summary = document.run, document.summary
    groups = [
        DigestGroup(group.name, *(group.measures[name].median for name in ("comm_ns", "exposed_ns")))
        for group in summary.groups
    ]
    groups.sort(key=lambda group: -(group.exposed_ns or 0))
    return Digest(
        schema=DIGEST_SCHEMA,
        run=run.name,
        model=run.model,
        strategy=run.strategy,
        world_size=run.world_size,
        ranks=len(run.ranks),
        devices=list(dict.fromkeys(run.devices)),
        headline=summary.headline,
        verdict=summary.verdict,
        shares=summary.shares,
        bar=summary.bar,
        advice=summary.advice,
        of_degree=[piece for piece in summary.of_degree if piece.share >= LEAST_SHARE],
        advice_together_ns=summary.advice_together_ns,
        groups=groups[:MOST_GROUPS],
        groups_left_out=max(len(groups) - MOST_GROUPS, 0),
        warnings=Counter(notice.code for notice in run.warnings),
        notes=Counter(notice.code for notice in run.notes),
    )


def to_summary_json(document: Report) -> str:
    """Return what a report comes to as one small JSON document, a line per key."""
    found = digest(document)
    lines = [f'"{name}":{compact(getattr(found, name)).decode()}' for name in found.__struct_fields__]
    return "{" + ",\n".join(lines) + "}"


def from_json(text: str | bytes) -> Report:
    """Read a report that `to_json` wrote; of an older one all but advice, which had other figures.

    Raises UnreadableDocument where the text is something else.
    """
    found = decoded(text, Report, REPORT_SCHEMA, "make one with `tracer report RUN --json`", *OLDER_REPORTS)
    if found.schema == REPORT_SCHEMA:
        return found
    return msgspec.structs.replace(found, summary=msgspec.structs.replace(found.summary, advice=[]))
