"""Dask cluster as an executor that reads ranks.

Dask gives what a lost worker had in hand to the others, and gives a task up once its workers have died four times
(`distributed.scheduler.allowed-failures`, 3), also one that was merely beside the culprit. So few tasks are handed out
at a time, and what Dask gives up is tried once more with nothing beside it, as is what failed with any error: where a
worker dies, Dask's own bookkeeping can. A rank that is lost even so is that rank's result; the others' stand.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analyzers.errors import AnalysisError, LostRank, install_hint
from analyzers.paths import Place, Remote
from analyzers.rank import RankSummary
from analyzers.redaction import redacted
from analyzers.run import RankFile
from tracer.errors import TracerError
from tracer.version import VERSION

MISSING = f"--scheduler needs Dask: {install_hint('cluster')}"
CONNECT_S = 15.0
# How often workers are counted; for how long there may be none before what they had is given up.
LOOK_S = 1.0
PATIENCE_S = 60.0
# Handed out per thread of the cluster: the next rank is there when one is done.
AHEAD = 2
# For how long nothing at all may be read before what workers have in hand is given up: 5 GB take a core a minute.
HANG_S = 900.0
_HANGS = f"nothing was read for {HANG_S / 60:.0f} minutes: its worker hangs (a file system that does not answer?)"
_KILLED = "the workers that read it were killed, also with nothing beside it (out of memory?)"
_ALONE = f"no worker has been left for {PATIENCE_S:.0f} s"


class Cluster(Executor):
    """Maps ranks over a cluster's workers; `on_done` hears of each file that was read."""

    def __init__(self, client: Any, address: str, on_done: Callable[[RankFile], None]) -> None:
        self._client, self._address, self._on_done = client, address, on_done
        # Not pure: the file of a name may have been written anew since an earlier report.
        self._executor = client.get_executor(pure=False)
        self._threads, self._counted, self._seen = 0, 0.0, time.monotonic()

    def map(self, fn: Callable[..., Any], *files: Any, **_: Any) -> Iterator[Any]:
        """Return results in the files' order, LostRank for a lost rank. Raises TracerError if the cluster is lost."""
        todo = list(zip(*files, strict=True))
        results: dict[int, Any] = {}
        with _cluster_errors(self._address):
            given_up = self._run(fn, todo, deque(range(len(todo))), results, self._room)
            lost = self._run(fn, todo, deque(sorted(given_up)), results, lambda: 1)
        for number, why in lost.items():
            results[number] = LostRank(f"{todo[number][0].path}: {why}")
        return (results[number] for number in range(len(todo)))

    def _run(
        self,
        fn: Callable[..., Any],
        todo: Sequence[tuple[RankFile]],
        waiting: deque[int],
        results: dict[int, Any],
        room: Callable[[], int],
    ) -> dict[int, str]:
        """Fill in the results of what is waiting; return why the others failed. `room` is how many may run at once."""
        from distributed import KilledWorker

        running: dict[Future[Any], int] = {}
        failed: dict[int, str] = {}
        heard = time.monotonic()
        while waiting or running:
            while waiting and len(running) < room():
                number = waiting.popleft()
                running[self._executor.submit(_read, fn, own_versions(), *todo[number])] = number
            done, _ = wait(running, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            if not done and not self._has_workers():
                for number in (*running.values(), *waiting):
                    results[number] = LostRank(f"{todo[number][0].path}: {_ALONE}")
                return failed
            heard = time.monotonic() if done else heard
            if time.monotonic() - heard > HANG_S:
                for future, number in running.items():
                    future.cancel()
                    results[number] = LostRank(f"{todo[number][0].path}: {_HANGS}")
                running, heard = {}, time.monotonic()
            for future in done:
                number = running.pop(future)
                try:
                    results[number] = _take_result(future)
                except KilledWorker:
                    failed[number] = _KILLED
                except _Failed as error:
                    failed[number] = _write_error(error, todo[number][0].path)
                except _Unusable as error:
                    file = todo[number][0].path
                    results[number] = LostRank(f"{file}: {_write_error(error, file)}")
                else:
                    self._on_done(todo[number][0])
        return failed

    def _room(self) -> int:
        self._has_workers()
        return max(1, AHEAD * self._threads)

    def _has_workers(self) -> bool:
        """Whether there are workers, or were a while ago. Raises OSError where the scheduler is gone."""
        now = time.monotonic()
        if now - self._counted > LOOK_S:
            self._threads, self._counted = sum(self._client.nthreads().values()), now
        if self._threads:
            self._seen = now
        return now - self._seen < PATIENCE_S

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let go of what is still running."""
        self._executor.shutdown(wait=False)


class _Unusable(Exception):
    """What a worker returned is no result; says why."""


class _Failed(Exception):
    """A worker raised an error, or what it sent could not be read; says which."""


def _read(fn: Callable[..., Any], wanted: dict[str, str], file: RankFile) -> tuple[dict[str, str], bytes]:
    """Read a file on a worker of the right versions: one may have joined since workers were asked for theirs.

    The result is pickled here, and unpickled by its reader, since Dask asks for ever for what it cannot unpickle.
    """
    found = own_versions()
    return found, pickle.dumps(fn(file)) if found == wanted else b""


def _take_result(future: Future[Any]) -> Any:
    """Return what a worker found. Raises _Unusable where that is nothing of ours, what Dask raises where it is lost."""
    from distributed import KilledWorker

    try:
        versions, packed = future.result()
        if other := _compare_versions(versions):
            raise _Unusable(f"versions do not match: its worker has {', '.join(other)}")
        result = pickle.loads(packed)
    except (CancelledError, KilledWorker, _Unusable):
        raise
    # Whatever is wrong on a worker, or with what it sent, is of this rank alone.
    except Exception as error:
        raise _Failed(f"{type(error).__name__} on its worker: {(str(error).splitlines() or [''])[0][:200]}") from error
    if not (isinstance(result, AnalysisError) or _are_summaries(result)):
        raise _Unusable(f"its worker returned no summary but a {type(result).__name__}")
    return result


def _are_summaries(result: object) -> bool:
    return isinstance(result, tuple) and bool(result) and all(isinstance(rank, RankSummary) for rank in result)


def _write_error(error: BaseException, place: Place) -> str:
    """Return what an error says, without what a URL keeps secret."""
    return redacted(str(error), place.url if isinstance(place, Remote) else "")


def _compare_versions(versions: dict[str, str]) -> list[str]:
    """Return in words in what a worker's versions are not ours."""
    return [
        f"{name} {versions.get(name)} (here {ours})"
        for name, ours in own_versions().items()
        if versions.get(name) != ours
    ]


@contextmanager
def cluster(address: str, places: Sequence[Place], on_done: Callable[[RankFile], None]) -> Iterator[Cluster]:
    """Connect to a scheduler's cluster whose workers have our versions and see the paths. Raises TracerError."""
    try:
        from distributed import Client
    except ImportError as error:
        raise TracerError(MISSING) from error
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as error:
        why = redacted(str(error), address).splitlines()[0] if str(error) else "no answer"
        raise TracerError(
            f"{address}: no Dask scheduler answers there ({why[:200]}); start one with `dask scheduler`"
        ) from error
    with client:
        with _cluster_errors(address):
            _check(client, address, [path for path in places if isinstance(path, Path)])
        executor = Cluster(client, address, on_done)
        try:
            yield executor
        finally:
            executor.shutdown()


@contextmanager
def _cluster_errors(address: str) -> Iterator[None]:
    """What Dask raises where the scheduler goes away, as a line."""
    try:
        yield
    except (CancelledError, OSError, TimeoutError) as error:
        raise TracerError(
            f"{address}: the scheduler was lost while ranks were read ({type(error).__name__}); report again"
        ) from error


def _check(client: Any, address: str, paths: Sequence[Path]) -> None:
    """Raises TracerError unless there are workers, all of our versions, that see the run."""
    try:
        client.wait_for_workers(1, timeout=CONNECT_S)
    except TimeoutError as error:
        raise TracerError(
            f"{address}: the scheduler has no workers; start some with `dask worker {address}`"
        ) from error
    for worker, answer in client.run(_said_by_worker, list(paths), on_error="return").items():
        if isinstance(answer, OSError):  # it has gone meanwhile
            continue
        if isinstance(answer, Exception):
            why = redacted(str(answer), address)
            raise TracerError(
                f"{address}: worker {worker} cannot run tracer ({type(answer).__name__}: {why}); "
                f"install tracer-toolkit {VERSION} there"
            )
        versions, unseen = answer
        other = _compare_versions(versions)
        if other:
            raise TracerError(
                f"{address}: versions do not match: worker {worker} has {', '.join(other)}; install the same in both"
            )
        if unseen:
            raise TracerError(
                f"{unseen[0]}: worker {worker} does not see it; put the run on a file system that all workers share, "
                "or give its URL (s3://...)"
            )


def own_versions() -> dict[str, str]:
    """Return the versions that writers and readers of results must share; for numpy only what its pickles need."""
    return {
        "tracer": VERSION,
        "python": ".".join(map(str, sys.version_info[:2])),
        "numpy": _find_version("numpy").partition(".")[0],
        "distributed": _find_version("distributed"),
    }


def _find_version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _said_by_worker(paths: Sequence[Path]) -> tuple[dict[str, str], list[Path]]:
    """What a worker has, and which places it does not see."""
    return own_versions(), [path for path in paths if not path.exists()]
