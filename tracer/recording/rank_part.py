"""A rank's part of run.json, of what it has so far."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn

from analyzers.command_lines import redacted_command
from analyzers.json_documents import compact
from analyzers.paths import read_file
from analyzers.run import (
    LIGHT,
    Bucket,
    Dataset,
    DeviceState,
    Epoch,
    HostStates,
    Parallelism,
    Parameter,
    TrainingSettings,
)
from tracer.config import DeviceType, LightRecorder, Plan
from tracer.errors import TracerError
from tracer.recording import torch_compat as compat
from tracer.recording.model_facts import (
    bucket_cap_mb,
    buckets_of,
    class_name,
    ddp_figures,
    device_names,
    parameters_of,
    peak_memory,
)
from tracer.recording.strategies import strategy_name
from tracer.recording.windows import FULL, HostTimes, StepTimes
from tracer.version import VERSION

# Where a recording lies in the folder that ranks fill; those of a long run by the step at which they begin.
RUN = "run"
STEP = "step{number}"
# Settings that decide how ranks communicate or what profiling costs; nothing else of the environment is written down.
MAX_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
RECORDED_ENVIRONMENT = re.compile(
    rf"NCCL_|TORCH_NCCL_|GLOO_|{MAX_CONNECTIONS}$|CUDA_VISIBLE_DEVICES$|OMP_NUM_THREADS$|TEARDOWN_CUPTI$|TORCH_SYMM_MEM"
)
PART = "rank{rank}.part"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded, in the words of run.json; null where it is not known."""

    command: list[str] = []
    model: str | None = None
    strategy: str | None = None
    backend: str | None = None
    batch_per_gpu: int | None = None
    bucket_cap_mb: float | None = None
    dataset: Dataset | None = None
    settings: dict[str, Any] = {}
    notes: list[str] = []


def facts_of(model: nn.Module, command: Sequence[str], notes: Sequence[str] = ()) -> Facts:
    """Return what a model that somebody else trains says about itself; its strategy is found in its process."""
    return Facts(
        command=redacted_command(command),
        model=class_name(model),
        backend=compat.backend(),
        bucket_cap_mb=bucket_cap_mb(model),
        notes=list(notes),
    )


class RankRounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long a rank's steps took: a block of single steps each round, by control, in ns.

    `failed_light` says of rounds, by number from 1, why they have no light window.
    """

    steps_ns: dict[str, list[list[int]]] = {}
    failed_light: dict[int, str] = {}


@dataclass
class RecordedSoFar:
    """What one recording has so far: each control's steps, round by round, and how many rounds are complete.

    What a round has of one control is one block, since it resembles itself more than other rounds; steps are read when
    the devices are at rest. `has_early`: the early window is written. `failed_light` says of rounds why they have no
    light window, `failed_nosync` why there is none without synchronization; `device_states` has each device of this
    rank, round by round.
    """

    folder: Path
    times: dict[str, dict[int, list[StepTimes | HostTimes]]] = field(default_factory=dict)
    rounds: int = 0
    has_early: bool = False
    failed_light: dict[int, str] = field(default_factory=dict)
    failed_nosync: str | None = None
    device_states: list[DeviceState] = field(default_factory=list)

    @property
    def of_rank(self) -> RankRounds:
        """Return what decides which rounds are kept."""
        steps_ns = {
            name: [[ns for times in block for ns in times.steps_ns()] for block in by_round.values()]
            for name, by_round in self.times.items()
        }
        return RankRounds(steps_ns=steps_ns, failed_light=self.failed_light)

    @property
    def step_numbers(self) -> dict[str, list[list[int]]]:
        """Return the numbers of these steps, in the same order."""
        return {
            name: [[number for times in block for number in times.numbers()] for block in by_round.values()]
            for name, by_round in self.times.items()
        }

    @property
    def round(self) -> int:
        """Return the number of the round that is under way."""
        return self.rounds + 1


class RankPart(RankRounds, frozen=True, kw_only=True):
    """What one rank knows. The first rank's copy of what all share is the one that is used.

    `step_numbers` has the number of each step of `steps_ns`. `rounds` and `steps` are how far the recording is, which
    is complete once the part says which rounds are kept; `has_early`: its early window is written. The part is complete
    when it has `ended`. `trained` is how many steps training had taken when it ended before its recording, null where
    that is not known. `light` is what records light windows, `why_not_cupti` why not CUPTI alone.
    """

    rank: int
    world_size: int
    recording: str = ""
    host: str
    facts: Facts
    parallelism: Parallelism | None = None
    devices: list[str]
    versions: dict[str, str | None]
    environment: dict[str, str]
    parameters: list[Parameter]
    buckets: list[Bucket] | None
    ddp: dict[str, int] | None
    memory_source: str
    peak_bytes: int
    epochs: list[Epoch] = []
    plan: Plan = Plan()
    steps: int = 0
    of_steps: int = 0
    rounds: int = 0
    has_early: bool = False
    trained: int | None = None
    light: LightRecorder | None = None
    why_not_cupti: str | None = None
    failed_nosync: str | None = None
    device_states: list[DeviceState] = []
    host_states: HostStates | None = None
    training: TrainingSettings | None = None
    step_numbers: dict[str, list[list[int]]] = {}
    kept_rounds: dict[str, int] | None = None
    why_no_nosync: str | None = None
    why_no_stacks: str | None = None
    ended: bool = False

    @property
    def trains_on(self) -> DeviceType:
        """Return what its rounds are for: a CPU's have no light windows."""
        return "cpu" if self.light is None else "cuda"


