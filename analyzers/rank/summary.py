"""`RankSummary` and `RunSummary`: one rank without its events, mapped over an executor.

    file -> rows of one rank -> RankSummary --(processes, network)--> RunSummary -> what needs all ranks

The phase behind the arrow reads no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial

import numpy as np

from analyzers.arrays import Int64
from analyzers.errors import AnalysisError
from analyzers.intervals import Intervals
from analyzers.memory import budget_of, give_back
from analyzers.notices import Code, Notice
from analyzers.paths import Where
from analyzers.rank.columns import (
    Activity,
    Attribution,
    Breakdown,
    Communication,
    LayerPieces,
    Occupancy,
    Work,
    activities,
    attribute,
    breakdown,
    communicate,
    extents,
    launched,
    occupancy,
    pieces,
    work,
)
from analyzers.rank.ddp_reductions import Gradients, Reductions, reductions
from analyzers.rank.dependencies import RankGraph, rank_graph
from analyzers.rank.idle import Cause, DeviceTime, Fetching, HostRows, Idle, IdleTrack, fetching, idle_of
from analyzers.rank.kernels import CountedOperators, KernelTrack, Launched, Usage, kernel_track_of, usage_of
from analyzers.rank.parallelism import PipelineActions, actions_of
from analyzers.rank.sync_overhead import Cost, cost
from analyzers.rank.taking import with_taken
from analyzers.ranks import RankIndex, RankNumber
from analyzers.run import (
    Calibration,
    Manifest,
    NumberedBy,
    RankFacts,
    RankFile,
    RankTrace,
    Repeated,
    Run,
    find,
    gather,
    read_alike,
    read_ranks,
)
from analyzers.texts import brief
from analyzers.trace import Category, Events, Helpers, Kind, Remedies

# Who hears of the bytes that are read, block by block.
OnBytes = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class CopyColumns:
    """Copies between host and devices, and within a device, a row each; names dictionary-encoded."""

    name: Int64
    names: tuple[str, ...]
    nbytes: Int64
    dur_ns: Int64


@dataclass(frozen=True, eq=False)
class DeviceTrack:
    """What one device did when, on the epoch: its compute by line, its copies, its idle time by cause, its kernels.

    It grows with the trace, and is kept only where lanes are asked for.
    """

    compute: LayerPieces
    copy: Intervals
    idle: IdleTrack
    kernels: KernelTrack


@dataclass(frozen=True, eq=False)
class Measured:
    """What one rank's times say, on the epoch.

    Its windows, why its devices were idle in them, when its host fetched input, its communication, whose its compute is
    and what it is, its reductions of gradients, its copies, M - C by device, and its part in a pipeline, None for none;
    where they were asked for, the track of each device, and of a full window what had to come before what (None where
    no launch is recorded).
    """

    earliest_ns: int
    latest_ns: int
    windows: Breakdown
    idle: Idle
    fetching: Fetching
    communication: Communication
    work: Work
    reductions: Reductions
    gradients: Gradients
    cost: Cost
    occupancy: Occupancy
    usage: Usage
    copies: CopyColumns
    exposed: dict[int, Intervals]
    pipeline: PipelineActions | None = None
    tracks: dict[int, DeviceTrack] | None = None
    graph: RankGraph | None = None

    __repr__ = brief

    def numbered(self, number: RankNumber) -> Measured:
        """Return the same as of this rank of its run."""
        return replace(self, windows=replace(self.windows, rank=np.full(len(self.windows), number)))

    def renumbered(self, by: int) -> Measured:
        """Return the same with numbers of steps that are so much higher."""
        comm, pipeline, graph = self.communication, self.pipeline, self.graph
        return replace(
            self,
            windows=replace(self.windows, step=_raised(self.windows.step, by)),
            communication=replace(comm, step=_raised(comm.step, by), window=_raised(comm.window, by)),
            reductions=replace(self.reductions, step=_raised(self.reductions.step, by)),
            gradients=replace(self.gradients, step=_raised(self.gradients.step, by)),
            pipeline=pipeline and pipeline.renumbered(by),
            graph=graph and replace(graph, steps=replace(graph.steps, number=_raised(graph.steps.number, by))),
        )


def _raised(step: Int64, by: int) -> Int64:
    return np.where(step < 0, step, step + by)


@dataclass(frozen=True, eq=False)
class RankSummary(RankFacts):
    """One rank without its rows. `full` has the full window's times where `timed` has a light window's.

    `step_candidates` are annotations that could be its steps, where nothing marks these, nor `inferred` says what tells
    them; `suspects` the time of kernels on streams of their own, by name, where nothing is known to communicate.
    """

    timed: Measured
    full: Measured | None
    step_candidates: tuple[Repeated, ...] = ()
    renumbered_by: int = 0  # so much higher its inferred steps' numbers are than it counts them
    suspects: dict[str, int] = field(default_factory=dict)

    __repr__ = brief

    @property
    def has_steps(self) -> bool:
        """Whether its steps are marked, or inferred."""
        return not self.timed.windows.unmarked.any()

    def numbered(self, number: RankNumber) -> RankSummary:
        """Return the same as this rank of its run."""
        full = self.full and self.full.numbered(number)
        return replace(self, rank=number, timed=self.timed.numbered(number), full=full)

    def renumbered(self, by: int) -> RankSummary:
        """Return the same with numbers of steps that are so much higher."""
        full = self.full and self.full.renumbered(by)
        return replace(self, renumbered_by=self.renumbered_by + by, timed=self.timed.renumbered(by), full=full)


# What reads the ranks of one file: `summarize_file`, or what does so another way.
ReadRanks = Callable[..., tuple[RankSummary, ...]]


@dataclass(frozen=True, eq=False)
class RunSummary:
    """The ranks of one run that could be read, in order, and in `warnings` what could not."""

    name: str
    manifest: Manifest | None
    ranks: tuple[RankSummary, ...]
    warnings: tuple[Notice, ...]
    calibration: Calibration | None = None
    rank_source: NumberedBy = NumberedBy.TRACE

    __repr__ = brief

    @property
    def remedies(self) -> Remedies:
        """Return what brings into files as these what they lack."""
        return self.ranks[0].header.remedies

    @cached_property
    def is_light(self) -> bool:
        """Whether times are those of light windows: of every rank, or of none."""
        return all(rank.full is not None for rank in self.ranks) and not any(rank.mismatch for rank in self.ranks)

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """Return what each rank's times say, all from one sort of window."""
        if self.is_light:
            return tuple(rank.timed for rank in self.ranks)
        return self.in_full

    def numbered(self) -> Iterator[tuple[RankIndex, RankNumber, Measured]]:
        """Return each rank's index among those read, its number, and what its times say."""
        for index, (summary, measured) in enumerate(zip(self.ranks, self.measured, strict=True)):
            yield RankIndex(index), summary.rank, measured

    def of_full_windows(self) -> RunSummary:
        """Return the same run with the times of full windows, as the traces in its folder have them."""
        ranks = (replace(rank, timed=rank.full or rank.timed, full=None) for rank in self.ranks)
        return replace(self, ranks=tuple(ranks))

    @cached_property
    def in_full(self) -> tuple[Measured, ...]:
        """Return what each rank's full window says, which alone has host and device on one clock."""
        return tuple(rank.full or rank.timed for rank in self.ranks)


