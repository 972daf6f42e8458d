"""The model that predicts a run: steps, links, buckets and profiler cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.collectives import Exchange, exchange, late_rank
from analyzers.errors import AnalysisError, NotReplayable
from analyzers.notices import Code, Notice
from analyzers.prediction.assumption import MEASURED_ON, Assumption, borrowed
from analyzers.prediction.bucket_rule import assign
from analyzers.prediction.hosts import (
    HOST_BOUND,
    TimedHosts,
    explains_gaps,
    floor_ns,
    floor_scatter,
    profiled_hosts,
    timed_hosts,
)
from analyzers.prediction.levelling import Levelling, host_floor_ns, levelled, settled, slow_floor_ns
from analyzers.prediction.link_model import LinkModel, links_of, next_delay_ns
from analyzers.prediction.replay import BucketPlan, Played, RecordedSteps, play, recorded_steps
from analyzers.rank import CPU_DEVICE, NOT_KNOWN, GradientSchedule, Measured, Purpose, RunSummary
from analyzers.ranks import RankNumber
from analyzers.run import HIGH_DISTORTION, Calibration, Manifest, world_size
from analyzers.trace import Collective, itemsize
from analyzers.units import ms, percent

# Where a run does not tell: the median of resnet50, vgg16 and transformer in bf16 on 2 and 4 x H200, over NVLink and
# host memory (torch 2.11, NCCL 2.28.9; between 0.18 and 0.40). A kernel beside NCCL's has fewer SMs.
SLOWER = 0.28
# How long a reduction stands until it begins, and behind another (measured there: 3 to 9 us, and 16 to 22).
START_DELAY_NS, NEXT_DELAY_NS = 5_000.0, 15_000.0
# What DDP's copy of a gradient takes, the gap before it included, in ns and GB/s, on the same machines: into a bucket,
# and out of it; and of one buffer before its broadcast.
COPY_IN, COPY_OUT = (2100.0, 2600.0), (2100.0, 1500.0)
BUFFER_COPY_NS = 2000.0
# What each of these copies takes the host: ResNet-18 on 4 x H200 loses 1.1 ms a step without a profiler, its host being
# the limit, to the copies of 62 gradients in and out (unprofiled 6.9 ms, without synchronization 5.8).
COPY_LAUNCH_NS = 9000.0
# Bytes of an element where nothing says its dtype: torch.get_default_dtype() is float32.
FLOAT = 4
BUFFERS_OF_NORM = 3
# Halvings of the share of its hosts' time that a step takes without the profiler; and the most that it may take more.
BISECTIONS = 20
SLOWEST = 4.0
# Caps that a run without run.json may have had, beside DDP's default, in MB.
LIKELY_MB = (50.0, 100.0, 10.0, 5.0, 2.0, 1.0, 4.0, 8.0, 16.0, 20.0, 32.0, 64.0, 128.0, 200.0, 256.0, 512.0)


# A replay that misses the run's own step by more than this misses others, too.
OFF = 0.05
# What may have taken the gradients out of the traces.
LOSSES = (Code.TRACE_INCOMPLETE, Code.RANK_UNREADABLE, Code.RANKS_MISSING)


class MeasuredFrom(str, Enum):
    """Where a measured step is from; the values are what documents hold."""

    UNPROFILED = "unprofiled control"
    LIGHT = "light window"
    FULL = "full window"

    __str__ = str.__str__


@dataclass(frozen=True)
class Scene:
    """Settings to predict; `bucket_mb` None is DDP's default, `recorded`: buckets as they were, whatever made them.

    `itemsize` is what travels of each element of a gradient, in bytes; None: as recorded. `bucket_views`: gradients are
    views of their buckets; `accumulation` is of how many micro-batches a step adds up gradients. `level` takes away how
    much later a rank is than the others, `host_time` is what is left of hosts' time; with 0 the step is as one CUDA
    graph.
    """

    bucket_mb: float | None
    gpus: int
    recorded: bool = False
    broadcast_buffers: bool = True
    itemsize: int | None = None
    bucket_views: bool = False
    accumulation: int | None = None
    level: Levelling | None = None
    host_time: float = 1.0

    @property
    def changes_hosts(self) -> bool:
        """Whether ranks are later or earlier than they were recorded."""
        return self.level is not None or self.host_time < 1

    @property
    def has_its_work(self) -> bool:
        """Whether a step that synchronizes nothing would be the run's own."""
        return not self.changes_hosts and self.accumulation is None


