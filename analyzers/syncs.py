"""CUDA's synchronizations: who waited for what, as a profile records them that is told to (`enable_cuda_sync_events`).

They are no activity of a device and no analysis of ours counts them; a critical path follows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.arguments import Args, whole
from analyzers.calls import UNSAID

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Syncs:
    """One row a synchronization, -1 where it does not say; columns as those of Events.

    `wait_on_stream` is the stream that was waited for, `wait_on_record` the correlation of the `cudaEventRecord` there.
    """

    position: Int64
    name: Int64
    start_ns: Int64
    dur_ns: Int64
    thread: Int64
    correlation: Int64
    device: Int64
    stream: Int64
    wait_on_stream: Int64
    wait_on_record: Int64

    def __len__(self) -> int:
        return len(self.start_ns)


def said(rows: Sequence[Args], processes: Int64) -> dict[str, Int64]:
    """What synchronizations alone say, as columns; a device is the row's process where it names none."""
    columns = {name: _numbers([getattr(args, name, UNSAID) for args in rows]) for name in SAID}
    return columns | {"device": np.where(columns["device"] < 0, processes, columns["device"])}


def _numbers(values: Sequence[Any]) -> Int64:
    return np.array([whole(value) for value in values], dtype=np.int64)


SAID = ("device", "stream", "wait_on_stream", "wait_on_record")
NONE = Syncs(**{field.name: np.zeros(0, dtype=np.int64) for field in fields(Syncs)})
