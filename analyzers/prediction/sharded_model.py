"""`ShardedModel`: all that predictions of FSDP2's steps are made from.

Its own replay, scaled to the unprofiled step where that was timed, over links by their own curves for all-gathers and
reduce-scatters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analyzers.arrays import Float64
from analyzers.collectives import Exchange, exchange, late_rank
from analyzers.errors import AnalysisError, NotReplayable
from analyzers.notices import Notice
from analyzers.prediction.answers import Prefetch, Sharding
from analyzers.prediction.assumption import SLOWER, Assumption, borrowed
from analyzers.prediction.evidence import (
    MeasuredFrom,
    borrowing,
    measured_step,
    replay_doubts,
    run_doubts,
    typical_steps,
)
from analyzers.prediction.hosts import (
    HOST_BOUND,
    Pace,
    TimedHosts,
    explains_gaps,
    floor_ns,
    floor_scatter,
    pace,
    profiled_hosts,
    timed_hosts,
)
from analyzers.prediction.levelling import Levelling, host_floor_ns, levelled_sharded, settled, slow_floor_ns
from analyzers.prediction.link_model import LinkModel, RunLinks, links_of
from analyzers.prediction.replay import Played
from analyzers.prediction.sharded_replay import ShardedPlan, ShardedSteps, play_sharded, sharded_steps
from analyzers.prediction.strain import GATHERS, SCATTERS
from analyzers.rank import FSDP, STRATEGIES, Op, RunSummary, ShardedSchedule
from analyzers.ranks import RankIndex, RankNumber
from analyzers.run import Calibration, Manifest, world_size
from analyzers.trace import Collective, itemsize
from analyzers.units import percent

# How fast a transfer goes on beside one of another communicator, as a share of its rate alone. Over sockets each has
# connections and threads of its own (transformer on one H200 that two processes share, torch 2.11, NCCL 2.28.9: a step
# of 337 ms took 261 ms with a group of its own for reduce-scatters); elsewhere both move over the same links.
SHARED, OVER_SOCKETS = 0.5, 1.0
SOCKETS = "NET/Socket"
# Bytes per element of bf16 and fp16, and of fp32; what run.json calls the former where weights are cast to them.
HALF, FULL = 2, 4
HALVES = ("bf16", "fp16")


@dataclass(frozen=True)
class ShardedScene:
    """Settings to predict: on so many GPUs, with this of FSDP2 changed, or hosts, or a rank's lateness."""

    gpus: int
    sharding: Sharding = field(default_factory=Sharding)
    level: Levelling | None = None
    host_time: float = 1.0

    @property
    def changes_hosts(self) -> bool:
        """Whether ranks are later or earlier than they were recorded."""
        return self.level is not None or self.host_time < 1


@dataclass(frozen=True)
class ShardedPrediction:
    """A step without the profiler: how long it takes, how long compute alone, and how long that waits.

    `exposed_ns` is communication beside no compute, `reduced` the bytes of each reduce-scatter.
    """

    step_ns: float
    alone_ns: float
    stalled_ns: float
    exposed_ns: float
    reduced: list[int]
    pace: Pace


