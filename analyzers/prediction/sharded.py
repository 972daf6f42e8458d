"""Steps of FSDP2 under other settings: the model and its answers.

Its own replay, scaled to the unprofiled step where that was timed, over links by their own curves for all-gathers and
reduce-scatters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import hypot

import numpy as np

from analyzers.collectives import Exchange, exchange
from analyzers.errors import AnalysisError, NotReplayable
from analyzers.notices import Code, Notice, Notices
from analyzers.prediction.answers import (
    LATE,
    SCHEMA,
    Baseline,
    Kind,
    Options,
    Prefetch,
    Recommended,
    Scenario,
    Sharding,
    WhatIf,
    chosen,
    would_take,
)
from analyzers.prediction.assumption import Assumption, borrowed
from analyzers.prediction.link_model import LinkModel, RunLinks, links_of
from analyzers.prediction.model import HOST_BOUND, SLOWER, MeasuredFrom, borrowing, measured_step, run_doubts
from analyzers.prediction.sharded_replay import ShardedPlan, ShardedSteps, play_sharded, sharded_steps
from analyzers.prediction.strain import GATHERS, SCATTERS
from analyzers.rank import FSDP, STRATEGIES, Op, RunSummary, ShardedSchedule
from analyzers.ranks import RankIndex
from analyzers.run import Calibration, Manifest, world_size
from analyzers.trace import Collective, itemsize
from analyzers.units import ms, percent

# As for DDP's caps (analyzers.prediction.predict): how well a step is known at best, and a change.
KNOWN_TO, WITHIN, OF_CHANGE = 0.01, 0.017, 0.2
# How fast a transfer goes on beside one of another communicator, as a share of its rate alone. Over sockets each has
# connections and threads of its own (transformer on one H200 that two processes share, torch 2.11, NCCL 2.28.9: a step
# of 337 ms took 261 ms with a group of its own for reduce-scatters); elsewhere both move over the same links.
SHARED, OVER_SOCKETS = 0.5, 1.0
SOCKETS = "NET/Socket"
# Two bytes per element: bf16 and fp16.
HALF = 2


@dataclass(frozen=True)
class ShardedScene:
    """Settings to predict: on so many GPUs, with this of FSDP2 changed."""

    gpus: int
    sharding: Sharding = field(default_factory=Sharding)


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
    communicates_besides: bool = False
    is_slowed: bool = False

    def predict(self, scene: ShardedScene, of_run: bool = False) -> ShardedPrediction:
        """Predict a step: medians over ranks and steps. `of_run`: over the links that the run had."""
        steps, sharding = self.changed(scene.sharding), scene.sharding
        sizes = {Op.GATHER: sharding.param_itemsize, Op.REDUCE: sharding.reduce_itemsize}
        transfer_ns = np.zeros(len(steps.op))
        reduced = np.zeros(0)
        for op, links in ((Op.GATHER, self.gathers), (Op.REDUCE, self.scatters)):
            rows = steps.of(op)
            nbytes = steps.nbytes[rows] * ((sizes[op] or self.itemsizes[op]) / self.itemsizes[op])
            taken = links.own if of_run else links.asked
            transfer_ns[rows] = (taken.slowed() if self.is_slowed else taken).collective_ns(nbytes, scene.gpus)
            reduced = nbytes
        own_group = self.has_own_group or bool(sharding.separate_reduce_scatter_group)
        played = play_sharded(steps, ShardedPlan(transfer_ns, own_group, self.shared))
        return ShardedPrediction(
            step_ns=self.unprofiled * float(np.median(played.span_ns)),
            alone_ns=self.unprofiled * float(np.median(steps.alone_ns)),
            stalled_ns=self.unprofiled * float(np.median(played.stalled_ns)),
            exposed_ns=max(self.unprofiled * float(np.median(played.exposed_ns)), 0.0),
            reduced=[round(each) for each in reduced.tolist()],
        )

    def changed(self, sharding: Sharding) -> ShardedSteps:
        """Return the steps that are played."""
        steps = self.steps
        if sharding.reshard_after_forward is False:
            steps = steps.staying_gathered()
        if sharding.prefetch is None:
            return steps
        passes = sharding.prefetch
        return steps.arranged(passes in (Prefetch.FORWARD, Prefetch.BOTH), passes in (Prefetch.BACKWARD, Prefetch.BOTH))

    def own(self) -> ShardedPrediction:
        """Predict the run's own settings."""
        return self.predict(ShardedScene(self.gpus), of_run=True)

    @property
    def can_stay_gathered(self) -> bool:
        """Whether any module is gathered again in the backward."""
        return len(self.steps.staying_gathered().op) < len(self.steps.op)

    @property
    def kept_bytes(self) -> int:
        """Return how much more each GPU would hold if all modules stayed gathered."""
        steps = self.steps
        again = set(steps.module[steps.of(Op.GATHER) & steps.backward].tolist())
        first = steps.of(Op.GATHER) & ~steps.backward & np.isin(steps.module, list(again))
        return round(float(steps.nbytes[first].sum()) * (self.gpus - 1) / self.gpus)


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
    steps = _steps(run, exchanged, schedules)
    sizes, groups = _calls(run, schedules[0])
    if groups[Op.GATHER] != gpus:
        raise NotReplayable(f"{run.name}: parameters are sharded over {groups[Op.GATHER]} of {gpus} ranks; only FSDP2 "
                            "over all ranks is replayed")  # fmt: skip
    gathers, scatters = (links_of(run, exchanged, gpus, given, traffic) for traffic in (GATHERS, SCATTERS))
    span_ns = float(np.median(steps.span_ns))
    measured_ns, source, spread = measured_step(run, manifest, steps.span_ns)
    is_over_sockets = manifest.transport == SOCKETS
    rests_on = [
        borrowed(f"beside communication compute takes {percent(SLOWER)} longer"),
        *gathers.assumptions,
        *scatters.assumptions,
    ]
    return ShardedModel(
        name=run.name,
        steps=steps,
        gpus=gpus,
        gathers=gathers,
        scatters=scatters,
        itemsizes=sizes,
        has_own_group=_has_own_group(run, schedules[0]),
        shared=OVER_SOCKETS if is_over_sockets else SHARED,
        unprofiled=measured_ns / span_ns if source == MeasuredFrom.UNPROFILED else 1.0,
        measured_ns=measured_ns,
        measured_from=source,
        spread=spread,
        doubts=[*run_doubts(run, manifest), *borrowing(run, manifest, rests_on)],
        assumptions=rests_on,
        communicates_besides=any(
            (each.communication.strategy != STRATEGIES.index(FSDP)).any() for each in run.measured
        ),
    )


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


