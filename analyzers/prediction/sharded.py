"""Answers of FSDP2: other settings, links, hosts, no late rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

import msgspec

from analyzers.errors import NotReplayable
from analyzers.notices import Code, Notice, Notices
from analyzers.prediction.answers import (
    DRIFT,
    KNOWN_TO,
    LEAST_SAID_NS,
    OF_CHANGE,
    SCHEMA,
    WITHIN,
    Baseline,
    Kind,
    Options,
    Prefetch,
    Recommended,
    Scenario,
    Sharding,
    WhatIf,
    chosen,
    known_within,
    would_take,
)
from analyzers.prediction.hosts import HOST_BOUND, host_doubt, input_doubt, unused_hosts
from analyzers.prediction.levelling import LATE, Cause, Levelling, chosen_rank
from analyzers.prediction.link_model import LinkModel, RunLinks
from analyzers.prediction.sharded_model import (
    HALF,
    OVER_SOCKETS,
    SHARED,
    ShardedModel,
    ShardedPrediction,
    ShardedScene,
    sharded_model_of,
)
from analyzers.rank import Op, RunSummary
from analyzers.run import Calibration, Manifest
from analyzers.units import ms, percent

# What is left of hosts' time where hosts are the limit and nothing else is asked for.
USUAL_HOST_TIMES = (0.5,)


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
    answering = _Answering(model, options, baseline)
    settings = [answering.scenario(ShardedScene(gpus, each)) for gpus in counts for each in (Sharding(), *wanted)]
    others = [*answering.stragglers(uncertainty_ns), *answering.host_times()]
    recommended, gain_ns = _recommended(model, settings, baseline, uncertainty_ns)
    return WhatIf(
        schema=SCHEMA,
        run=run.name,
        baseline=baseline,
        scenarios=[*settings, *others],
        recommended=recommended,
        gain_ns=gain_ns,
        uncertainty_ns=uncertainty_ns,
        as_recorded=as_recorded,
        links=model.gathers.asked.source,
        assumptions=list(_assumptions(model, options, wanted)),
        warnings=list(map(str, [*run.warnings, *unused_hosts(run, run.manifest or Manifest())])),
    )


def _on(links: RunLinks, options: Options) -> RunLinks:
    return replace(links, asked=replace(links.asked, hosts=options.hosts))


def _check(run: RunSummary, options: Options) -> None:
    """Raise NotReplayable for what is asked of DDP."""
    asked = {
        "a step as one CUDA graph (--host-time 0)": 0 in (options.host_times or ()),
        "--grad-accumulation": bool(options.accumulations),
        "--gradient-as-bucket-view": options.bucket_views,
        "--no-broadcast-buffers": not options.broadcast_buffers,
        "--grad-dtype": options.gradient_itemsize is not None,
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise NotReplayable(f"{run.name}: {what} is of DDP alone, and this run is of FSDP2: leave it out")
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
    if model.host_share(ShardedScene(model.gpus)) > HOST_BOUND:
        shardings.append(Sharding(prefetch=Prefetch.BOTH))
    return shardings


@dataclass(frozen=True)
class _Answering:
    """What scenarios of one run are predicted from."""

    model: ShardedModel
    options: Options
    baseline: Baseline

    def scenario(self, scene: ShardedScene, kind: Kind = Kind.FSDP, **changed: Any) -> Scenario:
        """Predict one scene; `changed` says what is the scenario's own."""
        model = self.model
        prediction = model.predict(scene)
        doubts = list(_doubts(model, scene, prediction))
        scatters = model.scatters.asked
        return Scenario(
            kind=kind,
            bucket_mb=None,
            gpus=scene.gpus,
            link_gbps=scatters.busbw_gbps(prediction.reduced, scene.gpus),
            latency_us=float(scatters.collective_ns(0, scene.gpus)) / 1e3,
            predicted_step_ns=round(prediction.step_ns),
            interval_ns=self._interval_ns(prediction, scene),
            predicted_exposed_comm_ns=round(prediction.exposed_ns),
            predicted_stall_ns=round(prediction.stalled_ns),
            efficiency=None if scene.changes_hosts else min(prediction.alone_ns / prediction.step_ns, 1.0),
            buckets=prediction.reduced,
            reliable=not doubts,
            gain_ns=round(model.predict(ShardedScene(scene.gpus)).step_ns - prediction.step_ns),
            why=Notices(doubts) if doubts else None,
            sharding=scene.sharding if scene.sharding != Sharding() else None,
            **changed,
        )

    def _interval_ns(self, prediction: ShardedPrediction, scene: ShardedScene) -> tuple[int, int]:
        """Where nine of ten such steps are expected, by what is known of the run's own step, the change, and hosts."""
        model, step_ns = self.model, prediction.step_ns
        own = hypot(WITHIN, self.baseline.error, model.spread) * step_ns
        change_ns = step_ns - self.baseline.predicted_step_ns
        # Changes that cancel one another are no better known for that.
        parts = [step_ns, *(model.predict(each).step_ns for each in _parts(model, scene))]
        largest_ns = max(abs(each - self.baseline.predicted_step_ns) for each in parts)
        slowed = replace(model, is_slowed=True)
        slowed_change_ns = slowed.predict(scene).step_ns - slowed.own().step_ns
        drift_ns = replace(model, drift=DRIFT).predict(scene).step_ns - step_ns
        reach_ns = hypot(own, OF_CHANGE * largest_ns, slowed_change_ns - change_ns, drift_ns)
        low_ns = min(step_ns - reach_ns, prediction.pace.at_least_ns)
        high_ns = max(step_ns + reach_ns, prediction.pace.at_most_ns)
        if _shares(model, scene):
            # With all of the links to itself, or half of them.
            ends = [replace(model, shared=shared).predict(scene).step_ns for shared in (SHARED, OVER_SOCKETS)]
            low_ns, high_ns = min(low_ns, *ends), max(high_ns, *ends)
        return round(max(low_ns, 0)), round(high_ns)

    def stragglers(self, noise_ns: int) -> list[Scenario]:
        """Return the run without a rank's lateness, as a whole and by what it is late with.

        Who did not name a rank hears of none that costs less than the noise. Raises NotReplayable.
        """
        model, wanted = self.model, self.options.straggler
        who = chosen_rank(model.name, model.ranks, model.late, wanted)
        if who is None:
            return []
        found = []
        for cause in Cause:
            scene = ShardedScene(model.gpus, level=Levelling(who.place, cause))
            found.append(self.scenario(scene, Kind.STRAGGLER, rank=who.number, cause=cause))
        return [] if wanted == LATE and found[0].gain_ns <= noise_ns else found

    def host_times(self) -> Iterator[Scenario]:
        """Yield the run with faster hosts; where they are the limit, if nothing else is asked for."""
        model, wanted = self.model, self.options.host_times
        if wanted is None:
            wanted = USUAL_HOST_TIMES if model.host_share(ShardedScene(model.gpus)) > HOST_BOUND else ()
        for left in wanted:
            yield self.scenario(ShardedScene(model.gpus, host_time=left), Kind.HOST, host_time=left)


