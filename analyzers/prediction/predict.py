"""`whatif`: step times with other buckets, more GPUs or other links.

    traces -> schedule per rank -> recorded steps of all ranks --(buckets, links)--> steps as they would have gone

The run's own settings are predicted by the same replay, so that its error shows beside every prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

from analyzers.errors import NotReplayable
from analyzers.notices import Code, Notice, Notices
from analyzers.prediction.answers import (
    DRIFT,
    KNOWN_TO,
    OF_CHANGE,
    SCHEMA,
    WITHIN,
    Baseline,
    Kind,
    Options,
    Recommended,
    Scenario,
    WhatIf,
    at_most,
    changed_of_ddp,
    chosen,
    known_within,
    most_gained,
    would_take,
)
from analyzers.prediction.assumption import GRAPH_IS_KNOWN, GRAPH_WITHIN
from analyzers.prediction.hosts import HOST_BOUND, host_doubt, input_doubt, unused_hosts
from analyzers.prediction.levelling import LATE, Cause, Levelling, chosen_rank
from analyzers.prediction.link_model import LinkModel, no_links
from analyzers.prediction.model import Model, Prediction, Scene
from analyzers.prediction.run_model import model_of
from analyzers.prediction.sharded import sharded_whatif
from analyzers.prediction.sharded_model import is_sharded
from analyzers.rank import RunSummary
from analyzers.run import Calibration, Manifest
from analyzers.units import ms

OF_PROFILED_HOSTS = (Code.CONTROLS_MISSING, Code.PROFILER_DISTORTS)
# What is left of hosts' time where hosts are the limit and nothing else is asked for.
USUAL_HOST_TIMES = (0.5, 0.0)


def whatif(run: RunSummary, options: Options, links: LinkModel | Calibration | None = None) -> WhatIf:
    """Predict every scenario. `links` take the place of those beside the run, and of the run's own transfers.

    Raises NotReplayable for a run of another strategy than DDP, FSDP2 or one GPU, where nothing tells of the links that
    are asked about, and where one GPU's step leaves nothing to predict.
    """
    if is_sharded(run):
        return sharded_whatif(run, options, links)
    if options.shardings:
        raise NotReplayable(f"{run.name}: what is asked is FSDP2's, and this run has no FSDP2: leave its options out")
    model = model_of(run, links)
    own_prediction = model.own()
    warnings = [*run.warnings, *unused_hosts(run, run.manifest or Manifest()), *_of_layout(model, own_prediction)]
    if options.hosts is not None:
        # The run itself is predicted on the links that it had.
        model = replace(model, links=replace(model.links, hosts=options.hosts))
    counts = options.gpus or (model.gpus,)
    _check(model, counts, options)
    # One GPU has no buckets.
    caps = (options.bucket_mb if max(counts) > 1 else ()) or (model.bucket_mb,)
    baseline = _baseline(model, own_prediction)
    uncertainty = max(abs(baseline.error), model.spread, KNOWN_TO)
    uncertainty_ns = round(uncertainty * own_prediction.step_ns)
    as_recorded = links is None and _is_unchanged(options, model.gpus)
    changing = _Changing(model, options, baseline, Kind.CAPS if links is None and options.hosts is None else Kind.LINKS)
    scenarios = [changing.scenario(_scene(cap, gpus, options)) for gpus in counts for cap in caps]
    chosen = model.gpus if model.gpus in counts and model.gpus > 1 else next((n for n in counts if n > 1), counts[0])
    asked = [each for each in scenarios if each.gpus == chosen]
    own_scene = _scene(model.bucket_mb, chosen, Options(), recorded=chosen == model.gpus)
    before_ns = round(model.predict(own_scene).step_ns)
    others = [*changing.stragglers(uncertainty_ns), *changing.host_times(), *changing.accumulations()]
    if chosen > 1:
        recommended, gain_ns = _recommended(asked, before_ns, uncertainty, _where(chosen, counts, model), options)
    elif model.gpus > 1:
        recommended, gain_ns = _on_one_gpu(asked[0], baseline), 0
    else:
        recommended, gain_ns = _of_one_gpu(others)
    return WhatIf(
        schema=SCHEMA,
        run=run.name,
        baseline=baseline,
        scenarios=[*scenarios, *others],
        recommended=recommended,
        gain_ns=gain_ns,
        uncertainty_ns=uncertainty_ns,
        as_recorded=as_recorded,
        links=model.links.source,
        assumptions=_assumptions(model, options) if max(counts) > 1 else _of_graphs(others),
        warnings=list(map(str, warnings)),
    )


def _baseline(model: Model, own: Prediction) -> Baseline:
    return Baseline(
        bucket_mb=model.bucket_mb,
        gpus=model.gpus,
        buckets=own.buckets,
        measured_step_ns=model.measured_ns,
        predicted_step_ns=round(own.step_ns),
        measured_from=model.measured_from,
        error=own.step_ns / model.measured_ns - 1,
    )


def _check(model: Model, counts: Sequence[int], options: Options) -> None:
    """Raise NotReplayable where nothing can be said of what is asked for."""
    if max(counts) < 2 and changed_of_ddp(options):
        raise NotReplayable(
            f"{model.name}: {changed_of_ddp(options)}: one GPU synchronizes nothing; say with --gpus how many there "
            "might be"
        )
    if model.gpus < 2 and options.straggler not in (None, LATE):
        raise NotReplayable(f"{model.name}: one GPU has no others to be late for: leave --straggler out")
    if max(counts) > 1 and not model.links.timings:
        raise no_links(model.name)
    if max(counts) < 2 and model.gpus < 2 and not (host_times(model, options) or options.accumulations):
        raise NotReplayable(
            f"{model.name}: one GPU does not communicate; say how many there might be with --gpus, or ask for faster "
            "CPUs with --host-time 0.5,0"
        )


def host_times(model: Model, options: Options) -> Sequence[float]:
    """Return the shares of hosts' time that are asked for, or the usual ones where hosts are the limit."""
    if options.host_times is not None:
        return options.host_times
    return USUAL_HOST_TIMES if model.own().host_share > HOST_BOUND else ()


