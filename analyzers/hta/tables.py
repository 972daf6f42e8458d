"""HTA's analyses as tables of plain numbers, for terminal, JSON and CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from analyzers.arrays import UNKNOWN
from analyzers.errors import NotAnalyzable
from analyzers.hta.adapter import hta_library, to_hta, versions
from analyzers.json_documents import encoded
from analyzers.rank import breakdown
from analyzers.run import RankTrace, Run
from analyzers.statistics import ratio
from analyzers.texts import listed
from analyzers.trace import Category
from analyzers.units import NS_PER_US

if TYPE_CHECKING:
    import pandas as pd

Cell = int | float | str | None


@dataclass(frozen=True)
class Figures:
    """Rows under named columns: `_ns` are nanoseconds, `share` is of one. `listed`: short enough to be read."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    listed: bool = True

    def to_frame(self) -> pd.DataFrame:
        """Return the same as a DataFrame."""
        import pandas as pd  # a quarter of a second that others need not wait

        return pd.DataFrame(list(self.rows), columns=list(self.columns))


@dataclass(frozen=True)
class Analysis:
    """What one analysis found: what it is of, its tables, and what must be known of them."""

    name: str
    facts: Mapping[str, Cell]
    tables: tuple[Figures, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def figures(name: str, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Figures:
    """Build a table from whatever numpy or pandas hold, as plain numbers; what is no number is None."""
    return Figures(name, title, tuple(columns), tuple(tuple(map(_plain, row)) for row in rows))


def to_json(analysis: Analysis) -> str:
    """Write the whole analysis: `tracer.hta/1`, a table under its name as a list of objects."""
    tables = {
        table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in analysis.tables
    }
    document = {
        "schema": "tracer.hta/1",
        "analysis": analysis.name,
        "versions": dict(analysis.versions),
        **analysis.facts,
        "notes": list(analysis.notes),
        **tables,
    }
    return encoded(document)


def _plain(value: Any) -> Cell:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if value != value:
            return None
        # pandas makes floats of counts and nanoseconds where anything is missing.
        return int(value) if value.is_integer() else value
    return value if isinstance(value, int | str) else None


T = TypeVar("T")
# Outliers in HTA's own plots of launches.
SLOW_CALL_NS, LATE_NS = 50 * NS_PER_US, 100 * NS_PER_US
# All of them: HTA 0.6.1 takes the statistics of what it joins to `others` from sums, and then of all kernels.
_EVERY_KERNEL = 10**9
# The calls that HTA 0.6.1 knows as launches, for its launch statistics and for all else.
_LAUNCHES = frozenset(("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"))
_QUEUED = _LAUNCHES | {"cuLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel", "hipExtModuleLaunchKernel"}
_QUEUED |= {"hipMemcpyAsync", "hipMemsetAsync", "hipMemcpyWithStream"}
_NAMED = 4  # how many names a message lists


def idle(run: Run, rank: int | None = None) -> Analysis:
    """Return why each stream was idle: the host had launched nothing, the next kernel came at once, or neither.

    Raises NotAnalyzable, NotInstalled.
    """
    chosen, notes = _able(run, rank, _launched)
    analysis = to_hta(chosen)
    idle_times, gaps = _attempt("idle causes", chosen, lambda: _idle_times(analysis, chosen))
    keys = ["rank", "stream", "idle_category"]
    gaps = gaps.rename_axis("idle_category").reset_index()
    merged = idle_times.merge(gaps, on=keys).sort_values(keys)
    merged = merged[merged["count"] > 0]
    total = merged.groupby(["rank", "stream"])["idle_time"].transform("sum")
    places = _places(analysis)
    order = [*keys, "idle_time", "count", "50%", "max"]
    rows = [
        (number, *places[number, stream], cause, time, ratio(time, stream_total), *of_gaps)
        for (number, stream, cause, time, *of_gaps), stream_total in zip(
            merged[order].itertuples(index=False, name=None), total, strict=True
        )
    ]
    columns = ("rank", "device", "stream", "cause", "idle_ns", "share", "gaps", "median_ns", "longest_ns")
    return _analysis("idle", (figures("idle", "Idle time of each stream, by cause", columns, rows),), notes)


def queue(run: Run, rank: int | None = None) -> Analysis:
    """Return how many launched kernels and copies waited on each stream, over all changes of that number.

    Raises NotAnalyzable, NotInstalled.
    """
    chosen, notes = _able(run, rank, _queued)
    analysis = to_hta(chosen)
    lengths = _attempt("queue lengths", chosen, lambda: analysis.get_queue_length_summary(_numbers(chosen)))
    if lengths is None:
        raise NotAnalyzable(f"{chosen.name}: HTA finds no operation whose launch is known")
    places = _places(analysis)
    # Columns of pairs (queue_length, count), and so on; rows of (rank, stream).
    rows = [(key[0], *places[key], *values) for key, values in zip(lengths.index, lengths.to_numpy(), strict=True)]
    columns = ("rank", "device", "stream", "changes", "mean", "std", "min", "p25", "median", "p75", "max")
    return _analysis("queue", (figures("queue", "Operations queued on each stream", columns, rows),), notes)


def launches(run: Run, rank: int | None = None) -> Analysis:
    """Return how long launching calls took on the host, what they launched on the device, and how long lay between.

    Raises NotAnalyzable, NotInstalled.
    """
    chosen, notes = _able(run, rank, lambda rank: _known(rank, _LAUNCHES))
    analysis = to_hta(chosen)
    frames: dict[int, pd.DataFrame] = _attempt(
        "launch statistics", chosen, lambda: analysis.get_cuda_kernel_launch_stats(_numbers(chosen), visualize=False)
    )
    times = ("call_median_ns", "call_max_ns", "device_median_ns", "delay_median_ns", "delay_max_ns")
    columns = ("rank", "launches", *times, "shorter_than_call", "slow_calls", "late")
    rows = [(number, *_launch_row(frame)) for number, frame in frames.items()]
    notes += _unknown_launches(chosen)
    notes.append(
        f"shorter_than_call: device time below its call's; slow_calls: calls over {SLOW_CALL_NS // NS_PER_US} us; "
        f"late: begun over {LATE_NS // NS_PER_US} us after the call's end"
    )
    return _analysis("launches", (figures("launches", "Launches of kernels and copies", columns, rows),), notes)


def kernels(run: Run, rank: int | None = None) -> Analysis:
    """Tabulate time by type of kernel over all ranks, and each kernel's on each rank.

    Raises NotAnalyzable, NotInstalled.
    """
    chosen, notes = _able(run, rank, _on_device)
    analysis = to_hta(chosen)
    types, by_kernel = _attempt(
        "kernel breakdown",
        chosen,
        lambda: analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=_EVERY_KERNEL),
    )
    notes += [
        f"rank {rank.rank} has {count} devices: HTA takes the times of their kernels by type together"
        for rank in chosen.ranks
        if (count := len(np.unique(rank.events.device[rank.events.on_device]))) > 1
    ]
    total = types["sum"].sum()
    by_type = [(row.kernel_type.lower(), row.sum, ratio(row.sum, total)) for row in types.itertuples()]
    by_kernel = by_kernel.sort_values("sum (us)", ascending=False, kind="stable")
    order = ["rank", "kernel_type", "name", "sum (us)", "mean (us)", "min (us)", "max (us)", "stddev"]
    rows = [(*row[:1], row[1].lower(), *row[2:]) for row in by_kernel[order].itertuples(index=False, name=None)]
    columns = ("rank", "type", "name", "sum_ns", "mean_ns", "min_ns", "max_ns", "std_ns")
    tables = (
        figures("types", "Time by type of kernel, over all ranks", ("type", "time_ns", "share"), by_type),
        figures("kernels", "Kernels of each rank (sums of durations)", columns, rows),
    )
    return _analysis("kernels", tables, notes)


def diff(run: Run, other: Run, rank: int | None = None, step: int | None = None) -> Analysis:
    """Compare one rank's step with another run's: kernels, and operators with all they call.

    Raises NotAnalyzable, NotInstalled.
    """
    library = hta_library()
    pair = [one_rank(chosen, rank) for chosen in (run, other)]
    for chosen in pair:
        without_device = _on_device(chosen)
        if without_device is not None:
            raise NotAnalyzable(f"{chosen.path}: {without_device}")
    steps = [typical_step(chosen, step) for chosen in pair]
    for chosen, number in zip(pair, steps, strict=True):
        if number is None:
            raise NotAnalyzable(f"{chosen.path}: HTA compares steps, and none is marked (ProfilerStep#k)")
    traces = [
        to_hta(replace(whole_run, ranks=(chosen,), warnings=())).t
        for whole_run, chosen in zip((run, other), pair, strict=True)
    ]
    tables = [
        _attempt(
            "comparison",
            replace(run, ranks=(pair[0],)),
            lambda device=device: library.compare(*traces, (pair[0].rank, pair[1].rank), steps, device),  # type: ignore[misc]
        )
        for device in ("GPU", "CPU")
    ]
    facts = {"other": other.name, "rank": pair[0].rank, "step": steps[0], "other_step": steps[1]}
    titles = ("Kernels and copies", "Operators and calls on the host, each with all that it called")
    named = zip(("kernels", "operators"), titles, tables, strict=True)
    return _analysis("diff", tuple(_changes(*each) for each in named), [], **facts)


def one_rank(run: Run, rank: int | None) -> RankTrace:
    """Return one rank from a run, the first if none is named. Raises NotAnalyzable."""
    if rank is None:
        return run.ranks[0]
    chosen = next((each for each in run.ranks if each.rank == rank), None)
    if chosen is None:
        raise NotAnalyzable(f"{run.name} has no rank {rank}: it has {listed([each.rank for each in run.ranks], 8)}")
    return chosen


def typical_step(rank: RankTrace, step: int | None) -> int | None:
    """Return the step that is asked for, else that with median length; None if none is marked. Raises NotAnalyzable."""
    windows = breakdown(rank)
    marked = ~windows.unmarked
    spans = {int(k): int(windows.span_ns[marked & (windows.step == k)].max()) for k in np.unique(windows.step[marked])}
    if step is None:
        return sorted(spans, key=lambda k: (spans[k], k))[(len(spans) - 1) // 2] if spans else None
    if step not in spans:
        listed = ", ".join(map(str, list(spans)[:8])) if spans else "none that is marked"
        raise NotAnalyzable(f"{rank.path}: step {step} is not in it; it has {listed}")
    return step


def attempt(what: str, where: str, analyze: Callable[[], T]) -> T:
    """Return what HTA's own code returns, its noise silenced. Raises NotAnalyzable in place of whatever it raises."""
    with hta_library().quiet():
        try:
            return analyze()
        # HTA asserts, and lets pandas' errors through, on what it does not expect in a trace.
        except Exception as error:
            reason = str(error).strip().split("\n")[0][:120]
            raise NotAnalyzable(f"{where}: HTA's {what} fails on it ({type(error).__name__}: {reason})") from error


def _attempt(what: str, run: Run, analyze: Callable[[], Any]) -> Any:
    several = f"{run.name} (one of {len(run.ranks)} ranks: try each with --rank)"
    return attempt(what, str(run.ranks[0].path) if len(run.ranks) == 1 else several, analyze)


def _idle_times(analysis: Any, run: Run) -> Any:
    return analysis.get_idle_time_breakdown(_numbers(run), visualize=False, show_idle_interval_stats=True)


def _analysis(name: str, tables: tuple[Figures, ...], notes: Sequence[str], **facts: Any) -> Analysis:
    return Analysis(name, facts, tables, tuple(notes), versions())


def _able(run: Run, rank: int | None, why_not: Callable[[RankTrace], str | None]) -> tuple[Run, list[str]]:
    """Return the ranks that can be analyzed, all or the one asked for, and why others cannot. Raises NotAnalyzable."""
    asked = run.ranks if rank is None else (one_rank(run, rank),)
    reasons = [(candidate, why_not(candidate)) for candidate in asked]
    able = tuple(candidate for candidate, reason in reasons if reason is None)
    refusals = [f"{candidate.path}: {reason}" for candidate, reason in reasons if reason is not None]
    if not able:
        more = f" (and {len(refusals) - 1} more ranks like it)" if len(refusals) > 1 else ""
        raise NotAnalyzable(f"{refusals[0]}{more}")
    return replace(run, ranks=able), [f"left out: {candidate}" for candidate in refusals]


def _on_device(rank: RankTrace) -> str | None:
    return None if rank.events.on_device.any() else "a CPU run: HTA analyzes what devices do, and there is none"


def _launched(rank: RankTrace) -> str | None:
    without_device = _on_device(rank)
    if without_device or calls_of_device(rank):
        return without_device
    return "no device event has its launch in it: HTA needs the host's side (record with ProfilerActivity.CPU)"


def _queued(rank: RankTrace) -> str | None:
    return _known(rank, _QUEUED)


def _known(rank: RankTrace, call_names: frozenset[str]) -> str | None:
    calls = calls_of_device(rank)
    return _launched(rank) or (
        None if calls.keys() & call_names else f"HTA knows none of its launches: {_listed(calls)}"
    )


why_no_path = _queued


def calls_of_device(rank: RankTrace) -> Counter[str]:
    """Return how often each call of the host launched what ran on a device."""
    events = rank.events
    wanted = np.unique(events.correlation[events.on_device & (events.correlation != UNKNOWN)])
    calls = (events.category == Category.LAUNCH) & np.isin(events.correlation, wanted)
    codes, counts = np.unique(events.name[calls], return_counts=True)
    return Counter({events.names[code]: count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)})


def _unknown_launches(run: Run) -> list[str]:
    counted: Counter[str] = Counter()
    for rank in run.ranks:
        counted.update({name: count for name, count in calls_of_device(rank).items() if name not in _LAUNCHES})
    return [f"launches that HTA's statistics leave out: {_listed(counted)}"] if counted else []


def _listed(calls: Counter[str]) -> str:
    return listed([f"{name} ({count})" for name, count in calls.most_common()], _NAMED)


def _numbers(run: Run) -> list[int]:
    return [rank.rank for rank in run.ranks]


def _places(analysis: Any) -> dict[tuple[int, int], tuple[int, int]]:
    """Return for each rank and HTA's number for a stream: the device, and the stream's number on it."""
    places: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, frame in analysis.t.traces.items():
        streams = frame.loc[frame["stream"] >= 0, ["stream", "pid", "device_stream"]].drop_duplicates("stream")
        places |= {
            (rank, stream): (pid, device_stream)
            for stream, pid, device_stream in streams.itertuples(index=False, name=None)
        }
    return places


def _launch_row(frame: pd.DataFrame) -> Iterator[Any]:
    calls, device, delay = (frame[name].to_numpy() for name in ("cpu_duration", "gpu_duration", "launch_delay"))
    yield len(frame)
    yield from (np.median(calls), calls.max(), np.median(device), np.median(delay), delay.max())
    yield from ((device < calls).sum(), (calls > SLOW_CALL_NS).sum(), (delay > LATE_NS).sum())


def _changes(name: str, title: str, differences: pd.DataFrame) -> Figures:
    differences = differences.assign(size=differences["diff_duration"].abs()).sort_values(
        "size", ascending=False, kind="stable"
    )
    order = ["Control_counts", "Test_counts", "diff_counts"]
    order += ["Control_total_duration", "Test_total_duration", "diff_duration"]
    columns = ("name", "calls", "other_calls", "more_calls", "time_ns", "other_time_ns", "more_ns")
    return figures(name, title, columns, differences[order].itertuples(index=True, name=None))
