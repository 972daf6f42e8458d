"""`Events`: columns of one rank's rows, CUDA's synchronizations, samples of Python's stack.

Synchronizations are no activity of a device and no analysis of ours counts them; a critical path follows them. Samples
name what was between rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import IntFlag
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Columns, Int64, find, sorted_set, values_at
from analyzers.texts import brief
from analyzers.trace.arguments import Args, whole
from analyzers.trace.collective_calls import Call, Inputs
from analyzers.trace.kernel_names import LAST_DEVICE_CATEGORY, Category
from analyzers.trace.range_names import STEP


@dataclass(frozen=True, eq=False)
class Syncs(Columns):
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


def sync_columns(rows: Sequence[Args], processes: Int64) -> dict[str, Int64]:
    """Return as columns what synchronizations alone say; a device is the row's process where it names none."""
    columns = {name: _numbers([getattr(args, name, UNKNOWN) for args in rows]) for name in SYNC_FIELDS}
    return columns | {"device": np.where(columns["device"] < 0, processes, columns["device"])}


def _numbers(values: Sequence[Any]) -> Int64:
    return np.array([whole(value) for value in values], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Samples(Columns):
    """One row a sample of a thread's Python stack, by time: which function of the program it was in.

    `name` indexes the rows' names. It was asked for at `since_ns`, and could answer at `noted_ns`: so long Python's
    interpreter was not back from a call of C.
    """

    name: Int64
    thread: Int64
    since_ns: Int64
    noted_ns: Int64


SYNC_FIELDS = ("device", "stream", "wait_on_stream", "wait_on_record")
NONE = Syncs(**{field.name: np.zeros(0, dtype=np.int64) for field in fields(Syncs)})
NO_SAMPLES = Samples(**{field.name: np.zeros(0, dtype=np.int64) for field in fields(Samples)})


class Health(IntFlag):
    """What a row's relations to others say of it."""

    CUT = 1  # it lasted beyond the next row of its stream, and is as long as it can be at most
    ENDLESS = 2  # no end is known: its window is left out
    LOST = 4  # a launch of which kernels are missing
    CYCLE = 8  # a step's mark with which another cycle of the profiler begins


@dataclass(frozen=True, eq=False)
class Events(Columns):
    """The rows of one trace file as columns of one length; -1 where a row does not have the value.

    `name` indexes `names`. `thread` is the host thread (rows of the host), `device` the device (rows of a device),
    `peer` the other device of a copy between two. `external` joins a host operator, its launches and their kernels.
    `call` indexes `calls` (kernels and operators that tell of a collective), `sequence` is its number in its group,
    `inputs` indexes `shapes` (operators whose inputs analyses need). `forward` is autograd's sequence number: it joins
    a forward operator and its backward node, `forward_thread` the thread of the former as autograd numbers threads.
    `grid` tells apart kernels launched with other grids or blocks, `graph` the CUDA graphs that launched rows.
    `launched_ns` is the start of the host call that launched the row. `position` is the row's place among all events of
    the file, from 0. `health` are bits of Health. Times are nanoseconds since the epoch. `syncs` and `samples` are no
    rows of these: they wait, or tell of others, and do nothing.
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
    forward: Int64
    forward_thread: Int64
    grid: Int64
    graph: Int64
    launched_ns: Int64
    position: Int64
    health: NDArray[np.int8]
    syncs: Syncs = NONE
    samples: Samples = NO_SAMPLES

    __repr__ = brief

    @cached_property
    def end_ns(self) -> Int64:
        """Return the end of every row, half-open."""
        return self.start_ns + self.dur_ns

    @cached_property
    def on_device(self) -> NDArray[np.bool_]:
        """Return the mask for rows that are device activity."""
        return self.category <= LAST_DEVICE_CATEGORY

    def named(self, *prefixes: str) -> NDArray[np.bool_]:
        """Return the mask for rows whose name starts with one of the prefixes."""
        return np.array([name.startswith(prefixes) for name in self.names], dtype=bool)[self.name]

    def called(self, category: Category, is_one: Callable[[str], object]) -> Int64:
        """Return the rows of a category that are called so, in order; no name of other rows is looked at."""
        rows = np.flatnonzero(self.category == category)
        code, is_so = self.name[rows], np.zeros(len(self.names), dtype=bool)
        for present in np.flatnonzero(np.bincount(code)).tolist():
            is_so[present] = bool(is_one(self.names[present]))
        return rows[is_so[code]]

    def launched_by(self, correlation: Int64) -> Int64:
        """Return for each correlation the row of the first host call that has it, UNKNOWN for none."""
        return launch_rows(self.category, self.correlation, self.start_ns, correlation)

    @cached_property
    def steps(self) -> Int64:
        """Return the rows with which the profiler marks steps, by start."""
        rows = self.called(Category.ANNOTATION, lambda name: name.startswith(STEP))
        return rows[np.argsort(self.start_ns[rows], kind="stable")]

    def rows_named(self, *prefixes: str) -> Int64:
        """Return the rows whose name starts with one of the prefixes, in order."""
        names, order, first = self._by_name
        parts = [order[:0]]
        for prefix in prefixes:
            low, high = (
                cut(names, prefix, key=lambda name: name[: len(prefix)]) for cut in (bisect_left, bisect_right)
            )
            parts.append(order[first[low] : first[high]])
        return sorted_set(np.concatenate(parts))

    @cached_property
    def _by_name(self) -> tuple[list[str], Int64, Int64]:
        """Return the names in order, the rows sorted by name, and where the rows of each name begin."""
        codes = sorted(range(len(self.names)), key=self.names.__getitem__)
        # numpy sorts numbers of 16 bits by their digits.
        place = np.empty(len(codes), dtype=np.uint16 if len(codes) < 2**16 else np.int64)
        place[codes] = np.arange(len(codes))
        place_of_row = place[self.name]
        first = np.r_[0, np.cumsum(np.bincount(place_of_row, minlength=len(codes)))]
        return [self.names[code] for code in codes], np.argsort(place_of_row, kind="stable"), first


def launch_rows(category: NDArray[np.int8], correlation: Int64, start_ns: Int64, wanted: Int64) -> Int64:
    """Return for each wanted correlation the row of the first host call that has it, UNKNOWN for none."""
    calls = np.flatnonzero((category == Category.LAUNCH) & (correlation != UNKNOWN))
    calls = calls[np.lexsort((start_ns[calls], correlation[calls]))]
    return values_at(calls, find(correlation[calls], wanted))


def launch_times(category: NDArray[np.int8], correlation: Int64, start_ns: Int64) -> Int64:
    """Return for every row the start of the first host call with its correlation, else UNKNOWN."""
    return values_at(start_ns, launch_rows(category, correlation, start_ns, correlation))
