"""What a step would take with other buckets, more GPUs, or other links: a replay of recorded steps under each scenario.

    traces -> pace of each rank -> course of all ranks --(buckets, links)--> steps as they would have gone

The run's own settings are predicted by the same replay, so that its error shows beside every prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.bandwidth import purposes
from analyzers.bucketing import assign
from analyzers.calibration import Calibration
from analyzers.calls import Collective, itemsize
from analyzers.communication import Purpose
from analyzers.contention import NOT_KNOWN
from analyzers.controls import HIGH_DISTORTION
from analyzers.errors import NotReplayable
from analyzers.exchange import Exchange, exchange
from analyzers.links import Links, calibrated, fitted
from analyzers.manifest import Manifest
from analyzers.pace import Pace, queued
from analyzers.replay import Course, Plan, course, play
from analyzers.run import world_size
from analyzers.summary import RunSummary
from analyzers.units import ms, percent

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

SCHEMA = "tracer.whatif/1"
# From this share of a step on that a device waits for launches, its host sets the pace.
HOST_BOUND = 0.05
# A calibration whose times are this far from a run's own transfers is of other links than the run had.
OTHER_LINKS = 1.5
# Where a run does not tell: the median of resnet50, vgg16 and transformer in bf16 on 2 and 4 x H200, over NVLink and
# host memory (torch 2.11, NCCL 2.28.9; between 0.14 and 0.39). A kernel beside NCCL's has fewer SMs.
SLOWER = 0.25
# The same of all-reduces beside compute against all-reduces alone (between 1.02 and 1.24).
BUSY_LINKS = 1.05
# What DDP's copy of a gradient takes, the gap before it included, in ns and GB/s, on the same machines: into a bucket,
# and out of it; and of one buffer before its broadcast.
COPY_IN, COPY_OUT = (2100.0, 2600.0), (2100.0, 1500.0)
BUFFER_COPY_NS = 2000.0
# What each of these copies takes the host: ResNet-18 on 4 x H200 loses 1.1 ms a step without a profiler, its host being
# the limit, to the copies of 62 gradients in and out (unprofiled 6.9 ms, without synchronization 5.8).
COPY_LAUNCH_NS = 9000.0
BUFFERS_OF_NORM = 3
# Halvings of the share of its hosts' lateness that is a profiler's doing.
BISECTIONS = 20
# Caps that a run without run.json may have had, beside DDP's default, in MB.
LIKELY_MB = (50.0, 100.0, 10.0, 5.0, 2.0, 1.0, 4.0, 8.0, 16.0, 20.0, 32.0, 64.0, 128.0, 200.0, 256.0, 512.0)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to predict: every bucket cap (None: DDP's default) with every number of GPUs (none: the run's own)."""

    bucket_mb: Sequence[float | None] = ()
    gpus: Sequence[int] = ()
    broadcast_buffers: bool = True
    gradient_itemsize: int | None = None  # bytes of each element that travels; None: as recorded


class Baseline(msgspec.Struct, frozen=True):
    """The run's own settings, as measured and as the model has them. `bucket_mb` null is DDP's default."""

    bucket_mb: float | None
    gpus: int
    buckets: list[int]
    measured_step_ns: int
    predicted_step_ns: int
    measured_from: str
    error: float


class Scenario(msgspec.Struct, frozen=True):
    """One prediction. `link_gbps` is the bus bandwidth its reductions get, `latency_us` the time of the smallest."""

    bucket_mb: float | None
    gpus: int
    link_gbps: float | None
    latency_us: float | None
    predicted_step_ns: int
    predicted_exposed_comm_ns: int
    efficiency: float | None
    buckets: list[int]
    reliable: bool
    why: str | None


