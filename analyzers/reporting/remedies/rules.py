"""Rules of advice: what to change, and the gain at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

import msgspec

from analyzers.rank import CPU_DEVICE, OTHERS, Cause
from analyzers.reporting.measures import SyncCost
from analyzers.reporting.remedies.advised import Advice, advised
from analyzers.reporting.remedies.communication_advice import RULES
from analyzers.reporting.remedies.observations import HOST_CAUSES, DeviceIdle, Evidence
from analyzers.reporting.remedies.pipeline_advice import advice_on_pipelines
from analyzers.reporting.remedies.sharded_advice import advice_on_sharded
from analyzers.reporting.remedies.straggler_advice import advice_on_waiting, late_ranks
from analyzers.reporting.remedies.tensor_advice import advice_on_tensor
from analyzers.statistics import LEAST_SHARE
from analyzers.units import duration, rounded_percent

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
        msgspec.structs.replace(
            proposed,
            because=proposed.because + beyond + caution,
            share=min(proposed.figure_ns / evidence.whole_ns, 1.0),
        )
        for rules, caution, cost in (
            (_ON_COMMUNICATION, "", evidence.cost),
            (_ON_DEVICES, "", None),
            ((_waits_for_input,), evidence.input_caution, None),
        )
        for rule in rules
        for proposed in map(partial(_bounded, evidence), rule(evidence))
        for beyond in [_beyond(proposed.figure_ns, cost)]
        if proposed.figure_ns >= LEAST_SHARE * evidence.step_ns
    ]
    codes = {proposed.code for proposed in worthwhile}
    repeated = {"late_launch"} if codes & {"launch_bound", "host_busy"} else set()
    return sorted((each for each in worthwhile if each.code not in repeated), key=lambda each: -each.figure_ns)


# What these would hide must find compute to hide behind.
_HIDES = {"prefetch", "reduce_scatter_group", "max_connections", "last_bucket", "attention_transfer", "async_tp"}


def _bounded(evidence: Evidence, proposed: Advice) -> Advice:
    """Bound a gain from hiding communication by the compute that is left to hide it: links may be the limit."""
    if evidence.free_compute_ns is None or proposed.code not in _HIDES:
        return proposed
    free_ns = round(max(evidence.free_compute_ns, 0))
    if free_ns >= proposed.figure_ns:
        return proposed
    left = f"{proposed.because}; only {evidence.share(free_ns)} of compute has no communication beside it yet"
    return msgspec.structs.replace(proposed, figure_ns=free_ns, because=left)


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
    return f"; without the profiler all of synchronization costs {costs} per step"


# --- devices that wait for their host ---


def _launch_bound(evidence: Evidence) -> Iterator[Advice]:
    """Where every device waits for its host: of one alone the others wait for that rank."""
    hosts = _hosts(evidence)
    if hosts is None:
        return
    shown, by_host_ns = hosts.shown, hosts.by_host_ns
    if by_host_ns < max(LEAST_SHARE * evidence.step_ns, shown.ns.get(Cause.SYNCHRONIZE, 0.0)):
        return
    # Of the device that idles least for its host; other causes are beside it.
    least = f"at least {evidence.part(by_host_ns)}"
    idle = f"{_devices(evidence)} idle {least}"
    if hosts.awaited:
        idle = f"for {least} {_devices(evidence)} idle, or wait for {hosts.awaited}"
    idle += f": {why_not_launched(evidence)}"
    if _launches_too_slowly(evidence, shown):
        text = f"give the CPU less to launch: a larger batch, torch.compile{_graphs(evidence)}, a fused optimizer"
        yield advised("launch_bound", text, by_host_ns, idle, _where(shown))
        return
    if _launches_take_long(shown):
        text = "find out why launch calls take long: the driver, other processes on the host, a second profiler"
        yield advised("host_busy", text, by_host_ns, idle, _where(shown))
        return
    hindered = "does while no operator runs" if shown.device == CPU_DEVICE else "does instead of launching"
    text = f"find out what the CPU {hindered}: {_longest_line(evidence, shown)}"
    yield advised("host_busy", text, by_host_ns, idle, _where(shown))


@dataclass(frozen=True)
class _Hosts:
    """How long every device waits for its host at least, and the device that shows what its host does meanwhile.

    Devices that wait in collectives for a rank whose host is hardly later than theirs wait for their own hosts.
    """

    by_host_ns: float
    shown: DeviceIdle
    awaited: str = ""


def _hosts(evidence: Evidence) -> _Hosts | None:
    if not evidence.idle:
        return None
    least = min(evidence.idle, key=lambda device: device.by_host_ns)
    late = next((late for late in late_ranks(evidence) if late.is_hardly_later), None)
    of_late = [device for device in evidence.idle if late is not None and device.rank == late.rank]
    if late is None or not of_late:
        return _Hosts(least.by_host_ns, least)
    by_host_ns = min(
        device.by_host_ns + (0 if device.rank == late.rank else late.shared_ns) for device in evidence.idle
    )
    others = "the other's" if evidence.world_size == 2 else "the others'"
    return _Hosts(by_host_ns, of_late[0], f"rank {late.rank}, whose CPU is hardly slower than {others}")


def why_not_launched(evidence: Evidence) -> str:
    """Say why devices have nothing to run: their CPU launches too slowly, or does something else."""
    hosts = _hosts(evidence)
    least = hosts.shown if hosts is not None else None
    if least is not None and least.device == CPU_DEVICE:
        return "no operator runs, and the main thread is in Python"
    if least is not None and not _launches_too_slowly(evidence, least) and _launches_take_long(least):
        return "launch calls take long"
    if least is None or not _launches_too_slowly(evidence, least):
        return "the CPU is busy with something else than launching"
    operations, shorter = (sum(getattr(row, name) for row in evidence.launches) for name in ("operations", "shorter"))
    short = ""
    if shorter >= MOST_SHORTER * operations:
        short = f"; {rounded_percent(shorter / operations)} of operations run for less time than their launch takes"
    return (
        f"the CPU launches too slowly ({_launches(round(_median_launches(evidence)))} per {evidence.step_word}{short})"
    )


def _launches_too_slowly(evidence: Evidence, device: DeviceIdle) -> bool:
    """Whether the host's time goes into launches, of which it makes enough that none takes oddly long."""
    launches = _median_launches(evidence)
    return bool(launches) and device.by_host_ns <= LONGEST_LAUNCH_NS * launches