def _of_layout(model: Model, own_prediction: Prediction) -> list[Notice]:
    """Say where the cap that a run says it had is not what made its buckets."""
    by_rule = model.predict(Scene(model.bucket_mb, model.gpus)).buckets
    if by_rule == own_prediction.buckets:
        return []
    text = "the run's buckets are not those of DDP's rule for its cap: scenarios with that cap differ from the run"
    return [Notice(Code.BUCKETS_NOT_BY_RULE, text)]


def _is_unchanged(options: Options, gpus: int) -> bool:
    """Whether options leave a run on so many GPUs as it was."""
    within = options.hosts is None or gpus <= options.hosts.gpus
    changed = not options.broadcast_buffers or options.bucket_views or options.gradient_itemsize is not None
    return within and not changed


def _assumptions(model: Model, options: Options) -> list[str]:
    """Say what predictions of synchronized gradients rest on, of the run and because it was asked for."""
    gpus = model.gpus
    assumptions = [each.text for each in model.assumptions]
    if options.hosts is not None:
        cards = f"network cards that carry {options.hosts.gbps:g} GB/s per host"
        assumptions.append(f"beyond the {options.hosts.gpus} GPUs of a host all bytes pass {cards}")
    if any(count > gpus for count in options.gpus):
        assumptions.append("further ranks are like those that were recorded, and none is later for being one of many")
    if not options.broadcast_buffers:
        assumptions.append("buffers are not broadcast")
    if options.bucket_views:
        assumptions.append("gradients are views of their buckets: none is copied out")
    if options.gradient_itemsize is not None:
        assumptions.append(f"gradients travel with {options.gradient_itemsize} bytes per element")
    return assumptions


def _of_graphs(scenarios: Sequence[Scenario]) -> list[str]:
    """Say what one GPU's step as a CUDA graph rests on, where it is predicted."""
    if all(each.host_time != 0 for each in scenarios):
        return []
    return [GRAPH_IS_KNOWN.text, "the whole step can be captured as a CUDA graph, and its kernels take what they took"]


def _scene(bucket_mb: float | None, gpus: int, options: Options, recorded: bool = False) -> Scene:
    return Scene(
        bucket_mb,
        gpus,
        recorded=recorded,
        broadcast_buffers=options.broadcast_buffers,
        itemsize=options.gradient_itemsize,
        bucket_views=options.bucket_views,
    )


