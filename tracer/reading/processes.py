"""Local processes that read ranks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.sharedctypes import Synchronized

import msgspec

from analyzers.memory import budget_of
from analyzers.notices import Code
from analyzers.paths import Place, Remote, Where, places, size
from analyzers.rank import OnBytes, RunSummary, summarize, with_lanes
from analyzers.reporting import Report
from analyzers.run import RankFile, find
from analyzers.sections import replaced
from tracer.errors import TracerError, UsageError
from tracer.reading.dask_cluster import cluster

# A process takes 0.3 s to start: a run smaller than this is read by the time that one has.
SMALL_RUN = 8_000_000
# An executor of those who read, None for this process; and who hears there of the bytes that are read.
Reading = tuple[Executor | None, OnBytes | None]
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


BY_CORES = Readers()


def read_run(
    path: Where,
    *,
    lanes: bool = False,
    schedules: bool = False,
    steps: str | None = None,
    by: Readers = BY_CORES,
) -> RunSummary:
    """Read a run's summary, its ranks by several processes or a cluster.

    With `lanes` it has what `analyzers.lanes` needs, with `schedules` what `analyzers.whatif` needs. `steps` is the
    annotation whose repeats are the steps, instead of the profiler's. Raises as `analyzers.load` does, and TracerError.
    """
    path = _named(path, by)
    files = find(path).files
    memory = _memory(path, files, by)
    with _executor(path, files, by) as (executor, on_bytes):
        return summarize(
            path, executor, lanes=lanes, schedules=schedules, steps=steps, memory=memory, on_bytes=on_bytes
        )


def read_lanes(
    run: RunSummary, path: Where, ranks: Collection[int], steps: str | None = None, by: Readers = BY_CORES
) -> RunSummary:
    """Read the same run, with what `analyzers.lanes` needs for these ranks. Raises as `read_run`."""
    path = _named(path, by)
    chosen = {summary.path for summary in run.ranks if summary.rank in ranks}
    files = [file for file in find(path, steps).files if file.path in chosen]
    memory = _memory(path, files, by)
    files = [replace(file, memory=memory) for file in files]
    with _executor(path, files, by) as (executor, on_bytes):
        return with_lanes(run, files, executor, on_bytes)


def with_undrawn(report: Report, run: RunSummary) -> Report:
    """Add to a report what was found out after it: which of a run's ranks could not be read to be drawn."""
    undrawn = [warning for warning in run.warnings if warning.code == Code.RANK_NOT_DRAWN]
    return replaced(report, run=msgspec.structs.replace(report.run, warnings=[*report.run.warnings, *undrawn]))


def _named(path: Where, by: Readers) -> Sequence[Place]:
    """The run's places as those who read it can find them."""
    given = places(path)
    if by.scheduler is None:
        return given
    if any(isinstance(place, Remote) and place.is_private for place in given):
        raise UsageError(f"{_in_words(given)}: only exists in this process, where --scheduler's workers cannot read it")
    return [place if isinstance(place, Remote) else place.absolute() for place in given]


@contextmanager
def _executor(path: Sequence[Place], files: Sequence[RankFile], by: Readers) -> Iterator[Reading]:
    """Who reads some files, and who hears of it there. Raises TracerError where they are lost."""
    sizes = _sizes(files)
    if by.scheduler is not None:
        with _on_cluster(by.scheduler, path, sizes, by.progress) as executor:
            yield executor, None
        return
    total = sum(sizes.values())
    context = multiprocessing.get_context(start_method(path))
    done: Synchronized[int] = context.Value("q", 0)
    try:
        # Processes first: a thread of ours, such as the progress's, must not be forked.
        with (
            _pool(_processes(path, total, len(files), by), context, done) as reading,
            by.progress(lambda: done.value, total),
        ):
            yield reading
    except BrokenProcessPool as error:
        raise TracerError(
            f"{_in_words(path)}: a process that read its ranks was killed (out of memory?); report fewer ranks at once"
        ) from error


def _sizes(files: Sequence[RankFile]) -> dict[RankFile, int]:
    return {file: sum(size(place) for place in (file.path, file.light) if place is not None) for file in files}


def _processes(path: Sequence[Place], total: int, ranks: int, by: Readers) -> int:
    """How many processes here read so many ranks of so many bytes."""
    private = any(isinstance(place, Remote) and place.is_private for place in path)
    asked = (os.cpu_count() or 1 if total > SMALL_RUN else 1) if by.workers is None else by.workers
    return 1 if private else min(asked, ranks)


def _memory(path: Sequence[Place], files: Sequence[RankFile], by: Readers) -> int | None:
    """What reading one rank may take: None where a cluster's workers are to look what they have."""
    if by.memory is not None or by.scheduler is not None:
        return by.memory
    return budget_of(None, _processes(path, sum(_sizes(files).values()), len(files), by))


@contextmanager
def _on_cluster(
    scheduler: str, path: Sequence[Place], sizes: Mapping[RankFile, int], progress: Progress
) -> Iterator[Executor]:
    done = 0

    def on_done(file: RankFile) -> None:
        nonlocal done
        done += sizes[file]

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


@contextmanager
def _pool(count: int, context: multiprocessing.context.BaseContext, done: Synchronized[int]) -> Iterator[Reading]:
    """A pool of processes, or None where one process is as good. An interrupt stops them at once."""
    if count == 1:
        yield None, partial(_add, done)
        return
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=(done,))
    try:
        with _interrupts_held():
            pool.submit(os.getpid).result()
        yield pool, _add_in_worker
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """An interrupt waits until the block ends; the processes that start in it leave the answer to this one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _start_worker(done: Synchronized[int]) -> None:
    # The interrupt goes to this process's parent too, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _done_of_worker.append(done)


# A worker's own: what is shared with its parent reaches it as it starts, and by no call.
_done_of_worker: list[Synchronized[int]] = []


def _add_in_worker(count: int) -> None:
    _add(_done_of_worker[-1], count)


def _add(done: Synchronized[int], count: int) -> None:
    with done.get_lock():
        done.value += count