def summarize(
    path: Where,
    executor: Executor | None = None,
    *,
    lanes: bool = False,
    causes: bool = True,
    steps: str | None = None,
    memory: int | None = None,
    numbers: Mapping[str, int] | None = None,
    on_bytes: OnBytes | None = None,
    reader: ReadRanks | None = None,
) -> RunSummary:
    """Summarize a run rank by rank, in this process or over any executor; each holds one rank's rows at a time.

    With `lanes` it has what `analyzers.lanes` needs too, and grows with the traces. Without `causes`, which charges,
    gains and `analyzers.whatif` need, it is made sooner. `steps` is the
    annotation whose repeats are the steps, instead of the profiler's. `memory` is what reading one rank may take, in
    bytes: by default half of the machine's, with an executor the share of one core in that. `numbers` are ranks by
    their files' names. `on_bytes` hears of each block of bytes where it is read: for other processes it is pickled, as
    `reader` is, which reads a file in the place of `summarize_file`. Raises as `analyzers.load` does.
    """
    recording = find(path, steps, budget_of(memory) if executor is None else memory, numbers)
    mapped = executor.map if executor is not None else map
    one = partial(reader or summarize_file, lanes=lanes, causes=causes, on_bytes=on_bytes)
    run = gather(recording, read_alike(one, recording.files, mapped))
    give_back()
    return RunSummary(recording.name, recording.manifest, run.ranks, run.warnings, recording.calibration, run.source)