def part(models: Sequence[nn.Module], facts: Facts, parallelism: Parallelism | None = None) -> RankPart:
    """Build the part that this process knows now, of its model and of further stages of a pipeline."""
    rank, size = compat.rank_and_size()
    model = models[0]
    if facts.strategy is None:
        named = strategy_name(parallelism.strategies if parallelism is not None else [], size)
        facts = msgspec.structs.replace(facts, strategy=named)
    memory_source, peak_bytes = peak_memory(model)
    return RankPart(
        rank=rank,
        world_size=size,
        host=socket.gethostname(),
        facts=facts,
        parallelism=parallelism,
        devices=device_names(model),
        versions={
            "tracer": VERSION,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "torchvision": compat.torchvision_version(),
            "cuda": torch.version.cuda if torch.cuda.is_available() else None,
            "nccl": compat.nccl_version(),
            "driver": _driver(),
        },
        environment=_environment(),
        parameters=[parameter for stage in models for parameter in parameters_of(stage)],
        buckets=buckets_of(model),
        ddp=ddp_figures(model),
        memory_source=memory_source,
        peak_bytes=peak_bytes,
    )


def write_part(folder: Path, rank_part: RankPart) -> None:
    """Write a rank's part into the run's unfinished folder, over what it left before. Raises TracerError."""
    file = folder / PART.format(rank=rank_part.rank)
    partial = file.with_suffix(".writing")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(compact(rank_part))
        partial.replace(file)
    except OSError as error:
        raise TracerError(f"{file}: cannot be written ({error.strerror or error})") from error


def recordings(folder: Path) -> list[Path]:
    """Return the recordings that ranks have begun in the folder that they fill, in order."""
    steps = folder.glob(STEP.format(number="*"))
    return [*filter(Path.is_dir, [folder / RUN]), *sorted(steps, key=lambda step: int(step.name.strip("step")))]


def read_parts(folder: Path) -> list[RankPart]:
    """Read the parts that ranks left in a folder, in order."""
    files = folder.glob(PART.format(rank="*"))
    parts = [msgspec.json.decode(read_file(file), type=RankPart) for file in files]
    return sorted(parts, key=lambda part: part.rank)


def trained(parts: Sequence[RankPart]) -> int | None:
    """Return how many steps a training had taken that ended before its recording; None where no rank could say so."""
    return max((part.trained for part in parts if part.trained is not None), default=None)


def kept_rounds(ranks: Sequence[RankRounds], rounds: int) -> dict[str, int]:
    """Return which of the first `rounds` rounds' traces all ranks keep, for each window that all of them have."""
    kept = {}
    for window in (LIGHT, FULL):
        if not all(window in rank.steps_ns for rank in ranks):
            continue
        failed = {number for rank in ranks for number in rank.failed_light} if window == LIGHT else set()
        whole = [number for number in range(1, rounds + 1) if number not in failed]
        if whole:
            kept[window] = typical_round({at: [rank.steps_ns[window][at - 1] for rank in ranks] for at in whole})
    return kept


def typical_round(blocks_ns: Mapping[int, Sequence[Sequence[int]]]) -> int:
    """Return the round whose step is nearest to the median over all rounds: its windows are kept.

    `blocks_ns` has, by round, each rank's block of steps. A window by itself may be an odd one (a host that was busy
    for a moment), and all times come from it.
    """
    by_round = {number: np.median([np.median(steps) for steps in ranks]) for number, ranks in blocks_ns.items()}
    middle = np.median(list(by_round.values()))
    return min(by_round, key=lambda number: abs(by_round[number] - middle))


def _environment() -> dict[str, str]:
    recorded = {key: value for key, value in os.environ.items() if _is_recorded(key)}
    # Whether it was set decides which kernels may run at once: where it was not, that is said.
    return dict(sorted({MAX_CONNECTIONS: "", **recorded}.items()))


def _is_recorded(key: str) -> bool:
    return RECORDED_ENVIRONMENT.match(key) is not None and not key.startswith("NCCL_DEBUG")


def _driver() -> str | None:
    """The NVIDIA driver's version, null where there is none or NVML cannot be asked."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None
