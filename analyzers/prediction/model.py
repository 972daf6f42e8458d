"""The model that predicts steps of DDP: devices, links, buckets, hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.notices import Notice
from analyzers.prediction.assumption import Assumption
from analyzers.prediction.bucket_rule import assign, lasts
from analyzers.prediction.evidence import MeasuredFrom
from analyzers.prediction.hosts import HOST_BOUND, TimedHosts, floor_ns, floor_scatter, pace
from analyzers.prediction.levelling import Levelling, host_floor_ns, levelled, settled, slow_floor_ns
from analyzers.prediction.link_model import LinkModel
from analyzers.prediction.replay import BucketPlan, Played, RecordedSteps, play
from analyzers.ranks import RankNumber


@dataclass(frozen=True)
class Scene:
    """Settings to predict; `bucket_mb` None is DDP's default, `recorded`: buckets as they were, whatever made them.

    `itemsize` is what travels of each element of a gradient, in bytes; None: as recorded. `bucket_views`: gradients are
    views of their buckets; `accumulation` is of how many microbatches a step adds up gradients. `level` takes away how
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
        paced = pace(device_ns, host_ns + calls_ns * scene.host_time, floor_scatter(steps, self.hosts))
        return replace(
            device,
            step_ns=paced.step_ns,
            is_host_bound=paced.is_hosts,
            host_share=paced.share,
            host_scatter=paced.scatter,
            host_at_least_ns=paced.at_least_ns,
            host_at_most_ns=paced.at_most_ns,
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
        """Return what the microbatches take that a step adds up gradients of beyond those of the recorded ones."""
        added = 0 if scene.accumulation is None else scene.accumulation - steps.passes
        # Of what the profiler costs beyond hosts' lateness, each microbatch has its part.
        unprofiled = 1 - max(self.profiler_ns, 0.0) / float(np.median(self.steps.span_ns))
        return added * steps.microbatch_ns * unprofiled

    def _host_ns(self, steps: RecordedSteps, scene: Scene) -> float:
        """Return the least that a step takes for its slowest host, where it was timed or a scene changes hosts."""
        if self.hosts is not None:
            host_ns = floor_ns(steps)
            # What synchronizes nothing takes its host no longer than such a step was measured to take.
            alone_ns = min(host_ns, self.nosync_ns or host_ns)
            # As if the optimizer's part were done again for each microbatch: an upper bound.
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

    def _lasts_before(self) -> Int64:
        """Return the last gradient of each bucket in the recording: by the rule, where they do not come in order."""
        if self.gpus < 2:
            return np.zeros(0, dtype=np.int64)
        return self._lasts(self.bucket_mb) if self.recorded is None else self.recorded

    def _plan(self, scene: Scene, last: Int64, sizes: Int64) -> BucketPlan:
        before = self._lasts_before()
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
