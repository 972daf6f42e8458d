"""A folder of traces -> Run: every rank's rows, and the manifest (run.json) where there is one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from analyzers.calibration import Calibration, read_calibration
from analyzers.classify import Category, looks_like_communication
from analyzers.errors import (
    AmbiguousRun,
    AnalysisError,
    NoDeviceActivity,
    NoTraces,
    UnreadableCalibration,
    UnreadableTrace,
)
from analyzers.events import Events
from analyzers.header import Header
from analyzers.kineto import read_trace
from analyzers.manifest import LINKS, MANIFEST, Manifest, joined, read_manifest
from analyzers.places import Place, names, place
from analyzers.retime import Mismatch, retime

# Folders beside the full windows (rankN.json.gz) that hold the run's other windows, under the same file names.
LIGHT, NOSYNC = "light", "nosync"
SUFFIXES = (".json", ".json.gz")
# A folder of the ranks that one host recorded, of a run over several.
OF_HOST = re.compile(r"ranks\d{1,9}-\d{1,9}")
NO_TRACES = (MANIFEST, LINKS)
LISTED_RANKS = 8
UTILIZATION_IS_NULL = "utilization is null"


@dataclass(frozen=True, eq=False)
class RankTrace:
    """One rank: `events` as recorded; `timed`, the same rows with the light window's device times where it has one."""

    rank: int
    path: Place
    header: Header
    events: Events
    timed: Events
    nosync: Events | None = None  # steps without gradient synchronization, device activity alone
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

    @cached_property
    def unknown_communication(self) -> dict[str, int]:
        """How often each kernel ran that looks like communication and that no rule knows."""
        events = self.events
        codes, counts = np.unique(events.name[events.category == Category.KERNEL], return_counts=True)
        named = zip(map(events.names.__getitem__, codes.tolist()), counts.tolist(), strict=True)
        return {name: count for name, count in named if looks_like_communication(name)}


@dataclass(frozen=True)
class RankFile:
    """One rank still to be read: all that a process needs to know that reads it."""

    path: Place
    alone: bool  # the only file of its run
    light: Place | None
    nosync: Place | None
    expects_light: bool


@dataclass(frozen=True)
class Recording:
    """A run as it lies on disk: its files, its manifest, and what is already known to be missing."""

    path: Place
    files: tuple[RankFile, ...]
    manifest: Manifest | None
    warnings: tuple[str, ...]
    calibration: Calibration | None = None

    @property
    def name(self) -> str:
        """The name of the folder, or of the file."""
        return self.path.resolve().name


class Rank(Protocol):
    """What a rank says of itself, read whole or summarized."""

    @property
    def rank(self) -> int:
        """Its number."""

    @property
    def path(self) -> Place:
        """Its file."""

    @property
    def header(self) -> Header:
        """What its trace says outside of events."""

    @property
    def lost(self) -> tuple[str, ...]:
        """What of its files could not be read, in words."""

    @property
    def mismatch(self) -> str | None:
        """Why times are not those of a light window, where they should be."""

    @property
    def unknown_communication(self) -> dict[str, int]:
        """How often each kernel ran that looks like communication."""


R = TypeVar("R", bound=Rank)
Where = str | Place | Sequence[str | Place]


@dataclass(frozen=True, eq=False)
class Run:
    """The ranks of one run that could be read, in order, and in `warnings` what could not."""

    name: str
    manifest: Manifest | None
    ranks: tuple[RankTrace, ...]
    warnings: tuple[str, ...] = ()
    calibration: Calibration | None = None


def load(path: Where) -> Run:
    """Read a run: a folder of traces (ours or anyone's), one trace file, or the folders that several hosts wrote.

    What cannot be read of it is left out and said in the run's warnings. Raises NoTraces, UnreadableTrace,
    NoDeviceActivity where nothing is left, AmbiguousRun where two files claim one rank.
    """
    recording = find(path)
    ranks, warnings = gather(recording, map(tried(read_rank), recording.files))
    if any(rank.mismatch for rank in ranks):
        ranks = tuple(replace(rank, timed=rank.events) for rank in ranks)
    return Run(recording.name, recording.manifest, ranks, warnings, recording.calibration)


