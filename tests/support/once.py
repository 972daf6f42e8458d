"""What one process of a test session makes for all: summaries of samples.

It lies in a folder of this session alone, so nothing outlives a change of the code.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
FOLDER = "TRACER_TEST_SESSION"


def begin() -> None:
    """Make the folder of this session, which the workers that it starts inherit."""
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="tracer-tests-")


def end() -> None:
    shutil.rmtree(os.environ.pop(FOLDER), ignore_errors=True)


@contextmanager
def _alone(key: str) -> Iterator[Path]:
    """A place for what the key names, while no other process of the session makes the same."""
    place = Path(os.environ[FOLDER]) / sha256(key.encode()).hexdigest()
    with place.with_suffix(".lock").open("w") as lock:
        if sys.platform != "win32":  # where all tests run in one process
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield place


def pickled(key: str, make: Callable[[], T]) -> T:
    """What `make` returns, made by the first process that asks; outside of a session, and after an error, by each."""
    if FOLDER not in os.environ:
        return make()
    with _alone(key) as place:
        if not place.exists():
            made = make()
            place.write_bytes(pickle.dumps(made))
            return made
    loaded: T = pickle.loads(place.read_bytes())
    return loaded
