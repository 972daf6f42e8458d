"""Local processes that read ranks which no cache has."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.context import BaseContext, SpawnContext, SpawnProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import msgspec

from analyzers.lazy_fields import replaced
from analyzers.memory import budget_of
from analyzers.notices import Code
from analyzers.paths import Place, Remote, Where, is_pipe, places, size
from analyzers.rank import OnBytes, ReadRanks, RunSummary, has_causes, summarize, summarize_file, with_lanes
from analyzers.reporting import Report
from analyzers.run import RankFile, RunLayout, find
from analyzers.trace import Helpers
from tracer.errors import TracerError, UsageError
from tracer.own_python import collect_rarely, environment, safe_environment
from tracer.reading.cache import open_cache, wanted
from tracer.reading.dask_cluster import cluster
from tracer.reading.known_ranks import KnownRanks, keeper, looked_up

# A process takes 0.3 s to start: a run smaller than this is read by the time that one has.
SMALL_RUN = 8_000_000
# A single file is split from this size on: below, processes take as long to start as they save.
SPLIT_FROM = 50_000_000
# A pool on Windows waits for no more.
_MOST_ON_WINDOWS = 61
# So much smaller is a trace that is compressed.
_COMPRESSION = 12
# Entered while ranks are read: hears how many bytes have been, whenever it asks, and how many there are.
Progress = Callable[[Callable[[], int], int], AbstractContextManager[None]]


def silent(done: Callable[[], int], total: int) -> AbstractContextManager[None]:
    """Do nothing: nobody asks how far reading is."""
    return nullcontext()


@dataclass(frozen=True)
class Readers:
    """Who reads ranks: the workers of a Dask scheduler, or processes here; by default as many as there are cores."""

    workers: int | None = None
    scheduler: str | None = None
    progress: Progress = silent
    memory: int | None = None  # bytes that reading one rank may take; None: a share of half of the machine's
    cache: Path | None = None  # the user's folder in which what ranks say is kept; None: all are read


BY_CORES = Readers()


@dataclass(frozen=True)
class Reading:
    """Who reads ranks, None for this process; who hears of the bytes read there; what reads one, if not `summarize`."""

    executor: Executor | None
    on_bytes: OnBytes | None = None
    read: ReadRanks | None = None


def read_run(
    path: Where,
    *,
    lanes: bool = False,
    causes: bool = False,
    steps: str | None = None,
    numbers: Mapping[str, int] | None = None,
    by: Readers = BY_CORES,
) -> RunSummary:
    """Read a run's summary, its ranks by several processes or a cluster.

    With `lanes` it has what `analyzers.lanes` needs, with `causes` what charges, gains and `analyzers.whatif` need.
    `steps` is the annotation whose repeats are the steps, instead of the profiler's; `numbers` are ranks by their
    files' names. Raises as `analyzers.load` does, and TracerError.
    """
    layout = located(path, steps, numbers, by)
    path = _name_places(path, by)
    with _choose_readers(path, layout.files, by, wanted(lanes=lanes, causes=causes)) as reading:
        return summarize(
            path,
            reading.executor,
            lanes=lanes,
            causes=causes,
            steps=steps,
            memory=layout.files[0].memory,
            numbers=numbers,
            on_bytes=reading.on_bytes,
            reader=reading.read,
        )


def located(path: Where, steps: str | None, numbers: Mapping[str, int] | None, by: Readers) -> RunLayout:
    """Return a run's files as those who read it find them, with the memory that each may take. Raises as `read_run`."""
    path = _name_places(path, by)
    layout = find(path, steps, numbers=numbers)
    memory = _limit_memory(path, layout.files, by)
    return replace(layout, files=tuple(replace(file, memory=memory) for file in layout.files))


def read_lanes(
    run: RunSummary,
    path: Where,
    ranks: Collection[int],
    steps: str | None = None,
    numbers: Mapping[str, int] | None = None,
    by: Readers = BY_CORES,
) -> RunSummary:
    """Read the same run, with what `analyzers.lanes` needs for these ranks. Raises as `read_run`."""
    path = _name_places(path, by)
    chosen = {summary.path for summary in run.ranks if summary.rank in ranks}
    files = [file for file in find(path, steps, numbers=numbers).files if file.path in chosen]
    memory = _limit_memory(path, files, by)
    files = [replace(file, memory=memory) for file in files]
    with _choose_readers(path, files, by, wanted(lanes=True, causes=has_causes(run))) as reading:
        drawn = with_lanes(run, files, reading.executor, reading.on_bytes, reading.read)
    # A file may hold others beside those that are asked for.
    both = zip(run.ranks, drawn.ranks, strict=True)
    return replace(drawn, ranks=tuple(again if again.rank in ranks else known for known, again in both))


