"""Conversion of a run to HTA's Trace, in exact nanoseconds.

    import analyzers
    analysis = analyzers.to_hta(analyzers.load("traces/resnet18-ddp4"))
    analysis.get_comm_comp_overlap(visualize=False)

The frame of a rank has a row for each event that we read (HTA drops the profiler's last step; here it is). Times count
from the run's first event.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN, Int64, find
from analyzers.errors import NotAnalyzable, NotInstalled, install_hint
from analyzers.rank import profiler_steps
from analyzers.run import RankTrace, Run
from analyzers.trace import Category, Events

if TYPE_CHECKING:
    import pandas as pd

DISTRIBUTION = "traceinsight"  # HolisticTraceAnalysis' name since 0.6; its module is still called hta
_OLD_DISTRIBUTION = "HolisticTraceAnalysis"

_LIBRARY = "analyzers.hta.library"

# As Kineto calls them. A call of the runtime and one of the driver are told apart by their names.
_CATEGORIES = {
    Category.KERNEL: "kernel",
    Category.MEMCPY: "gpu_memcpy",
    Category.MEMSET: "gpu_memset",
    Category.LAUNCH: "cuda_runtime",
    Category.OPERATOR: "cpu_op",
    Category.ANNOTATION: "user_annotation",
    Category.PYTHON: "python_function",
    Category.SYNC: "cuda_sync",
}
# HTA counts these as of the device although they have no stream.
_STREAMLESS_SYNCS = ("Event Sync", "Context Sync")
_HOST = -1


def to_hta(run: Run) -> Any:
    """Return HTA's TraceAnalysis for a run's full windows, which have the host and its devices on one clock.

    Its columns are `index` (the place in the file, and the frame's index), `cat`, `name` (symbols), `pid` (the device,
    -1 on the host), `tid`, `ts`, `dur`, `end`, `stream`, `correlation`, `index_correlation`, `iteration`, `bytes`,
    `memory_bw_gbps`, and what synchronizations waited for. Where a rank has several devices, streams get
    numbers of their own, since HTA knows streams by number alone: `device_stream` is the number in the trace.

    Raises NotInstalled, NotAnalyzable.
    """
    library = hta_library()
    for rank in run.ranks:
        _check_numbers(rank)
    origin_ns = min(_first_ns(rank.events) for rank in run.ranks)
    symbols: dict[str, int] = {}
    frames = {rank.rank: _frame(rank.events, symbols, origin_ns) for rank in run.ranks}
    files = {rank.rank: str(rank.path) for rank in run.ranks}
    metadata_by_rank = {rank.rank: _said(rank) for rank in run.ranks}
    return library.ExactAnalysis(library.ExactTrace(frames, list(symbols), files, metadata_by_rank, origin_ns))


def hta_library() -> Any:
    """Import the module that drives HTA. Raises NotInstalled."""
    try:
        metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise NotInstalled(f"HolisticTraceAnalysis ({DISTRIBUTION}) is not installed: {_remedy()}") from error
    return import_module(_LIBRARY)


def versions() -> dict[str, str]:
    """Return what the numbers were made with."""
    return {name: metadata.version(name) for name in (DISTRIBUTION, "pandas")}


def _remedy() -> str:
    try:
        metadata.version(_OLD_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return install_hint("hta")
    return f"pip uninstall {_OLD_DISTRIBUTION}, which it replaces, then {install_hint('hta')}"


def _said(rank: RankTrace) -> dict[str, Any]:
    return {"distributedInfo": rank.header.distributed, "baseTimeNanoseconds": rank.header.base_time_ns}


def _first_ns(events: Events) -> int:
    return int(min(times.min() for times in (events.start_ns, events.syncs.start_ns) if len(times)))


def _frame(events: Events, symbols: dict[str, int], origin_ns: int) -> pd.DataFrame:
    """Build one rank's rows as HTA's parser would have left them, in the file's order."""
    import pandas as pd  # a quarter of a second that reading alone need not wait

    columns = _rows(events)
    codes = np.array([symbols.setdefault(name, len(symbols)) for name in events.names], dtype=np.int64)
    on_device, launch = _joins(events, columns)
    columns["cat"] = _category_symbols(events, columns["cat"], columns["name"], symbols)
    index = columns["index"]
    linked = np.where(launch >= 0, index[launch], np.minimum(columns["correlation"], 0))
    columns["index_correlation"] = linked
    columns["iteration"] = _iterations(events, columns["ts"], on_device, launch)
    columns["name"] = codes[columns["name"]]
    columns["ts"] = columns["ts"] - origin_ns
    columns["end"] = columns["ts"] + columns["dur"]
    columns["memory_bw_gbps"] = np.where(columns["bytes"] > 0, columns["bytes"] / np.maximum(columns["dur"], 1), 0.0)
    return pd.DataFrame(columns, index=index)