def _parts(model: ShardedModel, scene: ShardedScene) -> Iterator[ShardedScene]:
    """Yield each of what a scene changes by itself, where that is more than one thing."""
    asked = {name: value for name, value in msgspec.structs.asdict(scene.sharding).items() if value is not None}
    if scene.changes_hosts or len(asked) + (scene.gpus != model.gpus) < 2:
        return
    yield from (ShardedScene(model.gpus, Sharding(**{name: value})) for name, value in asked.items())
    yield ShardedScene(scene.gpus)


def _shares(model: ShardedModel, scene: ShardedScene) -> bool:
    """Whether another communicator's share of the links is a guess."""
    return bool(scene.sharding.separate_reduce_scatter_group) and not model.has_own_group


def _doubts(model: ShardedModel, scene: ShardedScene, prediction: ShardedPrediction) -> Iterator[Notice]:
    """Say why a scene's prediction cannot be trusted, if so."""
    if model.is_host_bound(prediction, scene):
        own_share, share = (model.host_share(each) for each in (ShardedScene(model.gpus), scene))
        # Settings that change little need no words of their own.
        if not scene.changes_hosts and abs(share - own_share) <= HOST_BOUND:
            share = own_share
        yield host_doubt(share, None if model.hosts is None else prediction.pace.scatter)
    waits = input_doubt(model.steps) if scene.host_time < 1 else None
    if waits is not None:
        yield waits
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


