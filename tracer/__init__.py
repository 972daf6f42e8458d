"""Recorder of distributed training under torch.profiler, and views of its traces.

`tracer.Session` records any training loop; what reads traces is the package `analyzers`, which needs no torch.

Decisions: docs/decisions/structure.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.config import Plan
from tracer.errors import SessionIncomplete, TracerError, UsageError
from tracer.version import VERSION

if TYPE_CHECKING:
    from tracer.recording import Session

__all__ = ["Plan", "Session", "SessionIncomplete", "TracerError", "UsageError"]
__version__ = VERSION


def __getattr__(name: str) -> object:
    # torch is imported when a session is wanted, and not by who reports.
    if name == "Session":
        from tracer.recording import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
