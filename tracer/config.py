"""Recording configuration, sent from the command line to every rank."""

from __future__ import annotations

import json
import os
from typing import Literal, TypeVar, get_args

import msgspec

from tracer.errors import UsageError

T = TypeVar("T")

ModelName = Literal["resnet18", "resnet18-cifar", "resnet50", "vgg16", "transformer"]
Strategy = Literal["ddp", "dp", "fsdp", "single"]
DeviceType = Literal["cuda", "cpu"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"]
DataType = Literal["float32", "float16", "bfloat16"]
CommHook = Literal["bf16"]
LrScaling = Literal["linear"]
LightRecorder = Literal["cupti", "kineto"]
DataName = Literal["cifar10", "digits"]

MODELS: tuple[str, ...] = get_args(ModelName)
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
DATA_TYPES: tuple[str, ...] = get_args(DataType)
COMM_HOOKS: tuple[str, ...] = get_args(CommHook)
LR_SCALINGS: tuple[str, ...] = get_args(LrScaling)
LIGHT_RECORDERS: tuple[str, ...] = get_args(LightRecorder)


class StrategyTraits(msgspec.Struct, frozen=True):
    """What is known of one strategy of the built-in workload before torch is imported.

    `calibrated` is what the links are measured with: what it synchronizes with. The texts refuse what it cannot do,
    and are empty where it can.
    """

    one_process: bool = False  # drives all its devices from one process, without a process group
    takes_ddp_options: bool = False
    calibrated: tuple[Collective, ...] = ()
    not_on_several: str = ""
    not_on_cpu: str = ""
    not_over_hosts: str = ""
    not_channels_last: str = ""
    not_compiled: str = ""


# In the order in which help names them.
STRATEGY_TRAITS: dict[Strategy, StrategyTraits] = {
    "ddp": StrategyTraits(takes_ddp_options=True, calibrated=("all_reduce", "broadcast")),
    # It calls NCCL within one process, which torch.distributed cannot.
    "dp": StrategyTraits(
        one_process=True,
        not_on_cpu="--strategy dp is nn.DataParallel over GPUs: give another --strategy on a CPU",
        not_over_hosts="--strategy dp is nn.DataParallel in one process: leave out --nnodes, or give another "
        "--strategy",
        # A replica would run the compiled forward of the module it was copied from, on that one's device.
        not_compiled="--compile does not work under nn.DataParallel: give another --strategy",
    ),
    "fsdp": StrategyTraits(
        calibrated=("all_gather", "reduce_scatter"),
        not_channels_last="--channels-last makes weights that FSDP cannot shard: give another --strategy",
    ),
    "single": StrategyTraits(
        one_process=True, not_on_several="--strategy single runs on one device: give --gpus 1 (or --ranks 1)"
    ),
}
STRATEGIES: tuple[str, ...] = tuple(STRATEGY_TRAITS)

# The environment variable by which a script's processes know that they are recorded.
HOOK = "TRACER_HOOK"

# Of `tracer.recording.recorder`: the blocks of a round, at most; of training on a CPU, which has no light windows.
BLOCKS_OF_ROUND: dict[DeviceType, int] = {"cuda": 4, "cpu": 3}
# Of training that is not ours two steps are profiled during the wait, in case that it ends before a round is whole: one
# step passes before, and one under the profiler that is not kept.
EARLY_UNTIMED, EARLY_WARMUP, EARLY_ACTIVE = 1, 1, 2
EARLY_STEPS = EARLY_UNTIMED + EARLY_WARMUP + EARLY_ACTIVE
# Shorter blocks have no middle.
LEAST_ACTIVE = 2
# The steps of a long block, at least and at most: an event of the device and a reading of the host are kept for each.
LONG_BLOCK, LONGEST_BLOCK = 100, 10_000
CLASSES = 10
IMAGE_SIZE = 32
# Of images to train on: what a report calls them, and how many there are for training. Synthetic ones are as many as
# CIFAR-10's.
DATA_SETS: dict[DataName, tuple[str, int]] = {"cifar10": ("CIFAR-10", 50_000), "digits": ("digits", 1_437)}
SYNTHETIC_SAMPLES = DATA_SETS["cifar10"][1]
# What the rate 0.1 is for, with ResNets on CIFAR-10 (He et al. 2016, arXiv:1512.03385, section 4.2). Goyal et al. begin
# from 256, ImageNet's.
REFERENCE_BATCH = 128


class DataSource(msgspec.Struct, frozen=True):
    """Images to train on, and how many worker processes of each rank read them."""

    name: DataName
    folder: str  # empty where a package ships them
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
    """The rate of SGD: see `tracer.workload.training_step.learning_rate`."""

    base: float = 0.1
    scaling: LrScaling | None = None
    warmup_epochs: int = 0


class EpochPlan(msgspec.Struct, frozen=True):
    """How many whole epochs to train after the recording, and of how many samples where they are synthetic."""

    count: int
    samples: int = SYNTHETIC_SAMPLES


class Plan(msgspec.Struct, frozen=True):
    """How many steps of what: see `tracer.recording.recorder`.

    With `every`, another recording begins each so many steps, and the newest `keep` recordings are kept. `light` is
    what records light windows; Kineto does where CUPTI alone cannot. With `unprofiled_s` the first unprofiled block of
    a round goes on for so long, and for LONG_BLOCK steps at least. `stacks`: full windows say in which functions of
    Python the main thread is.
    """

    wait: int = 10
    warmup: int = 3
    active: int = 8
    rounds: int = 3
    every: int | None = None
    keep: int = 5
    light: LightRecorder = "cupti"
    unprofiled_s: float = 0.0
    stacks: bool = True

    def longest(self, device: DeviceType = "cuda") -> int:
        """Return the most steps that one recording takes, after the wait, of training that is not ours.

        It has no steps without gradient synchronization, and so none of the blocks after the last round.
        """
        return BLOCKS_OF_ROUND[device] * self.rounds * (self.warmup + self.active)

    def fitting(self, steps: int, device: DeviceType) -> Plan | None:
        """Return the same with as many rounds of as long blocks as so many steps hold; None where they hold no round.

        Blocks shrink before rounds go: three rounds of short blocks tell more of how steps differ than a long one.
        """
        wait, least, whole = min(self.wait, EARLY_STEPS), min(LEAST_ACTIVE, self.active), self.warmup + self.active
        for rounds in range(self.rounds, 0, -1):
            blocks = rounds * BLOCKS_OF_ROUND[device]
            block = min((steps - wait) // blocks, whole)
            if block >= 1 + least:
                warmup = min(max(round(block * self.warmup / whole), 1), block - least)
                return msgspec.structs.replace(
                    self,
                    wait=min(self.wait, steps - blocks * block),
                    warmup=warmup,
                    active=block - warmup,
                    rounds=rounds,
                )
        return None

    def total(self, device: DeviceType) -> int:
        """Return how many steps of training that is not ours one recording takes, the wait included."""
        return self.wait + self.longest(device)

    def advice(self, steps: int, device: DeviceType) -> str:
        """Say with which options a training of so many steps is recorded whole, or that none would do."""
        shorter = self.fitting(steps, device)
        if shorter is None:
            least = Plan(wait=min(self.wait, EARLY_STEPS), warmup=1, active=min(self.active, LEAST_ACTIVE), rounds=1)
            return f"the shortest with steps that are timed without the profiler takes {least.total(device)}"
        options = f"--wait {shorter.wait} --warmup {shorter.warmup} --active {shorter.active} --rounds {shorter.rounds}"
        return f"with {options} it takes {shorter.total(device)}"

    def check(self) -> None:
        """Raise UsageError where the plan cannot be followed."""
        if min(self.wait, self.warmup - 1, self.active - 1, self.rounds - 1, self.keep - 1) < 0:
            raise UsageError("warmup, active, rounds and keep must each be 1 or more")
        if self.every is not None and self.unprofiled_s:
            raise UsageError(
                "every: recordings need a length that is known: leave it out, or record without unprofiled_s"
            )
        if self.every is not None and self.every < self.longest():
            raise UsageError(
                f"every {self.every} steps: one recording takes up to {self.longest()} steps: give more, or fewer "
                "rounds"
            )


class Hook(msgspec.Struct, frozen=True):
    """How `tracer record SCRIPT` records the processes of a script: it travels in their environment, as HOOK.

    `once` is the command that records the script on one rank, where tracer has chosen how many there are.
    """

    folder: str
    root: str  # where the package lies, for an interpreter that does not have it
    launcher: int  # the process that launched the script
    command: list[str]
    plan: Plan
    once: str = ""


def hooked() -> Hook | None:
    """What records this process from outside, None where nothing does."""
    text = os.environ.get(HOOK)
    return received(text, Hook) if text else None


def sent(config: object) -> str:
    """Write what another process is told: ASCII, by which names that are no UTF-8 keep their bytes."""
    return json.dumps(msgspec.to_builtins(config))


def received(text: str, kind: type[T]) -> T:
    """Read what another process has sent."""
    return msgspec.convert(json.loads(text), kind)


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


class Setup(msgspec.Struct, frozen=True):
    """What tells recordings of one workload apart."""

    device: DeviceType
    devices: int  # GPUs, or CPU ranks, on each host
    strategy: Strategy
    batch: int  # per device
    hosts: int = 1


class RecordConfig(Setup, frozen=True, kw_only=True):
    """One recording of the built-in workload."""

    model: ModelName
    plan: Plan
    image_size: int
    seed: int
    data: DataSource | None = None
    ddp: DdpOptions = DdpOptions()
    bf16: bool = False
    channels_last: bool = False
    compile: bool = False
    grad_accumulation: int = 1  # microbatches of `batch` a device in each optimizer step
    learning_rate: LearningRate = LearningRate()
    zero_init_residual: bool = False
    epochs: EpochPlan | None = None
    calibration: CalibrationPlan | None = None  # of the links, when training has ended
    command: list[str] = []
    place: str = ""  # of one recording among several: its folder below theirs

    @property
    def traits(self) -> StrategyTraits:
        """What its strategy can and cannot do."""
        return STRATEGY_TRAITS[self.strategy]

    @property
    def processes(self) -> int:
        """On each host: nn.DataParallel drives its devices from one process, every other strategy has one a device."""
        return 1 if self.traits.one_process else self.devices

    @property
    def world_size(self) -> int:
        """Processes on all hosts."""
        return self.processes * self.hosts

    @property
    def process_batch(self) -> int:
        """Samples in a batch of one process: nn.DataParallel splits one over all its devices."""
        return self.batch * (self.devices if self.traits.one_process else 1)

    @property
    def global_batch(self) -> int:
        """Samples in one step of the optimizer."""
        return self.batch * self.devices * self.hosts * self.grad_accumulation

    @property
    def epoch_samples(self) -> int:
        """Samples in an epoch; of synthetic data CIFAR-10's number, unless fewer are asked for."""
        if self.data is not None:
            return DATA_SETS[self.data.name][1]
        return SYNTHETIC_SAMPLES if self.epochs is None else self.epochs.samples

    @property
    def backend(self) -> str | None:
        """The process group's backend; none where one process runs alone."""
        if self.traits.one_process:
            return None
        return "nccl" if self.device == "cuda" else "gloo"