@dataclass(frozen=True, eq=False)
class ShardedModel:
    """All that predictions of one run are made from. `unprofiled` is what is left of a step without the profiler."""

    name: str
    steps: ShardedSteps
    gpus: int
    gathers: RunLinks
    scatters: RunLinks
    itemsizes: dict[Op, int]
    has_own_group: bool
    shared: float
    unprofiled: float
    measured_ns: int
    measured_from: MeasuredFrom
    spread: float
    doubts: list[Notice]
    assumptions: list[Assumption]
    ranks: tuple[RankNumber, ...]
    late: RankNumber | None  # for which the others wait most of what they wait
    hosts: TimedHosts | None = None
    autocasts: bool = False  # weights to a dtype of two bytes
    communicates_besides: bool = False
    is_slowed: bool = False  # transfers take as much longer as nine of ten take at most
    drift: float = 0.0  # by what share they take longer

    def predict(self, scene: ShardedScene, of_run: bool = False) -> ShardedPrediction:
        """Predict a step: medians over ranks and steps. `of_run`: over the links that the run had."""
        steps = self.changed(scene)
        plan, reduced = self._plan(steps, scene, of_run)
        played, unprofiled = self._played(steps, plan, scene)
        paced = self._paced(unprofiled * float(np.median(played.span_ns)), steps, scene)
        return ShardedPrediction(
            step_ns=paced.step_ns,
            alone_ns=unprofiled * float(np.median(steps.alone_ns)),
            stalled_ns=unprofiled * float(np.median(played.stalled_ns)),
            exposed_ns=max(unprofiled * float(np.median(played.exposed_ns)), 0.0),
            reduced=[round(each) for each in reduced.tolist()],
            pace=paced,
        )

    def changed(self, scene: ShardedScene) -> ShardedSteps:
        """Return the steps that are played."""
        steps, sharding = self._with_sizes(scene.sharding), scene.sharding
        if scene.level is not None:
            steps = levelled_sharded(steps, scene.level)
        if scene.host_time != 1:
            steps = steps.hurried(scene.host_time)
        if sharding.reshard_after_forward is False:
            steps = steps.staying_gathered()
        if sharding.prefetch is None:
            return steps
        passes = sharding.prefetch
        return steps.arranged(passes in (Prefetch.FORWARD, Prefetch.BOTH), passes in (Prefetch.BACKWARD, Prefetch.BOTH))

    def _with_sizes(self, sharding: Sharding) -> ShardedSteps:
        """Return the steps with the bytes that are gathered and reduced."""
        gathered, reduced = (
            (asked or self.itemsizes[op]) / self.itemsizes[op]
            for op, asked in ((Op.GATHER, sharding.param_itemsize), (Op.REDUCE, sharding.reduce_itemsize))
        )
        if (gathered, reduced) == (1, 1):
            return self.steps
        return self.steps.with_sizes(gathered, reduced, self.casts_ns if gathered < 1 else 0.0)

    @property
    def casts_ns(self) -> float:
        """Return what a step casts weights for autocast, and their gradients: no longer where it gathers what it casts.

        Each is read in one dtype and written in the other, as fast as gathered parameters are copied.
        """
        if not self.autocasts or self.itemsizes[Op.GATHER] != FULL:
            return 0.0
        gathered = float(self.steps.nbytes[self.steps.of(Op.GATHER) & ~self.steps.backward].sum())
        return 2 * gathered * (1 + HALF / FULL) / self.steps.copy_gbps

    def _plan(self, steps: ShardedSteps, scene: ShardedScene, of_run: bool) -> tuple[ShardedPlan, Float64]:
        """Return how long transfers take, and the bytes of the reduce-scatters."""
        sharding = scene.sharding
        sizes = {Op.GATHER: sharding.param_itemsize, Op.REDUCE: sharding.reduce_itemsize}
        transfer_ns = np.zeros(len(steps.op))
        nbytes = np.zeros(0)
        for op, links in ((Op.GATHER, self.gathers), (Op.REDUCE, self.scatters)):
            rows = steps.of(op)
            nbytes = steps.nbytes[rows] * ((sizes[op] or self.itemsizes[op]) / self.itemsizes[op])
            taken = links.own if of_run else links.asked
            slowed = taken.slowed(None if self.is_slowed else self.drift)
            transfer_ns[rows] = slowed.collective_ns(nbytes, scene.gpus)
        own_group = self.has_own_group or bool(sharding.separate_reduce_scatter_group)
        return ShardedPlan(transfer_ns, own_group, self.shared), nbytes

    def _played(self, steps: ShardedSteps, plan: ShardedPlan, scene: ShardedScene) -> tuple[Played, float]:
        """Return steps as they are played, and what is left of them without the profiler."""

        def of_plan(each: ShardedSteps) -> Played:
            return play_sharded(each, plan)

        if self.hosts is not None:
            return settled(steps, of_plan), self.unprofiled
        if not scene.changes_hosts:
            return of_plan(steps), self.unprofiled
        # That steps begin where others end changes them a little, whatever else changes.
        unchanged = self.changed(replace(scene, level=None, host_time=1.0))
        longer = np.median(settled(unchanged, of_plan).span_ns) / np.median(of_plan(unchanged).span_ns)
        return settled(steps, of_plan), self.unprofiled / float(longer)

    def _paced(self, device_ns: float, steps: ShardedSteps, scene: ShardedScene) -> Pace:
        """Return the pace of devices and hosts: where these were not timed, only as far as a scene changes them."""
        if self.hosts is not None:
            return pace(device_ns, floor_ns(steps), floor_scatter(steps, self.hosts))
        if not scene.changes_hosts:
            return pace(device_ns, 0.0, 0.0)
        own_ns, is_levelled = self.own().step_ns, scene.level is not None
        paced = pace(device_ns, host_floor_ns(self.steps, steps, own_ns, is_levelled), 0.0)
        most_ns = slow_floor_ns(self.steps, steps, own_ns, 1.0) if is_levelled else 0.0
        return replace(paced, at_most_ns=max(paced.at_most_ns, most_ns))

    def is_host_bound(self, prediction: ShardedPrediction, scene: ShardedScene) -> bool:
        """Whether hosts are the limit, or may be at times."""
        return self.host_share(scene) > HOST_BOUND if self.hosts is None else prediction.pace.is_hosts

    def host_share(self, scene: ShardedScene) -> float:
        """Return how much shorter a step would be, as a share, if nothing were launched late on any rank."""
        unhindered = self.predict(replace(scene, host_time=0.0))
        return max(1 - unhindered.step_ns / self.predict(scene).step_ns, 0.0)

    def own(self) -> ShardedPrediction:
        """Predict the run's own settings."""
        return self.predict(ShardedScene(self.gpus), of_run=True)

    @property
    def can_stay_gathered(self) -> bool:
        """Whether any module is gathered again in the backward."""
        return len(self.steps.staying_gathered().op) < len(self.steps.op)

    def kept_bytes(self, scene: ShardedScene) -> int:
        """Return how much more each GPU would hold if all modules stayed gathered."""
        steps = self.steps
        again = set(steps.module[steps.of(Op.GATHER) & steps.backward].tolist())
        first = steps.of(Op.GATHER) & ~steps.backward & np.isin(steps.module, list(again))
        by_module = dict(zip(steps.module[first].tolist(), steps.nbytes[first].tolist(), strict=True))
        of_recorded = (scene.sharding.param_itemsize or self.itemsizes[Op.GATHER]) / self.itemsizes[Op.GATHER]
        # What is gathered is a copy: the shard stays beside it.
        return round(sum(by_module.values()) * of_recorded)


