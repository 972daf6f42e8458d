"""The effort of a computation, counted: the same on every machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np


def effort(compute: Callable[[], object]) -> int:
    """Calls of Python functions, and the entries of arrays that they are given, over a whole computation.

    numpy's own Python functions count too, so that looking through a whole trace once a step shows as what it is.
    """
    spent = 0

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        nonlocal spent
        if event == "call":
            spent += 1 + _given(frame)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        compute()
    finally:
        sys.setprofile(before)
    return spent


def _given(frame: FrameType) -> int:
    code, given = frame.f_code, frame.f_locals
    if "searchsorted" in code.co_name or given.get("method") == "searchsorted":
        # A search halves what it looks through.
        return int(np.size(given["v"]) * np.log2(np.size(given["a"]) + 2)) if code.co_name == "searchsorted" else 0
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return sum(_entries(given[name]) for name in names if name in given)


def _entries(value: object) -> int:
    """Entries of an array, or of the arrays in a tuple."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, tuple):
        return sum(part.size for part in value if isinstance(part, np.ndarray))
    return 0