def find(where: Where) -> Recording:
    """Look where the files of a run are, without reading them. Raises NoTraces, and AmbiguousRun for several runs."""
    given = places(where)
    try:
        return _found(given)
    except OSError as error:
        raise _not_looked_into(error.filename or given[0], error) from error


def _found(given: Sequence[Place]) -> Recording:
    folders = [folder for path in given for folder in _folders_of_hosts(path) or [path]]
    if len(folders) == 1:
        return _find(folders[0])
    found = [_find(folder) for folder in folders]
    manifests = [each.manifest for each in found if each.manifest is not None]
    _check_one_run(folders, [each.manifest for each in found])
    # One file of several hosts' is not alone in its run.
    files = tuple(replace(file, alone=False) for each in found for file in each.files)
    return Recording(
        path=given[0],
        files=files,
        manifest=joined(manifests) if manifests else None,
        warnings=tuple(dict.fromkeys(warning for each in found for warning in each.warnings)),
        calibration=next((each.calibration for each in found if each.calibration is not None), None),
    )


def places(where: Where) -> list[Place]:
    """What a user names, one place or several. Raises UnknownPlace."""
    return [place(where)] if isinstance(where, str | Place) else [place(each) for each in where]


def _folders_of_hosts(path: Place) -> list[Place]:
    """The folders in a run's folder that hold the ranks of one host each, in order of rank; none in any other."""
    if not path.is_dir():
        return []
    inside = [folder for folder in path.iterdir() if OF_HOST.fullmatch(folder.name) and folder.is_dir()]
    return sorted(inside, key=lambda folder: int(folder.name.removeprefix("ranks").partition("-")[0]))


def _check_one_run(folders: Sequence[Place], manifests: Sequence[Manifest | None]) -> None:
    said = {manifest.id: folder for folder, manifest in zip(folders, manifests, strict=True) if manifest is not None}
    if len(said) > 1:
        first, second, *_ = said.values()
        raise AmbiguousRun(f"{first} and {second}: are of different recordings; give the folders of one")


def _find(path: Place) -> Recording:
    files = trace_files(path)
    manifest, warnings = _recorded(path)
    recorded = manifest is not None
    light, nosync = (_beside(files, folder) if recorded else {} for folder in (LIGHT, NOSYNC))
    expects_light = manifest is not None and (manifest.controls.light is not None or bool(light))
    ranks = tuple(RankFile(file, len(files) == 1, light.get(file), nosync.get(file), expects_light) for file in files)
    calibration, more = _calibrated(path)
    return Recording(path, ranks, manifest, (*warnings, *more), calibration)


def tried(read: Callable[[RankFile], R]) -> Callable[[RankFile], R | AnalysisError]:
    """The reader, which returns the error of a file that it cannot read, so that others are read all the same."""
    return partial(_tried, read)


def _tried(read: Callable[[RankFile], R], file: RankFile) -> R | AnalysisError:
    try:
        return read(file)
    except AnalysisError as error:
        return error


def gather(recording: Recording, results: Iterable[R | AnalysisError]) -> tuple[tuple[R, ...], tuple[str, ...]]:
    """The ranks in order, and the run's warnings. Raises as `load` does."""
    ranks: list[R] = []
    failures: list[AnalysisError] = []
    for result in results:
        if isinstance(result, AnalysisError):
            failures.append(result)
        else:
            ranks.append(result)
    if not ranks:
        more = f" (and {len(failures) - 1} more files like it)" if len(failures) > 1 else ""
        raise type(failures[0])(f"{failures[0]}{more}")
    _check_ranks(ranks)
    ranks.sort(key=lambda rank: rank.rank)
    warnings = [
        *recording.warnings,
        *(recording.manifest.notes if recording.manifest else ()),
        *(lost for rank in ranks for lost in rank.lost),
        *_mixed_windows(ranks),
        *(f"left out: {error}" for error in failures),
        *_missing_ranks(world_size(recording.manifest, ranks), {rank.rank for rank in ranks}),
        *_unknown_communication(ranks),
    ]
    return tuple(ranks), tuple(warnings)


