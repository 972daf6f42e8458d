"""Layout of a run's folder: traces, windows, manifest, links, several hosts.

RUN/run.json  rank0.json.gz ...         the full windows
RUN/light/rank0.json.gz ...             the same steps' device times, with less of a profiler
RUN/nosync/rank0.json.gz ...            steps without gradient synchronization
RUN/links.json                          what the links were measured to do
RUN/ranks0-3/..., RUN/ranks4-7/...      the same of each host, of a run over several
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analyzers.errors import UnreadableCalibration, UnusableRun
from analyzers.notices import Code, Notice
from analyzers.paths import Place, Where, is_pipe, is_there, names, places
from analyzers.run.calibration import Calibration, read_calibration
from analyzers.run.inputs import INPUTS, advise
from analyzers.run.manifest import LINKS, MANIFEST, RESULTS, SWEEP, Manifest, join_manifests, read_manifest
from analyzers.texts import AND_MORE, listed

# Folders beside the full windows (rankN.json.gz) that hold the run's other windows, under the same file names.
LIGHT, NOSYNC = "light", "nosync"
# Archives of one trace each, where nothing else in a folder is called a trace.
_ARCHIVES = (".zip", ".zst")
# What stands before another in this order is read, where a folder has both.
_SUFFIXES = (*(each.suffixes for each in INPUTS), _ARCHIVES)
_CALLED = ", ".join(f"*{suffix}" for each in INPUTS for suffix in each.suffixes[:2]) + ", *.zst, *.zip"
# A folder of the ranks that one host recorded, of a run over several.
OF_HOST = re.compile(r"ranks\d{1,9}-\d{1,9}")
NO_TRACES = (MANIFEST, LINKS, SWEEP, RESULTS)
# Of a folder of runs so many are named.
MOST_NAMED = 20


@dataclass(frozen=True)
class RankFile:
    """One rank still to be read: all that a process needs to know that reads it."""

    path: Place
    light: Place | None
    nosync: Place | None
    expects_light: bool
    steps: str | None = None  # the annotation whose repeats are the steps, instead of the profiler's
    strategies: tuple[str, ...] = ()  # as run.json names them; empty: not known
    memory: int | None = None  # bytes that reading it may take; None: a core's share of what the reader's machine has
    piped: bool = False  # a FIFO that the user named; what a folder holds is no FIFO's to be
    number: int | None = None  # which rank its first process is, as the user says
    infers: bool = True  # steps are inferred where nothing marks them


@dataclass(frozen=True)
class RunLayout:
    """A run as it lies on disk: its files, its manifest, and what is already known to be missing."""

    path: Place
    files: tuple[RankFile, ...]
    manifest: Manifest | None
    warnings: tuple[Notice, ...]
    calibration: Calibration | None = None

    @property
    def name(self) -> str:
        """Return the name of the folder, or of the file."""
        return self.path.resolve().name

    def called(self, name: str) -> list[Place]:
        """Return the files of this name, or whose paths end so."""
        return [file.path for file in self.files if f"/{file.path}".endswith(f"/{name.removeprefix('./')}")]


def find(
    where: Where, steps: str | None = None, memory: int | None = None, numbers: Mapping[str, int] | None = None
) -> RunLayout:
    """Find the files of a run, without reading them; `steps` is the annotation whose repeats are its steps.

    `memory` is what reading each may take, in bytes; `numbers` are ranks by the names, or the ends of the paths, of
    their files.

    Raises UnusableRun for none or several runs, and for a number of no file.
    """
    given = places(where)
    try:
        recording = _find_all(given)
        number_of = _numbers(recording, numbers or {})
        files = (replace(file, steps=steps, memory=memory, number=number_of.get(file.path)) for file in recording.files)
        return replace(recording, files=tuple(files))
    except OSError as error:
        raise _not_looked_into(error.filename or given[0], error) from error


def _find_all(given: Sequence[Place]) -> RunLayout:
    folders = [folder for path in given for folder in _folders_of_hosts(path) or [path]]
    if len(folders) == 1:
        return _find(folders[0])
    recordings = [_find(folder) for folder in folders]
    manifests = [recording.manifest for recording in recordings if recording.manifest is not None]
    _check_one_run(folders, [recording.manifest for recording in recordings])
    return RunLayout(
        path=given[0],
        files=tuple(file for recording in recordings for file in recording.files),
        manifest=join_manifests(manifests) if manifests else None,
        warnings=tuple(dict.fromkeys(warning for recording in recordings for warning in recording.warnings)),
        calibration=next(
            (recording.calibration for recording in recordings if recording.calibration is not None), None
        ),
    )


def _numbers(recording: RunLayout, numbers: Mapping[str, int]) -> dict[Place, int]:
    """Return the ranks that the user says, by file. Raises UnusableRun for a name of no file, or of several."""
    said = {}
    for name, number in numbers.items():
        files = recording.called(name)
        if len(files) != 1:
            listed = ", ".join(file.path.name for file in recording.files[:MOST_NAMED])
            which = (
                f"{len(files)} files of it are called so: give more of the path" if files else f"its files: {listed}"
            )
            raise UnusableRun(f"{recording.path}: --rank {name}={number}: {which}")
        said[files[0]] = number
    return said


def _folders_of_hosts(path: Place) -> list[Place]:
    """The folders in a run's folder that hold the ranks of one host each, in order of rank; none in any other."""
    if not path.is_dir():
        return []
    inside = [folder for folder in path.iterdir() if OF_HOST.fullmatch(folder.name) and folder.is_dir()]
    return sorted(inside, key=lambda folder: int(folder.name.removeprefix("ranks").partition("-")[0]))


