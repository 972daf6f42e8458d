"""Manifest in run.json: how a run was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from analyzers.command_lines import redacted_command
from analyzers.notices import Code, Notice
from analyzers.paths import Place, is_there, read_file
from analyzers.ranks import is_world_size, quoted, rank_number
from analyzers.redaction import redacted, redacted_values
from analyzers.run.controls import Controls, controls_of_launches, joined_controls
from analyzers.run.parallelism import (
    Parallelism,
    find_contradictions,
    joined_parallelism,
    of_known_ranks,
    without_impossible,
)
from analyzers.texts import brief, listed
from analyzers.trace import own_name

MANIFEST = "run.json"
# Beside it: what the run's links can do, a calibration.
LINKS = "links.json"
# In a folder of runs: the grid that they are the cells of.
SWEEP = "sweep.json"
# The file in which a sweep's study is kept.
RESULTS = "scaling.json"
SCHEMA = "tracer.run/1"
# In `profiler`: how many early steps the full window has, where training ended before a round of blocks was whole.
EARLY_STEPS = "early_steps"
# So many of a file's odd keys are named.
_LISTED = 3

V = TypeVar("V")


class Parameter(msgspec.Struct, frozen=True):
    """One parameter, in the model's order."""

    name: str
    shape: list[int]
    dtype: str
    module: str


class Bucket(msgspec.Struct, frozen=True):
    """One DDP bucket.

    `nbytes`: without a communication hook. `parameters`: by index.
    """

    nbytes: int
    parameters: list[int]


class Memory(msgspec.Struct, frozen=True):
    """The most memory in use, by rank.

    `peak_bytes`: on a CPU resident.
    """

    source: str
    peak_bytes: dict[str, int]


class DeviceState(msgspec.Struct, frozen=True):
    """A device before a round's light window.

    `reasons`: what holds its clocks down, in NVML's words.
    """

    device: int
    name: str
    round: int
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    reasons: list[str] | None = None


class LoaderSettings(msgspec.Struct, frozen=True):
    """A DataLoader's arguments; null is what it does not say."""

    batch_size: int | None = None
    workers: int | None = None
    pin_memory: bool | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None


class OptimizerSettings(msgspec.Struct, frozen=True):
    """An optimizer's class, and the implementation asked for."""

    name: str
    foreach: bool | None = None
    fused: bool | None = None


class TrainingSettings(msgspec.Struct, frozen=True):
    """Other settings, on the first rank.

    `allocator`: `PYTORCH_CUDA_ALLOC_CONF`. `autocast`: null is off or not seen. `memory_format`: `channels_last`,
    `contiguous`, `mixed`.
    """

    loaders: list[LoaderSettings] = []
    optimizers: list[OptimizerSettings] = []
    allocator: str = ""
    autocast: str | None = None
    matmul_precision: str | None = None
    memory_format: str | None = None  # channels_last, contiguous or mixed; null of a model without convolutions
    forwards_per_step: float | None = None


class HostStates(msgspec.Struct, frozen=True):
    """A rank's host in each `step` of the recording.

    `gc_ns`: in Python's collections. `runnable_ns`: the main thread waited for a core. `autograd_runnable_ns`:
    autograd's threads did. `switches`: while it could run. `faults`: read from disk.
    """

    step: list[int] = []  # its number in the recording, from 1
    host_ns: list[int] = []  # how long the host was in it
    gc_ns: list[int | None] = []  # in Python's garbage collections, of whatever thread
    runnable_ns: list[int | None] = []  # the main thread's
    autograd_runnable_ns: list[int | None] = []  # autograd's threads', the most of one
    switches: list[int | None] = []  # involuntary ones of the main thread
    faults: list[int | None] = []  # its page faults that were read from disk
    cpu_mhz: list[float | None] = []


class Dataset(msgspec.Struct, frozen=True):
    """What was trained on.

    `name`: `CIFAR-10`, `digits`, or `synthetic`, whose accuracy means nothing.
    """

    name: str
    samples: int
    is_synthetic: bool


