"""Recorder of distributed training under torch.profiler, and views of its traces.

`tracer.report` and `tracer.compare` say where the time of a run's steps went, `tracer.Session` records any training
loop, `tracer.callbacks` those of Lightning and Hugging Face. What computes is the package `analyzers`.

Decisions: docs/decisions/structure.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tracer.config import Plan
from tracer.errors import SessionIncomplete, TracerError, UsageError
from tracer.version import VERSION

if TYPE_CHECKING:
    from tracer.results import RunComparison, RunReport, compare, report
    from tracer.sessions import Session

__all__ = [
    "Plan",
    "RunComparison",
    "RunReport",
    "Session",
    "SessionIncomplete",
    "TracerError",
    "UsageError",
    "compare",
    "report",
]
__version__ = VERSION

# What is imported when it is wanted: a session brings torch, a report the views.
_ROOMS = {
    **dict.fromkeys(("RunComparison", "RunReport", "compare", "report"), "tracer.results"),
    "Session": "tracer.sessions",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