def with_lanes(
    run: RunSummary,
    files: Sequence[RankFile],
    executor: Executor | None = None,
    on_bytes: OnBytes | None = None,
    reader: ReadRanks | None = None,
) -> RunSummary:
    """Return the same run with what `analyzers.lanes` needs for the ranks in some files, which are read again.

    A rank that cannot be read again stays as it is, and a warning says that it is not drawn. `reader` as in
    `summarize`.
    """
    mapped = executor.map if executor is not None else map
    summarized = reader or summarize_file
    one = partial(summarized, lanes=True, causes=has_causes(run), on_bytes=on_bytes)
    results = read_alike(one, files, mapped, run.ranks)
    read = [rank for result in results if not isinstance(result, AnalysisError) for rank in result]
    by_process = {(rank.path, rank.owner.pid): rank for rank in read}
    errors = [result for result in results if isinstance(result, AnalysisError)]
    lost = [Notice(Code.RANK_NOT_DRAWN, f"not drawn: {error.for_shell}") for error in errors]
    pairs = ((rank, by_process.get((rank.path, rank.owner.pid))) for rank in run.ranks)
    ranks = tuple(rank if again is None else again.numbered(rank.rank) for rank, again in pairs)
    return replace(run, ranks=ranks, warnings=(*run.warnings, *lost))


def has_causes(run: RunSummary) -> bool:
    """Return whether a run was read with what charges and gains need."""
    return any(measured.graph is not None for measured in run.in_full)


def summary_of(run: Run, *, lanes: bool = False, causes: bool = False) -> RunSummary:
    """Return the summary of a run that is in memory."""
    ranks = tuple(summarize_rank(rank, lanes=lanes, causes=causes) for rank in run.ranks)
    return RunSummary(run.name, run.manifest, ranks, run.warnings, run.calibration, run.rank_source)


def summarize_file(
    file: RankFile,
    *,
    lanes: bool = False,
    causes: bool = False,
    on_bytes: OnBytes | None = None,
    helpers: Helpers | None = None,
) -> tuple[RankSummary, ...]:
    """Read the ranks in a file and let go of their rows. Raises as `analyzers.load` does."""
    # A rank's rows are let go of before the next one's are read.
    return tuple(map(partial(_summarize_read, lanes=lanes, causes=causes), read_ranks(file, on_bytes, helpers)))


def _summarize_read(trace: RankTrace, *, lanes: bool, causes: bool) -> RankSummary:
    give_back()
    return summarize_rank(trace, lanes=lanes, causes=causes)


def summarize_rank(trace: RankTrace, *, lanes: bool = False, causes: bool = False) -> RankSummary:
    """Return what one rank alone can say."""
    attributed = attribute(trace)
    ran = HostRows(attributed.host, attributed.nodes, attributed.modules)
    measured = partial(_measure, attributed=attributed, ran=ran, lanes=lanes)
    timed = measured(trace)
    full = measured(trace.in_full()) if trace.is_light else None
    if causes:
        of_full = full or timed
        graph = rank_graph(trace, attributed, ran)
        if graph is not None:
            graph = with_taken(graph, trace.events, of_full.communication, of_full.reductions, of_full.gradients)
        timed, full = (timed, replace(full, graph=graph)) if full is not None else (replace(timed, graph=graph), None)
    # All else is as the trace says it.
    own = ("timed", "full", "renumbered_by")
    said = {one.name: getattr(trace, one.name) for one in fields(RankSummary) if one.name not in own}
    return RankSummary(**said, timed=timed, full=full)


