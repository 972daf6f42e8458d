"""`RankTrace`: one rank's events, with the light window's times if any."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import begins, distinct
from analyzers.errors import TooLarge, UnreadableTrace, UnusableRun
from analyzers.memory import Budget, budget_of, cores
from analyzers.notices import Code, Notice
from analyzers.paths import Place
from analyzers.ranks import RankNumber, is_world_size, quoted, rank_number
from analyzers.run.health import healthy, launched_calls
from analyzers.run.inferred_steps import Inferred, infer_steps
from analyzers.run.inputs import read_input
from analyzers.run.layout import LIGHT, NOSYNC, RankFile
from analyzers.run.light_window import Joined, Joining, Mismatch, retime
from analyzers.run.named_steps import Repeated, step_candidates, with_steps
from analyzers.run.numbering import NOBODY, Owner, owner_of
from analyzers.texts import brief
from analyzers.trace import C10D, SPANS, Category, Events, Header, Helpers, Kind, Trace, looks_like_communication

# What a window needs that could not be read: too large, or its disk did not answer.
_NO_BUDGET = math.inf
# The largest domain of NVLink has 576 GPUs, of which one process sees a few.
MOST_DEVICES = 1_024
# What the figures of a window take, with what they are made of: cells of occupancy the most.
WINDOW_BYTES = 8_000
# What a kernel of communication and a row beside it take, which are looked at in pairs.
MET_BYTES = 64


@dataclass(frozen=True, eq=False)
class RankFacts(ABC):
    """What a rank says of itself, read whole or summarized. Its number is 0 until all ranks of the run are known."""

    rank: RankNumber
    path: Place
    header: Header
    _: KW_ONLY
    lost: tuple[Notice, ...] = ()  # what could not be read from its files
    mismatch: str | None = None  # why the light window that there is could not be joined
    joining: Joining | None = None  # how much of the light window was
    # The least budget of memory with which it reads the same; None: a window could not be read, and may be once more.
    peak_bytes: int | None = 0
    owner: Owner = NOBODY  # the process whose rows these are
    inferred: Inferred | None = None  # what its steps were told by, which nothing marks
    unlike: Inferred | None = None  # what would tell them, if it did for all ranks of the run alike
    # How many kernels look like communication that no rule knows, by name.
    unknown_communication: dict[str, int] = field(default_factory=dict)

    __repr__ = brief

    @property
    @abstractmethod
    def has_steps(self) -> bool:
        """Whether its steps are marked, or inferred."""

    def numbered(self, number: RankNumber) -> Self:
        """Return the same as this rank of its run."""
        return replace(self, rank=number)


@dataclass(frozen=True, eq=False)
class RankTrace(RankFacts):
    """One rank: `events` as recorded; `timed`, the same rows with the light window's device times where it has one.

    Device events that the light window alone holds stand behind the recorded ones; see `Joined`.
    """

    events: Events
    timed: Events
    nosync: Events | None = None  # steps without gradient synchronization, device activity alone
    # When the light window's call returned that launched each row, UNKNOWN for none; empty without such a window.
    launch_ends_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # When the light window's steps begin and end on the host; None where it does not say.
    light_marks: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    strategies: tuple[str, ...] = ()  # as run.json names them; empty: not known

    __repr__ = brief

    @property
    def is_light(self) -> bool:
        """Whether its times are a light window's."""
        return self.timed is not self.events

    def in_full(self) -> RankTrace:
        """Return the same rank at the full window's times."""
        return replace(self, timed=self.events)

    @cached_property
    def device_rows(self) -> NDArray[np.int64]:
        """Return the rows that are device activity at either window's times."""
        return np.flatnonzero(self.events.on_device | self.timed.on_device)

    @cached_property
    def gloo(self) -> NDArray[np.bool_]:
        """Return the rows of gloo's collectives, which run on worker threads of the process group."""
        stepping = np.unique(self.events.thread[self.events.steps])
        return self.events.named(*SPANS) & ~np.isin(self.events.thread, stepping)

    @cached_property
    def is_cpu_run(self) -> bool:
        """Whether the host is the device: no accelerator's activity, and gloo at work or no accelerator at all."""
        if self.events.on_device.any():
            return False
        operators = (self.events.category == Category.OPERATOR) & ~self.events.named(C10D)
        accelerated = bool(self.header.device_names) or bool((self.events.category == Category.LAUNCH).any())
        return bool(self.gloo.any()) or (bool(operators.any()) and not accelerated)

    @property
    def has_steps(self) -> bool:
        """Whether its steps are marked, or inferred."""
        return len(self.events.steps) > 0

    @cached_property
    def step_candidates(self) -> tuple[Repeated, ...]:
        """Return annotations that could be its steps, best first; none where these are marked, or inferred."""
        return () if self.has_steps else step_candidates(self.events)

    @cached_property
    def suspects(self) -> dict[str, int]:
        """Return the time, by name, of kernels on other streams than their device's busiest; none with communication.

        Libraries communicate on streams of their own: where no rule knows a kernel, this is where it would be.
        """
        events = self.events
        rows = np.flatnonzero(events.category == Category.KERNEL)
        if not len(rows) or (events.kind == Kind.COMM).any() or self.gloo.any():
            return {}
        streams = distinct(events.device[rows], events.stream[rows])
        device, _ = streams.columns
        order = np.lexsort((-streams.summed(events.dur_ns[rows]), device))
        beside = rows[~np.isin(streams.index, order[begins(device[order])])]
        codes, which = np.unique(events.name[beside], return_inverse=True)
        total_ns = np.bincount(which, weights=events.dur_ns[beside]).astype(np.int64)
        return {events.names[code]: ns for code, ns in zip(codes.tolist(), total_ns.tolist(), strict=True)}


