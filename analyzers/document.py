"""The report as a document: its types, and JSON. METRICS fixes the keys; keys may be added, these stay."""

from __future__ import annotations

import msgspec

from analyzers.errors import AnalysisError
from analyzers.manifest import Dataset, Epoch, Memory

SCHEMA = "tracer.report/1"


class Spread(msgspec.Struct, frozen=True):
    """A median with its quartiles and extremes, over `count` values; all null where there is none."""

    count: int
    median: float | None = None
    low: float | None = None
    high: float | None = None
    minimum: float | None = None
    maximum: float | None = None


class ControlFigures(msgspec.Struct, frozen=True):
    """Medians of the run's controls, ns a step; null with the reason among the warnings.

    `blocks_ns` are the blocks of steps that each control is of, in the order in which they ran, each the median over
    its ranks: those of controls that are null, too.
    """

    unprofiled_step_ns: int | None = None
    nosync_step_ns: int | None = None
    profiled_step_ns: int | None = None
    distortion: float | None = None
    sync_cost_ns: int | None = None
    blocks_ns: dict[str, list[float]] = {}


class Clock(msgspec.Struct, frozen=True):
    """Ranks' clocks against the lowest rank's, by rank; null where ranks share no synchronizing collective.

    `applied` says whether any offset was taken off the rank's times, `applied_to` which.
    """

    offsets_ns: dict[str, int | None]
    spread_ns: dict[str, int | None]
    applied: bool
    applied_to: list[int]


class Links(msgspec.Struct, frozen=True):
    """What the ranks communicate over; null where the run does not say."""

    devices: list[str] = []
    transport: str | None = None
    limit_gbps: float | None = None
    source: str | None = None


class RunFacts(msgspec.Struct, frozen=True):
    """What is known of the run itself."""

    name: str
    world_size: int
    ranks: list[int]
    devices: list[str]
    backend: str | None
    strategy: str | None
    model: str | None
    batch_per_gpu: int | None
    bucket_cap_mb: float | None
    versions: dict[str, str | None]
    origin_ns: str
    times_from: str
    controls: ControlFigures
    clock: Clock
    links: Links
    warnings: list[str]
    memory: Memory | None = None
    dataset: Dataset | None = None
    epochs: list[Epoch] = []


class Window(msgspec.Struct, frozen=True):
    """One profiled step on one device of one rank; `start_ns` from the run's earliest event. See METRICS."""

    rank: int
    device: int | str
    step: int
    start_ns: int
    span_ns: int
    compute_ns: int
    packing_ns: int
    comm_ns: int
    copy_ns: int
    overlapped_comm_ns: int
    exposed_comm_ns: int
    exposed_wait_ns: int
    exposed_transfer_ns: int
    exposed_copy_ns: int
    idle_ns: int
    overlap: float | None
    unmatched_comm_ns: int
    contention_ns: int | None
    input_idle_ns: int | None = None  # of idle_ns; null where host and device are not of the same steps


class MemberRow(msgspec.Struct, frozen=True):
    """One member's kernel in an instance, on the common clock."""

    rank: int
    device: int | str
    start_ns: int
    dur_ns: int
    wait_ns: int | None
    exposed_ns: int


class CollectiveRow(msgspec.Struct, frozen=True):
    """One collective operation, seen from all its members. See METRICS; unknown is null."""

    index: int
    kind: str
    group: list[int]
    group_name: str
    group_size: int
    dtype: str | None
    bytes: int | None
    purpose: str
    step: int | None
    bucket: int | None
    transfer_ns: int | None
    bound: bool
    partial: bool
    algbw_gbps: float | None
    busbw_gbps: float | None
    utilization_at_size: float | None
    utilization_of_link: float | None
    members: list[MemberRow]


class UnmatchedRow(msgspec.Struct, frozen=True):
    """A kernel that is in no instance, on the common clock, and why."""

    rank: int
    device: int | str
    kind: str
    name: str
    start_ns: int
    dur_ns: int
    step: int | None
    why: str


class BandwidthRow(msgspec.Struct, frozen=True):
    """Instances of one kind, group, size and purpose: medians over them, busbw with its quartiles."""

    kind: str
    group: list[int]
    group_name: str
    group_size: int
    bytes: int | None
    purpose: str
    count: int
    bound: bool
    transfer_ns: float | None
    wait_ns: float | None
    busbw_gbps: float | None
    busbw_low_gbps: float | None
    busbw_high_gbps: float | None
    calibrated_gbps: float | None
    utilization_at_size: float | None


class WaitingRow(msgspec.Struct, frozen=True):
    """What one device waited for others in a step, and what all others waited for it, by what kept it."""

    rank: int
    device: int | str
    step: int | None
    waited_ns: int
    caused_ns: int
    caused_by: dict[str, int]


class CopyRow(msgspec.Struct, frozen=True):
    """Copies of one direction and size."""

    direction: str
    bytes: int
    count: int
    gbps: float
    low_gbps: float
    high_gbps: float


