"""Ranges around every module's forward, so that launches name their module.

Forward alone: autograd's sequence numbers lead from each backward operator to its forward one, and full backward hooks
break modules that work in place (torchvision's ResNets).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from analyzers.trace import range_name
from tracer.recording.strategies import inner, is_compiled


@contextmanager
def module_ranges(model: nn.Module) -> Iterator[None]:
    """Make each module's forward a profiler range, named after the module, while this is entered."""
    open_ranges = _Open()
    handles = []
    for name, module in _modules(inner(model)):
        handles.append(module.register_forward_pre_hook(open_ranges.opener(range_name(name, type(module).__name__))))
        handles.append(module.register_forward_hook(open_ranges.close, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Open(threading.local):
    """The ranges that are open, innermost last: of each thread its own, since DataParallel's replicas share hooks."""

    def __init__(self) -> None:
        self._ranges: list[ExitStack] = []

    def opener(self, name: str) -> Any:
        """A hook that opens a range of that name."""

        def open_range(module: nn.Module, inputs: Any) -> None:
            if torch.compiler.is_compiling():
                return
            opened = ExitStack()
            opened.enter_context(record_function(name))
            self._ranges.append(opened)

        return open_range

    def close(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A hook that closes the innermost range; a forward that failed before its range opened has none."""
        if not torch.compiler.is_compiling() and self._ranges:
            self._ranges.pop().close()


def _modules(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every module with its name, but none inside of a compiled one, whose graph their hooks would break.

    Those of a module compiled in place would be compiled with it; torch marks it in the trace by itself.
    """
    if is_compiled(model):
        return
    yield prefix, model
    if hasattr(model, "_orig_mod"):
        return
    for name, child in model.named_children():
        yield from _modules(child, f"{prefix}.{name}" if prefix else name)
