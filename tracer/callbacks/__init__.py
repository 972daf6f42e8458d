"""Callbacks of training frameworks that record with a session.

`lightning` and `huggingface` each import their framework, so that their callbacks are loaded when they are asked for.
`recording_steps` is what they share.

Decisions: docs/dev/decisions/recording.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.lazy_exports import export_lazily

if TYPE_CHECKING:
    from tracer.callbacks.huggingface import HuggingFaceCallback
    from tracer.callbacks.lightning import LightningCallback

__all__ = ["HuggingFaceCallback", "LightningCallback"]

__getattr__, __dir__ = export_lazily(
    __name__,
    {"tracer.callbacks.huggingface": ("HuggingFaceCallback",), "tracer.callbacks.lightning": ("LightningCallback",)},
)