def is_sharded(run: RunSummary) -> bool:
    """Whether FSDP gathers parameters and reduces gradients in a run."""
    return any(
        np.isin(each.communication.kind[each.communication.strategy == STRATEGIES.index(FSDP)], _KINDS).any()
        for each in run.measured
    )


_KINDS = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


def sharded_model_of(run: RunSummary, given: LinkModel | Calibration | None) -> ShardedModel:
    """Build the model for a run over its own links, or given ones. Raises NotReplayable."""
    manifest = run.manifest or Manifest()
    gpus = world_size(manifest, run.ranks)
    schedules = _schedules(run)
    exchanged = exchange(run, run.calibration)
    timed = timed_hosts(run, manifest)
    steps = _steps(run, exchanged, schedules, with_long_gaps=explains_gaps(run, timed))
    sizes, groups = _calls(run, schedules[0])
    if groups[Op.GATHER] != gpus:
        raise NotReplayable(f"{run.name}: parameters are sharded over {groups[Op.GATHER]} of {gpus} ranks; only FSDP2 "
                            "over all ranks is replayed")  # fmt: skip
    gathers, scatters = (links_of(run, exchanged, gpus, given, traffic) for traffic in (GATHERS, SCATTERS))
    measured_ns, source, spread = measured_step(run, manifest, steps.span_ns)
    if timed is not None:
        steps = steps.with_timed_hosts(timed.step_ns)
    is_over_sockets = manifest.transport == SOCKETS
    rests_on = [
        borrowed(f"beside communication compute takes {percent(SLOWER)} longer"),
        *gathers.assumptions,
        *scatters.assumptions,
    ]
    model = ShardedModel(
        name=run.name,
        steps=steps,
        gpus=gpus,
        gathers=gathers,
        scatters=scatters,
        itemsizes=sizes,
        has_own_group=_has_own_group(run, schedules[0]),
        shared=OVER_SOCKETS if is_over_sockets else SHARED,
        unprofiled=1.0,
        measured_ns=measured_ns,
        measured_from=source,
        spread=spread,
        doubts=[*run_doubts(run, manifest), *borrowing(run, manifest, rests_on)],
        assumptions=rests_on,
        ranks=tuple(summary.rank for summary in run.ranks),
        late=late_rank(exchanged),
        hosts=timed,
        autocasts=manifest.settings.get("amp") in HALVES,
        communicates_besides=any(
            (each.communication.strategy != STRATEGIES.index(FSDP)).any() for each in run.measured
        ),
    )
    if source == MeasuredFrom.UNPROFILED:
        model = replace(model, unprofiled=_unprofiled(model))
    return replace(model, doubts=[*model.doubts, *replay_doubts(model.own().step_ns / measured_ns - 1)])


