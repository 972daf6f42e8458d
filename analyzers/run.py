"""A folder of traces -> Run: every rank's rows, and the manifest (run.json) where there is one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.classify import Category, looks_like_communication
from analyzers.controls import Controls
from analyzers.errors import AmbiguousRun, AnalysisError, NoDeviceActivity, NoTraces, UnreadableTrace
from analyzers.kineto import Events, Header, read_trace
from analyzers.retime import Mismatch, retime

MANIFEST = "run.json"
SCHEMA = "tracer.run/1"
# Folders beside the full windows (rankN.json.gz) that hold the run's other windows, under the same file names.
LIGHT, NOSYNC = "light", "nosync"
SUFFIXES = (".json", ".json.gz")


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of the model, in the model's order."""

    name: str
    shape: list[int]
    dtype: str
    module: str


class Bucket(msgspec.Struct, frozen=True):
    """One DDP bucket: bytes without a communication hook, parameters by their index in the manifest's list."""

    nbytes: int
    parameters: list[int]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """run.json: how the run was recorded. Every field has a default, since a foreign trace has no manifest."""

    schema: str = SCHEMA
    name: str | None = None
    command: list[str] = []
    versions: dict[str, str | None] = {}
    hosts: list[str] = []
    devices: list[str] = []
    environment: dict[str, str] = {}
    transport: str | None = None
    world_size: int | None = None
    backend: str | None = None
    strategy: str | None = None
    model: str | None = None
    batch_per_gpu: int | None = None
    bucket_cap_mb: float | None = None
    settings: dict[str, Any] = {}
    profiler: dict[str, Any] = {}
    parameters: list[Parameter] = []
    buckets: list[Bucket] | None = None
    controls: Controls = Controls()


@dataclass(frozen=True, eq=False)
class RankTrace:
    """One rank: `events` as recorded; `timed`, the same rows with the light window's device times where it has one."""

    rank: int
    path: Path
    header: Header
    events: Events
    timed: Events

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
        computes = bool((self.events.category == Category.OPERATOR).any())
        return bool(self.gloo.any()) or (computes and not self.header.device_names)


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
        return max([size for size in said if isinstance(size, int)] + [trace.rank + 1 for trace in self.ranks])


def load(path: str | Path) -> Run:
    """Read a run: a folder of traces (ours or anyone's), or one trace file.

    What cannot be read of it is left out and said in the run's warnings. Raises NoTraces, UnreadableTrace,
    NoDeviceActivity where nothing is left, AmbiguousRun where two files claim one rank.
    """
    path = Path(path)
    files = trace_files(path)
    manifest, warnings = _manifest(path)
    traces, failures = [], []
    for file in files:
        try:
            trace, lost = _load_rank(file, alone=len(files) == 1, retimed=manifest is not None)
        except AnalysisError as error:
            failures.append(error)
        else:
            traces.append(trace)
            warnings += lost
    if not traces:
        more = f" (and {len(failures) - 1} more files like it)" if len(failures) > 1 else ""
        raise type(failures[0])(f"{failures[0]}{more}")
    _check_ranks(traces)
    run = Run(path.resolve().name, manifest, tuple(sorted(traces, key=lambda trace: trace.rank)))
    warnings += [f"left out: {error}" for error in failures]
    warnings += [*_missing_ranks(run), *_unknown_communication(traces)]
    return Run(run.name, manifest, run.ranks, tuple(warnings))


def trace_files(path: Path) -> list[Path]:
    """The trace files of a run, by name. Raises NoTraces."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise NoTraces(f"{path}: no such file or folder; give a trace file or a folder of them")
    files = sorted(
        file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.name != MANIFEST and file.is_file()
    )
    if files:
        return files
    below = sorted({file.parent.name for suffix in SUFFIXES for file in path.glob(f"*/*{suffix}")})
    hint = f"its folders {', '.join(below[:5])} do: name one of them" if below else "record one with `tracer record`"
    raise NoTraces(f"{path}: no traces (*.json, *.json.gz) in this folder; {hint}")


def _manifest(path: Path) -> tuple[Manifest | None, list[str]]:
    file = path / MANIFEST
    if path.is_file() or not file.is_file():
        return None, ["no run.json: strategy, model, batch, controls and bucket layout are unknown (null)"]
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        return None, [f"{file.name}: cannot be read ({error}); controls and bucket layout are unknown (null)"]
    if manifest.schema != SCHEMA:
        return None, [f"{file.name}: schema {manifest.schema!r} is not {SCHEMA!r}; it is left aside"]
    return manifest, []


def _load_rank(file: Path, alone: bool, retimed: bool) -> tuple[RankTrace, list[str]]:
    trace = read_trace(file)
    warnings = list(trace.lost)
    rank = _rank(file, trace.header, alone)
    timed = trace.events
    light = file.parent / LIGHT / file.name
    if retimed and light.is_file():
        timed, said = _light_times(trace.events, light, rank)
        warnings += said
    loaded = RankTrace(rank, file, trace.header, trace.events, timed)
    if not loaded.events.on_device.any() and not loaded.is_cpu_run:
        raise NoDeviceActivity(
            f"{file}: no device activity; profile with ProfilerActivity.CUDA, and at least one whole step"
        )
    return loaded, warnings


def _light_times(full: Events, light: Path, rank: int) -> tuple[Events, list[str]]:
    """The full window's rows at the light window's times, or as they are with a warning that says why."""
    try:
        timed = retime(full, read_trace(light).events)
    except UnreadableTrace as error:
        timed = Mismatch(str(error))
    if isinstance(timed, Mismatch):
        return full, [f"rank {rank}: times are those of the full window, light one not joined: {timed.reason}"]
    return timed, []


def _rank(file: Path, header: Header, alone: bool) -> int:
    said = header.distributed.get("rank")
    if isinstance(said, int):
        return said
    stem = re.sub(r"(\.pt\.trace)?\.json(\.gz)?$", "", file.name)
    found = re.search(r"rank[-_ ]?(\d+)", stem, re.IGNORECASE)
    if found is None and ".pt.trace." not in file.name:
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
    missing = sorted(set(range(run.world_size)) - {trace.rank for trace in run.ranks})
    if not missing:
        return []
    which = ", ".join(map(str, missing)) if len(missing) <= 8 else f"{len(missing)} of them"
    return [
        f"missing ranks (world size {run.world_size}): {which}; the report covers the {len(run.ranks)} that are here"
    ]


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