def _rows(events: Events) -> dict[str, NDArray[Any]]:
    """Return columns for rows and synchronizations, by place in the file; `cat` and `name` are codes of ours."""
    syncs = events.syncs
    kept = np.flatnonzero(np.isin(events.category, [*_CATEGORIES]))
    order = np.argsort(np.r_[events.position[kept], syncs.position], kind="stable")
    # Every device row is on a stream, whatever it says: -1 is the host.
    stream = np.where(events.on_device, np.maximum(events.stream, 0), _HOST)[kept]
    unknown = np.full(len(syncs), UNKNOWN)
    none = np.full(len(kept), UNKNOWN)
    places = np.r_[np.where(events.on_device, events.device, _HOST)[kept], syncs.device]
    streams, waited = np.r_[stream, syncs.stream], np.r_[none, syncs.wait_on_stream]
    beyond = _beyond(streams, places)
    columns = {
        "index": np.r_[events.position[kept], syncs.position],
        "cat": np.r_[events.category[kept], np.full(len(syncs), int(Category.SYNC))],
        "name": np.r_[events.name[kept], syncs.name],
        "pid": places,
        "tid": np.r_[events.thread[kept], syncs.thread],
        "ts": np.r_[events.start_ns[kept], syncs.start_ns],
        "dur": np.r_[events.dur_ns[kept], syncs.dur_ns],
        "device_stream": streams,
        "stream": np.where(streams >= 0, streams + beyond * places, streams),
        "correlation": np.r_[events.correlation[kept], syncs.correlation],
        "bytes": np.r_[events.nbytes[kept], unknown],
        "wait_on_stream": np.where(waited >= 0, waited + beyond * places, waited),
        "wait_on_cuda_event_record_corr_id": np.r_[none, syncs.wait_on_record],
    }
    return {name: column[order].astype(np.int64) for name, column in columns.items()}


def _check_numbers(rank: RankTrace) -> None:
    """Raise NotAnalyzable for streams and devices whose numbers no GPU has: no others fit in their place."""
    on_device = rank.events.on_device
    stream, device = rank.events.stream[on_device], rank.events.device[on_device].astype(np.int64)
    if len(device) and _beyond(stream, device) * (int(device.max()) + 1) > np.iinfo(np.int64).max:
        numbers = f"device {int(device.max())} or stream {int(stream.max())}"
        raise NotAnalyzable(f"{rank.path}: {numbers} is no number that a GPU has: record it again")


def _beyond(stream: Int64, device: Int64) -> int:
    """Return the factor for a device's number in front of its streams' numbers; 0 where a rank has one device."""
    several = len(np.unique(device[stream >= 0])) > 1
    return 10 ** len(str(int(stream.max()))) if several else 0


def _category_symbols(events: Events, category: Int64, name: Int64, symbols: dict[str, int]) -> Int64:
    driver = np.array([name[:2] == "cu" and name[2:3].isupper() for name in events.names], dtype=bool)
    symbol_of = np.full(len(category), UNKNOWN)
    for code in np.unique(category).tolist():
        word = _CATEGORIES[Category(code)]
        symbol_of[category == code] = symbols.setdefault(word, len(symbols))
    driven = (category == Category.LAUNCH) & driver[name]
    if driven.any():
        symbol_of[driven] = symbols.setdefault("cuda_driver", len(symbols))
    return symbol_of


def _joins(events: Events, columns: dict[str, NDArray[Any]]) -> tuple[NDArray[np.bool_], Int64]:
    """Return which rows are a device's, and each row's other end: a kernel's launch, a launch's first kernel, or -1."""
    streamless = np.array([name in _STREAMLESS_SYNCS for name in events.names], dtype=bool)
    correlation = columns["correlation"]
    on_device = (columns["stream"] >= 0) | ((columns["cat"] == Category.SYNC) & streamless[columns["name"]])
    other_end = np.full(len(correlation), UNKNOWN)
    sides = [np.flatnonzero(side & (correlation >= 0)) for side in (on_device, ~on_device)]
    for side_rows, other_rows in (sides, sides[::-1]):
        if len(other_rows):
            other_rows = other_rows[np.lexsort((columns["ts"][other_rows], correlation[other_rows]))]
            position = find(correlation[other_rows], correlation[side_rows])
            is_joined = position >= 0
            other_end[side_rows[is_joined]] = other_rows[position[is_joined]]
    return on_device, other_end


def _iterations(events: Events, start_ns: Int64, on_device: NDArray[np.bool_], launch: Int64) -> Int64:
    """Return the profiler's step for every row, on a device the launch's; -1 for none."""
    step_at_start = profiler_steps(events).number_at(start_ns)
    return np.where(on_device, np.where(launch >= 0, step_at_start[launch], UNKNOWN), step_at_start)