class Epoch(msgspec.Struct, frozen=True):
    """A whole epoch without a profiler, on the slowest rank; the first is warm-up.

    `loss`: null if training diverged. `accuracy`: of the test set; synthetic: of training batches.
    """

    epoch: int
    time_ns: int
    steps: int
    loss: float | None
    accuracy: float | None
    learning_rate: float


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """How a run was recorded; over several hosts each `ranks0-7` has its own.

    All keys have defaults. `environment`: what decides how ranks communicate or what profiling costs. `strategy`:
    `ddp`, `fsdp`, `dp`, `tensor`, `pipeline`, `context`, `expert`, joined by `+`, or `single`. `bucket_cap_mb`: null is
    DDP's default, or no DDP. `settings`: the built-in workload's; `ddp` is DDP's logging data.
    """

    schema: str = SCHEMA
    id: str | None = None  # one for all ranks of a recording, on whatever host
    name: str | None = None
    command: list[str] = []
    versions: dict[str, str | None] = {}
    hosts: list[str] = []
    host_of_rank: dict[str, str] = {}
    hosts_of_launches: list[list[str]] = []  # of several launches in one file, in order: each one's hosts
    devices: list[str] = []
    environment: dict[str, str] = {}
    transport: str | None = None
    world_size: int | None = None
    backend: str | None = None
    strategy: str | None = None
    parallelism: Parallelism | None = None
    model: str | None = None
    batch_per_gpu: int | None = None
    bucket_cap_mb: float | None = None
    settings: dict[str, Any] = {}
    training: TrainingSettings | None = None
    profiler: dict[str, Any] = {}
    parameters: list[Parameter] = []
    buckets: list[Bucket] | None = None
    controls: Controls = Controls()
    memory: Memory | None = None
    device_states: dict[str, list[DeviceState]] | None = None
    host_states: dict[str, HostStates] | None = None
    dataset: Dataset | None = None
    epochs: list[Epoch] = []
    notes: list[str] = []

    __repr__ = brief

    def without_secrets(self) -> Manifest:
        """Return what may be written down and shown of it, whoever wrote it."""
        return replace(
            self,
            command=redacted_command(self.command),
            environment=redacted_values(self.environment),
            settings=redacted_values(self.settings),
            training=self.training and replace(self.training, allocator=redacted(self.training.allocator)),
            notes=[redacted(note) for note in self.notes],
        )

    def with_own_names(self) -> Manifest:
        """Return the same, names of parameters and modules without what wrappers add to them."""
        own = [replace(each, name=own_name(each.name), module=own_name(each.module)) for each in self.parameters]
        return replace(self, parameters=own)

    def why_null(self) -> list[Notice]:
        """Return a notice for each null in the epochs, and where nothing but early steps was recorded."""
        diverged = [epoch.epoch for epoch in self.epochs if epoch.loss is None]
        untested = any(epoch.accuracy is None for epoch in self.epochs)
        message = f"training diverged in epoch {min(diverged, default=0)}: loss is not a number from there on"
        notices = {
            Notice(Code.TRAINING_DIVERGED, message, Code.TRAINING_DIVERGED.facts.do): bool(diverged),
            Notice(
                Code.ACCURACY_IS_NULL, "accuracy of epochs is not known: the folder of --data held no test set"
            ): untested,
            Notice(
                Code.EARLY_STEPS_ALONE,
                "training ended before a round of blocks was whole: all there is are its early steps, profiled",
                Code.EARLY_STEPS_ALONE.facts.do,
            ): EARLY_STEPS in self.profiler,
        }
        return [notice for notice, holds in notices.items() if holds]


def join_manifests(manifests: Sequence[Manifest]) -> Manifest:
    """What several hosts wrote of one run: the first's, with what each says of its own ranks put together."""
    manifests = sorted(manifests, key=_first_rank)
    first = manifests[0]
    return replace(
        first,
        hosts=list(dict.fromkeys(host for manifest in manifests for host in manifest.hosts)),
        host_of_rank={rank: host for manifest in manifests for rank, host in manifest.host_of_rank.items()},
        devices=[device for manifest in manifests for device in manifest.devices],
        parallelism=joined_parallelism(manifest.parallelism for manifest in manifests),
        controls=joined_controls([manifest.controls for manifest in manifests]),
        memory=_joined_memory([manifest.memory for manifest in manifests if manifest.memory is not None]),
        device_states=_joined_by_rank([manifest.device_states for manifest in manifests if manifest.device_states]),
        host_states=_joined_by_rank([manifest.host_states for manifest in manifests if manifest.host_states]),
        notes=list(dict.fromkeys(note for manifest in manifests for note in manifest.notes)),
    )


# What launches of one program are expected to have in common.
_ALIKE = ("hosts", "devices", "versions", "environment")


def join_launches(launches: Sequence[Manifest], kept: int) -> Manifest:
    """What launches of one program wrote, in order: all of their timed steps, and the rest as one says, `kept`.

    That one's traces are kept, by its place from 0. A launch is a round: peaks of memory are the most of all, device
    states have a round for each.
    """
    chosen = launches[kept]
    numbered = [*enumerate(launches, 1)]
    states = [
        {rank: [replace(state, round=number) for state in of_rank] for rank, of_rank in launch.device_states.items()}
        for number, launch in numbered
        if launch.device_states
    ]
    return replace(
        chosen,
        hosts_of_launches=[launch.hosts for launch in launches],
        controls=controls_of_launches([launch.controls for launch in launches]),
        memory=_greatest_memory([launch.memory for launch in launches if launch.memory is not None]),
        device_states={rank: [state for of in states for state in of.get(rank, [])] for rank in states[0]}
        if states
        else None,
        profiler=chosen.profiler | {"launches": len(launches), "kept_launch": kept + 1},
        epochs=next((launch.epochs for launch in launches if launch.epochs), []),
        notes=[*_notes_of_launches(launches, kept)],
    )