def _launches_take_long(device: DeviceIdle) -> bool:
    """Whether most of what a device waits for its host is launches under way."""
    return 2 * device.ns.get(Cause.LAUNCH_LATENCY, 0.0) > device.by_host_ns


def _median_launches(evidence: Evidence) -> float:
    return median([row.launches for row in evidence.launches if row.launches] or [0])


def _devices(evidence: Evidence) -> str:
    """Name what is idle, with its verb."""
    devices = {(device.rank, device.device) for device in evidence.idle}
    noun = "CPU" if any(device == CPU_DEVICE for _, device in devices) else "GPU"
    return f"{noun}s are" if len(devices) > 1 else f"the {noun} is"


def _longest_line(evidence: Evidence, device: DeviceIdle) -> str:
    """Name the operator or module that the host of a device was in longest, and the phase."""
    causes = [cause.label for cause in HOST_CAUSES]
    of_host = (line for line in evidence.idle_lines if line.rank == device.rank and line.cause in causes)
    lines = [line for line in of_host if line.name != OTHERS]
    if not lines:
        return "the trace does not show what it is in"
    longest = max(lines, key=lambda line: line.ns)
    phase = longest.phase.replace("_", " ")
    return f"it is mostly in {longest.name or 'Python, outside any operator or module'}{_IN_PHASE.get(phase, '')}"


_IN_PHASE = {phase: f" (in the {phase})" for phase in ("forward", "backward", "optimizer")} | {
    "between steps": " (between steps)"
}


_WHERE = {
    Cause.OPERATOR: "in PyTorch's operators",
    Cause.PYTHON: "in Python around them",
    Cause.LAUNCH_LATENCY: "in launches under way",
}


