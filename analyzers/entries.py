"""What the report has many of: windows, collectives, buckets, layers, and what lies in a timeline, a row each."""

from __future__ import annotations

import msgspec


class Window(msgspec.Struct, frozen=True):
    """One profiled step on one device of one rank; `start_ns` from the run's earliest event. See docs/measuring.md."""

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
    """One collective operation, seen from all its members. See docs/measuring.md; unknown is null."""

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
    """One reduction of a DDP bucket on one rank. See docs/measuring.md; instants from the run's earliest event.

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
    """One layer, or one line that is none (its name stands in brackets), in one window. See docs/measuring.md.

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