@dataclass(frozen=True)
class Prediction:
    """A step without the profiler: how long it takes, alone (without synchronization) too, how long compute waits.

    `exposed_ns` is reductions of gradients beside no kernel that computes. `is_host_bound`: hosts set the pace, either
    as they do in the recording, or since nothing else is as slow any longer, for a `host_share` of the step. The step
    takes hosts between `host_at_least_ns` and `host_at_most_ns`, as far as is known.
    """

    step_ns: float
    alone_ns: float
    stalled_ns: float
    exposed_ns: float
    buckets: list[int]
    is_host_bound: bool = False
    host_share: float = 0.0
    host_scatter: float | None = None
    host_at_least_ns: float = float("inf")
    host_at_most_ns: float = 0.0


@dataclass(frozen=True, eq=False)
class Model:
    """All that predictions of one run are made from."""

    name: str
    steps: RecordedSteps
    gpus: int
    links: LinkModel  # that predictions are for
    own_links: LinkModel  # that the run had
    bucket_mb: float | None
    recorded: Int64 | None  # the last gradient of each bucket as recorded
    itemsize: int
    hook_itemsize: int
    call_ns: float
    next_delay_ns: float
    buffer_copies_ns: Float64
    profiler_ns: float  # what replayed steps take longer than unprofiled ones
    alone_ns: float  # a step that synchronizes nothing, unprofiled
    measured_ns: int
    measured_from: MeasuredFrom
    spread: float
    doubts: list[Notice]
    sync_doubts: list[Notice]  # of predictions in which gradients are synchronized
    graph_doubts: list[Notice]  # of one GPU's step as a CUDA graph
    assumptions: list[Assumption]
    ranks: tuple[RankNumber, ...]
    late: RankNumber | None  # for which the others wait most of what they wait
    host_left: float = 1.0  # of hosts' time under the profiler, in `steps`
    hosts: TimedHosts | None = None
    nosync_ns: int | None = None  # a step without synchronization, unprofiled, as measured

    def predict(self, scene: Scene) -> Prediction:
        """Predict a step under these settings: medians over ranks and steps."""
        if scene.gpus < 2:
            return self._predict_alone(scene)
        recorded = self.recorded if scene.recorded else None
        last = self._lasts(scene.bucket_mb) if recorded is None else recorded
        sizes = np.add.reduceat(self.steps.elements, np.r_[0, last[:-1] + 1]) * (scene.itemsize or self.hook_itemsize)
        steps, plan = self.changed(scene), self._plan(scene, last, sizes)
        played, longer_ns = self._played(steps, plan, scene)
        stalled_ns = float(np.median(played.stalled_ns))
        # What a profiler costs is no more than leaves what must be waited for.
        device_ns = max(float(np.median(played.span_ns)) - longer_ns, stalled_ns, 1.0)
        prediction = Prediction(
            step_ns=device_ns,
            alone_ns=self.alone_ns,
            stalled_ns=stalled_ns,
            exposed_ns=float(np.median(played.exposed_ns)),
            buckets=sizes.tolist(),
        )
        return self._with_hosts(prediction, steps, scene, float(plan.call_ns[-1]))

    def _predict_alone(self, scene: Scene) -> Prediction:
        """Predict the step of one GPU."""
        steps = self.changed(scene)
        further_ns = self._further_ns(steps, scene)
        longer_ns = float(np.median(self.steps.alone_ns)) - self.alone_ns
        device_ns = max(float(np.median(steps.alone_ns + further_ns)) - longer_ns, 1.0)
        return self._with_hosts(Prediction(device_ns, self.alone_ns, 0.0, 0.0, []), steps, scene, 0.0)

    def _with_hosts(self, device: Prediction, steps: RecordedSteps, scene: Scene, calls_ns: float) -> Prediction:
        """Return the prediction for devices and hosts, of that for devices; `calls_ns` is what more calls take."""
        device_ns, host_ns = device.step_ns, self._host_ns(steps, scene)
        if self.hosts is None:
            # A CUDA graph leaves the host nothing to be late with.
            may_be_late = scene.gpus > 1 or scene.host_time > 0
            return replace(
                device,
                step_ns=max(device_ns, host_ns),
                is_host_bound=may_be_late and (host_ns > device_ns or steps.host_share > HOST_BOUND),
                host_share=steps.host_share,
                host_at_most_ns=self._host_at_most_ns(steps, scene),
            )
        host_ns += calls_ns * scene.host_time
        scatter = floor_scatter(steps, self.hosts)
        step_ns, at_most_ns = max(device_ns, host_ns), max(device_ns, (1 + scatter) * host_ns)
        return replace(
            device,
            step_ns=step_ns,
            is_host_bound=at_most_ns > (1 + HOST_BOUND) * device_ns,
            host_share=1 - device_ns / step_ns,
            host_scatter=scatter,
            host_at_least_ns=max(device_ns, (1 - scatter) * host_ns),
            host_at_most_ns=at_most_ns,
        )

    def changed(self, scene: Scene) -> RecordedSteps:
        """Return the steps that a scene plays."""
        steps = self.steps if scene.level is None else levelled(self.steps, scene.level)
        if scene.bucket_views and scene.gpus > 1:
            steps = steps.without_copies_out()
        if scene.host_time == 1:
            return steps
        return (steps if scene.host_time else steps.without_gaps()).hurried(scene.host_time)

    def _played(self, steps: RecordedSteps, plan: BucketPlan, scene: Scene) -> tuple[Played, float]:
        """Return steps as they are played, and how much longer that takes than they would without the profiler."""
        further_ns = self._further_ns(steps, scene)

        def of_plan(each: RecordedSteps) -> Played:
            played = play(replace(each, begin_ns=each.begin_ns + further_ns), plan)
            return replace(played, span_ns=played.span_ns + further_ns)

        if self.hosts is not None:
            return settled(steps, of_plan), self.profiler_ns
        if not scene.changes_hosts:
            return of_plan(steps), self.profiler_ns
        # That steps begin where others end changes them a little, whatever else changes.
        longer_ns = np.median(settled(self.steps, of_plan).span_ns) - np.median(of_plan(self.steps).span_ns)
        return settled(steps, of_plan), self.profiler_ns + float(longer_ns)

    def _further_ns(self, steps: RecordedSteps, scene: Scene) -> Float64:
        """Return what the micro-batches take that a step adds up gradients of beyond those of the recorded ones."""
        added = 0 if scene.accumulation is None else scene.accumulation - steps.passes
        # Of what the profiler costs beyond hosts' lateness, each micro-batch has its part.
        unprofiled = 1 - max(self.profiler_ns, 0.0) / float(np.median(self.steps.span_ns))
        return added * steps.micro_batch_ns * unprofiled

    def _host_ns(self, steps: RecordedSteps, scene: Scene) -> float:
        """Return the least that a step takes for its slowest host, where it was timed or a scene changes hosts."""
        if self.hosts is not None:
            host_ns = floor_ns(steps)
            # What synchronizes nothing takes its host no longer than such a step was measured to take.
            alone_ns = min(host_ns, self.nosync_ns or host_ns)
            # As if the optimizer's part were done again for each micro-batch: an upper bound.
            further = 0.0 if scene.accumulation is None else scene.accumulation / steps.passes - 1
            return (host_ns if scene.gpus > 1 else alone_ns) + further * alone_ns
        if not scene.changes_hosts:
            return 0.0
        return host_floor_ns(self.steps, steps, self.own().step_ns, scene.level is not None)

    def _host_at_most_ns(self, steps: RecordedSteps, scene: Scene) -> float:
        """Return the most that its slowest host may take a step, where a rank is levelled."""
        return slow_floor_ns(self.steps, steps, self.own().step_ns, self.host_left) if scene.level is not None else 0.0

    def _lasts(self, bucket_mb: float | None) -> Int64:
        """Return the last gradient of each bucket by DDP's rule."""
        return lasts(assign(self.steps.elements * self.itemsize, bucket_mb))

    def _plan(self, scene: Scene, last: Int64, sizes: Int64) -> BucketPlan:
        before = (
            np.zeros(0) if self.gpus < 2 else self._lasts(self.bucket_mb) if self.recorded is None else self.recorded
        )
        # Calls that came before each bucket's last gradient, and before all that follows: now, and in the recording.
        calls = np.r_[np.arange(len(last)), len(last)] - np.searchsorted(before, np.r_[last, self.steps.gradients])
        head_ns = self.steps.buffers_ns if scene.broadcast_buffers else -self.buffer_copies_ns
        transfer_ns = self.links.collective_ns(sizes, scene.gpus)
        after_ns = self.links.after_compute_ns(sizes, scene.gpus)
        return BucketPlan(last, transfer_ns, after_ns, calls * self.call_ns, head_ns, self.next_delay_ns)

    def own(self) -> Prediction:
        """Predict the run's own settings."""
        if self.gpus < 2:
            return self.predict(Scene(None, 1))
        return replace(self, links=self.own_links).predict(Scene(self.bucket_mb, self.gpus, recorded=True))

    def over_slowed_links(self, by: float | None = None) -> Model:
        """Return the same over links that are slower by a share, or as slow as nine of ten transfers say.

        So they are in the run where they are its own.
        """
        slowed = self.links.slowed(by)
        return replace(self, links=slowed, own_links=slowed if self.links is self.own_links else self.own_links)