class WhatIf(msgspec.Struct, frozen=True):
    """All predictions of a run; `recommended` is the scenario with the shortest step, its `why` says so in a sentence.

    `uncertainty_ns` is how well steps are known: differences below it are noise.
    """

    schema: str
    run: str
    baseline: Baseline
    scenarios: list[Scenario]
    recommended: Scenario
    gain_ns: int
    uncertainty_ns: int
    links: str
    assumptions: list[str]
    warnings: list[str]


def whatif(run: RunSummary, options: Options, links: Links | Calibration | None = None) -> WhatIf:
    """Predict every scenario. `links` take the place of those beside the run, and of the run's own transfers.

    Raises NotReplayable for a run of another strategy than DDP or one GPU, or where nothing tells of the links.
    """
    model = _model(run, links)
    own = _predict(model, Scene(model.bucket_mb, model.gpus, recorded=True), Options())
    caps = options.bucket_mb or (model.bucket_mb,)
    counts = options.gpus or (model.gpus,)
    if max(counts) < 2 and model.gpus < 2:
        raise NotReplayable(f"{run.name}: one GPU does not communicate; say how many there might be with --gpus")
    scenarios = [_predict(model, Scene(cap, gpus), options) for gpus in counts for cap in caps]
    baseline = Baseline(
        bucket_mb=model.bucket_mb,
        gpus=model.gpus,
        buckets=own.buckets,
        measured_step_ns=model.measured_ns,
        predicted_step_ns=own.predicted_step_ns,
        measured_from=model.measured_from,
        error=own.predicted_step_ns / model.measured_ns - 1,
    )
    uncertainty_ns = round(max(abs(baseline.error), model.spread) * model.measured_ns)
    recommended, gain_ns = _recommended(scenarios, baseline, uncertainty_ns)
    return WhatIf(
        schema=SCHEMA,
        run=run.name,
        baseline=baseline,
        scenarios=scenarios,
        recommended=recommended,
        gain_ns=gain_ns,
        uncertainty_ns=uncertainty_ns,
        links=model.links.source,
        assumptions=model.assumptions,
        warnings=list(run.warnings),
    )


@dataclass(frozen=True)
class Scene:
    """Settings of one scenario; `recorded`: buckets as they were, whatever rule made them."""

    bucket_mb: float | None
    gpus: int
    recorded: bool = False


@dataclass(frozen=True, eq=False)
class _Model:
    """All that predictions of one run are made from."""

    name: str
    steps: Course
    gpus: int
    links: Links
    bucket_mb: float | None
    recorded: Int64 | None  # the last gradient of each bucket as recorded
    itemsize: int
    hook_itemsize: int
    call_ns: float
    next_delay_ns: float
    buffer_copies_ns: Float64
    profiler_ns: float  # what replayed steps take longer than unprofiled ones
    measured_ns: int
    measured_from: str
    spread: float
    doubts: list[str]
    assumptions: list[str]


def _model(run: RunSummary, given: Links | Calibration | None) -> _Model:
    manifest = run.manifest or Manifest()
    gpus = world_size(manifest, run.ranks)
    _check(run, gpus)
    exchanged = exchange(run, run.calibration)
    paces = [next(iter(measured.paces.values())) for measured in run.measured]
    slower, words = _contention(paces)
    ranks = np.array([summary.rank for summary in run.ranks])
    steps = course(paces, exchanged.clocks.shift_ns(ranks).tolist(), slower)
    if steps is None:
        raise NotReplayable(f"{run.name}: no step of its traces shows gradients that are taken (with their shapes)")
    itemsizes = _itemsizes(run, manifest)
    recorded = _recorded(paces[0], steps) if gpus > 1 else None
    links, of_links = _links(run, exchanged, gpus, given)
    measured_ns, source, spread = _measured(run, manifest, steps)
    if gpus == 1:
        steps, packed = _packed(steps, itemsizes[0])
        words = [*words, packed]
    model = _Model(
        name=run.name,
        steps=steps,
        gpus=gpus,
        links=links,
        bucket_mb=_cap(manifest, steps, recorded, itemsizes[0]) if run.manifest is None else manifest.bucket_cap_mb,
        recorded=recorded,
        itemsize=itemsizes[0],
        hook_itemsize=itemsizes[1],
        call_ns=float(np.median([pace.delays.call_ns for pace in paces])) if _host_share(steps) > HOST_BOUND else 0.0,
        next_delay_ns=_next_delay_ns(exchanged),
        buffer_copies_ns=_buffer_copies(run, steps),
        profiler_ns=0.0,
        measured_ns=measured_ns,
        measured_from=source,
        spread=spread,
        doubts=_doubts(run, manifest, steps),
        assumptions=[*words, *of_links],
    )
    return model if source.endswith("window") else _unprofiled(model, float(np.median(steps.span_ns)))


