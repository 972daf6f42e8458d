"""Brute force over a rank's kernels and operators: one event at a time, as docs/measuring.md has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from analyzers.rank.columns.activity import activities
from analyzers.rank.columns.windows import profiler_steps, windows
from analyzers.run.rank_trace import RankTrace
from analyzers.trace.kernel_names import Category, Kind

Table = dict[tuple[str, str], tuple[int, int, float]]


def extents_of(trace: RankTrace) -> dict[int, tuple[int, int]]:
    """When the windows of each device begin and end."""
    steps = profiler_steps(trace.timed)
    tiles = {activity.device: windows(activity, steps) for activity in activities(trace)}
    return {device: (int(of.start_ns[0]), int(of.end_ns[-1])) for device, of in tiles.items()}


def in_windows(trace: RankTrace) -> Iterator[tuple[int, int]]:
    """The rows of the devices' events that run in windows, and for how long."""
    timed, extents = trace.timed, extents_of(trace)
    columns = (timed.category.tolist(), timed.start_ns.tolist(), timed.end_ns.tolist(), timed.device.tolist())
    for row, (category, start, end, device) in enumerate(zip(*columns, strict=True)):
        if category not in (Category.KERNEL, Category.MEMCPY, Category.MEMSET):
            continue
        begin, stop = extents[device]
        if start < stop and (end > begin or start >= begin):
            yield row, min(end, stop) - max(start, begin)


def kernel_table(trace: RankTrace) -> Table:
    """Calls, total and median of every kernel and kind."""
    times = defaultdict(list)
    for row, ns in in_windows(trace):
        times[_name(trace, row), _kind(trace, row)].append(ns)
    return _table(times)


def operator_table(trace: RankTrace) -> Table:
    """The same by the innermost operator around the launch."""
    launchers = operator_of(trace, lambda row: True)
    by_call: dict[Any, int] = defaultdict(int)
    for row, ns in in_windows(trace):
        operator = launchers(row)
        by_call[operator if operator is not None else ("none", row), _kind(trace, row)] += ns
    times = defaultdict(list)
    for (call, kind), ns in by_call.items():
        name = _name(trace, call) if isinstance(call, int) else _outside(trace, call[1])
        times[name, kind].append(ns)
    return _table(times)


def operator_of(trace: RankTrace, is_one: Callable[[int], bool]) -> Callable[[int], int | None]:
    """What answers the innermost operator of some around the launch of a row."""
    events = trace.events
    launches: dict[int, int] = {}
    by_thread: dict[int, list[int]] = defaultdict(list)
    starts, ends, threads = events.start_ns.tolist(), events.end_ns.tolist(), events.thread.tolist()
    for row, (category, correlation) in enumerate(
        zip(events.category.tolist(), events.correlation.tolist(), strict=True)
    ):
        if category == Category.LAUNCH and correlation >= 0:
            launches.setdefault(correlation, row)
        if category == Category.OPERATOR and is_one(row):
            by_thread[threads[row]].append(row)

    def around(row: int) -> int | None:
        launch = launches.get(int(events.correlation[row]))
        if launch is None:
            return None
        instant = starts[launch]
        holding = [operator for operator in by_thread[threads[launch]] if starts[operator] <= instant < ends[operator]]
        return max(holding, key=lambda operator: (starts[operator], -ends[operator]), default=None)

    return around


def _outside(trace: RankTrace, row: int) -> str:
    events = trace.events
    launched = (events.category == Category.LAUNCH) & (events.correlation == events.correlation[row])
    return "(no operator)" if launched.any() else "(launch not recorded)"


def _table(times: dict[tuple[str, str], list[int]]) -> Table:
    return {key: (len(values), sum(values), median(values)) for key, values in times.items()}


def _name(trace: RankTrace, row: int) -> str:
    return trace.events.names[trace.events.name[row]]


def _kind(trace: RankTrace, row: int) -> str:
    return Kind(int(trace.timed.kind[row])).name.lower()
