"""The collective call behind each kernel, from its own or operators' metadata.

    c10d::_allgather_base_  |[[400], [100]] .........|     the process group's call: of some kinds both sides
    nccl:_all_gather_base     |[[100]] ............|       the range of NCCL's: what a rank puts in
    launch                         ^
    kernel                           ncclKernel_SendRecv    its name may leave the kind open

What the ranges record is in ProcessGroupNCCL.cpp: of a list of an all-to-all but the first tensor, of an all-gather, a
gather and a scatter one rank's part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64
from analyzers.rank.host import Host
from analyzers.trace import (
    C10D,
    COALESCED,
    NCCL,
    OPEN,
    RECORDED_IN_PART,
    Call,
    Category,
    Collective,
    Events,
    Group,
    Inputs,
    itemsize,
    kind_of_call,
    kind_of_kernel,
    library_kernel,
    plausible_count,
)


def calls_of(host: Host, rows: Int64, launches: Int64, is_cpu_run: bool) -> tuple[NDArray[np.int32], tuple[Call, ...]]:
    """Return each row's call: its own, its operator's, or one made from what operators say about tensors."""
    events = host.events
    call = events.call[rows].astype(np.int64)
    operators = np.flatnonzero((events.category == Category.OPERATOR) & (events.call >= 0))
    call = np.where(call >= 0, call, _by_external_id(events, rows, operators))
    around = host.around(launches, operators)
    call = np.where((call < 0) & (around >= 0), events.call[around], call)
    calls = list(events.calls)
    derived = _read_gloo(events, rows) if is_cpu_run else _coalesce(host, rows, launches, call, operators)
    for index, new_call in [
        *derived,
        *_with_places(host, rows, launches, call, operators),
        *_data_parallel(host, rows, launches, call),
        *_of_libraries(host, rows, launches, call),
        *describe_calls(host, rows, launches, call),
    ]:
        call[index] = len(calls)
        calls.append(new_call)
    return _encode_calls(call, calls)


def _encode_calls(call: Int64, calls: Sequence[Call]) -> tuple[NDArray[np.int32], tuple[Call, ...]]:
    """Return the same with each distinct call once, and only those that are used."""
    distinct = dict.fromkeys(calls[code] for code in np.unique(call[call >= 0]).tolist())
    number = {entry: index for index, entry in enumerate(distinct)}
    table = np.array([*(number.get(entry, UNKNOWN) for entry in calls), UNKNOWN], dtype=np.int32)
    return table[call], tuple(distinct)


def _by_external_id(events: Events, rows: Int64, operators: Int64) -> Int64:
    external = events.external[operators]
    operators = operators[np.argsort(external, kind="stable")]
    if not len(operators):
        return np.full(len(rows), UNKNOWN, dtype=np.int64)
    external = events.external[operators]
    position = np.searchsorted(external, events.external[rows]).clip(max=len(external) - 1)
    matched = (events.external[rows] != UNKNOWN) & (external[position] == events.external[rows])
    return np.where(matched, events.call[operators[position]], UNKNOWN)


# A range of NCCL's around a message: who calls, and the other, as places in their group.
_MESSAGE = re.compile(re.escape(NCCL) + r"(?P<what>send|recv) \d+(?:->|<-)(?P<peer>\d+)")


def _with_places(host: Host, rows: Int64, launches: Int64, call: Int64, operators: Int64) -> Iterable[tuple[int, Call]]:
    """Yield calls with the root that only their operator says, and the peer that only the range around them names."""
    events = host.events
    lacking = np.array([_lacks_place(one) for one in events.calls] + [False], dtype=bool)[call]
    if not lacking.any():
        return
    told = _by_external_id(events, rows, operators)
    ranges = host.around(launches, host.named(NCCL))
    for index in np.flatnonzero(lacking).tolist():
        own, code = events.calls[call[index]], told[index]
        operator = events.calls[code] if code >= 0 and events.calls[code].kind == own.kind else own
        name = events.names[events.name[ranges[index]]] if ranges[index] >= 0 else ""
        message = _MESSAGE.match(name) if own.kind == Collective.SEND_RECV else None
        if message is not None:
            peer = own.group.rank_at(int(message["peer"])) if own.group is not None else ()
            yield index, replace(own, **{"sent_to" if message["what"] == "send" else "received_from": peer})
        elif not _lacks_place(operator):
            places = {name: getattr(operator, name) for name in ("sent_to", "received_from", "root")}
            yield index, replace(own, **places)


def _lacks_place(call: Call) -> bool:
    """Whether a call says no root, or no peer, where its kind has one."""
    if call.kind == Collective.SEND_RECV:
        return not call.sent_to and not call.received_from
    return call.kind in (Collective.GATHER, Collective.SCATTER) and not call.root


def _coalesce(host: Host, rows: Int64, launches: Int64, call: Int64, operators: Int64) -> Iterable[tuple[int, Call]]:
    """Yield calls for kernels that carry out several: those made on the thread since the last kernel or batch."""
    events = host.events
    batches = np.flatnonzero((events.category == Category.ANNOTATION) & events.named(COALESCED))
    inside = host.around(launches, batches)
    if not (inside >= 0).any():
        return
    # What has a kernel of its own is in no batch.
    has_kernel = np.isin(operators, host.around(launches[call >= 0], operators))
    waiting = operators[~has_kernel & ~np.isin(events.external[operators], events.external[rows])]
    for index in np.flatnonzero((inside >= 0) & (call < 0)).tolist():
        batch = inside[index]
        thread = events.thread[batch]
        earlier = batches[(events.thread[batches] == thread) & (events.end_ns[batches] <= events.start_ns[batch])]
        since = events.end_ns[earlier].max(initial=np.iinfo(np.int64).min)
        started = events.start_ns[waiting]
        members = waiting[(events.thread[waiting] == thread) & (started >= since) & (started < events.start_ns[batch])]
        merged = _merge_calls([events.calls[code] for code in events.call[members].tolist()])
        if merged is not None:
            yield index, merged


def _merge_calls(calls: Sequence[Call]) -> Call | None:
    """Return one call for several with one kind and group: elements add up, for messages the largest counts."""
    if not calls or len({(call.kind, call.group, call.dtype) for call in calls}) > 1:
        return None
    first = calls[0]
    if first.kind != Collective.SEND_RECV:
        sides = [(call.elements_in, call.elements_out) for call in calls]
        sizes_known = all(min(side) >= 0 for side in sides)
        elements_in, elements_out = (sum(side) if sizes_known else UNKNOWN for side in zip(*sides, strict=True))
        return replace(first, elements_in=elements_in, elements_out=elements_out)
    return replace(
        first,
        elements_in=max(call.elements_in for call in calls),
        elements_out=max(call.elements_out for call in calls),
        sent_to=tuple(rank for call in calls for rank in call.sent_to),
        received_from=tuple(rank for call in calls for rank in call.received_from),
    )


def _read_gloo(events: Events, rows: Int64) -> Iterable[tuple[int, Call]]:
    """Yield calls from the tensor shapes that gloo's spans carry; for a scatter only the root's do."""
    for index, row in enumerate(rows.tolist()):
        kind = kind_of_call(events.names[events.name[row]].partition(":")[2]) or Collective.OTHER
        code = events.inputs[row]
        if code < 0 and kind != Collective.SCATTER:
            continue
        inputs = events.shapes[code] if code >= 0 else Inputs((), ())
        elements = inputs.elements()
        yield index, Call(kind, elements, elements, inputs.dtype, None, is_part=kind in RECORDED_IN_PART)


def _data_parallel(host: Host, rows: Int64, launches: Int64, call: Int64) -> Iterable[tuple[int, Call]]:
    """Yield nn.DataParallel's calls: it flattens tensors, then broadcasts or reduces them; shapes give the size."""
    events = host.events
    kernels = (call < 0) & (events.category[rows] == Category.KERNEL)
    devices = np.unique(events.device[rows[kernels]])
    flattened = np.flatnonzero(events.named("aten::flatten_dense_tensors") & (events.category == Category.OPERATOR))
    if len(devices) < 2 or not len(flattened):
        return
    group = Group("", len(devices), None)
    last = host.before(np.where(kernels, launches, UNKNOWN), flattened)
    elements = {row: _measure_flattened(events, row) for row in np.unique(last[last >= 0]).tolist()}
    used: set[tuple[int, int]] = set()
    for index in np.flatnonzero(last >= 0)[np.argsort(events.start_ns[launches[last >= 0]], kind="stable")].tolist():
        key = (int(last[index]), int(events.device[rows[index]]))
        if key in used:
            continue  # a second collective since: its tensors were not flattened, and its size is not known
        used.add(key)
        count, dtype = elements[key[0]]
        kind = kind_of_kernel(events.names[events.name[rows[index]]])
        yield index, Call(kind, count, count, dtype, group)


