"""Environment and collector of the Python processes that are tracer's own.

They import nothing from the current folder, which may be a folder of somebody's traces, with a `torch.py` in it. Of
PYTHONPATH they have what the user named; its empty entries, which are left where a variable had no value, mean the
current folder to Python. A script that the user records keeps what Python gives it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SAFE_PATH = "PYTHONSAFEPATH"
_CHECKOUT = Path(__file__).resolve().parents[1]
# A report is a million small objects and no cycles: at Python's 700 looking for some is a quarter of its time.
_RARELY = 50_000


def collect_rarely() -> None:
    """Look for cycles among this process's objects rarely."""
    gc.set_threshold(_RARELY)


def safe_environment() -> dict[str, str]:
    """Return the variables by which a Python process, and all that it starts, leave the current folder aside."""
    named = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if (_CHECKOUT / "pyproject.toml").is_file() and str(_CHECKOUT) not in named:
        named.append(str(_CHECKOUT))  # it may not be installed, but started in its folder by `python -m tracer`
    return {SAFE_PATH: "1", "PYTHONPATH": os.pathsep.join(named)}


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Change this process's environment until the block ends."""
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})