def _steps(run: RunSummary, exchanged: Exchange, schedules: Sequence[ShardedSchedule]) -> ShardedSteps:
    ranks = np.array([summary.rank for summary in run.ranks])
    nbytes = [exchanged.nbytes(RankIndex(index)) for index in range(len(ranks))]
    steps = sharded_steps(schedules, nbytes, exchanged.clocks.shift_ns(ranks).tolist(), SLOWER)
    if steps is None:
        raise NotReplayable(f"{run.name}: its ranks have no step in common in which FSDP2 does the same")
    if (steps.nbytes[steps.of(Op.GATHER, Op.REDUCE)] <= 0).any():
        raise NotReplayable(f"{run.name}: its traces do not say how many bytes FSDP2 gathers and reduces")
    return steps


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


def sharded_whatif(run: RunSummary, options: Options, links: LinkModel | Calibration | None) -> WhatIf:
    """Predict steps of FSDP2; see `analyzers.prediction.whatif`. Raises NotReplayable."""
    _check(run, options)
    model = sharded_model_of(run, links)
    own = model.own()
    if options.hosts is not None:
        model = replace(model, gathers=_on(model.gathers, options), scatters=_on(model.scatters, options))
    baseline = Baseline(
        bucket_mb=None,
        gpus=model.gpus,
        buckets=own.reduced,
        measured_step_ns=model.measured_ns,
        predicted_step_ns=round(own.step_ns),
        measured_from=model.measured_from,
        error=own.step_ns / model.measured_ns - 1,
    )
    uncertainty = max(abs(baseline.error), model.spread, KNOWN_TO)
    uncertainty_ns = round(uncertainty * own.step_ns)
    as_recorded = links is None and options.hosts is None
    counts = options.gpus or (model.gpus,)
    wanted = _usual(model) if options.shardings is None else [*options.shardings]
    of_counts = [_scenario(model, baseline, ShardedScene(gpus)) for gpus in counts]
    of_changes = [_scenario(model, baseline, ShardedScene(gpus, sharding)) for gpus in counts for sharding in wanted]
    scenarios = [*of_counts, *of_changes]
    recommended, gain_ns = _recommended(model, [each for each in scenarios if each.gpus == counts[0]], uncertainty_ns)
    return WhatIf(
        schema=SCHEMA,
        run=run.name,
        baseline=baseline,
        scenarios=scenarios,
        recommended=recommended,
        gain_ns=gain_ns,
        uncertainty_ns=uncertainty_ns,
        as_recorded=as_recorded,
        links=model.gathers.asked.source,
        assumptions=list(_assumptions(model, options, wanted)),
        warnings=list(map(str, run.warnings)),
    )


