"""The report as a document: its types, and JSON. docs/formats.md has the keys; keys may be added, these stay."""

from __future__ import annotations

import msgspec

from analyzers.digest import Summary
from analyzers.entries import BucketRow, CollectiveRow, LayerRow, Timeline, UnmatchedRow, WaitingRow, Window
from analyzers.manifest import Dataset, Epoch, Memory
from analyzers.saved import decoded, encoded

REPORT_SCHEMA = "tracer.report/1"


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


class Report(msgspec.Struct, frozen=True):
    """The report, see docs/formats.md. Lists that no analysis fills yet are empty; what is unknown is null."""

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
    return encoded(document)


def from_json(text: str | bytes) -> Report:
    """A report that `to_json` wrote. Raises UnreadableReport where the text is something else."""
    return decoded(text, Report, REPORT_SCHEMA, "make one with `tracer report RUN --json`")
