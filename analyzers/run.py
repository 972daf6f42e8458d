"""A folder of traces -> Run: every rank's rows, and the manifest (run.json) where there is one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analyzers.classify import Category, looks_like_communication
from analyzers.errors import AmbiguousRun, AnalysisError, NoDeviceActivity, NoTraces, UnreadableTrace
from analyzers.events import Events
from analyzers.kineto import Header, read_trace
from analyzers.manifest import MANIFEST, Manifest, read_manifest
from analyzers.retime import Mismatch, retime

# Folders beside the full windows (rankN.json.gz) that hold the run's other windows, under the same file names.
LIGHT, NOSYNC = "light", "nosync"
SUFFIXES = (".json", ".json.gz")
LISTED_RANKS = 8


@dataclass(frozen=True, eq=False)
class RankTrace:
    """One rank: `events` as recorded; `timed`, the same rows with the light window's device times where it has one."""

    rank: int
    path: Path
    header: Header
    events: Events
    timed: Events
    lost: tuple[str, ...] = ()
    mismatch: str | None = None  # why the light window that there is could not be joined

    @cached_property
    def gloo(self) -> NDArray[np.bool_]:
        """Rows of gloo's collectives, which run on worker threads of the process group."""
        steps = self.events.named("ProfilerStep#") & (self.events.category == Category.ANNOTATION)
        stepping = np.unique(self.events.thread[steps])
        return self.events.named("gloo:") & ~np.isin(self.events.thread, stepping)

    @cached_property
    def is_cpu_run(self) -> bool:
        """Whether the host is the device: no accelerator's activity, and gloo at work or no accelerator to be seen."""
        if self.events.on_device.any():
            return False
        operators = (self.events.category == Category.OPERATOR) & ~self.events.named("c10d::")
        accelerated = bool(self.header.device_names) or bool((self.events.category == Category.LAUNCH).any())
        return bool(self.gloo.any()) or (bool(operators.any()) and not accelerated)


@dataclass(frozen=True, eq=False)
class Run:
    """The ranks of one run that could be read, in order, and in `warnings` what could not."""

    name: str
    manifest: Manifest | None
    ranks: tuple[RankTrace, ...]
    warnings: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        """Processes of the run, as its manifest or its traces say it, and at least up to the highest rank read."""
        said = [trace.header.distributed.get("world_size") for trace in self.ranks]
        if self.manifest is not None:
            said.append(self.manifest.world_size)
        sizes = [size for size in said if isinstance(size, int)]
        return max(sizes + [trace.rank + 1 for trace in self.ranks])


def load(path: str | Path) -> Run:
    """Read a run: a folder of traces (ours or anyone's), or one trace file.

    What cannot be read of it is left out and said in the run's warnings. Raises NoTraces, UnreadableTrace,
    NoDeviceActivity where nothing is left, AmbiguousRun where two files claim one rank.
    """
    path = Path(path)
    files = trace_files(path)
    manifest, warnings = _recorded(path)
    light, said = _light_files(files, manifest)
    warnings += said
    traces, failures = [], []
    for file in files:
        try:
            traces.append(read_rank(file, len(files) == 1, light.get(file)))
        except AnalysisError as error:
            failures.append(error)
    if not traces:
        more = f" (and {len(failures) - 1} more files like it)" if len(failures) > 1 else ""
        raise type(failures[0])(f"{failures[0]}{more}")
    _check_ranks(traces)
    traces, said = _of_one_window(sorted(traces, key=lambda trace: trace.rank))
    warnings += [*(lost for trace in traces for lost in trace.lost), *said]
    warnings += [f"left out: {error}" for error in failures]
    run = Run(path.resolve().name, manifest, tuple(traces))
    warnings += [*_missing_ranks(run), *_unknown_communication(traces)]
    return replace(run, warnings=tuple(warnings))


def _recorded(path: Path) -> tuple[Manifest | None, list[str]]:
    """The manifest of a folder; a file taken by itself has none, and says what its folder would add."""
    if path.is_dir():
        return read_manifest(path)
    beside = path.parent / MANIFEST
    if beside.is_file():
        return None, [
            f"one file of a recorded run: times are this window's, distorted as {path.parent}'s report says; "
            "controls, model and strategy are unknown (null)"
        ]
    return read_manifest(path)


def _light_files(files: Sequence[Path], manifest: Manifest | None) -> tuple[dict[Path, Path], list[str]]:
    """The light window of every file, if every file has one; times of different windows are never mixed."""
    if manifest is None:
        return {}, []
    found = {file: light for file in files if (light := _light_file(file)) is not None}
    if len(found) == len(files) or not (found or manifest.controls.light):
        return found, []
    names = ", ".join(file.name for file in files if file not in found)
    return {}, [f"times are those of the full windows, distorted: no light window for {names}"]