def read_ranks(
    file: RankFile, on_bytes: Callable[[int], None] | None = None, helpers: Helpers | None = None
) -> Iterator[RankTrace]:
    """Yield the ranks in a file, one for each process whose rows it holds, with what other windows' files say of it.

    `on_bytes` hears about each block of bytes, `helpers` decode parts of a large file.

    Raises UnreadableTrace, TooLarge, UnusableRun, and BrokenProcessPool where a helper is lost.
    """
    limit = budget_of(file.memory, cores() if file.memory is None else 1)
    trace = read_input(file.path, on_bytes=on_bytes, memory=limit, helpers=helpers, piped=file.piped)
    if trace.refusal is not None:
        raise UnreadableTrace(f"{file.path}: {trace.refusal}")
    header, doubted = _check_header(file, trace.header)
    trace = replace(trace, header=header, lost=(*trace.lost, *doubted))
    for index in range(len(trace.processes)):
        yield _read_process(file, trace, index, on_bytes, limit)


def _read_process(
    file: RankFile, trace: Trace, index: int, on_bytes: Callable[[int], None] | None, limit: int
) -> RankTrace:
    """Return the rank that one of a file's processes is; what is lost of the whole file is said with the first."""
    rows, alone = trace.processes[index], len(trace.processes) == 1
    lost = (*(trace.lost if index == 0 else ()), *rows.lost)
    rank = _read_rank(file, replace(trace, processes=(rows,), lost=lost), on_bytes, limit)
    given = None if file.number is None else file.number + index
    owner = owner_of(file.path, trace.header, rows.pid, rank.events, given=given, alone=alone)
    _check_devices(rank, trace.unknown)
    return replace(rank, owner=owner, unknown_communication=_unknown_communication(rank.events))


def _unknown_communication(events: Events) -> dict[str, int]:
    codes, counts = np.unique(events.name[events.kind == Kind.COMPUTE], return_counts=True)
    named = zip(map(events.names.__getitem__, codes.tolist()), counts.tolist(), strict=True)
    return {name: count for name, count in named if looks_like_communication(name)}


