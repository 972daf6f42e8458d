"""Writes run.json: what each rank knew of its recording, and what the machine was.

Every rank leaves its part in the recording's folder, anew after each round; `assemble` turns the parts that lie in one
folder into run.json. A run over several hosts has a folder for each, with its own ranks.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn

from analyzers.controls import Control, Controls, control
from analyzers.manifest import MANIFEST, Bucket, Dataset, Epoch, Manifest, Memory, Parameter
from analyzers.recording import LIGHT, NOSYNC
from tracer import compat
from tracer.config import Plan
from tracer.errors import TracerError
from tracer.models import (
    bucket_cap_mb,
    buckets_of,
    class_name,
    ddp_figures,
    device_names,
    parameters_of,
    peak_memory,
    strategy_of,
)
from tracer.version import VERSION

# Where a round's traces lie until one is chosen.
ROUND = "round{number}"
FULL = "full"
# Where a recording lies in the folder that ranks fill; those of a long run by the step at which they begin.
RUN = "run"
STEP = "step{number}"
# Settings that decide how ranks communicate or what profiling costs; nothing else of the environment is written down.
RECORDED_ENVIRONMENT = re.compile(
    r"NCCL_|TORCH_NCCL_|GLOO_|CUDA_VISIBLE_DEVICES$|OMP_NUM_THREADS$|TEARDOWN_CUPTI$|TORCH_SYMM_MEM"
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


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank knows. The first rank's copy of what all share is the one that is used.

    `rounds` and `steps` are how far the recording is, which is complete once the part says which rounds are kept; the
    part is complete when it has `ended`.
    """

    rank: int
    world_size: int
    recording: str = ""
    host: str
    facts: Facts
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
    samples_ns: dict[str, list[int]] = {}
    kept_rounds: dict[str, int] | None = None
    why_no_nosync: str | None = None
    ended: bool = False


def facts_of(model: nn.Module, command: Sequence[str]) -> Facts:
    """What a model that somebody else trains says of itself."""
    return Facts(
        command=list(command),
        model=class_name(model),
        strategy=strategy_of(model),
        backend=compat.backend(),
        bucket_cap_mb=bucket_cap_mb(model),
    )


def part(model: nn.Module, facts: Facts) -> Part:
    """What this process knows now."""
    rank, size = compat.rank_and_size()
    memory_source, peak_bytes = peak_memory(model)
    return Part(
        rank=rank,
        world_size=size,
        host=socket.gethostname(),
        facts=facts,
        devices=device_names(model),
        versions=_versions(),
        environment={key: value for key, value in sorted(os.environ.items()) if _is_recorded(key)},
        parameters=parameters_of(model),
        buckets=buckets_of(model),
        ddp=ddp_figures(model),
        memory_source=memory_source,
        peak_bytes=peak_bytes,
    )


def write_part(folder: Path, found: Part) -> None:
    """Leave a rank's part in the run's unfinished folder, in place of what it left before. Raises TracerError."""
    file = folder / PART.format(rank=found.rank)
    partial = file.with_suffix(".writing")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(msgspec.json.encode(found))
        partial.replace(file)
    except OSError as error:
        raise TracerError(f"{file}: cannot be written ({error.strerror or error})") from error


def recordings(folder: Path) -> list[Path]:
    """The recordings that ranks have begun in the folder that they fill, in order."""
    steps = folder.glob(STEP.format(number="*"))
    return [*filter(Path.is_dir, [folder / RUN]), *sorted(steps, key=lambda step: int(step.name.strip("step")))]


def read_parts(folder: Path) -> list[Part]:
    """The parts of all ranks that left one in a folder, in order."""
    files = folder.glob(PART.format(rank="*"))
    parts = [msgspec.json.decode(file.read_bytes(), type=Part) for file in files]
    return sorted(parts, key=lambda part: part.rank)


