"""The calls of kernels without metadata (PyTorch before 2.2): what the operators around their launch say.

    c10d::_allgather_base_  |[[400], [100]] .........|     the process group's call: of some kinds both sides
    nccl:_all_gather_base     |[[100]] ............|       the range of NCCL's: what a rank puts in
    launch                         ^
    kernel                           ncclKernel_SendRecv    its name may leave the kind open

What the ranges record is in ProcessGroupNCCL.cpp: of a list of an all-to-all but the first tensor, of an all-gather, a
gather and a scatter one rank's part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from analyzers.calls import (
    OPEN,
    RECORDED_IN_PART,
    UNSAID,
    Call,
    Collective,
    Group,
    Inputs,
    itemsize,
    kind_of_call,
    kind_of_kernel,
)
from analyzers.classify import Category
from analyzers.events import Events
from analyzers.host import Host
from analyzers.marks import C10D, NCCL

Int64 = NDArray[np.int64]

# Calls of these have their output and their input before all other arguments.
_TWO_SIDED = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)
_NOTHING = Inputs((), ())


def described(host: Host, rows: Int64, launches: Int64, call: Int64) -> Iterable[tuple[int, Call]]:
    """The call of each kernel (by its place among `rows`) that has none, as far as the operators around it tell."""
    events = host.events
    places = np.flatnonzero((call < 0) & (events.category[rows] == Category.KERNEL) & (launches >= 0))
    if not len(places):
        return
    around = [_Around(host, launches[places], prefix) for prefix in (NCCL, C10D)]
    for number, place in enumerate(places.tolist()):
        kernel = kind_of_kernel(events.names[events.name[rows[place]]])
        said = [each.kind(number) for each in around]
        kind = _kind(kernel, [each for each in said if each is not None])
        inputs = [each.inputs(number) if each.kind(number) == kind else _NOTHING for each in around]
        found = None if kind is None else _call(kind, *inputs)
        if found is not None and (found.elements >= 0 or kernel in OPEN or kind == Collective.BARRIER):
            yield place, found


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
        """The kind that the operator around a launch is of, None where there is none."""
        row = self._rows[number]
        return self._kinds[int(self._events.name[row])] if row >= 0 else None

    def inputs(self, number: int) -> Inputs:
        """Its tensors; of an operator that launched several kernels none, since these share them."""
        code = self._events.inputs[self._rows[number]]
        return self._events.shapes[code] if code >= 0 and self._is_alone[number] else _NOTHING


def _kind(kernel: Collective, said: Sequence[Collective]) -> Collective | None:
    """The kind that operators, innermost first, say of a kernel; None where they say nothing, or of another one.

    What a kernel's name says is what ran; PyTorch's barrier runs an all-reduce.
    """
    if Collective.BARRIER in said and kernel in (*OPEN, Collective.ALL_REDUCE):
        return Collective.BARRIER
    if kernel in OPEN:
        return said[0] if said else None
    return kernel if kernel in said else None


def _call(kind: Collective, inner: Inputs, outer: Inputs) -> Call:
    """What both operators say of one collective; sizes are -1 where they do not say what counts."""
    dtype = next((each.dtype for each in (inner, outer) if itemsize(each.dtype)), "")
    received, sent = (outer.elements(side) if kind in _TWO_SIDED else UNSAID for side in (0, 1))
    if min(received, sent) >= 0:
        return Call(kind, sent, received, dtype, _group(kind, sent, received))
    own = inner.tensors if kind != Collective.ALL_TO_ALL else UNSAID
    return Call(kind, own, own, dtype, None, is_part=kind in RECORDED_IN_PART)


def _group(kind: Collective, sent: int, received: int) -> Group | None:
    """A group of which the size is known: so many times as large is what is gathered, or was to be reduced."""
    small, large = sorted((sent, received))
    if kind == Collective.ALL_TO_ALL or not small or large % small:
        return None
    return Group("", large // small, None)
