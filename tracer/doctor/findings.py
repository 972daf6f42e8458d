"""Findings of the doctor: a fact, its purpose, its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

# It works; it can be had; it cannot be had, or does not work.
State = Literal["ok", "missing", "no"]


@dataclass(frozen=True)
class Finding:
    """Whether something is here, what it is or is for, and what would mend it."""

    what: str
    state: State
    detail: str
    remedy: str = ""


def probed(what: str, probe: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what a probe finds, or that it failed: the doctor never does."""
    try:
        return list(probe())
    except Exception as error:  # of drivers and packages of any version
        return [Finding(what, "no", f"could not be asked ({in_one_line(error)})")]


def in_one_line(error: BaseException) -> str:
    """Return an error's kind and the first line of what it says."""
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
