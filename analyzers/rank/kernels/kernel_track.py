"""Track of a device's kernels and copies by name, without communication."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, values_at
from analyzers.rank.kernels.usage import Launched
from analyzers.trace import Events, Kind


@dataclass(frozen=True, eq=False)
class KernelTrack:
    """Kernels and copies of one device by start, which may overlap; on a CPU run operators, while they themselves ran.

    `name` and `operator` index `names`: the kernel, and the innermost operator around its launch, UNKNOWN for none
    known. `line` is what it is attributed to.
    """

    start_ns: Int64
    end_ns: Int64
    is_copy: NDArray[np.bool_]
    name: NDArray[np.int32]
    operator: NDArray[np.int32]
    line: NDArray[np.int32]
    names: tuple[str, ...]

    def moved(self, by_ns: int) -> KernelTrack:
        """Return the same kernels later by so much."""
        return replace(self, start_ns=self.start_ns + by_ns, end_ns=self.end_ns + by_ns)


def kernel_track(events: Events, launched: Launched, device: int) -> KernelTrack:
    """Return what ran on one device, named as the trace names it."""
    mine = launched.take((launched.device == device) & (launched.kind != Kind.COMM))
    mine = mine.take(np.argsort(mine.start_ns, kind="stable"))
    operator = values_at(events.name, mine.operator)
    # On a CPU run there are no kernels: operators are what runs.
    runs_operators = mine.name == UNKNOWN
    name = np.where(runs_operators, operator, mine.name)
    operator = np.where(runs_operators, UNKNOWN, operator)
    codes, index = np.unique(np.r_[UNKNOWN, name, operator], return_inverse=True)
    # The first code is UNKNOWN, which stays what it is.
    place = (index[1:] - 1).astype(np.int32)
    return KernelTrack(
        start_ns=mine.start_ns,
        end_ns=mine.end_ns,
        is_copy=mine.kind == Kind.COPY,
        name=place[: len(name)],
        operator=place[len(name) :],
        line=mine.line.astype(np.int32),
        names=tuple(events.names[code] for code in codes[1:].tolist()),
    )
