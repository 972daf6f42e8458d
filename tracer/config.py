"""What to record: one frozen description that travels from the command line to every rank."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

ModelName = Literal["resnet18", "resnet18-cifar", "resnet50", "vgg16", "transformer"]
Strategy = Literal["ddp", "dp", "fsdp", "single"]
DeviceType = Literal["cuda", "cpu"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"]
DataType = Literal["float32", "float16", "bfloat16"]
CommHook = Literal["bf16"]
LrScaling = Literal["linear"]

MODELS: tuple[str, ...] = get_args(ModelName)
STRATEGIES: tuple[str, ...] = get_args(Strategy)
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
DATA_TYPES: tuple[str, ...] = get_args(DataType)
COMM_HOOKS: tuple[str, ...] = get_args(CommHook)
LR_SCALINGS: tuple[str, ...] = get_args(LrScaling)

CLASSES = 10
CIFAR10_SIZE = 32
CIFAR10_SAMPLES = 50_000
# What the rate 0.1 is for, with ResNets on CIFAR-10 (He et al. 2016, arXiv:1512.03385, section 4.2). Goyal et al. begin
# from 256, ImageNet's.
REFERENCE_BATCH = 128


class DataSource(msgspec.Struct, frozen=True):
    """CIFAR-10 on disk, and how many worker processes of each rank read it."""

    folder: str
    workers: int


class DdpOptions(msgspec.Struct, frozen=True):
    """What DistributedDataParallel is told; the defaults are its own."""

    bucket_mb: float | None = None
    find_unused: bool = False
    broadcast_buffers: bool = True
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: CommHook | None = None


class LearningRate(msgspec.Struct, frozen=True):
    """The rate of SGD: see `tracer.step.learning_rate`."""

    base: float = 0.1
    scaling: LrScaling | None = None
    warmup_epochs: int = 0


class EpochPlan(msgspec.Struct, frozen=True):
    """How many whole epochs to train after the recording, and of how many samples where they are synthetic."""

    count: int
    samples: int = CIFAR10_SAMPLES


class Plan(msgspec.Struct, frozen=True):
    """How many steps of what: see `tracer.session`."""

    wait: int
    warmup: int
    active: int
    rounds: int


class CalibrationPlan(msgspec.Struct, frozen=True):
    """Which collectives to measure, and at which sizes: from the smallest, by a factor, up to the largest."""

    collectives: tuple[Collective, ...]
    min_bytes: int
    max_bytes: int
    factor: int
    dtype: DataType = "float32"

    @property
    def sizes(self) -> list[int]:
        """Bytes, as nccl-tests counts them."""
        sizes = [self.min_bytes]
        while sizes[-1] * self.factor <= self.max_bytes:
            sizes.append(sizes[-1] * self.factor)
        return sizes


class CalibrateConfig(msgspec.Struct, frozen=True):
    """One measurement of this machine's links."""

    device: DeviceType
    processes: int
    plan: CalibrationPlan

    @property
    def backend(self) -> str:
        """The process group's backend."""
        return "nccl" if self.device == "cuda" else "gloo"


class RecordConfig(msgspec.Struct, frozen=True):
    """One recording of the built-in workload."""

    model: ModelName
    strategy: Strategy
    device: DeviceType
    devices: int  # GPUs, or CPU ranks
    batch: int  # per device
    plan: Plan
    image_size: int
    seed: int
    data: DataSource | None = None
    ddp: DdpOptions = DdpOptions()
    bf16: bool = False
    channels_last: bool = False
    compile: bool = False
    grad_accumulation: int = 1  # micro-batches of `batch` a device in each optimizer step
    learning_rate: LearningRate = LearningRate()
    zero_init_residual: bool = False
    epochs: EpochPlan | None = None
    calibration: CalibrationPlan | None = None  # of the links, when training has ended

    @property
    def processes(self) -> int:
        """nn.DataParallel drives all its devices from one process; every other strategy has one process a device."""
        return 1 if self.strategy in ("dp", "single") else self.devices

    @property
    def process_batch(self) -> int:
        """Samples in a batch of one process: nn.DataParallel splits one over all its devices."""
        return self.batch * (self.devices if self.strategy == "dp" else 1)

    @property
    def global_batch(self) -> int:
        """Samples in one step of the optimizer."""
        return self.batch * self.devices * self.grad_accumulation

    @property
    def epoch_samples(self) -> int:
        """Samples in an epoch; of synthetic data CIFAR-10's number, unless fewer are asked for."""
        return CIFAR10_SAMPLES if self.epochs is None or self.data is not None else self.epochs.samples

    @property
    def backend(self) -> str | None:
        """The process group's backend; none where one process runs alone."""
        if self.strategy in ("dp", "single"):
            return None
        return "nccl" if self.device == "cuda" else "gloo"