def _read_rank(file: RankFile, trace: Trace, on_bytes: Callable[[int], None] | None, limit: int) -> RankTrace:
    """Return the rank whose rows a trace holds, with what other windows' files say of it."""
    (rows,) = trace.processes
    events = rows.events if file.steps is None else with_steps(rows.events, file.steps, file.path)
    events, ill = healthy(events, file.path.name, trace.header.base_time_ns)
    marked, inferred = infer_steps(events) if not len(events.steps) else (events, None)
    events, inferred, unlike = (marked, inferred, None) if file.infers else (events, None, inferred)
    lost = (*trace.lost, *ill)
    budget = Budget(file.path, limit, trace.peak_bytes)
    check_windows(events, budget, trace.nbytes)
    left = limit - trace.nbytes
    peaks: list[float] = [budget.peak]
    retimed: Joined | Mismatch | None = None
    if file.expects_light:
        retimed, more, peak = _light_times(events, file.light, on_bytes, left)
        lost += more
        peaks.append(trace.nbytes + peak)
    nosync, more, peak = _nosync_events(file.nosync, on_bytes, left // 2)
    lost += more
    peaks.append(trace.nbytes + 2 * peak)
    peak_bytes = int(max(peaks)) if max(peaks) <= limit else None
    recorded = RankTrace(
        *(RankNumber(0), file.path, trace.header, events, events, nosync),
        lost=lost,
        strategies=file.strategies,
        peak_bytes=peak_bytes,
        inferred=inferred,
        unlike=unlike,
    )
    return _with_times(recorded, retimed)


def _check_devices(trace: RankTrace, unknown: Sequence[str]) -> None:
    """Raise UnusableRun where nothing is known of a rank's devices; `unknown` are categories without rules."""
    if trace.is_cpu_run and unknown:
        raise UnusableRun(
            f"{trace.path}: rows of {', '.join(unknown[:5])} are of no kind that is read, and may be a device's; "
            "without them nothing is known of it"
        )
    if not trace.events.on_device.any() and not trace.is_cpu_run:
        # Kineto writes the host's rows first: a trace that is cut short may have lost all of the device's.
        damage = next((notice for notice in trace.lost if notice.code == Code.TRACE_INCOMPLETE), None)
        if damage is None:
            raise UnusableRun(f"{trace.path}: {_why_no_device(trace.events)}")
        remedy = "copy or record the file again, since the damage may have taken its device's events"
        raise UnusableRun(f"{trace.path}: no device activity in what could be read ({damage.text}); {remedy}")


def _why_no_device(events: Events) -> str:
    """Say why a trace has no device row, and what helps."""
    if not len(events):
        return "no device activity, and no row of the host: nothing was recorded; profile at least one whole step"
    calls = launched_calls(events)
    if not calls:
        return "no device activity; profile with ProfilerActivity.CUDA, and at least one whole step"
    return (
        f"no device activity: {calls} launches never reached the device; its activity was profiled, since they are "
        "here, and the profiler lost its records: record again in a new process with a warm-up step before "
        "(schedule(warmup=1)), no other profiler attached, and a driver that is as new as the CUDA (or ROCm) of torch"
    )


def _with_times(trace: RankTrace, retimed: Joined | Mismatch | None) -> RankTrace:
    if retimed is None:
        return trace
    if isinstance(retimed, Mismatch):
        return replace(trace, mismatch=retimed.reason)
    marks = retimed.marks if len(retimed.marks[0]) else None
    return replace(
        trace,
        events=retimed.full,
        timed=retimed.light,
        joining=retimed.joining,
        launch_ends_ns=retimed.launch_ends_ns,
        light_marks=marks,
    )


def _light_times(
    full: Events, light: Place | None, on_bytes: Callable[[int], None] | None, memory: int
) -> tuple[Joined | Mismatch, tuple[Notice, ...], float]:
    """The full window's rows at the light window's times, or why not; what of it was lost; the memory it needs."""
    if light is None:
        return Mismatch("there is none"), (), 0
    try:
        trace = read_input(light, on_bytes=on_bytes, memory=memory)
    except UnreadableTrace as error:
        return Mismatch(error.for_shell), (), _NO_BUDGET
    events, ill = healthy(trace.events, light.name, trace.header.base_time_ns)
    lost = tuple(notice.within(f"{LIGHT}/") for notice in (*trace.lost, *ill))
    return retime(full, events), lost, trace.peak_bytes


def _nosync_events(
    nosync: Place | None, on_bytes: Callable[[int], None] | None, memory: int
) -> tuple[Events | None, tuple[Notice, ...], float]:
    """The window without gradient synchronization, if any; what of it was lost; the memory it needs."""
    if nosync is None:
        return None, (), 0
    try:
        trace = read_input(nosync, on_bytes=on_bytes, memory=memory)
    except UnreadableTrace as error:
        lost = Notice(Code.NOSYNC_WINDOW_UNREADABLE, f"{error.for_shell}; contention is estimated without it")
        return None, (lost,), _NO_BUDGET
    events, ill = healthy(trace.events, nosync.name, trace.header.base_time_ns)
    return events, tuple(notice.within(f"{NOSYNC}/") for notice in (*trace.lost, *ill)), trace.peak_bytes


def _check_header(file: RankFile, header: Header) -> tuple[Header, list[Notice]]:
    """Return the header without a rank or world size that can be none, and a notice that says so."""
    distributed = header.distributed
    doubted = [
        name
        for name, is_one in (("rank", _is_rank), ("world_size", is_world_size))
        if distributed.get(name) is not None and not is_one(distributed[name])
    ]
    if not doubted:
        return header, []
    kept = {name: value for name, value in distributed.items() if name not in doubted}
    listed = " and ".join(f"{name} {quoted(distributed[name])}" for name in doubted)
    notice = Notice(Code.RANK_IS_IMPOSSIBLE, f"{file.path.name}: distributedInfo is not believed: {listed}")
    return replace(header, distributed=kept), [notice]


def _is_rank(value: object) -> bool:
    return not isinstance(value, str) and rank_number(value) is not None


def check_windows(events: Events, budget: Budget, taken: int) -> None:
    """Raise TooLarge for more devices than a machine has, or more windows or rows at once than there is memory for.

    `taken` is what the rows take already, in bytes.
    """
    on_device = events.on_device
    devices = max(1, len(np.unique(events.device[on_device])))
    if devices > MOST_DEVICES:
        raise TooLarge(
            f"{budget.file}: holds kernels of {devices:,} devices, where one process has {MOST_DEVICES:,} at most: "
            "damaged, or not one rank's; record it again"
        )
    steps = len(events.steps)
    windows = min(steps * devices, max(int(on_device.sum()), steps))
    budget.check(taken + windows * WINDOW_BYTES, f"{windows:,} windows (steps on devices) of it")
    met = _met_by_communication(events)
    budget.check(taken + met * MET_BYTES, f"{met:,} rows that its kernels of communication meet (damaged times?)")


def _met_by_communication(events: Events) -> int:
    """Return how many device rows begin while each kernel of communication runs, summed over those."""
    communicates = events.kind == Kind.COMM
    begins_ns = np.sort(events.start_ns[events.on_device])
    upto, before = (np.searchsorted(begins_ns, ns[communicates]) for ns in (events.end_ns, events.start_ns))
    return int((upto - before).sum())
