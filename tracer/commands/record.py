"""`tracer record`: train a built-in workload on this machine's devices, and keep traces of it."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from pathlib import Path

import msgspec

from analyzers.manifest import MANIFEST
from analyzers.report import report
from tracer.commands.devices import add_device_arguments, pick_devices, positive
from tracer.commands.hosts import OPTIONS as HOST_OPTIONS
from tracer.commands.hosts import add_host_arguments, host_count, torchrun_options
from tracer.commands.outside import run_script
from tracer.commands.progress import progress, say
from tracer.commands.report import for_terminal
from tracer.commands.usage import check_last_batch, check_usage
from tracer.config import (
    CIFAR10_SAMPLES,
    CIFAR10_SIZE,
    COMM_HOOKS,
    LR_SCALINGS,
    MODELS,
    REFERENCE_BATCH,
    STRATEGIES,
    CalibrationPlan,
    Collective,
    DataSource,
    DdpOptions,
    DeviceType,
    EpochPlan,
    LearningRate,
    Plan,
    RecordConfig,
    Strategy,
)
from tracer.errors import TracerError, UsageError
from tracer.files import hidden_folder, refuse_folder, remove_abandoned
from tracer.workers import read

NAME = "record"
HELP = "train a built-in workload under the profiler, and report where its time goes"
MISSING = "tracer record needs torch and torchvision: pip install 'tracer-toolkit[record]'"
# A CPU is some hundred times slower than a GPU: fewer and smaller steps say as much.
DEFAULT_BATCH = {"cuda": 128, "cpu": 32}
DEFAULT_ROUNDS = {"cuda": 8, "cpu": 3}
DEFAULT_WAIT = {"cuda": 10, "cpu": 3}
# What each strategy synchronizes with; nn.DataParallel calls NCCL within one process, which torch.distributed cannot.
COLLECTIVES_OF: dict[Strategy, tuple[Collective, ...]] = {
    "ddp": ("all_reduce", "broadcast"),
    "fsdp": ("all_gather", "reduce_scatter"),
}
# Options that mean something where a SCRIPT is recorded; all others are the built-in workload's.
OF_SCRIPTS = {
    *("gpus", "device", "ranks", "wait", "warmup", "active", "rounds", "every", "keep", "output", "force", "script"),
    *(option.strip("-").replace("-", "_") for option in HOST_OPTIONS),
}
CALIBRATED_FROM_BYTES = 4 * 2**10
# Beyond DDP's default buckets of 25 MiB.
CALIBRATED_TO_BYTES = {"cuda": 256 * 2**20, "cpu": 32 * 2**20}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tracer record`."""
    add_device_arguments(parser)
    what = parser.add_argument_group("built-in workload, where no SCRIPT is given")
    what.add_argument("--model", choices=MODELS, default="resnet18", help="default: resnet18")
    what.add_argument("--strategy", choices=STRATEGIES, help="default: ddp on several devices, single on one")
    what.add_argument("--batch", type=positive, metavar="N", help="samples per device (default: 128, on a CPU 32)")
    what.add_argument("--amp", choices=["bf16"], help="train under autocast")
    what.add_argument("--channels-last", action="store_true", help="images and convolutions in NHWC order")
    what.add_argument("--compile", action="store_true", help="torch.compile the model, inside of DDP")
    what.add_argument(
        "--grad-accumulation",
        type=positive,
        default=1,
        metavar="N",
        help="add up gradients of N batches, and synchronize those of the last, in each step (default: 1)",
    )
    what.add_argument("--image-size", type=positive, metavar="PX", help="height and width of images (default: 32)")
    what.add_argument("--data", metavar="cifar10:DIR", help="train on CIFAR-10 from this folder (default: synthetic)")
    what.add_argument("--workers", type=_count, metavar="N", help="processes a rank that load the data (default: 2)")
    what.add_argument("--seed", type=_count, default=0, metavar="N", help="default: 0")
    _add_ddp_arguments(parser)
    _add_learning_arguments(parser)
    how = parser.add_argument_group("steps")
    how.add_argument(
        "--wait", type=_count, metavar="N", help="steps before anything is timed (default: 10, on a CPU 3)"
    )
    how.add_argument(
        "--warmup", type=positive, default=3, metavar="N", help="steps before each timed block (default: 3)"
    )
    how.add_argument("--active", type=positive, default=5, metavar="N", help="steps of each timed block (default: 5)")
    how.add_argument(
        "--rounds", type=positive, metavar="N", help="rounds of such blocks (default: 8, on a CPU and of a script 3)"
    )
    how.add_argument("--every", type=positive, metavar="N", help="of a script: record anew every N steps")
    how.add_argument(
        "--keep", type=positive, metavar="K", help="with --every: keep the newest K recordings (default: 5)"
    )
    how.add_argument("--no-calibrate", action="store_true", help="do not measure the links when training has ended")
    add_host_arguments(parser)
    out = parser.add_argument_group("output")
    out.add_argument("-o", "--output", type=Path, metavar="DIR", help="default: traces/resnet18-ddp4 and so on")
    out.add_argument("--force", action="store_true", help="replace the folder if it exists")
    parser.set_defaults(unset=vars(parser.parse_args([])))