def _measure_flattened(events: Events, row: int) -> tuple[int, str]:
    """Return elements and dtype for the tensors that an operator flattens: it views each as one dimension."""
    inside = (events.thread == events.thread[row]) & (events.start_ns >= events.start_ns[row])
    inside &= (events.end_ns <= events.end_ns[row]) & (events.inputs >= 0) & events.named("aten::view")
    views = [events.shapes[code] for code in events.inputs[inside].tolist()]
    if not views:
        inputs = events.shapes[events.inputs[row]] if events.inputs[row] >= 0 else None
        return (inputs.elements(), "") if inputs else (UNKNOWN, "")
    # A scalar's shape is empty, as is one that is not said; here it is a tensor's.
    return plausible_count(sum(max(view.elements(), 1) for view in views)), views[0].dtype


# Calls of these have their output and their input before all other arguments.
_TWO_SIDED = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)
_NOTHING = Inputs((), ())


def describe_calls(host: Host, rows: Int64, launches: Int64, call: Int64) -> Iterable[tuple[int, Call]]:
    """Yield calls for kernels (by index among `rows`) that have none, as far as the operators around them tell."""
    events = host.events
    callless = np.flatnonzero((call < 0) & (events.category[rows] == Category.KERNEL) & (launches >= 0))
    if not len(callless):
        return
    around = [_Around(host, launches[callless], prefix) for prefix in (NCCL, C10D)]
    for number, index in enumerate(callless.tolist()):
        kernel = kind_of_kernel(events.names[events.name[rows[index]]])
        kinds = [operator.kind(number) for operator in around]
        kind = _choose_kind(kernel, [one for one in kinds if one is not None])
        inputs = [operator.inputs(number) if operator.kind(number) == kind else _NOTHING for operator in around]
        derived = None if kind is None else _build_call(kind, *inputs)
        if derived is not None and (derived.elements >= 0 or kernel in OPEN or kind == Collective.BARRIER):
            yield index, derived