def _measure(trace: RankTrace, *, attributed: Attribution, ran: HostRows, lanes: bool) -> Measured:
    devices = activities(trace)
    windows, comm = breakdown(trace), communicate(trace, devices, attributed)
    idle, idle_tracks = _explain_idle(trace, devices, ran, windows, lanes=lanes)
    reduced, gradients = reductions(trace, attributed, comm)
    costs = cost(trace, devices, attributed, windows, gradients)
    by_operator = launched(trace, devices, attributed)
    is_own = trace.timed.category != Category.OVERHEAD
    return Measured(
        earliest_ns=int(trace.timed.start_ns[is_own].min()),
        latest_ns=int(trace.timed.end_ns[is_own].max()),
        windows=windows,
        idle=idle,
        fetching=_find_fetching(trace, windows, idle),
        communication=comm,
        work=work(trace, devices, attributed, windows, comm),
        reductions=reduced,
        gradients=gradients,
        cost=costs,
        occupancy=occupancy(devices, windows),
        usage=_rank_usage(by_operator, attributed, windows),
        copies=_find_copies(trace.timed),
        exposed={activity.device: activity.comm - activity.compute for activity in devices},
        pipeline=actions_of(trace, devices, attributed, comm),
        tracks={
            activity.device: _track(trace, activity, attributed, idle_tracks[activity.device], by_operator)
            for activity in devices
        }
        if lanes
        else None,
    )


_Ran = tuple[CountedOperators, Launched]


def _rank_usage(ran: _Ran, attributed: Attribution, windows: Breakdown) -> Usage:
    counted, rows = ran
    return usage_of(counted, rows, extents(windows), [line.name for line in attributed.lines])


def _explain_idle(
    trace: RankTrace, devices: Sequence[Activity], ran: HostRows, windows: Breakdown, *, lanes: bool
) -> tuple[Idle, dict[int, IdleTrack]]:
    """Return why devices were idle, and with `lanes` the track of each."""
    timed = _device_times(devices, windows)
    full = _device_times(activities(trace.in_full()), breakdown(trace.in_full())) if trace.is_light else timed
    idle, divided = idle_of(trace, ran, windows.step, timed, full)
    return idle, {activity.device: divided.track(activity.device) for activity in devices} if lanes else {}


def _device_times(devices: Sequence[Activity], windows: Breakdown) -> list[DeviceTime]:
    end_ns = windows.start_ns + windows.span_ns
    times = []
    for activity in devices:
        rows = np.flatnonzero(windows.device == activity.device)
        times.append(DeviceTime(activity.device, rows, windows.start_ns[rows], end_ns[rows], activity.busy))
    return times


def _find_fetching(trace: RankTrace, windows: Breakdown, idle: Idle) -> Fetching:
    end_ns = windows.start_ns + windows.span_ns
    input_ns = idle.by_cause[Cause.INPUT]
    return fetching(trace.events, windows.start_ns, end_ns, input_ns, is_light=trace.is_light)


def _track(trace: RankTrace, activity: Activity, attributed: Attribution, idle: IdleTrack, ran: _Ran) -> DeviceTrack:
    computed = pieces(trace, activity, attributed).merged()
    counted, rows = ran
    kernels = kernel_track_of(counted.events, rows, activity.device)
    return DeviceTrack(computed, activity.copy, idle, kernels)


def _find_copies(events: Events) -> CopyColumns:
    rows = np.flatnonzero((events.kind == Kind.COPY) & (events.category == Category.MEMCPY))
    codes, name = np.unique(events.name[rows], return_inverse=True)
    names = tuple(events.names[code] for code in codes.tolist())
    return CopyColumns(name, names, events.nbytes[rows], events.dur_ns[rows])