class HiddenBy(msgspec.Struct, frozen=True):
    """How long one layer's (or other line's) compute ran beside communication, in one pass; ns."""

    layer: str
    direction: str = msgspec.field(name="pass")  # forward or backward
    ns: int


class BucketRow(msgspec.Struct, frozen=True):
    """One reduction of a DDP bucket on one rank. See METRICS; instants from the run's earliest event.

    `pass` counts backward passes within the step. `share_of_exposed` is of all exposed communication of the window.
    `bound`: the transfer is but an upper bound. `hidden_by` adds up to `overlapped_ns`.
    """

    rank: int
    device: int | str
    step: int
    backward_pass: int = msgspec.field(name="pass")
    bucket: int | None
    collective: int | None
    bytes: int | None
    parameters: list[str] | None
    layers: list[str]
    ready_ns: int | None
    launched_ns: int | None
    start_ns: int
    dur_ns: int
    wait_ns: int | None
    transfer_ns: int | None
    bound: bool
    queued_ns: int | None
    late_launch_ns: int | None
    overlapped_ns: int
    exposed_ns: int
    share_of_exposed: float | None
    hidden_by: list[HiddenBy]


class LayerComm(msgspec.Struct, frozen=True):
    """Communication of a layer in one step: of a bucket its bytes' share, of a sharded module its own collectives.

    `wait_ns` is null where any of them is in no instance. `prefetched`: whether an all-gather was called for before its
    module's turn; null where that has no meaning.
    """

    kind: str
    direction: str = msgspec.field(name="pass")
    count: int
    bytes: int | None
    dur_ns: int
    wait_ns: int | None
    overlapped_ns: int
    exposed_ns: int
    prefetched: bool | None = None


class LayerRow(msgspec.Struct, frozen=True):
    """One layer, or one line that is none (its name stands in brackets), in one window. See METRICS.

    `forward_ns` and `backward_ns` of all rows of a window add up to its compute; of lines that are no layers, what is
    launched outside of the backward counts as forward. `copy_ns`, memcpys and memsets, add up to its copies. Lengths of
    collectives are added, those that overlap one another too.
    """

    rank: int
    device: int | str
    step: int
    layer: str
    type: str
    forward_ns: int
    backward_ns: int
    copy_ns: int
    parameters: int
    gradient_bytes: int | None
    bucket: int | None
    buckets: list[int]
    comm: list[LayerComm]
    overlapped_ns: int
    exposed_ns: int


class LayoutBucket(msgspec.Struct, frozen=True):
    """One bucket of DDP's layout: gradients' elements, their bytes as they are reduced, and whose they are."""

    bucket: int
    elements: int
    bytes: int | None
    parameters: list[str] | None
    layers: list[str]


class Layout(msgspec.Struct, frozen=True):
    """DDP's buckets, and where they are known from: `run.json` or `trace`."""

    source: str
    buckets: list[LayoutBucket]


class SyncCost(msgspec.Struct, frozen=True):
    """What gradient synchronization costs a step: means over windows, ns, beside the control.

    `control_ns` is unprofiled, `profiled_ns` the same difference between windows with and without synchronization.

    `packing_ns` and `packing_copies_ns` are its kernels and memcpys that run beside nothing else; `idle_ns` is, by
    `idle_from`, the change against the window without synchronization, or idle time right before packing and
    communication. `contention_compared` is the share of compute beside communication that contention was measured on.
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


class Mark(msgspec.Struct, frozen=True):
    """One collective on a lane, ns from the window's start: its bucket, or a letter for its kind."""

    start_ns: int
    dur_ns: int
    wait_ns: int | None
    bucket: int | None
    kind: str
    purpose: str


class Lane(msgspec.Struct, frozen=True):
    """One lane of a timeline: `busy` is the share of each cell that it covers, `marks` what lies on it."""

    label: str
    kind: str
    busy: list[float]
    marks: list[Mark]


class Timeline(msgspec.Struct, frozen=True):
    """The representative window, in cells of equal length."""

    rank: int
    device: int | str
    step: int
    span_ns: int
    cells: int
    lanes: list[Lane]


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


class Report(msgspec.Struct, frozen=True):
    """What METRICS calls the report. Lists that no analysis fills yet are empty; what is unknown is null."""

    schema: str
    run: RunFacts
    windows: list[Window]
    collectives: list[CollectiveRow]
    unmatched: list[UnmatchedRow]
    waiting: list[WaitingRow]
    buckets: list[BucketRow]
    layers: list[LayerRow]
    timeline: Timeline
    traffic: dict[str, int | None]
    summary: Summary


def to_json(document: Report) -> str:
    """The report as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()


def from_json(text: str | bytes) -> Report:
    """A report that `to_json` wrote. Raises AnalysisError where the text is something else."""
    try:
        document = msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as error:
        raise AnalysisError(f"no report ({error}); make one with `tracer report RUN --json`") from error
    if document.schema != SCHEMA:
        raise AnalysisError(
            f"a report of schema {document.schema!r}, not {SCHEMA!r}; make it anew with `tracer report`"
        )
    return document
