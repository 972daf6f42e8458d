"""Rules of advice: what to change, and the gain at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from statistics import median

from analyzers.layers import PipelineSummary
from analyzers.rank import CPU_DEVICE, OTHERS, Cause
from analyzers.ranks import RankNumber
from analyzers.reporting.communication_advice import RULES
from analyzers.reporting.evidence import HOST_CAUSES, DeviceIdle, Evidence
from analyzers.reporting.strategies import Advice, advice_on_sharded, advice_on_tensor
from analyzers.reporting.sync_cost import SyncCost
from analyzers.statistics import LEAST_SHARE
from analyzers.units import duration, percent

# From this share of operations that are shorter than their launch on, the launches are the limit.
MOST_SHORTER = 0.5
# A host that needs longer per launch does something else: a launch with its operator takes a tenth of that.
LONGEST_LAUNCH_NS = 100_000


def advice(evidence: Evidence) -> list[Advice]:
    """Return all that is worth doing, what brings most first; nothing where half of the windows are empty.

    No rule looks at unresolved time: what may be waiting as well as transfer is no reason to change anything.
    """
    if evidence.step_ns <= 0:
        return []
    worthwhile = [
        Advice(proposed.code, proposed.text, proposed.figure_ns, proposed.because + beyond + caution)
        for rules, caution, cost in (
            (_ON_COMMUNICATION, "", evidence.cost),
            (_ON_DEVICES, "", None),
            ((_waits_for_input,), evidence.input_caution, None),
        )
        for rule in rules
        for proposed in rule(evidence)
        for beyond in [_beyond(proposed.figure_ns, cost)]
        if proposed.figure_ns >= LEAST_SHARE * evidence.step_ns
    ]
    codes = {proposed.code for proposed in worthwhile}
    repeated = {"late_launch"} if codes & {"launch_bound", "host_busy"} else set()
    return sorted((each for each in worthwhile if each.code not in repeated), key=lambda each: -each.figure_ns)


def is_cheap(cost: SyncCost, step_ns: float) -> bool:
    """Whether no part of what communication costs is worth a line."""
    parts = (cost.exposed_wait_ns, cost.exposed_transfer_ns, cost.exposed_unresolved_ns, cost.packing_ns)
    more = (cost.packing_copies_ns, cost.idle_ns, cost.contention_ns or 0)
    return max(*parts, *more) < LEAST_SHARE * step_ns


def _beyond(figure_ns: int, cost: SyncCost | None) -> str:
    """Say where a figure from profiled steps is more than synchronization costs without the profiler."""
    if cost is None or cost.control_ns is None:
        return ""
    limits = cost.control_limits_ns or (cost.control_ns, cost.control_ns)
    if limits[1] <= 0 or figure_ns <= limits[1]:
        return ""
    costs = duration(cost.control_ns) if limits[0] > 0 else f"at most {duration(limits[1])}"
    return f"; without the profiler synchronization costs {costs} a step in all"


# --- devices that wait for their host ---


def _launch_bound(evidence: Evidence) -> Iterator[Advice]:
    """Where every device waits for its host: of one alone the others wait for that rank."""
    if not evidence.idle:
        return
    least = min(evidence.idle, key=lambda device: device.by_host_ns)
    if least.by_host_ns < max(LEAST_SHARE * evidence.step_ns, least.ns.get(Cause.SYNCHRONIZE, 0.0)):
        return
    rows = [row for row in evidence.launches if row.launches]
    launches = median(row.launches for row in rows) if rows else 0
    operations, shorter = sum(row.operations for row in rows), sum(row.shorter for row in rows)
    idle = f"the GPU is idle for {evidence.share(least.by_host_ns)} because the CPU "
    if launches and least.by_host_ns <= LONGEST_LAUNCH_NS * launches:
        short = ""
        if shorter >= MOST_SHORTER * operations:
            short = f", {percent(shorter / operations)} of operations shorter than the call that launches them"
        yield Advice(
            "launch_bound",
            f"launch less often, or ahead of need: a larger batch, torch.compile{_graphs(evidence)}, a fused optimizer",
            round(least.by_host_ns),
            f"{idle}launches too slowly: {_launches(round(launches))} a step{short}; {_where(least)}",
        )
        return
    yield Advice(
        "host_busy",
        f"look at what the CPU does {_meanwhile(least)}: {_longest_line(evidence, least)}",
        round(least.by_host_ns),
        f"{_idle_of(least)} for {evidence.share(least.by_host_ns)} because the CPU does something else: "
        f"{_where(least)}",
    )


def _idle_of(device: DeviceIdle) -> str:
    return "nothing runs" if device.device == CPU_DEVICE else "the GPU is idle"


def _meanwhile(device: DeviceIdle) -> str:
    return "while no operator runs" if device.device == CPU_DEVICE else "when it should launch"


def _longest_line(evidence: Evidence, device: DeviceIdle) -> str:
    """Name the operator or module that the host of a device was in longest, and the phase."""
    causes = [cause.label for cause in HOST_CAUSES]
    of_host = (line for line in evidence.idle_lines if line.rank == device.rank and line.cause in causes)
    lines = [line for line in of_host if line.name != OTHERS]
    if not lines:
        return "the trace does not show its operators"
    longest = max(lines, key=lambda line: line.ns)
    phase = longest.phase.replace("_", " ")
    return f"most of all {longest.name or 'Python, outside of any operator or module'} ({phase})"


_WHERE = {
    Cause.OPERATOR: "in PyTorch's operators",
    Cause.PYTHON: "in Python around them",
    Cause.LAUNCH_LATENCY: "for launches under way",
}


def _where(device: DeviceIdle) -> str:
    told = [(device.ns.get(cause, 0.0), words) for cause, words in _WHERE.items()]
    parts = [f"{duration(ns)} {words}" for ns, words in told if ns]
    return "of it " + ", ".join(parts)


def _kernel_gaps(evidence: Evidence) -> Iterator[Advice]:
    """A device pauses between two kernels whatever its host does."""
    figure = min((device.ns.get(Cause.KERNEL_GAP, 0.0) for device in evidence.idle), default=0.0)
    operations = [row.operations for row in evidence.launches if row.operations]
    count = f" between {median(operations):,.0f} operations" if operations else ""
    yield Advice(
        "kernel_gaps",
        f"run fewer and larger kernels: torch.compile, a fused optimizer{_graphs(evidence)}",
        round(figure),
        f"the GPU pauses for a moment{count}, which add up to {evidence.share(figure)}",
    )


def _launches(number: int) -> str:
    """Write how many there are: 1 launch, 530 launches."""
    return "1 launch" if number == 1 else f"{number:,} launches"


def _graphs(evidence: Evidence) -> str:
    """Name CUDA graphs where a launch is for one operation: else the run has them."""
    launches, operations = (sum(getattr(row, name) for row in evidence.launches) for name in ("launches", "operations"))
    return ", CUDA graphs" if 2 * launches >= operations else ""


def _synchronizing(evidence: Evidence) -> Iterator[Advice]:
    figure = min((device.ns.get(Cause.SYNCHRONIZE, 0.0) for device in evidence.idle), default=0.0)
    calls: Counter[tuple[str | None, str]] = Counter()
    for row in evidence.synchronizing:
        calls[row.name, row.call] += row.count
    if not calls or evidence.windows == 0:
        return
    (name, call), count = calls.most_common(1)[0]
    yield Advice(
        "synchronizing_calls",
        "let the CPU run ahead: no .item(), no printing of tensors, no blocking copies (non_blocking=True from pinned "
        "memory) in each step",
        round(figure),
        f"the CPU waits for the GPU, and the GPU is idle for {evidence.share(figure)} meanwhile; most often in "
        f"{name or 'Python'} ({call}, {count / evidence.windows:.2f} a step)",
    )


def _waits_for_input(evidence: Evidence) -> Iterator[Advice]:
    if evidence.input is None:
        return
    longest = evidence.input.longest
    idle_ns, fetch_ns, span_ns = (spread.median or 0 for spread in (longest.idle_ns, longest.fetch_ns, longest.span_ns))
    if not span_ns or idle_ns < LEAST_SHARE * span_ns:
        return
    where = f" on rank {longest.rank}, most of all" if len(evidence.input.by_device) > 1 else ""
    yield Advice(
        "input",
        "give the loader more workers (num_workers), pinned memory (pin_memory=True) and batches ahead of need "
        "(prefetch_factor)",
        round(idle_ns),
        f"the host is in the DataLoader for {duration(fetch_ns)} a step{where}, and the device idles for "
        f"{duration(idle_ns)} of it ({percent(idle_ns / span_ns)} of a step of the {evidence.input.window} window)",
    )


def _data_parallel(evidence: Evidence) -> Iterator[Advice]:
    """Of nn.DataParallel also what its one process costs, which drives all devices from threads in Python."""
    if not evidence.is_data_parallel:
        return
    exposed = evidence.typical((row, row.exposed_ns) for row in evidence.layers)
    by_host = min((device.by_host_ns for device in evidence.idle), default=0.0)
    yield Advice(
        "data_parallel",
        "use DistributedDataParallel, a process for each GPU, instead of nn.DataParallel",
        exposed + round(by_host),
        f"one process drives all GPUs from threads, and each of them is idle for {evidence.share(by_host)} because "
        "of it; parameters and gradients cross the links in every step with nothing to hide them: "
        f"{evidence.share(exposed)} exposed on a device",
    )


# --- ranks that wait for one another ---


_WHY = {
    "launch": "its host launched late",
    "compute": "its compute ran longer",
    "collective": "its collective before ended late",
    "input": "it waited for input",
    "unknown": "the trace does not show why",
}
_REMEDY = {
    "launch": "look at what rank {rank} does on {host} before it launches: other processes, its NUMA node, Python",
    "compute": "give rank {rank} less work, or look for what slows its device on {host}",
    "collective": "look at the collectives before on rank {rank}, on {host}",
    "input": "give rank {rank} on {host} more loader workers, or prefetch its input",
    "unknown": "look at rank {rank}, on {host}",
}
_PIPELINE = "if this is a pipeline: more microbatches, another schedule, or stages that take as long as one another"
_EVEN = "have ranks come together: even batches, and hosts with nothing else to do"
# A rank is named that causes so many times as much waiting as its even share.
STANDS_OUT = 1.5
# From this share of its lateness on, one reason is given as the reason.
NEARLY_ALL = 0.95


def _waiting(evidence: Evidence) -> Iterator[Advice]:
    rows = [row for row in evidence.waiting if row.step is not None]
    caused: Counter[RankNumber] = Counter()
    for row in rows:
        caused[RankNumber(row.rank)] += row.caused_ns
    if evidence.cost is None or not caused.total():
        return
    worst, ns = caused.most_common(1)[0]
    share, ranks = ns / caused.total(), len({row.rank for row in rows})
    exposed_ns = evidence.cost.exposed_wait_ns
    if share * ranks < STANDS_OUT:
        apart = f"ranks wait for one another for {evidence.share(exposed_ns)} with nothing to hide it"
        if 2 * evidence.waits_by_kind.get("send_recv", 0) > sum(evidence.waits_by_kind.values()):
            if any(pipeline.span_ns is not None for pipeline in evidence.pipelines):
                return  # whose bubble is divided, so that advice is on its parts
            yield Advice("pipeline", _PIPELINE, exposed_ns, f"{apart}, most of it for messages of other ranks")
            return
        even = f"{apart}, and no rank causes much more of it than the others"
        yield Advice("ranks_apart", _EVEN, exposed_ns, even)
        return
    # The others would be as much earlier as they wait for it now.
    others = sum(row.rank != worst for row in rows) or 1
    figure = round(min(ns / others, exposed_ns * len(rows) / others, evidence.step_ns))
    yield Advice(
        "straggler",
        _REMEDY[_reason(evidence, worst)].format(rank=worst, host=evidence.host.get(worst, "its host")),
        figure,
        f"{_others(evidence, ranks)} for rank {worst} for {evidence.share(figure)}, {percent(share)} of all waiting: "
        f"{_why(evidence, worst)}{_kept(evidence, worst)}",
    )


def _others(evidence: Evidence, ranks: int) -> str:
    if ranks < evidence.world_size:
        return "each of the others that are here waits"
    return "the other rank waits" if ranks == 2 else "each of the other ranks waits"


def _reasons(evidence: Evidence, rank: RankNumber) -> Counter[str]:
    reasons: Counter[str] = Counter()
    for row in evidence.waiting:
        if row.rank == rank and row.step is not None:
            reasons.update(row.caused_by)
    return reasons


def _reason(evidence: Evidence, rank: RankNumber) -> str:
    return _reasons(evidence, rank).most_common(1)[0][0]


def _why(evidence: Evidence, rank: RankNumber) -> str:
    """Say why a rank came late, and in how much of the waiting, where there were several reasons."""
    reasons = _reasons(evidence, rank)
    reason, ns = reasons.most_common(1)[0]
    share = ns / reasons.total()
    return _WHY[reason] if share >= NEARLY_ALL else f"{percent(share)} of that because {_WHY[reason]}"


def _kept(evidence: Evidence, rank: RankNumber) -> str:
    """Say what is known of what kept a rank: its device's clock, or what its host was in while its device idled."""
    if rank in evidence.slowed:
        return f", and {evidence.slowed[rank]}"
    if _reason(evidence, rank) != "launch":
        return ""
    devices = [device for device in evidence.idle if device.rank == rank]
    python_ns = max((device.ns.get(Cause.PYTHON, 0.0) for device in devices), default=0.0)
    if python_ns < LEAST_SHARE * evidence.step_ns:
        return ""
    return f"; its CPU is in Python, outside of PyTorch's operators, for {duration(python_ns)} a step meanwhile"