@dataclass(frozen=True)
class _Changing:
    """What scenarios of one run are predicted from."""

    model: Model
    options: Options
    baseline: Baseline
    kind: Kind

    def scenario(self, scene: Scene, kind: Kind | None = None, **changed: Any) -> Scenario:
        """Predict one scene; `changed` says what is the scenario's own."""
        model = self.model
        prediction = model.predict(scene)
        doubts = _doubts(model, scene, prediction)
        has_links = scene.gpus > 1
        return Scenario(
            kind=kind or self.kind,
            bucket_mb=scene.bucket_mb,
            gpus=scene.gpus,
            link_gbps=model.links.busbw_gbps(prediction.buckets, scene.gpus) if has_links else None,
            latency_us=float(model.links.collective_ns(0, scene.gpus)) / 1e3 if has_links else None,
            predicted_step_ns=round(prediction.step_ns),
            interval_ns=self._interval_ns(prediction, scene),
            predicted_exposed_comm_ns=round(prediction.exposed_ns),
            predicted_stall_ns=round(prediction.stalled_ns),
            efficiency=min(prediction.alone_ns / prediction.step_ns, 1.0) if scene.has_its_work else None,
            buckets=prediction.buckets,
            reliable=not doubts,
            gain_ns=round(self._steps_of(scene) * self._before_ns(scene) - prediction.step_ns),
            why=Notices(doubts) if doubts else None,
            **changed,
        )

    def _before_ns(self, scene: Scene) -> float:
        """The step with the run's own buckets on the same GPUs and links; on others, with those of its cap."""
        own = _scene(self.model.bucket_mb, scene.gpus, Options(), recorded=scene.gpus == self.model.gpus)
        return self.model.predict(own).step_ns

    def _steps_of(self, scene: Scene) -> float:
        """How many of the run's own steps do the same work."""
        return 1.0 if scene.accumulation is None else scene.accumulation / self.model.steps.passes

    def _interval_ns(self, prediction: Prediction, scene: Scene) -> tuple[int, int]:
        """Where nine of ten such steps are expected: what is known of the run's own step, of the change, and of hosts.

        Of one GPU's step as a CUDA graph kernels tell, and nothing of the run's own step.
        """
        step_ns = prediction.step_ns
        if _is_graph(scene):
            return round((1 - GRAPH_WITHIN) * step_ns), round((1 + GRAPH_WITHIN) * step_ns)
        own = hypot(WITHIN, self.baseline.error, self.model.spread) * step_ns
        steps, slowed = self._steps_of(scene), self.model.over_slowed_links()
        change_ns = step_ns - steps * self.baseline.predicted_step_ns
        slowed_change_ns = slowed.predict(scene).step_ns - steps * slowed.own().step_ns
        drift_ns = self.model.over_slowed_links(DRIFT).predict(scene).step_ns - step_ns
        reach_ns = hypot(own, OF_CHANGE * change_ns, slowed_change_ns - change_ns, drift_ns)
        low_ns, high_ns = step_ns - reach_ns, step_ns + reach_ns
        return round(max(min(low_ns, prediction.host_at_least_ns), 0)), round(max(high_ns, prediction.host_at_most_ns))

    def _own(self) -> Scene:
        return _scene(self.model.bucket_mb, self.model.gpus, Options(), recorded=True)

    def stragglers(self, noise_ns: int) -> list[Scenario]:
        """Return the run without a rank's lateness, as a whole and by what it is late with.

        Who did not name a rank hears of none that costs less than the noise. Raises NotReplayable.
        """
        found = list(self._stragglers())
        return [] if self.options.straggler == LATE and found and found[0].gain_ns <= noise_ns else found

    def _stragglers(self) -> Iterator[Scenario]:
        model = self.model
        who = chosen_rank(model.name, model.ranks, model.late, self.options.straggler if model.gpus > 1 else None)
        if who is None:
            return
        for cause in Cause:
            scene = replace(self._own(), level=Levelling(who.place, cause))
            yield self.scenario(scene, Kind.STRAGGLER, rank=who.number, cause=cause)

    def host_times(self) -> Iterator[Scenario]:
        """Yield the run with faster hosts."""
        for left in host_times(self.model, self.options):
            yield self.scenario(replace(self._own(), host_time=left), Kind.HOST, host_time=left)

    def accumulations(self) -> Iterator[Scenario]:
        """Yield the run with gradients of so many microbatches added up in each step."""
        for count in self.options.accumulations:
            scene = replace(self._own(), accumulation=count)
            yield self.scenario(scene, Kind.ACCUMULATION, grad_accumulation=count)