def world_size(manifest: Manifest | None, ranks: Sequence[Rank]) -> int:
    """Processes of the run, as its manifest or its traces say it, and at least up to the highest rank read."""
    said = [rank.header.distributed.get("world_size") for rank in ranks]
    said.append(manifest.world_size if manifest else None)
    sizes = [size for size in said if isinstance(size, int)]
    return max(sizes + [rank.rank + 1 for rank in ranks])


def _recorded(path: Place) -> tuple[Manifest | None, list[str]]:
    """The manifest of a folder; a file taken by itself has none, and says what its folder would add."""
    if path.is_dir() or not (path.parent / MANIFEST).is_file():
        return read_manifest(path)
    return None, [
        f"one file of a recorded run: times are this window's, distorted as {path.parent}'s report says; "
        "controls, model and strategy are unknown (null)"
    ]


def _calibrated(path: Place) -> tuple[Calibration | None, list[str]]:
    """What the run's links were measured to do, where it lies beside its traces."""
    file = (path if path.is_dir() else path.parent) / LINKS
    if not file.is_file():
        return None, []
    try:
        return read_calibration(file), []
    except UnreadableCalibration as error:
        return None, [f"{error}; {UTILIZATION_IS_NULL}"]


def _beside(files: Sequence[Place], folder: str) -> dict[Place, Place]:
    """The same ranks' files of another window, by theirs."""
    beside = files[0].parent / folder
    here, found = names(beside), {}
    for file in files:
        stem = file.name.removesuffix(".gz")
        other = next((name for name in (stem, f"{stem}.gz") if name in here), None)
        if other is not None:
            found[file] = beside / other
    return found


def _mixed_windows(ranks: Sequence[Rank]) -> list[str]:
    """Times of light and full windows are never mixed: where one light window fails, all times are the full ones'."""
    mismatches = [f"rank {rank.rank}: {rank.mismatch}" for rank in ranks if rank.mismatch]
    if not mismatches:
        return []
    return [f"times are those of the full windows, distorted, for want of light ones ({'; '.join(mismatches[:3])})"]


def trace_files(path: Place) -> list[Place]:
    """The trace files of a run, by name. Raises NoTraces."""
    try:
        if not path.exists():
            raise NoTraces(f"{path}: no such file or folder; give a trace file or a folder of them")
        if not path.is_dir():
            return [path]
        files = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.name not in NO_TRACES)
        below = [] if files else sorted(_folders_with_traces(path))
    except OSError as error:
        raise _not_looked_into(path, error) from error
    if files:
        return files
    hint = f"its folders {', '.join(below[:5])} do: name one of them" if below else "record one with `tracer record`"
    raise NoTraces(f"{path}: no traces (*.json, *.json.gz) in this folder; {hint}")


def _not_looked_into(place: object, error: OSError) -> NoTraces:
    return NoTraces(f"{str(place)[:200]}: cannot be looked into ({error.strerror or error})")


def _folders_with_traces(path: Place) -> Iterator[str]:
    """The folders in a folder that hold traces; a long run's steps may hold their ranks by host."""
    for folder in path.iterdir():
        if folder.is_dir():
            inside = [folder, *_folders_of_hosts(folder)]
            if any(name.endswith(SUFFIXES) for each in inside for name in names(each)):
                yield folder.name