def _where(device: DeviceIdle) -> str:
    told = [(device.ns.get(cause, 0.0), words) for cause, words in _WHERE.items()]
    parts = [f"{duration(ns)} {words}" for ns, words in told if ns]
    return "the CPU is " + ", ".join(parts)


def _kernel_gaps(evidence: Evidence) -> Iterator[Advice]:
    """A device pauses between two kernels whatever its host does."""
    figure = min((device.ns.get(Cause.KERNEL_GAP, 0.0) for device in evidence.idle), default=0.0)
    operations = [row.operations for row in evidence.launches if row.operations]
    between = f"{median(operations):,.0f} operations" if operations else "kernels"
    yield advised(
        "kernel_gaps",
        f"run fewer and larger kernels: torch.compile, a fused optimizer{_graphs(evidence)}",
        figure,
        f"short pauses between {between} add up to {evidence.part(figure)}",
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
    if not calls:
        return
    ((name, call), _), *_ = calls.most_common(1)
    yield advised(
        "synchronizing_calls",
        "let the CPU run ahead: no .item(), no printing of tensors, no blocking copies (non_blocking=True from pinned "
        "memory) in the step",
        figure,
        f"{_devices(evidence)} idle {evidence.part(figure)}: the CPU waits for the GPU before it launches more",
        f"most often in {name or 'Python'} ({call}, {calls[name, call] / evidence.recorded_windows:.2f} per "
        f"{evidence.step_word})",
    )


def _waits_for_input(evidence: Evidence) -> Iterator[Advice]:
    if evidence.input is None:
        return
    longest = evidence.input.longest
    idle_ns, fetch_ns, span_ns = (spread.median or 0 for spread in (longest.idle_ns, longest.fetch_ns, longest.span_ns))
    if not span_ns or idle_ns < LEAST_SHARE * span_ns:
        return
    several = len(evidence.input.by_device) > 1
    part = evidence.part(min(idle_ns, evidence.step_ns))
    idle = f"rank {longest.rank}'s device is idle {part}" if several else f"{_devices(evidence)} idle {part}"
    if several and min(one.idle_ns.median or 0 for one in evidence.input.by_device) >= idle_ns / 2:
        idle = f"{_devices(evidence)} idle up to {part}"
    yield advised(
        "input",
        "load data faster: more workers (num_workers), pin_memory=True, a larger prefetch_factor",
        idle_ns,
        f"{idle}: the CPU waits for the DataLoader",
        f"{duration(fetch_ns)} per step in the DataLoader, {duration(idle_ns)} with nothing on the device, in steps "
        f"that take {duration(span_ns)} in the {evidence.input.window} profile",
    )


def _data_parallel(evidence: Evidence) -> Iterator[Advice]:
    """Of nn.DataParallel also what its one process costs, which drives all devices from threads in Python."""
    if not evidence.is_data_parallel:
        return
    exposed = evidence.typical((row, row.exposed_ns) for row in evidence.layers)
    by_host = min((device.by_host_ns for device in evidence.idle), default=0.0)
    yield advised(
        "data_parallel",
        "use DistributedDataParallel, with one process per GPU, instead of nn.DataParallel",
        exposed + by_host,
        f"GPUs are idle {evidence.part(by_host)}: nn.DataParallel drives all of them from one process",
        f"parameters and gradients cross the links in every step, exposed for {evidence.share(exposed)} on each GPU",
    )


def _of_strategies(evidence: Evidence) -> Iterator[Advice]:
    yield from advice_on_sharded(evidence)
    yield from advice_on_tensor(evidence, evidence.tensor, evidence.is_async_tp_on)


_ON_COMMUNICATION: Iterable[Callable[[Evidence], Iterator[Advice]]] = (*RULES, _of_strategies, advice_on_waiting)
_ON_DEVICES: Iterable[Callable[[Evidence], Iterator[Advice]]] = (
    *(_launch_bound, _kernel_gaps, _synchronizing, _data_parallel, advice_on_pipelines),
)
