"""The processes that read ranks, and how far they are."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from analyzers.run import Where, find
from analyzers.summary import RunSummary, summarize, watch
from tracer.errors import TracerError

# A process takes 0.3 s to start: a run smaller than this is read by the time that one has.
SMALL_RUN = 8_000_000
# Progress of anything shorter is gone before it is read.
PATIENCE_S = 2.0
REFRESH_S = 0.1


def read(path: Where, *, lanes: bool = False) -> RunSummary:
    """A run's summary, its ranks read by as many processes as there are cores; progress on stderr if on a terminal.

    With `lanes` it has what `analyzers.lanes` needs. Raises as `analyzers.load` does.
    """
    files = find(path).files
    paths = [place for file in files for place in (file.path, file.light) if place is not None]
    total = sum(place.stat().st_size for place in paths if place.is_file())
    count = min(os.cpu_count() or 1, len(files))
    context = multiprocessing.get_context(start_method())
    done: Synchronized[int] = context.Value("q", 0)
    try:
        # Processes first: a thread of ours, such as the progress's, must not be forked.
        with _executor(count if total > SMALL_RUN else 1, context, done) as pool, _progress(lambda: done.value, total):
            return summarize(path, pool, lanes=lanes)
    except BrokenProcessPool as error:
        raise TracerError(
            f"{_in_words(path)}: a process that read its ranks was killed (out of memory?); report fewer ranks at once"
        ) from error


def _in_words(path: Where) -> str:
    places = [path] if isinstance(path, str | Path) else path
    return ", ".join(map(str, places))


def start_method() -> str:
    """`fork` where that is safe, since forked processes need no imports of their own; else `spawn`.

    Forking is not safe on macOS, nor beside the threads that torch has once it is loaded, as after a recording.
    """
    return "fork" if sys.platform == "linux" and "torch" not in sys.modules else "spawn"


@contextmanager
def _executor(
    count: int, context: multiprocessing.context.BaseContext, done: Synchronized[int]
) -> Iterator[Executor | None]:
    """A pool of processes, or None where one process is as good. An interrupt stops them at once."""
    if count == 1:
        _listen(done)
        try:
            yield None
        finally:
            watch(None)
        return
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=(done,))
    try:
        with _interrupts_held():
            pool.submit(os.getpid).result()
        yield pool
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
    _listen(done)


def _listen(done: Synchronized[int]) -> None:
    def on_bytes(count: int) -> None:
        with done.get_lock():
            done.value += count

    watch(on_bytes)


@contextmanager
def _progress(done: Callable[[], int], total: int) -> Iterator[None]:
    """Bytes read, rate and time left, once it has taken PATIENCE_S."""
    if not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(done, total, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(done: Callable[[], int], total: int, ended: threading.Event) -> None:
    began = time.monotonic()
    if ended.wait(PATIENCE_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, get_time=lambda: time.monotonic()) as bar:
        task = bar.add_task("reading", total=total)
        bar.tasks[0].start_time = began
        while not ended.wait(REFRESH_S):
            bar.update(task, completed=done())
