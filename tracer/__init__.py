"""Recorder of distributed training under torch.profiler, and views of its traces.

`tracer.report` says where the time of a run's steps went, `tracer.compare` what changed, `tracer.whatif` what other
settings would bring, `tracer.sweep` how training scales; `tracer.Session` records any training loop, `tracer.callbacks`
those of Lightning and Hugging Face. What computes is the package `analyzers`.

Decisions: docs/dev/decisions/structure.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.lazy_exports import export_lazily
from tracer.errors import IncompleteRecording, SessionIncomplete, TracerError, UsageError
from tracer.version import VERSION

if TYPE_CHECKING:
    from tracer.config import Plan
    from tracer.results import RunComparison, RunPrediction, RunReport, SweepStudy, compare, report, sweep, whatif
    from tracer.sessions import Session

__all__ = [
    "IncompleteRecording",
    "Plan",
    "RunComparison",
    "RunPrediction",
    "RunReport",
    "Session",
    "SessionIncomplete",
    "SweepStudy",
    "TracerError",
    "UsageError",
    "compare",
    "report",
    "sweep",
    "whatif",
]
__version__ = VERSION

# A session brings torch, a report the views.
__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "tracer.config": ("Plan",),
        "tracer.results": (
            "RunComparison",
            "RunPrediction",
            "RunReport",
            "SweepStudy",
            "compare",
            "report",
            "sweep",
            "whatif",
        ),
        "tracer.sessions": ("Session",),
    },
)