def _doubts(model: Model, scene: Scene, prediction: Prediction) -> list[Notice]:
    """Say why a scene's prediction cannot be trusted, if so."""
    doubts = [host_doubt(prediction.host_share, prediction.host_scatter)] if prediction.is_host_bound else []
    waits = input_doubt(model.steps) if scene.host_time < 1 else None
    doubts += [waits] if waits is not None else []
    # What a graph runs is as long as under the profiler, whatever that costs the host.
    doubts += [each for each in model.doubts if not (_is_graph(scene) and each.code in OF_PROFILED_HOSTS)]
    doubts += [*model.sync_doubts, *_unmeasured(model, scene)] if scene.gpus > 1 else []
    return doubts if scene.host_time else [*doubts, *_graph_doubts(model, scene)]


def _graph_doubts(model: Model, scene: Scene) -> list[Notice]:
    """Say where nobody measured how well a step is known as one CUDA graph."""
    if scene.gpus > 1:
        return [Notice(Code.GRAPH_NOT_MEASURED, "steps of several GPUs as one CUDA graph were never measured")]
    return model.graph_doubts


def _is_graph(scene: Scene) -> bool:
    """Whether it is one GPU's step as a CUDA graph."""
    return scene.gpus < 2 and not scene.host_time


def _unmeasured(model: Model, scene: Scene) -> list[Notice]:
    """Say what of a scenario's links is not measured."""
    measured_gpus = model.links.nearest(scene.gpus)
    notices = []
    if scene.gpus != measured_gpus:
        text = f"all-reduces over {scene.gpus} GPUs are not measured, but extrapolated from those over {measured_gpus}"
        notices.append(Notice(Code.LINKS_EXTRAPOLATED, text))
    if model.links.hosts is not None and scene.gpus > model.links.hosts.gpus:
        notices.append(Notice(Code.NETWORK_NOT_MEASURED, "transfers between hosts are not measured"))
    return notices


def _where(gpus: int, counts: Sequence[int], model: Model) -> str:
    """Say on how many GPUs, where the run's own number is not all that is asked about."""
    return f"on {gpus:,} GPUs " if set(counts) != {model.gpus} else ""


def _recommended(
    scenarios: Sequence[Scenario], before_ns: int, uncertainty: float, where: str, options: Options
) -> tuple[Recommended, int]:
    """Return the scenario with the shortest step, all with as many GPUs; and its gain over the run's own there."""
    best = min(scenarios, key=lambda each: each.predicted_step_ns)
    uncertainty_ns = uncertainty * before_ns
    gain_ns = before_ns - best.predicted_step_ns
    spread_ns = max(each.predicted_step_ns for each in scenarios) - best.predicted_step_ns
    cap = "DDP's default" if best.bucket_mb is None else f"{best.bucket_mb:g} MB"
    unsure = known_within(uncertainty_ns, best.predicted_step_ns)
    if changed := changed_of_ddp(options):
        why = f"{where}with buckets of {cap} and {changed} a step would take {ms(best.predicted_step_ns)} instead of "
        why += f"{ms(before_ns)}; {unsure}"
    elif len(scenarios) > 1 and spread_ns <= uncertainty_ns:
        why = f"{where}no choice matters here: caps differ by {at_most(spread_ns)}, and {unsure}"
    elif gain_ns <= 0:
        why = f"{where}no cap here is better than the run's own, and {unsure}"
    elif gain_ns <= uncertainty_ns:
        why = f"{where}buckets of {cap} are as good as any: {ms(gain_ns)} are gained over the run's own, and {unsure}"
    else:
        why = f"{where}buckets of {cap} take {ms(gain_ns)} off a step of {ms(before_ns)} with the run's own; {unsure}"
    return chosen(best, why), gain_ns


def _on_one_gpu(scenario: Scenario, baseline: Baseline) -> Recommended:
    """Return one GPU's step of a run on several, and what theirs is."""
    step, own = ms(scenario.predicted_step_ns), ms(baseline.predicted_step_ns)
    return chosen(scenario, f"on one GPU a step would take {step}, and takes {own} on {baseline.gpus:,}")


def _of_one_gpu(scenarios: Sequence[Scenario]) -> tuple[Recommended, int]:
    """Return the scenario of one GPU that takes most off its step, and how much that is."""
    best = most_gained(scenarios)
    return chosen(best, would_take(best)), best.gain_ns
