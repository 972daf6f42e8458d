"""Writes run.json: what each rank knew of its recording, and what the machine was."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from analyzers.controls import Control, Controls, control
from analyzers.manifest import MANIFEST, Bucket, Dataset, Manifest, Memory, Parameter
from analyzers.run import LIGHT
from tracer import compat
from tracer.config import DeviceType, RecordConfig
from tracer.epochs import RankEpoch, merged
from tracer.links import nccl_logs, nccl_transport
from tracer.ranges import inner
from tracer.session import FULL, ROUND
from tracer.step import own_gpus
from tracer.version import VERSION

# Of what DDP's own logger says: how it was set up, and the times it measured, ns, to be held against those in traces.
DDP_FIGURES = re.compile(r"avg_\w+_time$|find_unused_parameters$|gradient_as_bucket_view$|broadcast_buffers$")
# Settings that decide how ranks communicate or what profiling costs; nothing else of the environment is written down.
RECORDED_ENVIRONMENT = re.compile(
    r"NCCL_|TORCH_NCCL_|GLOO_|CUDA_VISIBLE_DEVICES$|OMP_NUM_THREADS$|TEARDOWN_CUPTI$|TORCH_SYMM_MEM"
)
PART = "rank{rank}.part"
MEMORY_SOURCE: dict[DeviceType, str] = {
    "cuda": "torch.cuda.max_memory_allocated, the greatest of the process's devices",
    "cpu": "getrusage's ru_maxrss, the process's resident memory",
}


class Part(msgspec.Struct, frozen=True):
    """What one rank knows. Rank 0's copy of what all share is the one that is used."""

    rank: int
    host: str
    devices: list[str]
    versions: dict[str, str | None]
    environment: dict[str, str]
    parameters: list[Parameter]
    buckets: list[Bucket] | None
    ddp: dict[str, int] | None
    samples_ns: dict[str, list[int]]
    peak_bytes: int = 0
    epochs: list[RankEpoch] = []


def part(rank: int, model: nn.Module, config: RecordConfig, samples_ns: dict[str, list[int]]) -> Part:
    """What this process knows of the recording, at its end."""
    return Part(
        rank=rank,
        host=socket.gethostname(),
        devices=_devices(config),
        versions=_versions(),
        environment={key: value for key, value in sorted(os.environ.items()) if _is_recorded(key)},
        parameters=_parameters(model),
        buckets=_buckets(model),
        ddp=_ddp_figures(model),
        samples_ns=samples_ns,
        peak_bytes=_peak_bytes(config),
    )


def write_part(folder: Path, found: Part) -> None:
    """Leave a rank's part in the run's unfinished folder."""
    (folder / PART.format(rank=found.rank)).write_bytes(msgspec.json.encode(found))


def assemble(folder: Path, name: str, config: RecordConfig, command: Sequence[str]) -> Manifest:
    """Turn the ranks' parts and NCCL's log into run.json, keep the most typical round's traces, remove the rest."""
    files = [folder / PART.format(rank=rank) for rank in range(config.processes)]
    parts = [msgspec.json.decode(file.read_bytes(), type=Part) for file in files]
    logs = nccl_logs(folder)
    rounds = {window: typical_round(parts, window) for window in (LIGHT, FULL) if window in parts[0].samples_ns}
    _keep_rounds(folder, rounds)
    manifest = _manifest(parts, name, config, command, nccl_transport(logs))
    manifest = msgspec.structs.replace(manifest, profiler=manifest.profiler | {"kept_rounds": rounds})
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    for file in [*files, *logs]:
        file.unlink()
    return manifest