# --- stages of a pipeline ---


def _pipelines(evidence: Evidence) -> Iterator[Advice]:
    for pipeline in evidence.pipelines:
        if pipeline.span_ns is not None:
            yield from _of_pipeline(evidence, pipeline)


def _of_pipeline(evidence: Evidence, pipeline: PipelineSummary) -> Iterator[Advice]:
    stages, microbatches = len(pipeline.stages), pipeline.microbatches
    empty = (
        f"with equal stages and free messages {pipeline.schedule} over {stages} stages leaves "
        f"{percent((stages - 1) / (microbatches + stages - 1))} of its time empty at {microbatches} microbatches, "
        "(p - 1) / (m + p - 1)"
    )
    # Both launch as much work in more and smaller pieces: no remedy where hosts already come too late by more.
    late_ns = _least_rest_ns(pipeline)
    if pipeline.more_microbatches_ns is not None and pipeline.more_microbatches_ns >= late_ns:
        yield Advice(
            "more_microbatches",
            f"train with {2 * microbatches} microbatches instead of {microbatches}",
            round(pipeline.more_microbatches_ns),
            f"{empty}; replayed with twice as many, each of half the time, the step takes "
            f"{evidence.share(pipeline.more_microbatches_ns)} less",
        )
    if pipeline.interleaved_ns is not None and pipeline.interleaved_ns >= late_ns:
        yield Advice(
            "interleaved_stages",
            "cut stages in two and give each rank two of them (ScheduleInterleaved1F1B)",
            round(pipeline.interleaved_ns),
            f"{empty}; two stages on each rank take {evidence.share(pipeline.interleaved_ns)} less, with twice as many "
            "messages",
        )
    if pipeline.slowest is not None and pipeline.even_stages_ns is not None:
        yield Advice(
            "even_stages",
            f"move layers away from stage {pipeline.slowest} (on rank {_rank_of(pipeline, pipeline.slowest)})",
            round(pipeline.even_stages_ns),
            f"its microbatches compute for {duration(pipeline.slower_by_ns or 0)} longer than the others' do in the "
            f"mean; equal stages would take {evidence.share(pipeline.even_stages_ns)} less, as replayed",
        )
    yield from _late_stages(evidence, pipeline)


