"""A run's model: what its traces, controls and links say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analyzers.arrays import Float64, Int64
from analyzers.collectives import Exchange, exchange, late_rank
from analyzers.errors import AnalysisError, NotReplayable
from analyzers.notices import Code
from analyzers.prediction.assumption import (
    BUFFER_COPY_NS,
    COPY_IN,
    COPY_LAUNCH_NS,
    COPY_OUT,
    GRAPH_IS_KNOWN,
    NEXT_DELAY_NS,
    SLOWER,
    START_DELAY_NS,
    Assumption,
    borrowed,
)
from analyzers.prediction.bucket_rule import assign, lasts
from analyzers.prediction.evidence import (
    MeasuredFrom,
    borrowing,
    measured_step,
    replay_doubts,
    run_doubts,
    typical_steps,
)
from analyzers.prediction.hosts import HOST_BOUND, TimedHosts, explains_gaps, floor_ns, profiled_hosts, timed_hosts
from analyzers.prediction.link_model import LinkModel, links_of, next_delay_ns
from analyzers.prediction.model import Model
from analyzers.prediction.replay import RecordedSteps, recorded_steps
from analyzers.rank import NOT_KNOWN, GradientSchedule, Measured, Purpose, RunSummary
from analyzers.run import Calibration, Manifest, world_size
from analyzers.trace import Collective, itemsize
from analyzers.units import ms, percent

# Bytes of an element where nothing says its dtype: torch.get_default_dtype() is float32.
FLOAT = 4

BUFFERS_OF_NORM = 3

# Halvings of the share of its hosts' time that a step takes without the profiler; and the most that it may take more.
BISECTIONS = 20

SLOWEST = 4.0

# Caps that a run without run.json may have had, beside DDP's default, in MB.
LIKELY_MB = (50.0, 100.0, 10.0, 5.0, 2.0, 1.0, 4.0, 8.0, 16.0, 20.0, 32.0, 64.0, 128.0, 200.0, 256.0, 512.0)

# What may have taken the gradients out of the traces.
LOSSES = (Code.TRACE_INCOMPLETE, Code.RANK_UNREADABLE, Code.RANKS_MISSING)


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
        graph_doubts=borrowing(run, manifest, [GRAPH_IS_KNOWN]),
        assumptions=rests_on,
        ranks=tuple(summary.rank for summary in run.ranks),
        late=late_rank(exchanged) if gpus > 1 else None,
        hosts=timed,
        nosync_ns=manifest.controls.step_ns("nosync"),
    )
    model = _unprofiled(model)
    return replace(model, doubts=[*model.doubts, *replay_doubts(model.own().step_ns / measured_ns - 1)])


def _steps(
    run: RunSummary, exchanged: Exchange, schedules: Sequence[GradientSchedule], slower: float, with_long_gaps: bool
) -> RecordedSteps:
    """Return the steps to replay. Raises NotReplayable, with what may have cost them, where there are none."""
    ranks = np.array([summary.rank for summary in run.ranks])
    steps = recorded_steps(
        schedules, exchanged.clocks.shift_ns(ranks).tolist(), slower, typical_steps(run), with_long_gaps
    )
    if steps is not None:
        own_host_ns, input_ns = profiled_hosts(run, steps.step)
        return replace(steps, own_host_ns=own_host_ns, input_ns=input_ns)
    losses = [warning for warning in run.warnings if warning.code in LOSSES]
    lost = "".join(f"; {warning}" for warning in losses[-1:])
    remedy = "; record backward passes with record_shapes=True, or with `tracer record`"
    raise NotReplayable(
        f"{run.name}: no step of its traces shows gradients that are taken, with their shapes and launches"
        f"{lost or remedy}"
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


def _unprofiled(model: Model) -> Model:
    """Build the model for unprofiled steps, where they were timed, from that for profiled ones."""
    if model.measured_from != MeasuredFrom.UNPROFILED:
        return model
    return _with_hosts_unprofiled(model) if model.hosts is None else _with_devices_unprofiled(model)


def _with_hosts_unprofiled(model: Model) -> Model:
    """Build the model for unprofiled steps where hosts are known under the profiler alone.

    What a profiler costs is its hosts' lateness first, as much of it as there is; the rest is the device's own. Where
    hosts are the limit and the control took longer, they were slower then. How long a step takes alone, the control
    without synchronization says where there is one; on one GPU the step itself.
    """
    profiled_ns = float(np.median(model.steps.span_ns))
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


def _buffer_copies(run: RunSummary, steps: RecordedSteps) -> Float64:
    """Return what copying buffers before their broadcast takes, the median over windows."""
    copies_ns = np.concatenate([measured.cost.buffer_copies_ns for measured in run.measured])
    return np.full_like(steps.begin_ns, float(np.median(copies_ns)))