def model_of(run: RunSummary, given: LinkModel | Calibration | None) -> Model:
    """Build the model for a run over its own links, or given ones. Raises NotReplayable."""
    manifest = run.manifest or Manifest()
    gpus = world_size(manifest, run.ranks)
    _check(run, gpus)
    exchanged = exchange(run, run.calibration)
    schedules = [schedule for measured in run.measured for schedule in _schedules(measured).values()]
    slower, assumptions = _contention(schedules)
    timed = timed_hosts(run, manifest)
    steps = _steps(run, exchanged, schedules, slower, with_long_gaps=explains_gaps(run, timed))
    measured_ns, source, spread = measured_step(run, manifest, steps.span_ns)
    call_ns = _call_ns(schedules, steps, timed)
    if timed is not None:
        steps = steps.with_timed_hosts(timed.step_ns)
    own_itemsize, hook_itemsize, assumed_itemsize = _itemsizes(run, manifest)
    recorded = _recorded(schedules[0], steps) if gpus > 1 else None
    links = links_of(run, exchanged, gpus, given)
    if gpus == 1:
        steps, packed = _packed(steps, own_itemsize)
        assumptions = [*assumptions, packed]
    rests_on = [*assumptions, *assumed_itemsize, *links.assumptions]
    model = Model(
        name=run.name,
        steps=steps,
        gpus=gpus,
        links=links.asked,
        own_links=links.own,
        bucket_mb=_cap(steps, recorded, own_itemsize) if run.manifest is None else manifest.bucket_cap_mb,
        recorded=recorded,
        itemsize=own_itemsize,
        hook_itemsize=hook_itemsize,
        call_ns=call_ns,
        next_delay_ns=NEXT_DELAY_NS if gpus == 1 else next_delay_ns(exchanged) or steps.start_delay_ns,
        buffer_copies_ns=_buffer_copies(run, steps),
        profiler_ns=0.0,
        alone_ns=float(np.median(steps.alone_ns)),
        measured_ns=measured_ns,
        measured_from=source,
        spread=spread,
        doubts=run_doubts(run, manifest),
        sync_doubts=borrowing(run, manifest, rests_on),
        graph_doubts=borrowing(run, manifest, [borrowed("one GPU's step as a CUDA graph is known to within 6 %")]),
        assumptions=rests_on,
        ranks=tuple(summary.rank for summary in run.ranks),
        late=late_rank(exchanged) if gpus > 1 else None,
        hosts=timed,
        nosync_ns=manifest.controls.step_ns("nosync"),
    )
    if source == MeasuredFrom.UNPROFILED and timed is not None:
        model = _with_devices_unprofiled(model)
    elif source == MeasuredFrom.UNPROFILED:
        model = _unprofiled(model, float(np.median(steps.span_ns)))
    return replace(model, doubts=[*model.doubts, *replay_doubts(model.own().step_ns / measured_ns - 1)])


