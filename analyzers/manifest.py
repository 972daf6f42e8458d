"""run.json: how a run was recorded. `tracer record` writes it; a foreign trace has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from analyzers.controls import Controls

MANIFEST = "run.json"
# Beside it: what the run's links can do, a calibration.
LINKS = "links.json"
SCHEMA = "tracer.run/1"


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of the model, in the model's order."""

    name: str
    shape: list[int]
    dtype: str
    module: str


class Bucket(msgspec.Struct, frozen=True):
    """One DDP bucket: bytes without a communication hook, parameters by their index in the manifest's list."""

    nbytes: int
    parameters: list[int]


class Memory(msgspec.Struct, frozen=True):
    """The most memory that each rank's process had in use, by rank; and what said so."""

    source: str
    peak_bytes: dict[str, int]


class Dataset(msgspec.Struct, frozen=True):
    """What was trained on: an epoch is `samples` of it. Of synthetic data accuracy means nothing."""

    name: str
    samples: int
    is_synthetic: bool


class Epoch(msgspec.Struct, frozen=True):
    """One whole epoch, trained without a profiler: `time_ns` of the slowest rank, the mean loss over all samples.

    `accuracy` is a share of 1, of the test set, or on synthetic data of the training batches. The first epoch is
    warm-up: its time is no measurement. A loss that is no number (training diverged) is null: JSON has no NaN.
    """

    epoch: int
    time_ns: int
    steps: int
    loss: float | None
    accuracy: float | None
    learning_rate: float


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """run.json: how the run was recorded. Every field has a default, since a foreign trace has no manifest."""

    schema: str = SCHEMA
    name: str | None = None
    command: list[str] = []
    versions: dict[str, str | None] = {}
    hosts: list[str] = []
    devices: list[str] = []
    environment: dict[str, str] = {}
    transport: str | None = None
    world_size: int | None = None
    backend: str | None = None
    strategy: str | None = None
    model: str | None = None
    batch_per_gpu: int | None = None
    bucket_cap_mb: float | None = None
    settings: dict[str, Any] = {}
    profiler: dict[str, Any] = {}
    parameters: list[Parameter] = []
    buckets: list[Bucket] | None = None
    controls: Controls = Controls()
    memory: Memory | None = None
    dataset: Dataset | None = None
    epochs: list[Epoch] = []


def read_manifest(folder: Path) -> tuple[Manifest | None, list[str]]:
    """A folder's manifest, or None with a line that says what is unknown without it."""
    file = folder / MANIFEST
    if not file.is_file():
        return None, ["no run.json: strategy, model, batch, controls and bucket layout are unknown (null)"]
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, ValueError, RecursionError) as error:
        return None, [f"{MANIFEST}: cannot be read ({error}); controls and bucket layout are unknown (null)"]
    if manifest.schema != SCHEMA:
        return None, [f"{MANIFEST}: schema {manifest.schema!r} is not {SCHEMA!r}; it is left aside"]
    return manifest, []