def _on(links: RunLinks, options: Options) -> RunLinks:
    return replace(links, asked=replace(links.asked, hosts=options.hosts))


def _check(run: RunSummary, options: Options) -> None:
    """Raise NotReplayable for what is asked of DDP."""
    asked = {
        "a rank's lateness": options.straggler not in (None, LATE),
        "faster hosts": bool(options.host_times),
        "gradient accumulation": bool(options.accumulations),
        "bucket views": options.bucket_views,
        "buffers that stay": not options.broadcast_buffers,
        "the dtype of DDP's gradients": options.gradient_itemsize is not None,
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise NotReplayable(f"{run.name}: {what} is predicted for DDP alone, and this run is of FSDP")
    if options.gpus and min(options.gpus) < 2:
        raise NotReplayable(f"{run.name}: on one GPU FSDP2 shards nothing; give 2 or more to --gpus")


def _usual(model: ShardedModel) -> list[Sharding]:
    """Return what people try: each for itself."""
    shardings = []
    if model.can_stay_gathered:
        shardings.append(Sharding(reshard_after_forward=False))
    if not model.has_own_group:
        shardings.append(Sharding(separate_reduce_scatter_group=True))
    if model.itemsizes[Op.REDUCE] > HALF:
        shardings.append(Sharding(reduce_itemsize=HALF))
    if model.itemsizes[Op.GATHER] > HALF:
        reduce_itemsize = HALF if model.itemsizes[Op.REDUCE] > HALF else None
        shardings.append(Sharding(param_itemsize=HALF, reduce_itemsize=reduce_itemsize))
    if model.steps.host_share > HOST_BOUND:
        shardings.append(Sharding(prefetch=Prefetch.BOTH))
    return shardings


def _scenario(model: ShardedModel, baseline: Baseline, scene: ShardedScene) -> Scenario:
    prediction = model.predict(scene)
    doubts = list(_doubts(model, scene))
    is_changed = scene.sharding != Sharding()
    return Scenario(
        kind=Kind.FSDP,
        bucket_mb=None,
        gpus=scene.gpus,
        link_gbps=model.scatters.asked.busbw_gbps(prediction.reduced, scene.gpus),
        latency_us=float(model.scatters.asked.collective_ns(0, scene.gpus)) / 1e3,
        predicted_step_ns=round(prediction.step_ns),
        interval_ns=_interval_ns(model, baseline, scene, prediction.step_ns),
        predicted_exposed_comm_ns=round(prediction.exposed_ns),
        predicted_stall_ns=round(prediction.stalled_ns),
        efficiency=min(prediction.alone_ns / prediction.step_ns, 1.0),
        buckets=prediction.reduced,
        reliable=not doubts,
        gain_ns=round((model.predict(ShardedScene(scene.gpus)).step_ns if is_changed else baseline.predicted_step_ns)
                      - prediction.step_ns),
        why=Notices(doubts) if doubts else None,
        sharding=scene.sharding if is_changed else None,
    )  # fmt: skip


def _interval_ns(model: ShardedModel, baseline: Baseline, scene: ShardedScene, step_ns: float) -> tuple[int, int]:
    """Where nine of ten such steps are expected: what is known of the run's own step, and of the change."""
    own = hypot(WITHIN, baseline.error, model.spread) * step_ns
    change_ns = step_ns - baseline.predicted_step_ns
    slowed = replace(model, is_slowed=True)
    slowed_change_ns = slowed.predict(scene).step_ns - slowed.own().step_ns
    reach_ns = hypot(own, OF_CHANGE * change_ns, slowed_change_ns - change_ns)
    low_ns, high_ns = step_ns - reach_ns, step_ns + reach_ns
    if _shares(model, scene):
        # With all of the links to itself, or half of them.
        ends = [replace(model, shared=shared).predict(scene).step_ns for shared in (SHARED, OVER_SOCKETS)]
        low_ns, high_ns = min(low_ns, *ends), max(high_ns, *ends)
    return round(max(low_ns, 0)), round(high_ns)


def _shares(model: ShardedModel, scene: ShardedScene) -> bool:
    """Whether another communicator's share of the links is a guess."""
    return bool(scene.sharding.separate_reduce_scatter_group) and not model.has_own_group


def _doubts(model: ShardedModel, scene: ShardedScene) -> Iterator[Notice]:
    """Say why a scene's prediction cannot be trusted, if so."""
    if model.steps.host_share > HOST_BOUND:
        share = percent(model.steps.host_share)
        text = f"the CPU is the limit for {share} of the step, and what it would do is not modelled"
        yield Notice(Code.HOST_IS_THE_LIMIT, text)
    yield from model.doubts
    if _shares(model, scene):
        text = "how two communicators share the links is not measured"
        yield Notice(Code.SHARED_LINKS, text)
    measured_gpus = model.gathers.asked.nearest(scene.gpus)
    if scene.gpus != measured_gpus:
        text = f"collectives over {scene.gpus} GPUs are not measured, but extrapolated from those over {measured_gpus}"
        yield Notice(Code.LINKS_EXTRAPOLATED, text)
    hosts = model.gathers.asked.hosts
    if hosts is not None and scene.gpus > hosts.gpus:
        yield Notice(Code.NETWORK_NOT_MEASURED, "transfers between hosts are not measured")


def _recommended(model: ShardedModel, scenarios: Sequence[Scenario], uncertainty_ns: int) -> tuple[Recommended, int]:
    """Return the scenario with the shortest step, all with as many GPUs; and its gain over the run's own settings."""
    changed = [each for each in scenarios if each.sharding is not None]
    best = min(changed or scenarios, key=lambda each: each.predicted_step_ns)
    if not changed or best.gain_ns <= uncertainty_ns:
        own = scenarios[0]
        why = f"nothing here gains more than {ms(uncertainty_ns)}, to which steps are known"
        if not changed:
            why = would_take(own)
        return chosen(own, why), own.gain_ns
    why = would_take(best)
    if best.sharding is not None and best.sharding.reshard_after_forward is False:
        why += f", and each GPU would hold {model.kept_bytes / 1e9:,.2f} GB more"
    return chosen(best, why), best.gain_ns


def _assumptions(model: ShardedModel, options: Options, wanted: Sequence[Sharding]) -> Iterator[str]:
    yield from (each.text for each in model.assumptions)
    if any(each.separate_reduce_scatter_group for each in wanted) and not model.has_own_group:
        beside = "as fast as alone" if model.shared == OVER_SOCKETS else f"at {percent(model.shared)} of its rate"
        yield f"beside a reduce-scatter of another communicator an all-gather goes on {beside}, and the other way round"
    if any(each.param_itemsize or each.reduce_itemsize for each in wanted):
        yield "compute takes what it took with other dtypes: casts that go or come are not modelled"
    if model.communicates_besides:
        yield "collectives that are not FSDP2's take what they took, and compute waits for them as it did"
    if any(gpus > model.gpus for gpus in options.gpus):
        yield "further ranks are like those that were recorded, and none is later for being one of many"
    if any(gpus != model.gpus for gpus in options.gpus):
        yield "the optimizer takes what it took, though each GPU's share of the parameters is another"
    if options.hosts is not None:
        cards = f"network cards that carry {options.hosts.gbps:g} GB/s per host"
        yield f"beyond the {options.hosts.gpus} GPUs of a host all bytes pass {cards}"