def _steps(
    run: RunSummary, exchanged: Exchange, schedules: Sequence[GradientSchedule], slower: float, with_long_gaps: bool
) -> RecordedSteps:
    """Return the steps to replay. Raises NotReplayable, with what may have cost them, where there are none."""
    ranks = np.array([summary.rank for summary in run.ranks])
    steps = recorded_steps(schedules, exchanged.clocks.shift_ns(ranks).tolist(), slower, with_long_gaps)
    if steps is not None:
        own_host_ns, input_ns = profiled_hosts(run, steps.step)
        return replace(steps, own_host_ns=own_host_ns, input_ns=input_ns)
    losses = [warning for warning in run.warnings if warning.code in LOSSES]
    lost = "".join(f"; {warning}" for warning in losses[-1:])
    raise NotReplayable(
        f"{run.name}: no step of its traces shows gradients that are taken, with their shapes and launches; record "
        f"backward passes with record_shapes=True, or with `tracer record`{lost}"
    )


def _call_ns(schedules: Sequence[GradientSchedule], steps: RecordedSteps, timed: TimedHosts | None) -> float:
    """Return what one more call for a reduction takes the host: without the profiler where hosts were timed.

    Elsewhere it counts where hosts are the limit already.
    """
    call_ns = float(np.median([schedule.delays.call_ns for schedule in schedules]))
    if timed is None:
        return call_ns if steps.host_share > HOST_BOUND else 0.0
    profiled_ns = floor_ns(steps)
    return call_ns * min(float(timed.step_ns.max()) / profiled_ns, 1.0) if profiled_ns else call_ns