def _add_ddp_arguments(parser: argparse.ArgumentParser) -> None:
    ddp = parser.add_argument_group("DistributedDataParallel (defaults are its own)")
    ddp.add_argument("--bucket-mb", type=_positive_number, metavar="MB", help="bucket_cap_mb")
    ddp.add_argument("--find-unused", action="store_true", help="find_unused_parameters=True")
    ddp.add_argument(
        "--no-broadcast-buffers", action="store_true", help="leave each replica its own running statistics"
    )
    ddp.add_argument("--gradient-as-bucket-view", action="store_true", help="gradients are views of their buckets")
    ddp.add_argument("--static-graph", action="store_true", help="every step uses the same parameters in one order")
    ddp.add_argument("--comm-hook", choices=COMM_HOOKS, help="all-reduce gradients compressed to bfloat16")


def _add_learning_arguments(parser: argparse.ArgumentParser) -> None:
    learning = parser.add_argument_group("whole epochs after the recording, without a profiler, from new weights")
    number = learning.add_mutually_exclusive_group()
    number.add_argument("--epochs", type=positive, metavar="N", help="train and time N (default: none)")
    number.add_argument(
        "--epoch", action="store_const", const=2, dest="epochs", help="one to warm up, and one: as --epochs 2"
    )
    learning.add_argument(
        "--epoch-samples", type=positive, metavar="N", help="samples of a synthetic epoch (default: 50000, as CIFAR-10)"
    )
    learning.add_argument("--lr", type=_positive_number, default=0.1, metavar="RATE", help="default: 0.1")
    learning.add_argument(
        "--lr-scaling",
        choices=LR_SCALINGS,
        help=f"--lr times the global batch over {REFERENCE_BATCH} (Goyal et al. 2017, arXiv:1706.02677)",
    )
    learning.add_argument(
        "--lr-warmup", type=positive, metavar="N", help="up to the scaled rate, step by step over the first N epochs"
    )
    learning.add_argument(
        "--zero-init-residual", action="store_true", help="begin with a ResNet's blocks as identities"
    )


def run(options: argparse.Namespace) -> int:
    """Record, then report."""
    if options.script is not None:
        return _run_script(options)
    if not all(importlib.util.find_spec(name) for name in ("torch", "torchvision")):
        raise TracerError(MISSING)
    if options.every or options.keep:
        raise UsageError("--every and --keep record a script's long run: tracer record --every N -- SCRIPT")
    config = configuration(options)
    output = options.output or Path("traces") / default_name(config)
    refuse_folder(output.absolute(), options.force, MANIFEST)
    _check_data(config)
    say(f"recording {describe(config)} into {output}")
    if config.calibration is None and not options.no_calibrate:
        say("links are not calibrated: no collectives of torch.distributed between processes in this run")
    for folder in remove_abandoned(output.absolute()):
        say(f"removed {folder}, left by a recording that was killed")
    recorded = record(config, output.absolute(), options.force, torchrun_options(options))
    for place in recorded:
        sys.stdout.write(for_terminal(report(read(place))))
        print(f"next: tracer report {shlex.quote(str(options.output or place.relative_to(Path.cwd())))} --by step")
    return 0


def _run_script(options: argparse.Namespace) -> int:
    if not importlib.util.find_spec("torch"):
        raise TracerError(MISSING)
    for name, value in vars(options).items():
        if name not in OF_SCRIPTS and value != options.unset.get(name, value):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} is of the built-in workload: give it to the script, if it has one like it")
    return run_script(options)