def _rank_of(pipeline: PipelineSummary, stage: int) -> int:
    return next(one.rank for one in pipeline.stages if one.stage == stage)


def _least_rest_ns(pipeline: PipelineSummary) -> float:
    return min((one.rest_ns for one in pipeline.stages if one.rest_ns is not None), default=0)


def _late_stages(evidence: Evidence, pipeline: PipelineSummary) -> Iterator[Advice]:
    """Where every stage's bubble is more than the replay explains."""
    least = _least_rest_ns(pipeline)
    yield Advice(
        "late_stages",
        "have hosts launch a stage's work sooner: fewer and larger microbatches, torch.compile, CUDA graphs",
        round(least),
        f"every stage is idle, or waits for messages, for {evidence.share(least)} more than its schedule and unequal "
        "stages explain: its host, or another stage's, launches late, or messages take long",
    )


def _of_strategies(evidence: Evidence) -> Iterator[Advice]:
    yield from advice_on_sharded(evidence, evidence.sharded, evidence.latency_ns, evidence.environment)
    yield from advice_on_tensor(evidence, evidence.tensor, evidence.is_async_tp_on)


_ON_COMMUNICATION: Iterable[Callable[[Evidence], Iterator[Advice]]] = (*RULES, _of_strategies, _waiting)
_ON_DEVICES: Iterable[Callable[[Evidence], Iterator[Advice]]] = (
    *(_launch_bound, _kernel_gaps, _synchronizing, _data_parallel, _pipelines),
)