def _with_devices_unprofiled(model: Model) -> Model:
    """Build the model for unprofiled steps where hosts were timed without the profiler.

    What profiled steps take longer is the device's own as far as the replay, in which no host is late, takes longer.
    """
    steps = model.steps
    device_ns = replace(model, steps=steps.with_timed_hosts(np.zeros(len(steps.own_host_ns)))).own().step_ns
    profiler_ns = max(min(device_ns, float(np.median(steps.span_ns))) - model.measured_ns, 0.0)
    return replace(model, profiler_ns=profiler_ns, alone_ns=_alone_ns(model, model.alone_ns - profiler_ns))


def _alone_ns(model: Model, replayed_ns: float) -> float:
    """Return what a step takes that synchronizes nothing: as measured, else as replayed."""
    return max(replayed_ns, 1.0) if model.gpus == 1 or model.nosync_ns is None else float(model.nosync_ns)


def _unprofiled(model: Model, profiled_ns: float) -> Model:
    """Build the model for unprofiled steps, from that for profiled ones that took so long.

    What a profiler costs is its hosts' lateness first, as much of it as there is; the rest is the device's own. Where
    hosts are the limit and the control took longer, they were slower then. How long a step takes alone, the control
    without synchronization says where there is one; on one GPU the step itself.
    """
    wanted_ns = model.measured_ns + model.own().step_ns - profiled_ns

    def with_left(left: float) -> Model:
        steps = model.steps.hurried(left)
        alone_ns = float(np.median(steps.alone_ns))
        return replace(model, steps=steps, call_ns=model.call_ns * left, alone_ns=alone_ns, host_left=left)

    is_faster = profiled_ns > model.measured_ns
    low, high = (0.0, 1.0) if is_faster else (1.0, SLOWEST if model.steps.host_share > HOST_BOUND else 1.0)
    for _ in range(BISECTIONS if low < high else 0):
        left = (low + high) / 2
        low, high = (low, left) if with_left(left).own().step_ns > wanted_ns else (left, high)
    hurried = with_left(high if is_faster else low)
    profiler_ns = hurried.own().step_ns - wanted_ns
    return replace(hurried, profiler_ns=profiler_ns, alone_ns=_alone_ns(model, hurried.alone_ns - profiler_ns))


