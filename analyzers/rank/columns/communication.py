"""Columns of one rank's communication: times, calls and purposes.

A kernel tells of its call itself, or its host operator does, which is found by its id or around the launch:

    host     |all_gather......|        |coalesced: ^|      operators that tell of their collective
    launch        ^                          ^
    kernel           ####                       ####
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, Mask, values_at
from analyzers.rank.columns.activity import CPU_DEVICE, Activity
from analyzers.rank.columns.attribution import Attribution
from analyzers.rank.columns.calls import calls_of
from analyzers.rank.columns.windows import Steps, is_unmarked, profiler_steps
from analyzers.rank.host import Host
from analyzers.rank.strategies import Calls, Owners, Purpose, assign, matmuls_beside, owners, pipelined_calls
from analyzers.run import RankTrace, launches_without_kernels
from analyzers.trace import (
    C10D,
    COLLECTIVE_CALLS,
    INTEGRAL,
    NCCL,
    Call,
    Category,
    Collective,
    Health,
    Kind,
    is_communication,
    is_description,
    kind_of_call,
    kind_of_kernel,
    library_kernel,
)


@dataclass(frozen=True, eq=False)
class Communication(Columns):
    """The communication of one rank's devices, a row each kernel or copy, by start; -1 where unknown."""

    device: NDArray[np.int32]
    peer: NDArray[np.int32]  # a copy's other device
    stream: Int64
    correlation: Int64
    start_ns: Int64
    dur_ns: Int64
    name: NDArray[np.int32]  # indexes `names`
    names: tuple[str, ...]
    kind: NDArray[np.int8]  # a Collective
    call: NDArray[np.int32]  # indexes `calls`, -1 where nothing tells of the call
    calls: tuple[Call, ...]
    sequence: Int64
    step: Int64  # the profiler's step that holds the launch, -1 for none
    window: Int64  # the same, but 0 where the device has no other window
    purpose: NDArray[np.int8]
    strategy: NDArray[np.int8]  # indexes STRATEGIES, -1 where none is known to call
    owners: Owners  # the modules that rows are for
    recomputed: Mask  # a forward calls that the backward runs again
    nbytes: Int64  # of a copy
    exposed_ns: Int64  # what no compute of the device covers
    peer_exposed_ns: Int64  # the same for a copy's other device
    computed_ns: Int64  # the end of the device's last compute before the start
    busy_ns: Int64  # how long the device had computed by then in all
    launched_ns: Int64  # the start of the host call
    lost_before: Int64  # launches of kernels before the row's own that left no event on the device
    lost_after: Int64
    called: Int64  # the row of PyTorch's call among the rank's events
    replayed: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))  # launched by a CUDA graph
    is_library: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))  # kernels of other libraries than NCCL
    cut: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))  # no end is known: it is as long as it can be
    # How long the matrix products beside a collective of activations ran, -1 for other rows.
    matmul_ns: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    pipelined: int = 0  # calls that are both product and collective

    @property
    def end_ns(self) -> Int64:
        """Return the end of every row, half-open."""
        return self.start_ns + self.dur_ns

    @property
    def is_copy(self) -> Mask:
        """Return the mask for rows that are copies, which are matched with none."""
        copies: Mask = np.array([name.startswith("Memcpy") for name in self.names], dtype=bool)[self.name]
        copies |= self.peer != UNKNOWN
        return copies


@dataclass(frozen=True, eq=False)
class _Kernels:
    """Kernels of communication by start: their rows in the trace, what launched them, and what they carry out.

    `name` indexes `names`, `call` indexes `calls`, -1 for none; `launches` and `called` are rows of the host, -1 for
    none: a kernel's launch, and the collective's call around it.
    """

    rows: Int64
    device: NDArray[np.int32]
    name: NDArray[np.int32]
    names: tuple[str, ...]
    kind: NDArray[np.int8]
    call: NDArray[np.int32]
    calls: tuple[Call, ...]
    launches: Int64
    called: Int64


