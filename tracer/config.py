"""What to record: one frozen description that travels from the command line to every rank."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

ModelName = Literal["resnet18", "resnet18-cifar", "resnet50", "vgg16", "transformer"]
Strategy = Literal["ddp", "dp", "fsdp", "single"]
DeviceType = Literal["cuda", "cpu"]

MODELS: tuple[str, ...] = get_args(ModelName)
STRATEGIES: tuple[str, ...] = get_args(Strategy)

CLASSES = 10
CIFAR10_SIZE = 32


class DataSource(msgspec.Struct, frozen=True):
    """CIFAR-10 on disk, and how many worker processes of each rank read it."""

    folder: str
    workers: int


class Plan(msgspec.Struct, frozen=True):
    """How many steps of what: see `tracer.session`."""

    wait: int
    warmup: int
    active: int
    rounds: int


class RecordConfig(msgspec.Struct, frozen=True):
    """One recording of the built-in workload."""

    model: ModelName
    strategy: Strategy
    device: DeviceType
    devices: int  # GPUs, or CPU ranks
    batch: int  # per device
    plan: Plan
    bucket_mb: float | None
    bf16: bool
    image_size: int
    seed: int
    data: DataSource | None

    @property
    def processes(self) -> int:
        """nn.DataParallel drives all its devices from one process; every other strategy has one process a device."""
        return 1 if self.strategy in ("dp", "single") else self.devices

    @property
    def backend(self) -> str | None:
        """The process group's backend; none where one process runs alone."""
        if self.strategy in ("dp", "single"):
            return None
        return "nccl" if self.device == "cuda" else "gloo"