def with_undrawn(report: Report, run: RunSummary) -> Report:
    """Add to a report what was found out after it: which of a run's ranks could not be read to be drawn."""
    undrawn = [warning for warning in run.warnings if warning.code == Code.RANK_NOT_DRAWN]
    return replaced(report, run=msgspec.structs.replace(report.run, warnings=[*report.run.warnings, *undrawn]))


def _name_places(path: Where, by: Readers) -> Sequence[Place]:
    """The run's places as those who read it can find them."""
    given = places(path)
    if by.scheduler is None:
        return given
    if any(map(_is_only_here, given)):
        raise UsageError(f"{_in_words(given)}: only exists in this process, where --scheduler's workers cannot read it")
    return [place if isinstance(place, Remote) else place.absolute() for place in given]


@contextmanager
def _choose_readers(
    path: Sequence[Place], files: Sequence[RankFile], by: Readers, parts: Collection[str]
) -> Iterator[Reading]:
    """Who reads some files, of which a cache may have some. Raises TracerError where those who read are lost."""
    cache = None if by.cache is None else open_cache(by.cache)
    known = looked_up(cache, files, parts)
    missing = [file for file in files if file not in known]
    if cache is None:
        with _open_executor(path, files, known, by) as reading:
            yield reading
        return
    if not missing:
        yield Reading(KnownRanks(known))
        return
    is_ours = by.scheduler is None
    # A cluster's workers have no cache of this user's.
    keep = None if is_ours else keeper(cache, missing, parts)
    with _open_executor(path, files, known, by) as reading:
        read = cache.reading(reading.read) if is_ours else reading.read
        yield Reading(KnownRanks(known, reading.executor, keep), reading.on_bytes, read)
    cache.clean()


@contextmanager
def _open_executor(
    path: Sequence[Place], files: Sequence[RankFile], known: Collection[RankFile], by: Readers
) -> Iterator[Reading]:
    """Who reads the files that are not known. Raises TracerError where they are lost."""
    sizes = _measure_sizes(files)
    missing = [file for file in files if file not in known]
    total, begun = sum(sizes.values()), sum(sizes[file] for file in known)
    if by.scheduler is not None:
        with _on_cluster(by.scheduler, path, sizes, begun, by.progress) as executor:
            yield Reading(executor)
        return
    context = _choose_context(start_method(path))
    with environment(safe_environment()):  # it may start a process that keeps books of what processes share
        done: Synchronized[int] = context.Value("q", begun)
    try:
        # Processes first: a thread of ours, such as the progress's, must not be forked.
        with (
            _open_pool(
                _count_workers(path, total - begun, len(missing), by), _count_helpers(path, missing, by), context, done
            ) as reading,
            by.progress(lambda: done.value, total),
        ):
            yield reading
    except BrokenProcessPool as error:
        raise TracerError(
            f"{_in_words(path)}: a process that read its ranks was killed (out of memory?); report fewer ranks at once"
        ) from error


def _measure_sizes(files: Sequence[RankFile]) -> dict[RankFile, int]:
    return {file: sum(size(place) for place in (file.path, file.light) if place is not None) for file in files}


def _count_workers(path: Sequence[Place], total: int, ranks: int, by: Readers) -> int:
    """How many processes here read so many ranks of so many bytes."""
    alone = any(map(_is_only_here, path)) or _is_daemon()
    asked = (os.cpu_count() or 1 if total > SMALL_RUN else 1) if by.workers is None else by.workers
    most = _MOST_ON_WINDOWS if sys.platform == "win32" else ranks
    return 1 if alone else min(asked, ranks, most)