def communication(trace: RankTrace, devices: Sequence[Activity], attributed: Attribution) -> Communication:
    """Return the communication in a rank whose devices did what `devices` says."""
    events, host = trace.timed, attributed.host
    kernels = _find_kernels(trace, host)
    rows, device = kernels.rows, kernels.device
    steps = profiler_steps(trace.events)
    step = _find_steps(trace, rows, steps)
    start_ns, end_ns = events.start_ns[rows], events.end_ns[rows]
    asked = _build_calls(trace, attributed, kernels)
    assigned = assign(asked)
    launched_ns = _launched_ns(trace, kernels)
    lost_ns = np.sort(events.start_ns[launches_without_kernels(events)])
    lost_before = np.searchsorted(lost_ns, launched_ns)
    return Communication(
        device=device,
        peer=events.peer[rows],
        stream=events.stream[rows],
        correlation=events.correlation[rows],
        start_ns=start_ns,
        dur_ns=end_ns - start_ns,
        name=kernels.name,
        names=kernels.names,
        kind=kernels.kind,
        call=kernels.call,
        calls=kernels.calls,
        sequence=events.sequence[rows],
        step=step,
        window=_find_windows(devices, device, step, steps),
        purpose=assigned.purpose,
        strategy=assigned.strategy,
        owners=owners(asked, assigned),
        recomputed=attributed.recomputes(rows),
        nbytes=events.nbytes[rows],
        exposed_ns=_measure_exposed(devices, device, start_ns, end_ns),
        peer_exposed_ns=_measure_exposed(devices, events.peer[rows], start_ns, end_ns),
        computed_ns=_find_computed(devices, device, start_ns),
        busy_ns=_measure_busy(devices, device, start_ns),
        launched_ns=launched_ns,
        lost_before=lost_before,
        lost_after=len(lost_ns) - lost_before,
        called=kernels.called,
        replayed=asked.is_replayed,
        is_library=asked.is_library,
        cut=(events.health[rows] & (Health.CUT | Health.ENDLESS)) > 0,
        matmul_ns=_measure_matmuls(trace, attributed, asked, assigned.purpose),
        pipelined=pipelined_calls(host),
    )


def rows_of_communication(trace: RankTrace) -> Int64:
    """Return the rows of a rank's trace that communicate, by start: one for each row of its `Communication`."""
    rows = np.flatnonzero(trace.gloo if trace.is_cpu_run else trace.timed.kind == Kind.COMM)
    ordered: Int64 = rows[np.argsort(trace.timed.start_ns[rows], kind="stable")]
    return ordered


def _find_kernels(trace: RankTrace, host: Host) -> _Kernels:
    """Find a rank's communication, and each kernel's call, which says its kind; without one its name does."""
    events = trace.timed
    rows = rows_of_communication(trace)
    codes, name = np.unique(events.name[rows], return_inverse=True)
    names = tuple(events.names[code] for code in codes.tolist())
    launches = host.launches(rows)
    call, calls = calls_of(host, rows, launches, trace.is_cpu_run)
    kind = np.array([kind_of_kernel(kernel) for kernel in names], dtype=np.int8)[name]
    kind = np.where(call >= 0, np.array([*(one.kind for one in calls), 0], dtype=np.int8)[call], kind)
    is_copy = (events.category[rows] == Category.MEMCPY) & (call < 0)
    return _Kernels(
        rows=rows,
        device=np.full(len(rows), CPU_DEVICE, np.int32) if trace.is_cpu_run else events.device[rows],
        name=name.astype(np.int32),
        names=names,
        kind=np.where(is_copy, _kinds_of_copies(host, launches), kind).astype(np.int8),
        call=call,
        calls=calls,
        launches=launches,
        called=_find_callers(host, launches),
    )


def _launched_ns(trace: RankTrace, kernels: _Kernels) -> Int64:
    """Return when each kernel was launched; gloo's spans begin in the host's own rows."""
    if not trace.is_cpu_run:
        return trace.timed.launched_ns[kernels.rows]
    return np.where(kernels.launches >= 0, trace.timed.start_ns[kernels.launches], UNKNOWN)


def _build_calls(trace: RankTrace, attributed: Attribution, kernels: _Kernels) -> Calls:
    """Return the calls as strategies look at them."""
    call, calls = kernels.call, kernels.calls
    module, backward = attributed.calling(kernels.rows)
    described = [one.group.description if one.group is not None else "" for one in calls]
    descriptions = {text: code for code, text in enumerate(dict.fromkeys(filter(is_description, described)))}
    groups = {group: code for code, group in enumerate(dict.fromkeys(one.group for one in calls if one.group))}
    return Calls(
        host=attributed.host,
        nodes=attributed.nodes,
        launches=kernels.launches,
        called=kernels.called,
        kind=kernels.kind,
        elements=np.array([*(one.elements for one in calls), UNKNOWN], dtype=np.int64)[call],
        is_integral=_is_integral(call, calls),
        is_message=np.array([*(bool(one.sent_to or one.received_from) for one in calls), False], dtype=bool)[call],
        is_library=np.array([*map(_is_of_library, kernels.names), False], dtype=bool)[kernels.name],
        module=module,
        modules=attributed.lines,
        is_backward=backward,
        description=np.array([*(descriptions.get(text, UNKNOWN) for text in described), UNKNOWN], dtype=np.int64)[call],
        descriptions=tuple(descriptions),
        group=np.array([*(UNKNOWN if one.group is None else groups[one.group] for one in calls), UNKNOWN])[call],
        recorded=frozenset(trace.strategies),
    )


