"""What the report comes to: medians with their spread, the cost of synchronization, advice, ranks that stand out."""

from __future__ import annotations

import msgspec

from analyzers.entries import BandwidthRow, CopyRow, HiddenBy, Layout


class Spread(msgspec.Struct, frozen=True):
    """A median with its quartiles and extremes, over `count` values; all null where there is none."""

    count: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    minimum: float | None = None
    maximum: float | None = None


class SyncCost(msgspec.Struct, frozen=True):
    """What gradient synchronization costs a step: means over windows, ns, beside the control.

    `control_ns` is unprofiled, `profiled_ns` the same difference between windows with and without synchronization.

    `packing_ns` and `packing_copies_ns` are its kernels and memcpys that run beside nothing else; `idle_ns` is, by
    `idle_from`, the change against the window without synchronization, or idle time right before packing and
    communication. `contention_compared` is the share of compute beside communication that contention was measured on.
    Where `contention_ns` is null the sum, `accounted_ns`, is without it, and the remainder holds it.
    """

    control_ns: int | None
    profiled_ns: int | None
    exposed_wait_ns: int
    exposed_transfer_ns: int
    packing_ns: int
    packing_copies_ns: int
    contention_ns: int | None
    contention_is_estimate: bool
    contention_compared: float | None
    idle_ns: int
    idle_from: str
    accounted_ns: int
    remainder_ns: int | None
    accounted: float | None
    accounted_of_profiled: float | None


class Advice(msgspec.Struct, frozen=True):
    """What to change, the figure it rests on (ns a step), and what was measured."""

    text: str
    figure_ns: int
    because: str


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
        """The device that idles longest, by its median: with synchronization, the others wait for it."""
        return max(self.by_device, key=lambda device: device.idle_ns.median or 0)


class BucketSummary(msgspec.Struct, frozen=True):
    """One bucket over all ranks and steps; `hidden_by` are the lines that hid it longest, by their mean."""

    bucket: int
    bytes: int | None
    parameters: int | None
    layers: list[str]
    hidden_by: list[HiddenBy]
    measures: dict[str, Spread]


class LayerSummary(msgspec.Struct, frozen=True):
    """One layer or line over all windows."""

    layer: str
    type: str
    parameters: int
    gradient_bytes: int | None
    bucket: int | None
    measures: dict[str, Spread]


class Representative(msgspec.Struct, frozen=True):
    """The window of median span: the one step in which printed lines add up."""

    rank: int
    device: int | str
    step: int


class DeviceSummary(msgspec.Struct, frozen=True):
    """The measures of all windows of one device of one rank."""

    rank: int
    device: int | str
    windows: dict[str, Spread]


class ChosenDevice(msgspec.Struct, frozen=True):
    """A device that stands for others; its own time is its median step less its median exposed waiting."""

    rank: int
    device: int | str
    own_ns: float


class Outlier(msgspec.Struct, frozen=True):
    """A device one of whose medians (ns) lies far from the others'; `median_ns` is theirs."""

    rank: int
    device: int | str
    measure: str
    value_ns: float
    median_ns: float


class OverDevices(msgspec.Struct, frozen=True):
    """Devices' medians, each counted once: their spread, who stands out, and who represents. See analyzers.spread."""

    devices: int
    medians: dict[str, Spread]
    slowest: ChosenDevice
    median: ChosenDevice
    fastest: ChosenDevice
    outliers: list[Outlier]


class Summary(msgspec.Struct, frozen=True):
    """Medians with their spread, over all windows and over each device's; shares of all windows' time together."""

    windows: dict[str, Spread]
    by_device: list[DeviceSummary]
    shares: dict[str, float | None]
    representative: Representative
    verdict: str
    communication: list[BandwidthRow]
    copies: list[CopyRow]
    unmatched_share: float | None
    advice: list[Advice]
    buckets: list[BucketSummary]
    layers: list[LayerSummary]
    layers_from: str
    layout: Layout | None
    sync_cost: SyncCost | None
    input: Input | None = None  # null where no trace has a loader's ranges
    over_devices: OverDevices | None = None  # null for one device