def default_name(config: RecordConfig) -> str:
    """The folder a recording goes to: `resnet18-ddp4`, on a CPU `resnet18-ddp2-cpu`."""
    return f"{config.model}-{config.strategy}{config.hosts * config.devices}" + (
        "-cpu" if config.device == "cpu" else ""
    )


def configuration(options: argparse.Namespace) -> RecordConfig:
    """What the options ask for, checked against one another and this machine. Raises UsageError, TracerError."""
    device, devices = pick_devices(options)
    hosts = host_count(options)
    strategy: Strategy = options.strategy or ("ddp" if hosts * devices > 1 else "single")
    check_usage(options, device, hosts * devices, strategy)
    data = None
    if options.data is not None:
        kind, _, folder = options.data.partition(":")
        if kind != "cifar10" or not folder:
            raise UsageError(f"--data {options.data}: the form is cifar10:DIR")
        data = DataSource(folder, 2 if options.workers is None else options.workers)
    config = RecordConfig(
        model=options.model,
        strategy=strategy,
        device=device,
        devices=devices,
        hosts=hosts,
        command=["tracer", *sys.argv[1:]],
        batch=options.batch or DEFAULT_BATCH[device],
        plan=Plan(
            wait=DEFAULT_WAIT[device] if options.wait is None else options.wait,
            warmup=options.warmup,
            active=options.active,
            rounds=options.rounds or DEFAULT_ROUNDS[device],
        ),
        image_size=options.image_size or CIFAR10_SIZE,
        seed=options.seed,
        data=data,
        ddp=_ddp_options(options),
        bf16=options.amp == "bf16",
        channels_last=options.channels_last,
        compile=options.compile,
        grad_accumulation=options.grad_accumulation,
        learning_rate=LearningRate(options.lr, options.lr_scaling, options.lr_warmup or 0),
        zero_init_residual=options.zero_init_residual,
        epochs=EpochPlan(options.epochs, options.epoch_samples or CIFAR10_SAMPLES) if options.epochs else None,
        calibration=None if options.no_calibrate else _calibration(strategy, device, hosts * devices),
    )
    check_last_batch(config)
    return config


def _ddp_options(options: argparse.Namespace) -> DdpOptions:
    return DdpOptions(
        bucket_mb=options.bucket_mb,
        find_unused=options.find_unused,
        broadcast_buffers=not options.no_broadcast_buffers,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
        comm_hook=options.comm_hook,
    )


def _calibration(strategy: Strategy, device: DeviceType, devices: int) -> CalibrationPlan | None:
    """A short measurement of what the strategy uses; none where no two processes communicate."""
    if devices < 2 or strategy not in COLLECTIVES_OF:
        return None
    return CalibrationPlan(COLLECTIVES_OF[strategy], CALIBRATED_FROM_BYTES, CALIBRATED_TO_BYTES[device], factor=2)


def _check_data(config: RecordConfig) -> None:
    if config.data is not None:
        from tracer.workloads import cifar10_test_set, open_cifar10

        open_cifar10(config.data.folder)
        if config.epochs is not None and cifar10_test_set(config.data.folder) is None:
            say(f"accuracy will be null: {config.data.folder} holds no test set (test_batch)")


def describe(config: RecordConfig) -> str:
    """One phrase that says what is recorded, defaults included."""
    where = {"cuda": "GPU", "cpu": "CPU rank"}[config.device] + ("s" if config.devices > 1 else "")
    hosts = f" on each of {config.hosts} hosts" if config.hosts > 1 else ""
    return f"{config.model}, {config.strategy}, batch {config.batch} a device, on {config.devices} {where}{hosts}"


def record(config: RecordConfig, output: Path, force: bool, torchrun: tuple[str, ...] = ()) -> list[Path]:
    """Run the ranks and put their traces and run.json into `output`, which appears only when all is written."""
    from tracer.finish import Finisher
    from tracer.launch import Job, launch, quiet_launcher, rank_arguments
    from tracer.ranks import take_notes

    quiet_launcher()
    with hidden_folder(output) as folder:
        with progress("step") as heard:
            arguments = rank_arguments("tracer.train", msgspec.json.encode([config]).decode(), folder)
            launch(Job(arguments, config.device, config.processes, torchrun), folder, heard)
        for note in take_notes(folder):
            say(note)
        return Finisher(folder, output, force).take_complete()


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**62:
        raise ValueError
    return value


def _positive_number(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


# argparse names the type in its message: `argument --seed: invalid whole number value: '-1'`.
_count.__name__ = "whole number"
_positive_number.__name__ = "positive number"