def read_rank(file: RankFile, on_bytes: Callable[[int], None] | None = None) -> RankTrace:
    """One rank from its files; `on_bytes` hears of each block of bytes that was read.

    Raises UnreadableTrace, NoDeviceActivity, AmbiguousRun.
    """
    trace = read_trace(file.path, on_bytes=on_bytes)
    rank = _rank(file, trace.header)
    timed: Events | Mismatch = trace.events
    lost = trace.lost
    if file.expects_light:
        timed, more = _light_times(trace.events, file.light, on_bytes)
        lost += more
    nosync, more = _nosync_events(file.nosync, on_bytes)
    lost += more
    mismatch = timed.reason if isinstance(timed, Mismatch) else None
    timed = trace.events if isinstance(timed, Mismatch) else timed
    loaded = RankTrace(rank, file.path, trace.header, trace.events, timed, nosync, lost, mismatch)
    if not loaded.events.on_device.any() and not loaded.is_cpu_run:
        raise NoDeviceActivity(
            f"{file.path}: no device activity; profile with ProfilerActivity.CUDA, and at least one whole step"
        )
    return loaded


def _light_times(
    full: Events, light: Place | None, on_bytes: Callable[[int], None] | None
) -> tuple[Events | Mismatch, tuple[str, ...]]:
    """The full window's rows at the light window's times, or why not; and what of the light window was lost."""
    if light is None:
        return Mismatch("there is none"), ()
    try:
        trace = read_trace(light, on_bytes=on_bytes)
    except UnreadableTrace as error:
        return Mismatch(str(error)), ()
    return retime(full, trace.events), tuple(f"{LIGHT}/{said}" for said in trace.lost)


def _nosync_events(
    nosync: Place | None, on_bytes: Callable[[int], None] | None
) -> tuple[Events | None, tuple[str, ...]]:
    """The window without gradient synchronization, None where there is none; and what of it was lost."""
    if nosync is None:
        return None, ()
    try:
        trace = read_trace(nosync, on_bytes=on_bytes)
    except UnreadableTrace as error:
        return None, (f"{error}; contention is estimated without it",)
    return trace.events, tuple(f"{NOSYNC}/{said}" for said in trace.lost)


def _rank(file: RankFile, header: Header) -> int:
    said = header.distributed.get("rank")
    if isinstance(said, int) and not isinstance(said, bool) and said >= 0:
        return said
    name = file.path.name
    stem = re.sub(r"(\.pt\.trace)?\.json(\.gz)?$", "", name)
    found = re.search(r"rank[-_ ]?(\d{1,6})(?!\d)", stem, re.IGNORECASE)
    if found is None and not file.alone and ".pt.trace." not in name:
        found = re.search(r"(?:^|[-_.])(\d{1,6})$", stem)
    if found:
        return int(found[1])
    if file.alone:
        return 0
    raise AmbiguousRun(f"{file.path}: its rank is neither in distributedInfo nor in its name; call it rankN.json.gz")


def _check_ranks(ranks: Sequence[Rank]) -> None:
    for number, count in Counter(rank.rank for rank in ranks).items():
        if count > 1:
            files = ", ".join(rank.path.name for rank in ranks if rank.rank == number)
            folder = ranks[0].path.parent
            raise AmbiguousRun(
                f"{folder}: rank {number} has {count} files ({files}); keep one, or report one file by itself"
            )


def _missing_ranks(size: int, here: set[int]) -> list[str]:
    count = size - len(here)
    if not count:
        return []
    # World sizes are what a file says: no list is made of one that may be absurd.
    missing = [str(rank) for rank in range(min(size, len(here) + LISTED_RANKS)) if rank not in here]
    which = ", ".join(missing) if count <= LISTED_RANKS else f"{count} of them"
    return [f"missing ranks (world size {size}): {which}; the report covers the {len(here)} that are here"]


def _unknown_communication(ranks: Iterable[Rank]) -> list[str]:
    """Kernels counted as compute whose name says otherwise: nothing disappears silently."""
    counted: Counter[str] = Counter()
    for rank in ranks:
        counted.update(rank.unknown_communication)
    return [
        f"kernel {name[:80]!r} ({count} times) looks like communication but no rule knows it: counted as compute"
        for name, count in counted.most_common()
    ]