def _unprofiled(model: _Model, profiled_ns: float) -> _Model:
    """The model of unprofiled steps, from that of profiled ones that took so long.

    What a profiler costs is its hosts' lateness first, as much of it as there is; the rest is the device's own.
    """
    own = Scene(model.bucket_mb, model.gpus, recorded=True)
    wanted_ns = model.measured_ns + _predict(model, own, Options()).predicted_step_ns - profiled_ns

    def with_share(share: float) -> _Model:
        return replace(model, steps=model.steps.hurried(share), call_ns=model.call_ns * (1 - share))

    low, high = 0.0, 1.0
    for _ in range(BISECTIONS if profiled_ns > model.measured_ns else 0):
        share = (low + high) / 2
        longer = _predict(with_share(share), own, Options()).predicted_step_ns > wanted_ns
        low, high = (share, high) if longer else (low, share)
    hurried = with_share(low)
    return replace(hurried, profiler_ns=_predict(hurried, own, Options()).predicted_step_ns - wanted_ns)


def _check(run: RunSummary, gpus: int) -> None:
    """Raise NotReplayable for what is neither DDP nor one GPU."""
    if any(len(measured.paces) != 1 for measured in run.measured):
        raise NotReplayable(f"{run.name}: one process drives several devices (nn.DataParallel); only DDP is replayed")
    comm = [measured.communication for measured in run.measured]
    gradients = [each.kind[each.purpose == Purpose.GRADIENTS] for each in comm]
    kinds = {Collective(int(kind)).label for each in gradients for kind in np.unique(each)} - {"all_reduce"}
    if kinds:
        raise NotReplayable(f"{run.name}: gradients travel by {', '.join(sorted(kinds))}; only DDP is replayed")
    if gpus > 1 and not any(len(measured.reductions) for measured in run.measured):
        raise NotReplayable(f"{run.name}: no all-reduce of gradients in its steps; only DDP is replayed")


def _contention(paces: Sequence[Pace]) -> tuple[float, list[str]]:
    """How much longer work takes beside communication, kernels and the gaps between them, as a share."""
    known = [pace.contention_ns != NOT_KNOWN for pace in paces]
    longer = sum(int((p.contention_ns + p.longer_gaps_ns)[k].sum()) for p, k in zip(paces, known, strict=True))
    beside = sum(int(p.total_beside_ns[k].sum()) for p, k in zip(paces, known, strict=True))
    if beside > longer > 0:
        slower = longer / (beside - longer)
        return slower, [f"beside communication compute takes {percent(slower)} longer, as in this run"]
    return SLOWER, [f"beside communication compute takes {percent(SLOWER)} longer: this run does not tell"]


def _itemsizes(run: RunSummary, manifest: Manifest) -> tuple[int, int]:
    """Bytes of an element of the gradients, and of what travels of it."""
    comm, reduced = run.measured[0].communication, run.measured[0].reductions
    said = [comm.calls[call].dtype for call in comm.call[reduced.kernel].tolist() if call >= 0]
    travels = itemsize(said[0]) if said else 0
    own = {parameter.dtype.removeprefix("torch.") for parameter in manifest.parameters}
    sizes = [_BYTES[dtype] for dtype in own if dtype in _BYTES]
    return max(sizes, default=travels or 4), travels or max(sizes, default=4)


