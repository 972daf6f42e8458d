"""Reading with helpers, held against reading in one process: every column, code and notice must be the same."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from analyzers.errors import AnalysisError
from analyzers.trace import pieces
from analyzers.trace.decoding import decompress
from analyzers.trace.pieces import Helpers
from analyzers.trace.reader import Trace, read_trace
from tests.support.exactly import differences


class Late(Executor):
    """Does in this process what it is given, at once or later, through pickles as another process would."""

    def __init__(self, seed: int = 0) -> None:
        self.taken = 0
        self._chance = random.Random(seed)
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        self.taken += 1
        future: _Waited = _Waited(self.work)
        given = pickle.dumps(args)

        def done() -> None:
            future.set_result(pickle.loads(pickle.dumps(fn(*pickle.loads(given)))))

        self._waiting.append(done)
        if self._chance.random() < 0.5:
            self.work()
        return future

    def work(self) -> None:
        """Do what waits, the last first."""
        while self._waiting:
            self._waiting.pop()()


class _Waited(Future[Any]):
    """A result that is made when somebody waits for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._work()
        return super().result(timeout)


def reads_alike(path: Path, block: int, blocks: int, seed: int = 0, **options: Any) -> int:
    """Check that a file is read alike with helpers and without; how many pieces were handed over."""
    late = Late(seed)
    with (
        mock.patch.multiple(decompress, BLOCK=block, _COMPRESSED_BLOCK=max(block // 8, 2)),
        mock.patch.object(pieces, "BLOCKS", blocks),
    ):
        heard: list[int] = []
        alone = _read(path, **options)
        split = _read(path, helpers=Helpers(late, 2), on_bytes=heard.append, **options)
        if isinstance(alone, Trace):
            assert sum(heard) <= path.stat().st_size
    assert_alike(alone, split)
    if isinstance(split, Trace) and "memory" in options:
        assert split.peak_bytes <= options["memory"]
    return late.taken


def _read(path: Path, **options: Any) -> Trace | str:
    try:
        return read_trace(path, **options)
    except AnalysisError as error:
        return f"{type(error).__name__}: {error}"


def assert_alike(alone: Trace | str, split: Trace | str) -> None:
    """Check that a file reads the same with helpers, whose memory is bounded rather than counted."""
    if isinstance(alone, Trace) and isinstance(split, Trace):
        assert alone.peak_bytes <= split.peak_bytes
        split = replace(split, peak_bytes=alone.peak_bytes)
    assert not list(differences(alone, split))