def _check(run: RunSummary, gpus: int) -> None:
    """Raise NotReplayable for what is neither DDP nor one GPU."""
    if any(measured.schedules is None for measured in run.measured):
        raise AnalysisError(f"{run.name}: summarized without schedules; leave schedules=False out")
    if any(len(_schedules(measured)) != 1 for measured in run.measured):
        raise NotReplayable(
            f"{run.name}: one process drives several devices (nn.DataParallel); only DDP and FSDP2 are replayed"
        )
    comm = [measured.communication for measured in run.measured]
    gradients = [each.kind[each.purpose == Purpose.GRADIENTS] for each in comm]
    kinds = {Collective(int(kind)).label for each in gradients for kind in np.unique(each)} - {"all_reduce"}
    if kinds:
        raise NotReplayable(
            f"{run.name}: gradients travel by {', '.join(sorted(kinds))}; only DDP and FSDP2 are replayed"
        )
    if gpus > 1 and not any(len(measured.reductions) for measured in run.measured):
        raise NotReplayable(f"{run.name}: no all-reduce of gradients in its steps; only DDP and FSDP2 are replayed")


def _schedules(measured: Measured) -> dict[int, GradientSchedule]:
    """Return the gradient schedule of each device, once it is known that there are any."""
    return measured.schedules or {}


def _contention(schedules: Sequence[GradientSchedule]) -> tuple[float, list[Assumption]]:
    """Return how much longer work takes beside communication, kernels and the gaps between them, as a share."""
    is_known = [schedule.contention_ns != NOT_KNOWN for schedule in schedules]
    longer = sum(int((p.contention_ns + p.longer_gaps_ns)[k].sum()) for p, k in zip(schedules, is_known, strict=True))
    beside = sum(int(p.total_beside_ns[k].sum()) for p, k in zip(schedules, is_known, strict=True))
    if beside > longer > 0:
        slower = longer / (beside - longer)
        return slower, [Assumption(f"beside communication compute takes {percent(slower)} longer, as in this run")]
    return SLOWER, [borrowed(f"beside communication compute takes {percent(SLOWER)} longer")]


def _itemsizes(run: RunSummary, manifest: Manifest) -> tuple[int, int, list[Assumption]]:
    """Return bytes per element of the gradients, and of what travels; with what is assumed where nothing says it."""
    comm, reduced = run.measured[0].communication, run.measured[0].reductions
    dtypes = [comm.calls[call].dtype for call in comm.call[reduced.kernel].tolist() if call >= 0]
    travelling_bytes = itemsize(dtypes[0]) if dtypes else 0
    parameter_bytes = max((itemsize(parameter.dtype) for parameter in manifest.parameters), default=0)
    if parameter_bytes or travelling_bytes:
        return parameter_bytes or travelling_bytes, travelling_bytes or parameter_bytes, []
    return FLOAT, FLOAT, [Assumption(f"gradients have {FLOAT} bytes per element: nothing says their dtype")]


def _recorded(schedule: GradientSchedule, steps: RecordedSteps) -> Int64 | None:
    """Return each bucket's last gradient, where every gradient went with a reduction and they come in order."""
    first = int(np.flatnonzero(np.diff(schedule.first) == steps.gradients)[0])
    went = schedule.reduction[schedule.first[first] : schedule.first[first + 1]]
    if (went < 0).any() or (np.diff(went) < 0).any():
        return None
    return lasts(went)


def lasts(bucket: Int64) -> Int64:
    """Return where each bucket ends."""
    return np.flatnonzero(np.r_[np.diff(bucket) != 0, True])


def _cap(steps: RecordedSteps, recorded: Int64 | None, itemsize: int) -> float | None:
    """Guess the cap for a run that does not say it: the likeliest that makes its buckets; None is DDP's default."""
    if recorded is not None:
        for cap in (None, 25.0, *LIKELY_MB):
            if np.array_equal(lasts(assign(steps.elements * itemsize, cap)), recorded):
                return cap
    return None


