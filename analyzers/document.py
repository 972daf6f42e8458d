"""The report as a document: its types, and JSON. METRICS fixes the keys; keys may be added, these stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from analyzers.errors import AnalysisError

if TYPE_CHECKING:
    import pandas as pd

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
    """Medians of the run's controls, ns a step; null with the reason among the warnings."""

    unprofiled_step_ns: int | None = None
    nosync_step_ns: int | None = None
    profiled_step_ns: int | None = None
    distortion: float | None = None
    sync_cost_ns: int | None = None


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


class Window(msgspec.Struct, frozen=True):
    """One profiled step on one device of one rank; `start_ns` from the run's earliest event. See METRICS."""

    rank: int
    device: int | str
    step: int
    start_ns: int
    span_ns: int
    compute_ns: int
    packing_ns: int | None
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
    advice: list[dict[str, Any]] = []
    buckets: dict[str, Spread] | None = None
    layers: dict[str, Spread] | None = None


class Report(msgspec.Struct, frozen=True):
    """What METRICS calls the report. Lists that no analysis fills yet are empty; what is unknown is null."""

    schema: str
    run: RunFacts
    windows: list[Window]
    collectives: list[CollectiveRow]
    unmatched: list[UnmatchedRow]
    waiting: list[WaitingRow]
    buckets: list[dict[str, Any]]
    layers: list[dict[str, Any]]
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


def windows_frame(document: Report) -> pd.DataFrame:
    """The report's windows, a row each, in the JSON's units and order."""
    import pandas as pd

    return pd.DataFrame([msgspec.structs.asdict(window) for window in document.windows])


def collectives_frame(document: Report) -> pd.DataFrame:
    """The report's collectives, a row each, members left out."""
    import pandas as pd

    columns = [name for name in CollectiveRow.__struct_fields__ if name != "members"]
    rows = [{name: getattr(row, name) for name in columns} for row in document.collectives]
    return pd.DataFrame(rows, columns=columns)
