"""Limits of one rank: devices, and windows that fit the memory."""

from __future__ import annotations

import numpy as np

from analyzers.errors import TooLarge
from analyzers.memory import Budget
from analyzers.trace import STEP, Category, Events

# The largest domain of NVLink has 576 GPUs, of which one process sees a few.
MOST_DEVICES = 1_024
# What the figures of a window take, with what they are made of: cells of occupancy the most.
WINDOW_BYTES = 8_000


def check_windows(events: Events, budget: Budget, taken: int) -> None:
    """Raise TooLarge for more devices than a machine has, or more windows than there is memory for.

    `taken` is what the rows take already, in bytes.
    """
    on_device = events.on_device
    devices = max(1, len(np.unique(events.device[on_device])))
    if devices > MOST_DEVICES:
        raise TooLarge(
            f"{budget.file}: holds kernels of {devices:,} devices, where one process has {MOST_DEVICES:,} at most: "
            "damaged, or not one rank's; record it again"
        )
    steps = int(((events.category == Category.ANNOTATION) & events.named(STEP)).sum())
    windows = min(steps * devices, max(int(on_device.sum()), steps))
    budget.check(taken + windows * WINDOW_BYTES, f"{windows:,} windows (steps on devices) of it")