# Of these the larger of an operator's tensors is what counts, whatever its arguments' order.
_WHOLE_IS_LARGEST = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


def _of_libraries(host: Host, rows: Int64, launches: Int64, call: Int64) -> Iterable[tuple[int, Call]]:
    """Yield calls for other libraries' kernels, of the size that the operator of the same kind around them tells.

    `symm_mem::multimem_all_reduce_`, `vllm::all_reduce` and the like have no metadata but their shapes.
    """
    events = host.events
    kernels = np.flatnonzero((call < 0) & (events.category[rows] == Category.KERNEL) & (launches >= 0))
    used = np.unique(events.name[rows[kernels]]).tolist()
    kinds = {code: kind_of_kernel(events.names[code]) for code in used if library_kernel(events.names[code])}
    sized = [code for code, kind in kinds.items() if kind in _WHOLE_IS_LARGEST]
    kernels = kernels[np.isin(events.name[rows[kernels]], sized)]
    if not len(kernels):
        return
    around = _Around(host, launches[kernels], "")
    for number, index in enumerate(kernels.tolist()):
        kind = kinds[int(events.name[rows[index]])]
        inputs = around.inputs(number).largest
        if around.kind(number) == kind and itemsize(inputs.dtype):
            yield index, Call(kind, inputs.elements(), inputs.elements(), inputs.dtype, None)


class _Around:
    """The innermost operator of one layer around each launch, and what it says."""

    def __init__(self, host: Host, launches: Int64, prefix: str) -> None:
        self._events: Events = host.events
        rows = host.named(prefix)
        names = {code: self._events.names[code] for code in np.unique(self._events.name[rows]).tolist()}
        kinds = {code: kind_of_call(name.removeprefix(prefix)) for code, name in names.items()}
        self._kinds = {code: kind for code, kind in kinds.items() if kind not in (None, Collective.OTHER)}
        rows = rows[np.isin(self._events.name[rows], list(self._kinds))]
        self._rows = host.around(launches, rows)
        _, which, count = np.unique(self._rows, return_inverse=True, return_counts=True)
        self._is_alone = count[which] == 1

    def kind(self, number: int) -> Collective | None:
        """Return the kind that the operator around a launch has, None where there is none."""
        row = self._rows[number]
        return self._kinds[int(self._events.name[row])] if row >= 0 else None

    def inputs(self, number: int) -> Inputs:
        """Return its tensors; none for an operator that launched several kernels, since these share them."""
        code = self._events.inputs[self._rows[number]]
        return self._events.shapes[code] if code >= 0 and self._is_alone[number] else _NOTHING


def _choose_kind(kernel: Collective, operator_kinds: Sequence[Collective]) -> Collective | None:
    """Return the kind that operators, innermost first, give a kernel; None where they name none, or another one.

    What a kernel's name says is what ran; PyTorch's barrier runs an all-reduce.
    """
    if Collective.BARRIER in operator_kinds and kernel in (*OPEN, Collective.ALL_REDUCE):
        return Collective.BARRIER
    if kernel in OPEN:
        return operator_kinds[0] if operator_kinds else None
    return kernel if kernel in operator_kinds else None


def _build_call(kind: Collective, inner: Inputs, outer: Inputs) -> Call:
    """Build a call from what both operators say; sizes are -1 where they do not say what counts."""
    dtype = next((inputs.dtype for inputs in (inner, outer) if itemsize(inputs.dtype)), "")
    received, sent = (outer.elements(side) if kind in _TWO_SIDED else UNKNOWN for side in (0, 1))
    if min(received, sent) >= 0:
        return Call(kind, sent, received, dtype, _build_group(kind, sent, received))
    count = inner.tensors if kind != Collective.ALL_TO_ALL else UNKNOWN
    return Call(kind, count, count, dtype, None, is_part=kind in RECORDED_IN_PART)


def _build_group(kind: Collective, sent: int, received: int) -> Group | None:
    """Build a group whose size is the larger count over the smaller; None where that does not tell."""
    small, large = sorted((sent, received))
    if kind == Collective.ALL_TO_ALL or not small or large % small:
        return None
    return Group("", large // small, None)