_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def _recorded(pace: Pace, steps: Course) -> Int64 | None:
    """The last gradient of each bucket, where every gradient went with a reduction and they come in order."""
    first = int(np.flatnonzero(np.diff(pace.first) == steps.gradients)[0])
    went = pace.reduction[pace.first[first] : pace.first[first + 1]]
    if (went < 0).any() or (np.diff(went) < 0).any():
        return None
    return _lasts(went)


def _lasts(bucket: Int64) -> Int64:
    """Where each bucket ends."""
    return np.flatnonzero(np.r_[np.diff(bucket) != 0, True])


def _cap(manifest: Manifest, steps: Course, recorded: Int64 | None, itemsize: int) -> float | None:
    """The cap of a run that does not say it: the likeliest that makes its buckets; None is DDP's default."""
    if recorded is not None:
        for cap in (None, 25.0, *LIKELY_MB):
            if np.array_equal(_lasts(assign(steps.elements * itemsize, cap)), recorded):
                return cap
    return None


def _links(
    run: RunSummary, exchanged: Exchange, gpus: int, given: Links | Calibration | None
) -> tuple[Links, list[str]]:
    """What all-reduces take, and what is assumed of it."""
    own = _transfers(exchanged)
    measured = len(own.nbytes) > 0
    if isinstance(given, Links):
        return given, ["all-reduces take what the given bandwidth and latency say"]
    calibration = given or run.calibration
    found = calibrated(calibration, "calibration") if calibration is not None else None
    if found is None and not measured:
        raise NotReplayable(
            f"{run.name}: nothing tells of the links; give --links FILE (`tracer calibrate` writes one), or --bus-gbps"
        )
    if found is None:
        bounds = ", which are upper bounds since ranks are missing" if own.bound else ""
        return fitted(own.nbytes, own.time_ns, gpus, "this run's transfers"), [
            f"latency and bandwidth of the links are fitted to this run's own transfers{bounds}: sizes far from them "
            "are guesses"
        ]
    if not measured or own.bound or gpus not in found.timings:
        return replace(found, strain=BUSY_LINKS), [
            f"all-reduces take {BUSY_LINKS} times what was measured of them alone: this run does not tell"
        ]
    strain = own.against(found, gpus)
    if not 1 / OTHER_LINKS < strain < OTHER_LINKS:
        return found, [
            f"the calibration is of other links than the run had (its transfers took {strain:.2g} times as long): they "
            "take as long beside compute as measured alone"
        ]
    return replace(found, strain=strain), [
        f"all-reduces take {strain:.2f} times what was measured of them alone, as in this run"
    ]


@dataclass(frozen=True, eq=False)
class _Transfers:
    """Reductions of gradients, a row each: the step, bytes and transfer."""

    step: Int64
    nbytes: Float64
    time_ns: Float64
    bound: bool

    def against(self, links: Links, gpus: int) -> float:
        """How much longer a step's reductions take, all together, than alone over these links: the median step's."""
        alone_ns = links.all_reduce_ns(self.nbytes, gpus)
        steps, which = np.unique(self.step, return_inverse=True)
        count = len(steps)
        return float(np.median(np.bincount(which, self.time_ns, count) / np.bincount(which, alone_ns, count)))


def _transfers(exchanged: Exchange) -> _Transfers:
    """The reductions of gradients of a run: where ranks are missing, upper bounds."""
    instances, transfers = exchanged.matching.instances, exchanged.transfers
    known = (instances.kind == Collective.ALL_REDUCE) & (purposes(exchanged.matching) == Purpose.GRADIENTS)
    known &= (transfers.nbytes > 0) & (transfers.transfer_ns > 0)
    exact = known & ~transfers.bound
    rows = exact if exact.any() else known
    return _Transfers(
        step=instances.step[rows],
        nbytes=transfers.nbytes[rows].astype(np.float64),
        time_ns=transfers.transfer_ns[rows].astype(np.float64),
        bound=bool(known.any() and not exact.any()),
    )