def typical_round(parts: Sequence[Part], control: str) -> int:
    """The round, from 1, whose profiled step is nearest to the median of all rounds: that window is what is kept.

    A window by itself may be an odd one (a host that was busy for a moment), and all times come from it.
    """
    by_round = np.median([part.samples_ns[control] for part in parts], axis=0)
    return int(np.argmin(np.abs(by_round - np.median(by_round)))) + 1


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
    parts: Sequence[Part], name: str, config: RecordConfig, command: Sequence[str], transport: str | None
) -> Manifest:
    first = parts[0]
    return Manifest(
        name=name,
        command=list(command),
        versions=first.versions,
        hosts=list(dict.fromkeys(found.host for found in parts)),
        devices=[device for found in parts for device in found.devices],
        environment=first.environment,
        transport=transport,
        world_size=config.processes,
        backend=config.backend,
        strategy=config.strategy,
        model=config.model,
        batch_per_gpu=config.batch,
        bucket_cap_mb=config.ddp.bucket_mb,
        settings=_settings(config) | ({"ddp": first.ddp} if first.ddp is not None else {}),
        profiler=msgspec.to_builtins(config.plan),
        parameters=first.parameters,
        buckets=first.buckets,
        controls=_controls(parts, config),
        memory=Memory(
            source=MEMORY_SOURCE[config.device], peak_bytes={str(found.rank): found.peak_bytes for found in parts}
        ),
        dataset=Dataset("CIFAR-10" if config.data else "synthetic", config.epoch_samples, config.data is None),
        epochs=merged([found.epochs for found in parts]),
    )


def _settings(config: RecordConfig) -> dict[str, Any]:
    data = msgspec.to_builtins(config.data) if config.data else "synthetic"
    return {
        "amp": "bf16" if config.bf16 else None,
        "image_size": config.image_size,
        "seed": config.seed,
        "data": data,
        "channels_last": config.channels_last,
        "compile": config.compile,
        "grad_accumulation": config.grad_accumulation,
        "lr": config.learning_rate.base,
        "lr_scaling": config.learning_rate.scaling,
        "lr_warmup": config.learning_rate.warmup_epochs,
        "zero_init_residual": config.zero_init_residual,
        "ddp_options": msgspec.to_builtins(config.ddp) if config.strategy == "ddp" else None,
    }


def _controls(parts: Sequence[Part], config: RecordConfig) -> Controls:
    measured: dict[str, Control] = {
        name: control({found.rank: found.samples_ns[name] for found in parts}) for name in parts[0].samples_ns
    }
    reasons = {}
    if "nosync" not in measured:
        reasons["nosync"] = f"only DDP can leave out gradient synchronization, not strategy {config.strategy}"
    return Controls(**measured, reasons=reasons)


def _is_recorded(key: str) -> bool:
    return RECORDED_ENVIRONMENT.match(key) is not None and not key.startswith("NCCL_DEBUG")


def _devices(config: RecordConfig) -> list[str]:
    """The names of the devices this process drives."""
    if config.device == "cpu":
        return [platform.processor() or platform.machine()]
    return [torch.cuda.get_device_name(gpu) for gpu in own_gpus(config)]


def _peak_bytes(config: RecordConfig) -> int:
    """The most memory that this process has had in use until now: MEMORY_SOURCE."""
    if config.device == "cuda":
        return max(torch.cuda.max_memory_allocated(gpu) for gpu in own_gpus(config))
    # getrusage(2): KiB, but bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _versions() -> dict[str, str | None]:
    return {
        "tracer": VERSION,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": str(torchvision.__version__),
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


def _parameters(model: nn.Module) -> list[Parameter]:
    """Parameters in the model's order, which is the order DDP numbers them in."""
    return [
        Parameter(name, list(parameter.shape), str(parameter.dtype).removeprefix("torch."), name.rpartition(".")[0])
        for name, parameter in inner(model).named_parameters()
    ]


def _ddp_figures(model: nn.Module) -> dict[str, int] | None:
    if not isinstance(model, DistributedDataParallel):
        return None
    data = compat.ddp_logging_data(model)
    return {name: int(value) for name, value in sorted(data.items()) if DDP_FIGURES.match(name)}


def _buckets(model: nn.Module) -> list[Bucket] | None:
    """DDP's buckets in the order of their reduction, as rebuilt after the first step; null where DDP does not say."""
    if not isinstance(model, DistributedDataParallel):
        return None
    data = compat.ddp_logging_data(model)
    sizes = [int(size) for size in data.get("rebuilt_bucket_sizes", "").split(",") if size.strip()]
    groups = [group for group in data.get("rebuilt_per_bucket_param_indices", "").split(",") if group.strip()]
    indices = [[int(index) for index in group.split()] for group in groups]
    return [Bucket(size, group) for size, group in zip(sizes, indices, strict=True)] or None