def _notes_of_launches(launches: Sequence[Manifest], kept: int) -> Iterator[str]:
    """Yield what is noted of all launches, then what of one, after what a reader must know of their number."""
    if len(launches) > 1:
        yield f"controls are of {len(launches)} launches, a block each; the traces are of launch {kept + 1}"
    different = [name for name in _ALIKE if any(getattr(each, name) != getattr(launches[0], name) for each in launches)]
    if different:
        yield f"launches differ in their {', '.join(different)}: intervals of the controls have that in them"
    common = [note for note in launches[0].notes if all(note in launch.notes for launch in launches)]
    yield from common
    for number, launch in enumerate(launches, 1):
        yield from (f"launch {number}: {note}" for note in launch.notes if note not in common)


def _greatest_memory(parts: Sequence[Memory]) -> Memory | None:
    peaks: dict[str, int] = {}
    for part in parts:
        peaks |= {rank: max(peak, peaks.get(rank, 0)) for rank, peak in part.peak_bytes.items()}
    return Memory(parts[0].source, peaks) if parts else None


def _first_rank(manifest: Manifest) -> int:
    ranks = map(rank_number, manifest.host_of_rank)
    return min((rank for rank in ranks if rank is not None), default=0)


def _joined_memory(parts: Sequence[Memory]) -> Memory | None:
    if not parts:
        return None
    return Memory(parts[0].source, {rank: peak for part in parts for rank, peak in part.peak_bytes.items()})


def _joined_by_rank(parts: Sequence[dict[str, V]]) -> dict[str, V] | None:
    return {rank: states for part in parts for rank, states in part.items()} or None


def read_manifest(folder: Place) -> tuple[Manifest | None, list[Notice]]:
    """Read a folder's manifest; None with a notice that says what is unknown without it."""
    file = folder / MANIFEST
    if not is_there(file):
        message = "no run.json: strategy, model, batch, controls and bucket layout are not known"
        return None, [Notice(Code.RUN_JSON_MISSING, message)]
    try:
        manifest = msgspec.json.decode(read_file(file), type=Manifest).without_secrets().with_own_names()
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        message = f"{MANIFEST}: cannot be read ({why}); controls and bucket layout are not known"
        return None, [Notice(Code.RUN_JSON_UNREADABLE, message)]
    if manifest.schema != SCHEMA:
        message = f"{MANIFEST}: schema {manifest.schema!r} is not {SCHEMA!r}; it is not used"
        return None, [Notice(Code.RUN_JSON_UNREADABLE, message)]
    if manifest.world_size is not None and not is_world_size(manifest.world_size):
        message = (
            f"{MANIFEST}: world_size {quoted(manifest.world_size)} is impossible; that of the traces and ranks is used"
        )
        notice = Notice(Code.RANK_IS_IMPOSSIBLE, message)
        manifest, odd = _of_ranks(replace(manifest, world_size=None))
        return _of_meshes(manifest, [notice, *odd])
    return _of_meshes(*_of_ranks(manifest))


def _of_meshes(manifest: Manifest, notices: list[Notice]) -> tuple[Manifest, list[Notice]]:
    """Leave aside meshes that contradict themselves, and say so."""
    odd = find_contradictions(manifest.parallelism) if manifest.parallelism is not None else []
    if manifest.parallelism is None or not odd:
        return manifest, notices
    manifest = replace(manifest, parallelism=without_impossible(manifest.parallelism))
    message = f"{MANIFEST}: {listed(odd, _LISTED, '; ...', '; ')}: not used"
    return manifest, [*notices, Notice(Code.RANK_IS_IMPOSSIBLE, message)]


def _of_ranks(manifest: Manifest) -> tuple[Manifest, list[Notice]]:
    """Leave aside what a manifest says of keys that can be no ranks, and say so."""
    odd: dict[str, None] = {}

    def kept(by_rank: dict[str, V]) -> dict[str, V]:
        odd.update(dict.fromkeys(key for key in by_rank if rank_number(key) is None))
        return {key: value for key, value in by_rank.items() if key not in odd}

    memory, states, parallelism = manifest.memory, manifest.device_states, manifest.parallelism
    manifest = replace(
        manifest,
        host_of_rank=kept(manifest.host_of_rank),
        controls=manifest.controls.each(
            lambda control: replace(control, steps_ns=kept(control.steps_ns), samples_ns=kept(control.samples_ns))
        ),
        memory=memory and Memory(memory.source, kept(memory.peak_bytes)),
        device_states=states and kept(states),
        host_states=manifest.host_states and kept(manifest.host_states),
        parallelism=parallelism and of_known_ranks(parallelism, kept),
    )
    if not odd:
        return manifest, []
    named = listed([*map(quoted, odd)], _LISTED)
    message = f"{MANIFEST}: {named} can be no ranks: what it says about them is not used"
    return manifest, [Notice(Code.RANK_IS_IMPOSSIBLE, message)]