def assemble(folder: Path, name: str, transport: str | None) -> None:
    """Turn the ranks' parts into run.json, keep the most typical round's traces, remove the rest.

    `transport` is NCCL's, null where it is not known.

    Of a recording that was not completed the rounds are used that all its ranks have; there is at least one.
    """
    parts = read_parts(folder)
    rounds = _kept_rounds(parts)
    _keep_rounds(folder, rounds)
    notes = _notes(parts)
    if notes:
        # Its last block, and its ranks' nosync windows, may be those of some ranks alone.
        shutil.rmtree(folder / NOSYNC, ignore_errors=True)
    manifest = _manifest(parts, name, transport, rounds, notes)
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    for part in parts:
        (folder / PART.format(rank=part.rank)).unlink()


def typical_round(samples_ns: Sequence[Sequence[int]]) -> int:
    """The round, from 1, whose step is nearest to the median of all rounds: that window is what is kept.

    `samples_ns` has a sequence for each rank, of a sample for each round. A window by itself may be an odd one (a host
    that was busy for a moment), and all times come from it.
    """
    by_round = np.median(samples_ns, axis=0)
    return int(np.argmin(np.abs(by_round - np.median(by_round)))) + 1


def _kept_rounds(parts: Sequence[Part]) -> dict[str, int]:
    """The rounds that were agreed on; of an incomplete recording the typical ones of those that all ranks have."""
    said = parts[0].kept_rounds
    if said is not None and all(part.kept_rounds == said for part in parts):
        return said
    rounds = min(part.rounds for part in parts)
    windows = [window for window in (LIGHT, FULL) if window in parts[0].samples_ns]
    return {window: typical_round([part.samples_ns[window][:rounds] for part in parts]) for window in windows}


def _notes(parts: Sequence[Part]) -> list[str]:
    """What the reader should know of a recording that was not completed."""
    ended = [part for part in parts if part.kept_rounds is None]
    if not ended:
        return []
    rounds = min(part.rounds for part in parts)
    first = ended[0]
    return [
        f"the recording ended after {first.steps} of {first.of_steps} steps: its controls are of {rounds} of "
        f"{first.plan.rounds} rounds"
    ]


def _keep_rounds(folder: Path, rounds: Mapping[str, int]) -> None:
    """Move the chosen rounds' traces to where a run has them, and remove all others."""
    for window, number in rounds.items():
        source = folder / ROUND.format(number=number) / window
        if window == FULL:
            for file in source.iterdir():
                file.rename(folder / file.name)
        else:
            source.rename(folder / window)
    for left in folder.glob(ROUND.format(number="*")):
        shutil.rmtree(left)


def _manifest(
    parts: Sequence[Part], name: str, transport: str | None, rounds: Mapping[str, int], notes: Sequence[str]
) -> Manifest:
    first = parts[0]
    facts = first.facts
    return Manifest(
        id=first.recording,
        name=name,
        command=facts.command,
        versions=first.versions,
        hosts=list(dict.fromkeys(found.host for found in parts)),
        host_of_rank={str(found.rank): found.host for found in parts},
        devices=[device for found in parts for device in found.devices],
        environment=first.environment,
        transport=transport,
        world_size=first.world_size,
        backend=facts.backend,
        strategy=facts.strategy,
        model=facts.model,
        batch_per_gpu=facts.batch_per_gpu,
        bucket_cap_mb=facts.bucket_cap_mb,
        settings=facts.settings | ({"ddp": first.ddp} if first.ddp is not None else {}),
        profiler=msgspec.to_builtins(first.plan) | {"kept_rounds": dict(rounds)},
        parameters=first.parameters,
        buckets=first.buckets,
        controls=_controls(parts),
        memory=Memory(first.memory_source, {str(found.rank): found.peak_bytes for found in parts}),
        dataset=facts.dataset,
        epochs=first.epochs,
        notes=list(notes),
    )


def _controls(parts: Sequence[Part]) -> Controls:
    measured: dict[str, Control] = {
        name: control({found.rank: found.samples_ns.get(name, []) for found in parts}) for name in parts[0].samples_ns
    }
    why = parts[0].why_no_nosync
    return Controls(**measured, reasons={"nosync": why} if why else {})


def _is_recorded(key: str) -> bool:
    return RECORDED_ENVIRONMENT.match(key) is not None and not key.startswith("NCCL_DEBUG")


def _versions() -> dict[str, str | None]:
    return {
        "tracer": VERSION,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": compat.torchvision_version(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "nccl": compat.nccl_version(),
        "driver": _driver(),
    }


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