def _next_delay_ns(exchanged: Exchange) -> float:
    """What lies between the transfers of two reductions where one stands behind the other on all ranks; the mean.

    Members end one after the other, by their places in the ring: none begins the next before it has ended itself.
    """
    matching, transfer_ns = exchanged.matching, exchanged.transfers.transfer_ns
    rows = [
        int(first) + measured.reductions.kernel
        for first, measured in zip(exchanged.first_row, exchanged.run.measured, strict=True)
    ]
    behind = [queued(measured.communication, measured.reductions) for measured in exchanged.run.measured]
    everywhere = np.ones(len(matching.instances) + 1, dtype=bool)
    np.logical_and.at(everywhere, np.concatenate([matching.instance[own] for own in rows]), np.concatenate(behind))
    everywhere[-1] = False  # of what is in no instance
    delays = []
    for own in rows:
        instance = matching.instance[own]
        chained = everywhere[instance[:-1]] & everywhere[instance[1:]]
        delays.append((np.diff(matching.table.start_ns[own]) - transfer_ns[instance[:-1]])[chained])
    found = np.concatenate(delays)
    return float(found.mean()) if len(found) else 0.0


def _packed(steps: Course, itemsize: int) -> tuple[Course, str]:
    """Steps of one GPU with what DDP would add to them, and words for it."""
    nbytes = steps.elements * itemsize
    in_ns, out_ns = (latency_ns + nbytes / gbps for latency_ns, gbps in (COPY_IN, COPY_OUT))
    buffers_ns = steps.norms * BUFFERS_OF_NORM * BUFFER_COPY_NS
    packed = replace(steps.packed(in_ns, out_ns, COPY_LAUNCH_NS), buffers_ns=steps.buffers_ns + buffers_ns)
    added_ns = float(in_ns.sum() + out_ns.sum() + np.median(buffers_ns))
    return packed, f"DDP adds {ms(added_ns)} of copies into and out of buckets and of buffers, as on an H200"


def _measured(run: RunSummary, manifest: Manifest, steps: Course) -> tuple[int, str, float]:
    """The step as measured, where it is from, and its spread."""
    controls, window = manifest.controls, "light" if run.is_light else "full"
    unprofiled = controls.step_ns("unprofiled")
    median_ns = float(np.median(steps.span_ns))
    low, high = np.percentile(steps.span_ns, [25, 75])
    spread = float(high - low) / median_ns
    if unprofiled is None or controls.unprofiled is None:
        return round(median_ns), f"{window} window", spread
    return unprofiled, "unprofiled control", controls.unprofiled.spread or 0.0


def _buffer_copies(run: RunSummary, steps: Course) -> Float64:
    """What copying buffers before their broadcast takes, the median over windows."""
    each = np.concatenate([measured.cost.buffer_copies_ns for measured in run.measured])
    return np.full_like(steps.begin_ns, float(np.median(each)))


def _doubts(run: RunSummary, manifest: Manifest, steps: Course) -> list[str]:
    """Why no prediction of this run can be trusted, if so."""
    share = _host_share(steps)
    distortion = manifest.controls.distortion("light" if run.is_light else "full")
    words = []
    if share > HOST_BOUND:
        words.append(f"the host is the limit for {percent(share)} of the step, and what it would do is not modelled")
    if distortion is not None and distortion > HIGH_DISTORTION:
        words.append(f"the profiler stretches this step by {percent(distortion - 1)}")
    if len({parameter.dtype for parameter in manifest.parameters}) > 1:
        words.append("parameters of several dtypes are cut into buckets as if they were of one")
    return words


def _host_share(steps: Course) -> float:
    """How much of a step the device waits for launches."""
    return float(np.median(steps.host_gap_ns / steps.span_ns))


