"""What a recording will take, told from its early steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.units import size
from tracer.config import EARLY_ACTIVE, DeviceType, Plan


@dataclass(frozen=True)
class Outlook:
    """What one early step took under the full profile, what leaving the early window took, and the bytes it left."""

    profiled_s: float
    left_s: float
    nbytes: int

    def in_words(self, plan: Plan, device: DeviceType, ranks: int, step_s: float) -> str:
        """Say how many steps, seconds and bytes are to come, where a step without the profiler takes `step_s`.

        Light windows are taken for as long as unprofiled blocks. A trace and what it takes to write it grow with its
        steps; the trace of one round is kept.
        """
        full = plan.rounds * (plan.warmup + plan.active)
        longer = plan.active / EARLY_ACTIVE
        seconds = full * self.profiled_s + plan.rounds * longer * self.left_s + (plan.longest(device) - full) * step_s
        return (
            f"{plan.longest(device)} more steps are to be recorded: about {max(seconds, 1):,.0f} s, and "
            f"{size(round(ranks * longer * self.nbytes))} of traces"
        )


def pace_s(ends_s: list[float]) -> float | None:
    """Return the median of the steps between these instants; None of fewer than two."""
    return float(np.median(np.diff(ends_s))) if len(ends_s) > 2 else None
