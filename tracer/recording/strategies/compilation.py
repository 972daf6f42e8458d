"""Modules and frames that torch.compile compiled."""

from __future__ import annotations

from torch import nn

from analyzers.run import CompiledModules
from tracer.recording.strategies.module_names import MOST_ROWS, pattern
from tracer.recording.strategies.program import Program
from tracer.recording.strategies.tracked_objects import imported


def is_compiled(module: nn.Module) -> bool:
    """Whether `module.compile()` was called."""
    return module._compiled_call_impl is not None


def compiled(program: Program) -> CompiledModules | None:
    """Return what was compiled until now; None where nothing was."""
    wrapper = imported("torch._dynamo.eval_frame", "OptimizedModule")
    names = [
        name
        for name, module in program.modules()
        if is_compiled(module) or (wrapper is not None and isinstance(module, wrapper))
    ]
    counters = imported("torch._dynamo.utils", "counters") or {}
    frames = int(counters["frames"]["ok"]) if "frames" in counters else 0
    if not (names or frames):
        return None
    return CompiledModules(
        modules=list(dict.fromkeys(map(pattern, names)))[:MOST_ROWS],
        frames=frames or None,
        micro_pipeline_tp=imported("torch._inductor.config", "_micro_pipeline_tp"),
    )