def _predict(model: _Model, scene: Scene, options: Options) -> Scenario:
    """One scenario."""
    steps = model.steps
    nbytes = steps.elements * model.itemsize
    recorded = model.recorded if scene.recorded else None
    last = recorded if recorded is not None else _lasts(assign(nbytes, scene.bucket_mb))
    travelling = options.gradient_itemsize or model.hook_itemsize
    sizes = np.add.reduceat(steps.elements, np.r_[0, last[:-1] + 1]) * travelling
    known = scene.gpus > 1
    alone_ns = float(np.median(steps.alone_ns)) - model.profiler_ns
    played = play(steps, _plan(model, scene, options, last, sizes))
    step_ns = float(np.median(played.span_ns)) - model.profiler_ns if known else alone_ns
    doubts = [*model.doubts, *_unmeasured(model, scene)]
    return Scenario(
        bucket_mb=scene.bucket_mb,
        gpus=scene.gpus,
        link_gbps=model.links.busbw_gbps(sizes, scene.gpus) if known else None,
        latency_us=float(model.links.all_reduce_ns(0, scene.gpus)) / 1e3 if known else None,
        predicted_step_ns=round(step_ns),
        predicted_exposed_comm_ns=round(float(np.median(played.stalled_ns))) if known else 0,
        efficiency=min(alone_ns / step_ns, 1.0),
        buckets=sizes.tolist() if known else [],
        reliable=not doubts,
        why="; ".join(doubts) or None,
    )


def _plan(model: _Model, scene: Scene, options: Options, last: Int64, sizes: Int64) -> Plan:
    steps = model.steps
    before = np.zeros(0) if model.recorded is None else model.recorded
    # Calls that came before each bucket's last gradient, and before all that follows: now, and in the recording.
    calls = np.r_[np.arange(len(last)), len(last)] - np.searchsorted(before, np.r_[last, steps.gradients])
    head_ns = steps.buffers_ns if options.broadcast_buffers else -model.buffer_copies_ns
    transfer_ns = model.links.all_reduce_ns(sizes, scene.gpus)
    return Plan(last, transfer_ns, calls * model.call_ns, head_ns, model.next_delay_ns)


def _unmeasured(model: _Model, scene: Scene) -> list[str]:
    """What of a scenario's links is not measured."""
    known = model.links.nearest(scene.gpus)
    if scene.gpus in (1, known):
        return []
    return [f"all-reduces of {scene.gpus} GPUs are not measured, but follow from those of {known}"]


def _recommended(scenarios: Sequence[Scenario], baseline: Baseline, uncertainty_ns: int) -> tuple[Scenario, int]:
    """The shortest step, among those of the run's own number of GPUs where there are any; and what it gains."""
    own = [each for each in scenarios if each.gpus == baseline.gpus] or [
        each for each in scenarios if each.gpus == scenarios[0].gpus
    ]
    best = min(own, key=lambda each: each.predicted_step_ns)
    gain_ns = baseline.predicted_step_ns - best.predicted_step_ns
    spread_ns = max(each.predicted_step_ns for each in own) - best.predicted_step_ns
    cap = "DDP's default" if best.bucket_mb is None else f"{best.bucket_mb:g} MB"
    unsure = f"steps are known to within {ms(uncertainty_ns)}"
    if len(own) > 1 and spread_ns <= uncertainty_ns:
        why = f"no choice matters here: caps differ by at most {ms(spread_ns)}, and {unsure}"
    elif gain_ns <= uncertainty_ns:
        why = f"buckets of {cap} are as good as any: {ms(max(gain_ns, 0))} are gained, and {unsure}"
    else:
        why = f"buckets of {cap} take {ms(gain_ns)} off a step of {ms(baseline.predicted_step_ns)}; {unsure}"
    return msgspec.structs.replace(best, why=why), gain_ns