def _packed(steps: RecordedSteps, itemsize: int) -> tuple[RecordedSteps, Assumption]:
    """Return one GPU's steps with what DDP would add to them, and words for it."""
    nbytes = steps.elements * itemsize
    in_ns, out_ns = (latency_ns + nbytes / gbps for latency_ns, gbps in (COPY_IN, COPY_OUT))
    buffers_ns = steps.norms * BUFFERS_OF_NORM * BUFFER_COPY_NS
    packed = steps.packed(in_ns, out_ns, COPY_LAUNCH_NS)
    packed = replace(packed, buffers_ns=steps.buffers_ns + buffers_ns, start_delay_ns=START_DELAY_NS)
    added_ns = float(in_ns.sum() + out_ns.sum() + np.median(buffers_ns))
    return packed, borrowed(f"DDP adds {ms(added_ns)} of copies into and out of buckets and of buffers")


def measured_step(run: RunSummary, manifest: Manifest, span_ns: Float64) -> tuple[int, MeasuredFrom, float]:
    """Return the step as measured, where it is from, and to what share of it it is known."""
    unprofiled = manifest.controls.step_ns("unprofiled")
    if unprofiled is None:
        low, median_ns, high = (float(ns) for ns in np.percentile(span_ns, [25, 50, 75]))
        return round(median_ns), MeasuredFrom.LIGHT if run.is_light else MeasuredFrom.FULL, (high - low) / median_ns
    low, high = manifest.controls.interval_ns("unprofiled") or (unprofiled, unprofiled)
    return unprofiled, MeasuredFrom.UNPROFILED, (high - low) / 2 / unprofiled


def _buffer_copies(run: RunSummary, steps: RecordedSteps) -> Float64:
    """Return what copying buffers before their broadcast takes, the median over windows."""
    copies_ns = np.concatenate([measured.cost.buffer_copies_ns for measured in run.measured])
    return np.full_like(steps.begin_ns, float(np.median(copies_ns)))


def borrowing(run: RunSummary, manifest: Manifest, assumptions: Sequence[Assumption]) -> list[Notice]:
    """Say that figures of another device are used, or of one that may be another."""
    count = sum(assumption.is_borrowed for assumption in assumptions)
    names = manifest.devices or sorted({name for summary in run.ranks for name in summary.header.device_names})
    if not count or (names and all(MEASURED_ON in name for name in names)):
        return []
    figures = "a figure that was" if count == 1 else f"{count} figures that were"
    devices = ", ".join(dict.fromkeys(names)) if names else "devices of which nothing says what they are"
    text = f"{figures} measured on {MEASURED_ON}s are used for {devices}; see what this rests on"
    return [Notice(Code.FIGURES_OF_ANOTHER_DEVICE, text.replace("are used", "is used") if count == 1 else text)]


def replay_doubts(error: float) -> list[Notice]:
    """Say that the replay misses the run's own step."""
    text = f"the replay of the run's own settings is off by {percent(abs(error))}"
    return [Notice(Code.REPLAY_IS_OFF, text)] if abs(error) > OFF else []


def run_doubts(run: RunSummary, manifest: Manifest) -> list[Notice]:
    """Say why no prediction of this run can be trusted, if so."""
    controls = manifest.controls
    window = "light" if run.is_light else "full"
    distortion = controls.distortion(window)
    dtypes = {parameter.dtype for parameter in manifest.parameters}
    ranks, size = len(run.ranks), world_size(manifest, run.ranks)
    stretched = f"under the profiler steps take {percent(distortion or 1.0)} of the time of unprofiled ones"
    cores = "on a CPU run communication takes cores away from compute, which is not modelled"
    mixed = "parameters of several dtypes are cut into buckets as if they had one"
    notices = {
        Notice(Code.CONTROLS_MISSING, "no step was timed without the profiler: predictions are for profiled steps"): (
            controls.step_ns("unprofiled") is None
        ),
        Notice(Code.PROFILER_DISTORTS, stretched): (
            distortion is not None and not 1 / HIGH_DISTORTION <= distortion <= HIGH_DISTORTION
        ),
        Notice(Code.RANKS_MISSING, f"{ranks} of {size} ranks are in the run"): ranks < size,
        Notice(Code.CORES_ARE_SHARED, cores): any(CPU_DEVICE in _schedules(measured) for measured in run.measured),
        Notice(Code.DTYPES_DIFFER, mixed): len(dtypes) > 1,
    }
    return [notice for notice, holds in notices.items() if holds]