def _count_helpers(path: Sequence[Place], files: Sequence[RankFile], by: Readers) -> int:
    """How many processes help to read the only file of a run: as many as are not needed for another, if it is large."""
    if len(files) != 1 or start_method(path) != "fork" or _is_daemon():
        return 0
    place = files[0].path
    is_large = size(place) * (_COMPRESSION if place.name.endswith((".gz", ".zst", ".zip")) else 1) > SPLIT_FROM
    return (by.workers or os.cpu_count() or 1) - 1 if is_large else 0


def _is_only_here(place: Place) -> bool:
    """Whether other processes may not see a place: one in memory, or behind a descriptor of this process."""
    return place.is_private if isinstance(place, Remote) else is_pipe(place)


def _is_daemon() -> bool:
    """Whether this process may start none, as a worker of a Pool, of a DataLoader or of Dask."""
    return multiprocessing.current_process().daemon


def _limit_memory(path: Sequence[Place], files: Sequence[RankFile], by: Readers) -> int | None:
    """What reading one rank may take: None where a cluster's workers are to look what they have."""
    if by.memory is not None or by.scheduler is not None:
        return by.memory
    return budget_of(None, _count_workers(path, sum(_measure_sizes(files).values()), len(files), by))


@contextmanager
def _on_cluster(
    scheduler: str, path: Sequence[Place], sizes: Mapping[RankFile, int], begun: int, progress: Progress
) -> Iterator[Executor]:
    done = begun

    def on_done(file: RankFile) -> None:
        nonlocal done
        done += sizes.get(file, 0)  # none of a second time

    with cluster(scheduler, path, on_done) as executor, progress(lambda: done, sum(sizes.values())):
        yield executor


def _in_words(path: Sequence[Place]) -> str:
    return ", ".join(map(str, path))


def start_method(path: Sequence[Place] = ()) -> str:
    """Return `fork` where that is safe, since forked processes need no imports of their own; else `spawn`.

    Forking is not safe on macOS, nor beside threads: those that torch has once it is loaded, as after a recording, and
    those of what opens URLs.
    """
    threads = "torch" in sys.modules or any(isinstance(place, Remote) for place in path)
    return "fork" if sys.platform == "linux" and not threads else "spawn"


class _SafeProcess(SpawnProcess):
    """A process that imports nothing from the current folder as it starts; then it has its parent's path."""

    def start(self) -> None:
        with environment(safe_environment()):
            super().start()


class _SafeContext(SpawnContext):
    Process = _SafeProcess


def _choose_context(method: str) -> BaseContext:
    return _SafeContext() if method == "spawn" else multiprocessing.get_context(method)


@contextmanager
def _open_pool(count: int, helping: int, context: BaseContext, done: Synchronized[int]) -> Iterator[Reading]:
    """A pool of processes, which read where they are several, or help this one. An interrupt stops them at once."""
    here = Reading(None, partial(_add, done))
    if count == 1 and not helping:
        yield here
        return
    pool = ProcessPoolExecutor(
        count if count > 1 else helping, mp_context=context, initializer=_start_worker, initargs=(done,)
    )
    try:
        with _interrupts_held():
            pool.submit(os.getpid).result()
        helped = replace(here, read=partial(summarize_file, helpers=Helpers(pool, helping)))
        yield helped if count == 1 else Reading(pool, _add_in_worker)
    except BaseException:
        for process in multiprocessing.active_children():
            # It has nothing to save, and one that is stopped would hear of nothing else.
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """An interrupt waits until the block ends; the processes that start in it leave the answer to this one."""
    _let_interrupts(False)
    try:
        yield
    finally:
        _let_interrupts(True)


def _let_interrupts(through: bool) -> None:
    """Let interrupts through, or hold them. Windows holds none: a process that starts just then ends by one, aloud."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK if through else signal.SIG_BLOCK, {signal.SIGINT})


def _start_worker(done: Synchronized[int]) -> None:
    # The interrupt goes to this process's parent too, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _let_interrupts(True)
    collect_rarely()
    _done_of_worker.append(done)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process where its parent was killed: it would wait for work for ever, with the parent's files open."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# A worker's own: what is shared with its parent reaches it as it starts, and by no call.
_done_of_worker: list[Synchronized[int]] = []


def _add_in_worker(count: int) -> None:
    _add(_done_of_worker[-1], count)


def _add(done: Synchronized[int], count: int) -> None:
    with done.get_lock():
        done.value += count