def _check_one_run(folders: Sequence[Place], manifests: Sequence[Manifest | None]) -> None:
    folder_by_id = {
        manifest.id: folder for folder, manifest in zip(folders, manifests, strict=True) if manifest is not None
    }
    if len(folder_by_id) > 1:
        first, second, *_ = folder_by_id.values()
        raise UnusableRun(f"{first} and {second} belong to different recordings: give the folders of one")


def _find(path: Place) -> RunLayout:
    files = trace_files(path)
    manifest, warnings = _read_manifest(path)
    recorded = manifest is not None
    light, nosync = (_match_files(files, folder) if recorded else {} for folder in (LIGHT, NOSYNC))
    expects_light = manifest is not None and (manifest.controls.light is not None or bool(light))
    parallelism = manifest.parallelism if manifest is not None else None
    strategies = tuple(parallelism.strategies) if parallelism is not None else ()
    piped = is_pipe(path)
    ranks = tuple(
        RankFile(file, light.get(file), nosync.get(file), expects_light, strategies=strategies, piped=piped)
        for file in files
    )
    calibration, more = _read_calibration(path)
    return RunLayout(path, ranks, manifest, (*warnings, *more), calibration)


def _read_manifest(path: Place) -> tuple[Manifest | None, list[Notice]]:
    """The manifest of a folder; a file taken by itself has none, and says what its folder would add."""
    if path.is_dir() or not is_there(path.parent / MANIFEST):
        return read_manifest(path)
    message = f"one file of a recorded run: times are this profile's, slowed as {path.parent}'s report says; "
    return None, [Notice(Code.FILE_OF_A_RUN, message + "controls, model and strategy are not known")]


def _read_calibration(path: Place) -> tuple[Calibration | None, list[Notice]]:
    """What the run's links were measured to do, where it lies beside its traces."""
    file = (path if path.is_dir() else path.parent) / LINKS
    if not is_there(file):
        return None, []
    try:
        return read_calibration(file), []
    except UnreadableCalibration as error:
        return None, [Notice(Code.CALIBRATION_UNREADABLE, f"{error}; utilization is not known")]


def _match_files(files: Sequence[Place], folder: str) -> dict[Place, Place]:
    """The same ranks' files of another window, by theirs."""
    beside = files[0].parent / folder
    present, matched = names(beside), {}
    for file in files:
        stem = file.name.removesuffix(".gz")
        other = next((name for name in (stem, f"{stem}.gz") if name in present), None)
        if other is not None:
            matched[file] = beside / other
    return matched


def trace_files(path: Place) -> list[Place]:
    """Return a run's trace files, by name. Raises UnusableRun."""
    try:
        if not path.exists():
            raise UnusableRun(f"{path}: no such file or folder; give a trace file or a folder of them")
        if not path.is_dir():
            return [path]
        inside = [*path.iterdir()]
        kinds = [sorted(file for file in inside if _is_called(file.name, suffixes)) for suffixes in _SUFFIXES]
        files = next(filter(None, kinds), [])
        below, closed = ({}, []) if files else _folders_with_traces(path)
        is_sweep = not files and any((path / name).is_file() for name in (SWEEP, RESULTS))
    except OSError as error:
        raise _not_looked_into(path, error) from error
    if files:
        return files
    hint = "; ".join([advise(file.name for file in inside) or _suggest(path, below, is_sweep), *closed[:MOST_NAMED]])
    raise UnusableRun(f"{path}: no traces ({_CALLED}) in this folder; {hint}")


def may_be_trace(name: str) -> bool:
    """Whether a file's name is one that traces have; files of a run that hold something else are known by theirs."""
    return any(_is_called(name, each.suffixes) for each in INPUTS)


def _is_called(name: str, suffixes: tuple[str, ...]) -> bool:
    return name.endswith(suffixes) and name not in NO_TRACES


def _suggest(path: Place, below: Mapping[str, int], is_sweep: bool) -> str:
    """Say what to name instead of a folder without traces, where `below` holds some."""
    named = listed(below, MOST_NAMED, AND_MORE)
    if is_sweep:
        cells = f", or name one of its cells: {named}" if below else ""
        return f"it is a sweep: `tracer sweep --report {path}` reports it{cells}"
    if not below:
        return "record one with `tracer record`"
    if len(below) == 1:
        return f"its folder {named} holds traces: name it"
    hint = f"its folders {named} hold traces: name one of them"
    if set(below.values()) == {1}:
        hint += f"; or, where each holds a rank of one run, all: `tracer report {path}/*`"
    return hint


def _not_looked_into(path: object, error: OSError) -> UnusableRun:
    return UnusableRun(f"{str(path)[:200]}: cannot be opened ({error.strerror or error})")


def _folders_with_traces(path: Place) -> tuple[dict[str, int], list[str]]:
    """The folders in a folder that hold traces, and how many; and what to say of those that cannot be opened.

    A long run's steps may hold their ranks by host.
    """
    counts, closed = {}, []
    for folder in sorted(folder for folder in path.iterdir() if folder.is_dir()):
        try:
            inside = [folder, *_folders_of_hosts(folder)]
            count = sum(may_be_trace(name) for holder in inside for name in names(holder))
        except OSError as error:
            closed.append(f"{folder.name} cannot be opened ({error.strerror or error})")
            continue
        if count:
            counts[folder.name] = count
    return counts, closed
