"""Summary of DataLoader time over all windows and per device."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.rank import Measured, device_label, joined
from analyzers.statistics import Spread, spreads


class DeviceInput(msgspec.Struct, frozen=True):
    """What the loader takes in the windows of one device of one rank; ns."""

    rank: int
    device: int | str
    idle_ns: Spread
    fetch_ns: Spread
    span_ns: Spread


class Input(msgspec.Struct, frozen=True):
    """How long the host is in PyTorch's loader in a window, and how long the device is idle meanwhile; ns.

    `window` says of which windows, and `span_ns` how long those are: light windows do not know the host.
    """

    idle_ns: Spread
    fetch_ns: Spread
    span_ns: Spread
    by_device: list[DeviceInput]
    window: str = msgspec.field(name="from")

    @property
    def longest(self) -> DeviceInput:
        """Return the device that idles longest, by its median: with synchronization, the others wait for it."""
        return max(self.by_device, key=lambda device: device.idle_ns.median or 0)


def input_summary(measured: Sequence[Measured]) -> Input | None:
    """Return what the loader takes in the full windows of all ranks; None where no trace shows one."""
    if not any(rank_measured.fetching.seen for rank_measured in measured):
        return None
    rows = joined([rank_measured.windows for rank_measured in measured])
    idle_ns = np.concatenate([rank_measured.fetching.input_idle_ns for rank_measured in measured])
    fetch_ns = np.concatenate([rank_measured.fetching.fetch_ns for rank_measured in measured])
    is_known = idle_ns != UNKNOWN

    def over(windows: Int64) -> dict[str, Spread]:
        known_windows = windows[is_known[windows]]
        return spreads(
            {
                "idle_ns": idle_ns[known_windows],
                "fetch_ns": fetch_ns[known_windows],
                "span_ns": rows.span_ns[known_windows],
            }
        )

    by_device = [
        DeviceInput(rank, device_label(device), **over(device_windows))
        for (rank, device), device_windows in rows.by_device()
    ]
    return Input(**over(np.arange(len(rows))), by_device=by_device, window="full")
