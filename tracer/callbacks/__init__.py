"""Callbacks of training frameworks that record with a session.

`lightning` and `huggingface` each import their framework, so that their callbacks are loaded when they are asked for.
`recording_steps` is what they share.

Decisions: docs/decisions/recording.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.callbacks.huggingface import HuggingFaceCallback
    from tracer.callbacks.lightning import LightningCallback

__all__ = ["HuggingFaceCallback", "LightningCallback"]

_MODULES = {"HuggingFaceCallback": "huggingface", "LightningCallback": "lightning"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