def _measure_matmuls(trace: RankTrace, attributed: Attribution, asked: Calls, purpose: NDArray[np.int8]) -> Int64:
    """Return how long the matrix products beside each collective of activations ran."""
    computes = trace.timed.kind[attributed.rows] == Kind.COMPUTE
    rows = attributed.rows[computes]
    kernels = (attributed.launches[computes], trace.timed.dur_ns[rows])
    chosen = (purpose == Purpose.ACTIVATIONS) & (asked.launches >= 0) & (not trace.is_cpu_run)
    return matmuls_beside(asked.host, (asked.launches, asked.kind.astype(np.int64)), chosen, kernels)


def _is_of_library(kernel: str) -> bool:
    return bool(library_kernel(kernel)) and is_communication(kernel)


def _kinds_of_copies(host: Host, launches: Int64) -> Int64:
    """Return the kind in the name of the collective's call around each launch; a message outside of all calls."""
    calls = host.named(*COLLECTIVE_CALLS)
    kind_of_name = np.zeros(len(host.events.names) + 1, dtype=np.int64)
    for code in np.unique(host.events.name[calls]).tolist():
        kind_of_name[code] = kind_of_call(host.events.names[code].partition(":")[2]) or Collective.OTHER
    telling = calls[kind_of_name[host.events.name[calls]] != Collective.OTHER]
    around = host.around(launches, telling)
    return np.where(around >= 0, kind_of_name[host.events.name[around]], Collective.SEND_RECV)


def _find_callers(host: Host, launches: Int64) -> Int64:
    """Return the outermost operator that records a collective around each launch, else the launch; -1 for none."""
    operators = host.named(C10D, "record_param_comms", NCCL)
    outermost = values_at(operators, host.spans(operators).outermost(host.places(launches)))
    return np.where(outermost >= 0, outermost, launches)


def _is_integral(call: NDArray[np.int32], calls: Sequence[Call]) -> Mask:
    """Whether rows carry whole numbers: no gradients do."""
    whole = np.array([*(one.dtype in INTEGRAL for one in calls), False], dtype=bool)
    return whole[call]


def _find_steps(trace: RankTrace, rows: Int64, steps: Steps) -> Int64:
    """Return each row's step by its launch, on a CPU run by its start."""
    instant = trace.events.start_ns[rows] if trace.is_cpu_run else trace.events.launched_ns[rows]
    return steps.number_at(instant)


def _find_windows(devices: Sequence[Activity], device: NDArray[np.int32], step: Int64, steps: Steps) -> Int64:
    """Return each row's step as windows count: 0 on a device that no step holds, as if its whole trace were one.

    Apart from the step itself, since such a 0 is no number that ranks count alike, and holds several iterations.
    """
    window = step.copy()
    for activity in devices:
        on_device = device == activity.device
        if on_device.any() and (step[on_device] < 0).all() and is_unmarked(activity, steps):
            window[on_device] = 0
    return window


def _measure_exposed(devices: Sequence[Activity], device: NDArray[np.int32], start_ns: Int64, end_ns: Int64) -> Int64:
    exposed = end_ns - start_ns
    for activity in devices:
        on_device = device == activity.device
        exposed[on_device] -= activity.compute.length_within(start_ns[on_device], end_ns[on_device])
    return exposed


def _find_computed(devices: Sequence[Activity], device: NDArray[np.int32], start_ns: Int64) -> Int64:
    """Return the end of the last compute before each start; the start itself where compute runs across it."""
    computed = np.full(len(start_ns), UNKNOWN, dtype=np.int64)
    for activity in devices:
        rows = np.flatnonzero(device == activity.device)
        begun = np.searchsorted(activity.compute.start, start_ns[rows], side="left") - 1
        rows, begun = rows[begun >= 0], begun[begun >= 0]
        computed[rows] = np.minimum(activity.compute.end[begun], start_ns[rows])
    return computed


def _measure_busy(devices: Sequence[Activity], device: NDArray[np.int32], start_ns: Int64) -> Int64:
    """Return how long each row's device computed before the row's start."""
    busy = np.zeros(len(start_ns), dtype=np.int64)
    for activity in devices:
        on_device = device == activity.device
        begin = np.full(int(on_device.sum()), activity.compute.start.min(initial=np.iinfo(np.int64).max // 2))
        busy[on_device] = activity.compute.length_within(np.minimum(begin, start_ns[on_device]), start_ns[on_device])
    return busy
