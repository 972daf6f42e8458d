"""Columns of one rank's rows: what the reader fills and every analysis takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.calls import Call, Inputs
from analyzers.classify import DEVICE_CATEGORIES

Int64 = NDArray[np.int64]

UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class Events:
    """The rows of one trace file as columns of one length; -1 where a row does not have the value.

    `name` indexes `names`. `thread` is the host thread (rows of the host), `device` the device (rows of a device),
    `peer` the other device of a copy between two. `external` joins a host operator, its launches and their kernels.
    `call` indexes `calls` (kernels and operators that tell of a collective), `sequence` is its number in its group,
    `inputs` indexes `shapes` (operators whose inputs analyses need). Times are nanoseconds since the epoch.
    """

    category: NDArray[np.int8]
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    names: tuple[str, ...]
    start_ns: Int64
    dur_ns: Int64
    thread: Int64
    device: NDArray[np.int32]
    peer: NDArray[np.int32]
    stream: Int64
    correlation: Int64
    nbytes: Int64
    external: Int64
    sequence: Int64
    call: NDArray[np.int32]
    calls: tuple[Call, ...]
    inputs: NDArray[np.int32]
    shapes: tuple[Inputs, ...]

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64:
        """End of every row, half-open."""
        return self.start_ns + self.dur_ns

    @cached_property
    def on_device(self) -> NDArray[np.bool_]:
        """The rows that are device activity."""
        return np.isin(self.category, DEVICE_CATEGORIES)

    def named(self, prefix: str) -> NDArray[np.bool_]:
        """The rows whose name starts with a prefix."""
        return np.array([name.startswith(prefix) for name in self.names], dtype=bool)[self.name]

    def take(self, rows: NDArray[Any]) -> Events:
        """The rows that a mask or an index selects, names kept as they are."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return replace(self, **columns)


_COLUMNS = (
    *("category", "kind", "name", "start_ns", "dur_ns", "thread"),
    *("device", "peer", "stream", "correlation", "nbytes", "external", "sequence", "call", "inputs"),
)