def _unprofiled(model: ShardedModel) -> float:
    """Return what is left of a replayed step without the profiler.

    Where hosts were timed, devices alone are slower under it: as far as the replay takes longer, where no host is late.
    """
    span_ns = float(np.median(model.steps.span_ns))
    if model.hosts is None:
        return model.measured_ns / span_ns
    device_ns = model.predict(ShardedScene(model.gpus, host_time=0.0), of_run=True).step_ns
    return min(model.measured_ns / min(device_ns, span_ns), 1.0)


def _schedules(run: RunSummary) -> list[ShardedSchedule]:
    """Return each rank's schedule. Raises NotReplayable where FSDP2 did something else than what is replayed."""
    if any(measured.sharded is None for measured in run.measured):
        raise AnalysisError(f"{run.name}: summarized without schedules; leave schedules=False out")
    found = [list((measured.sharded or {}).values()) for measured in run.measured]
    if not all(len(each) == 1 for each in found):
        raise NotReplayable(f"{run.name}: FSDP is replayed where every rank has one GPU")
    if not all(len(schedule) for each in found for schedule in each):
        raise NotReplayable(
            f"{run.name}: no step of its traces names all that FSDP gathers and reduces; only FSDP2 (fully_shard) is "
            "replayed, not compiled, and over one process group (no HSDP)"
        )
    return [each[0] for each in found]


def _steps(
    run: RunSummary, exchanged: Exchange, schedules: Sequence[ShardedSchedule], with_long_gaps: bool
) -> ShardedSteps:
    ranks = np.array([summary.rank for summary in run.ranks])
    nbytes = [exchanged.nbytes(RankIndex(index)) for index in range(len(ranks))]
    steps = sharded_steps(
        schedules, nbytes, exchanged.clocks.shift_ns(ranks).tolist(), SLOWER, typical_steps(run), with_long_gaps
    )
    if steps is None:
        raise NotReplayable(f"{run.name}: its ranks have no step in common in which FSDP2 does the same")
    if (steps.nbytes[steps.of(Op.GATHER, Op.REDUCE)] <= 0).any():
        raise NotReplayable(f"{run.name}: its traces do not say how many bytes FSDP2 gathers and reduces")
    own_host_ns, input_ns = profiled_hosts(run, steps.step)
    # What an op takes the host is the window's whose host is known, as is the host's own time.
    spent = np.divide(
        steps.spent,
        own_host_ns[..., np.newaxis],
        where=own_host_ns[..., np.newaxis] > 0,
        out=np.zeros_like(steps.spent),
    )
    return replace(steps, own_host_ns=own_host_ns, input_ns=input_ns, spent=spent)


def _calls(run: RunSummary, schedule: ShardedSchedule) -> tuple[dict[Op, int], dict[Op, int]]:
    """Return bytes per element, and members, of all-gathers and of reduce-scatters."""
    comm = run.measured[0].communication
    sizes, members = {}, {}
    for op in (Op.GATHER, Op.REDUCE):
        rows = schedule.row[schedule.op == op]
        calls = [comm.calls[call] for call in comm.call[rows].tolist() if call >= 0]
        if not calls:
            raise NotReplayable(f"{run.name}: its traces do not describe FSDP2's collectives (dtype, group)")
        sizes[op] = itemsize(calls[0].dtype) or 1
        group = calls[0].group
        members[op] = world_size(run.manifest or Manifest(), run.ranks) if group is None else group.size
    return sizes, members


def _has_own_group(run: RunSummary, schedule: ShardedSchedule) -> bool:
    """Whether reduce-scatters already have a process group of their own."""
    comm = run.measured[0].communication
    groups = [
        {comm.calls[call].group for call in comm.call[schedule.row[schedule.op == op]].tolist() if call >= 0}
        for op in (Op.GATHER, Op.REDUCE)
    ]
    return groups[0].isdisjoint(groups[1])