def _light_file(file: Path) -> Path | None:
    stem = file.name.removesuffix(".gz")
    candidates = (file.parent / LIGHT / name for name in (stem, f"{stem}.gz"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _of_one_window(traces: Sequence[RankTrace]) -> tuple[list[RankTrace], list[str]]:
    """All ranks at the light windows' times, or, where one could not be joined, all at the full ones'."""
    mismatches = [f"rank {trace.rank}: {trace.mismatch}" for trace in traces if trace.mismatch]
    if not mismatches:
        return list(traces), []
    full = [replace(trace, timed=trace.events) for trace in traces]
    return full, [
        f"times are those of the full windows, distorted: light ones do not fit ({'; '.join(mismatches[:3])})"
    ]


def trace_files(path: Path) -> list[Path]:
    """The trace files of a run, by name. Raises NoTraces."""
    try:
        if not path.exists():
            raise NoTraces(f"{path}: no such file or folder; give a trace file or a folder of them")
        if not path.is_dir():
            return [path]
        files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.name != MANIFEST)
        below = sorted({file.parent.name for suffix in SUFFIXES for file in path.glob(f"*/*{suffix}")})
    except OSError as error:
        raise NoTraces(f"{str(path)[:200]}: cannot be looked into ({error.strerror or error})") from error
    if files:
        return files
    hint = f"its folders {', '.join(below[:5])} do: name one of them" if below else "record one with `tracer record`"
    raise NoTraces(f"{path}: no traces (*.json, *.json.gz) in this folder; {hint}")


def read_rank(file: Path, alone: bool, light: Path | None) -> RankTrace:
    """One rank from its file, and the file of its light window if it has one; `alone` is the only one of its run.

    Raises UnreadableTrace, NoDeviceActivity, AmbiguousRun.
    """
    trace = read_trace(file)
    rank = _rank(file, trace.header, alone)
    timed = _light_times(trace.events, light) if light else trace.events
    mismatch = timed.reason if isinstance(timed, Mismatch) else None
    timed = trace.events if isinstance(timed, Mismatch) else timed
    loaded = RankTrace(rank, file, trace.header, trace.events, timed, trace.lost, mismatch)
    if not loaded.events.on_device.any() and not loaded.is_cpu_run:
        raise NoDeviceActivity(
            f"{file}: no device activity; profile with ProfilerActivity.CUDA, and at least one whole step"
        )
    return loaded


def _light_times(full: Events, light: Path) -> Events | Mismatch:
    try:
        return retime(full, read_trace(light).events)
    except UnreadableTrace as error:
        return Mismatch(str(error))


def _rank(file: Path, header: Header, alone: bool) -> int:
    said = header.distributed.get("rank")
    if isinstance(said, int) and not isinstance(said, bool) and said >= 0:
        return said
    stem = re.sub(r"(\.pt\.trace)?\.json(\.gz)?$", "", file.name)
    found = re.search(r"rank[-_ ]?(\d{1,6})(?!\d)", stem, re.IGNORECASE)
    if found is None and not alone and ".pt.trace." not in file.name:
        found = re.search(r"(?:^|[-_.])(\d{1,6})$", stem)
    if found:
        return int(found[1])
    if alone:
        return 0
    raise AmbiguousRun(f"{file}: its rank is neither in distributedInfo nor in its name; call it rankN.json.gz")


def _check_ranks(traces: Sequence[RankTrace]) -> None:
    for rank, count in Counter(trace.rank for trace in traces).items():
        if count > 1:
            files = ", ".join(trace.path.name for trace in traces if trace.rank == rank)
            folder = traces[0].path.parent
            raise AmbiguousRun(
                f"{folder}: rank {rank} has {count} files ({files}); keep one, or report one file by itself"
            )


def _missing_ranks(run: Run) -> list[str]:
    here = {trace.rank for trace in run.ranks}
    count = run.world_size - len(here)
    if not count:
        return []
    # World sizes are what a file says: no list is made of one that may be absurd.
    missing = [str(rank) for rank in range(min(run.world_size, len(here) + LISTED_RANKS)) if rank not in here]
    which = ", ".join(missing) if count <= LISTED_RANKS else f"{count} of them"
    return [f"missing ranks (world size {run.world_size}): {which}; the report covers the {len(here)} that are here"]


def _unknown_communication(traces: Iterable[RankTrace]) -> list[str]:
    """Kernels counted as compute whose name says otherwise: nothing disappears silently."""
    counted: Counter[str] = Counter()
    for trace in traces:
        events = trace.events
        codes, counts = np.unique(events.name[events.category == Category.KERNEL], return_counts=True)
        for code, count in zip(codes, counts, strict=True):
            if looks_like_communication(events.names[code]):
                counted[events.names[code]] += int(count)
    return [
        f"kernel {name[:80]!r} ({count} times) looks like communication but no rule knows it: counted as compute"
        for name, count in counted.most_common()
    ]