def _recommended(
    model: ShardedModel, settings: Sequence[Scenario], baseline: Baseline, uncertainty_ns: int
) -> tuple[Recommended, int]:
    """Return the settings with the shortest step, all with as many GPUs; and their gain over the run's own there."""
    counts = [each.gpus for each in settings]
    gpus = model.gpus if model.gpus in counts else counts[0]
    settings_there = [each for each in settings if each.gpus == gpus]
    if all(each.sharding is None for each in settings):
        return _on_most(settings, baseline), 0
    best = min(settings_there, key=lambda each: each.predicted_step_ns)
    if best.gain_ns <= uncertainty_ns:
        unsure = known_within(uncertainty_ns, baseline.predicted_step_ns)
        gain = f"more than {ms(best.gain_ns)}" if best.gain_ns >= LEAST_SAID_NS else "anything"
        return chosen(best, f"no change of FSDP2's settings here gains {gain}, and {unsure}"), best.gain_ns
    why = would_take(best)
    if best.sharding is not None and best.sharding.reshard_after_forward is False:
        kept = model.kept_bytes(ShardedScene(best.gpus, best.sharding))
        why += f", and each GPU would hold {kept / 1e9:,.2f} GB more"
    return chosen(best, why), best.gain_ns


def _on_most(settings: Sequence[Scenario], baseline: Baseline) -> Recommended:
    """Return what was asked of the largest number of GPUs, where nothing else changes."""
    most = max(settings, key=lambda each: each.gpus)
    step, own = ms(most.predicted_step_ns), ms(baseline.predicted_step_ns)
    return chosen(most, f"on {most.gpus:,} GPUs a step would take {step}, and takes {own} on {baseline.gpus:,}")


def _of_dtypes(model: ShardedModel) -> str:
    if not model.casts_ns:
        return "compute takes what it took with other dtypes: casts that go or come are not modelled"
    casts = f"autocast's casts of weights and of their gradients, {ms(model.casts_ns)} at the rate of FSDP2's copies"
    return f"with all-gathers of two bytes per element there are none of {casts}; else compute takes what it took"


def _assumptions(model: ShardedModel, options: Options, wanted: Sequence[Sharding]) -> Iterator[str]:
    yield from (each.text for each in model.assumptions)
    if any(each.separate_reduce_scatter_group for each in wanted) and not model.has_own_group:
        beside = "as fast as alone" if model.shared == OVER_SOCKETS else f"at {percent(model.shared)} of its rate"
        yield f"beside a reduce-scatter of another communicator an all-gather goes on {beside}, and the other way round"
    if any(each.param_itemsize or each.reduce_itemsize for each in wanted):
        yield _of_dtypes(model)
    if model.communicates_besides:
        yield "collectives that are not FSDP2's take what they took, and compute waits for them as it did"
    if any(gpus > model.gpus for gpus in options.gpus):
        yield "further ranks are like those that were recorded, and none is later for being one of many"
    if any(gpus != model.gpus for gpus in options.gpus):
        yield "the optimizer takes what it took, though each GPU's share of the parameters is another"
    if options.hosts is not None:
        cards = f"network cards that carry {options.hosts.gbps:g} GB/s per host"
        yield f"beyond the {options.hosts.gpus} GPUs of a host all bytes pass {cards}"
