"""Options of the built-in workload, and the recording they describe."""

from __future__ import annotations

import argparse
import sys

import msgspec

from analyzers.command_lines import redacted_command
from tracer.commands.options.devices import host_count, pick_devices
from tracer.commands.options.progress_bar import say
from tracer.commands.options.values import not_negative, positive, positive_number
from tracer.commands.options.workload_checks import check_last_batch, check_usage
from tracer.config import (
    COMM_HOOKS,
    IMAGE_SIZE,
    LIGHT_RECORDERS,
    LR_SCALINGS,
    MODELS,
    REFERENCE_BATCH,
    STRATEGY_TRAITS,
    SYNTHETIC_SAMPLES,
    CalibrationPlan,
    DataSource,
    DdpOptions,
    EpochPlan,
    LearningRate,
    Plan,
    RecordConfig,
    Setup,
    Strategy,
)
from tracer.errors import UsageError

# A CPU is some hundred times slower than a GPU: fewer and smaller steps say as much.
DEFAULT_BATCH = {"cuda": 128, "cpu": 32}
DEFAULT_PLAN = {"cuda": Plan(wait=10, rounds=8), "cpu": Plan(wait=3, rounds=3)}
CALIBRATED_FROM_BYTES = 4 * 2**10
# Beyond DDP's default buckets of 25 MiB.
CALIBRATED_TO_BYTES = {"cuda": 256 * 2**20, "cpu": 32 * 2**20}


def add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for what is trained, except strategy and batch: a sweep has several."""
    what = parser.add_argument_group("workload")
    what.add_argument("--model", choices=MODELS, default="resnet18", help="default: resnet18")
    what.add_argument("--amp", choices=["bf16"], help="train under autocast")
    what.add_argument("--channels-last", action="store_true", help="images and convolutions in NHWC order")
    what.add_argument("--compile", action="store_true", help="torch.compile the model, inside of DDP")
    what.add_argument(
        "--grad-accumulation",
        type=positive,
        default=1,
        metavar="N",
        help="batches in a step; the last synchronizes (default: 1)",
    )
    what.add_argument("--image-size", type=positive, metavar="PX", help="images' height and width (default: 32)")
    what.add_argument(
        "--data",
        metavar="cifar10:DIR|digits",
        help="CIFAR-10 in this folder, or scikit-learn's digits (default: synthetic images)",
    )
    what.add_argument("--workers", type=not_negative, metavar="N", help="a rank's loader processes (default: 2)")
    what.add_argument("--seed", type=not_negative, default=0, metavar="N", help="default: 0")
    _add_ddp_arguments(parser)
    _add_learning_arguments(parser)


def add_step_arguments(how: argparse._ArgumentGroup, rounds: str) -> None:
    """Add the options for the steps to time and profile, `rounds` being what those are, and for measuring the links."""
    how.add_argument(
        "--wait", type=not_negative, metavar="N", help="steps before anything is timed (default: 10, on a CPU 3)"
    )
    how.add_argument(
        "--warmup", type=positive, default=3, metavar="N", help="steps before each timed block (default: 3)"
    )
    how.add_argument("--active", type=positive, default=8, metavar="N", help="steps in each timed block (default: 8)")
    how.add_argument(
        "--light",
        choices=LIGHT_RECORDERS,
        default="cupti",
        help="what records device times; kineto stretches steps more (default: cupti)",
    )
    how.add_argument("--rounds", type=positive, metavar="N", help=rounds)
    how.add_argument("--no-calibrate", action="store_true", help="do not measure the links afterwards")


def _add_ddp_arguments(parser: argparse.ArgumentParser) -> None:
    ddp = parser.add_argument_group("DistributedDataParallel (defaults are its own)")
    ddp.add_argument("--bucket-mb", type=positive_number, metavar="MB", help="bucket_cap_mb")
    ddp.add_argument("--find-unused", action="store_true", help="find_unused_parameters=True")
    ddp.add_argument("--no-broadcast-buffers", action="store_true", help="each replica keeps its own statistics")
    ddp.add_argument("--gradient-as-bucket-view", action="store_true", help="gradients are views of their buckets")
    ddp.add_argument("--static-graph", action="store_true", help="every step uses the same parameters in one order")
    ddp.add_argument("--comm-hook", choices=COMM_HOOKS, help="all-reduce gradients as bfloat16")


def _add_learning_arguments(parser: argparse.ArgumentParser) -> None:
    learning = parser.add_argument_group("whole epochs after the recording, without a profiler, from new weights")
    number = learning.add_mutually_exclusive_group()
    number.add_argument("--epochs", type=positive, metavar="N", help="how many (default: none)")
    number.add_argument(
        "--epoch", action="store_const", const=2, dest="epochs", help="one after one to warm up: --epochs 2"
    )
    learning.add_argument(
        "--epoch-samples", type=positive, metavar="N", help="samples in a synthetic one (default: 50000)"
    )
    learning.add_argument("--lr", type=positive_number, default=0.1, metavar="RATE", help="default: 0.1")
    learning.add_argument(
        "--lr-scaling",
        choices=LR_SCALINGS,
        help=f"multiply --lr by the global batch over {REFERENCE_BATCH} (arXiv:1706.02677)",
    )
    learning.add_argument(
        "--lr-warmup", type=positive, metavar="N", help="raise the rate to the scaled one over N epochs"
    )
    learning.add_argument("--zero-init-residual", action="store_true", help="residual blocks start as identities")


def setup_of(options: argparse.Namespace) -> Setup:
    """Return one recording's devices, strategy and batch, defaults filled in. Raises UsageError, TracerError."""
    device, devices = pick_devices(options)
    hosts = host_count(options)
    strategy: Strategy = options.strategy or ("ddp" if hosts * devices > 1 else "single")
    return Setup(device, devices, strategy, options.batch or DEFAULT_BATCH[device], hosts)


def configuration(options: argparse.Namespace, setup: Setup) -> RecordConfig:
    """Return what the options ask for in this setup, checked against one another. Raises UsageError."""
    check_usage(options, setup)
    data = None
    if options.data is not None:
        name, _, folder = options.data.partition(":")
        if (name, bool(folder)) not in (("cifar10", True), ("digits", False)):
            raise UsageError(f"--data {options.data}: write it as cifar10:DIR, or digits")
        data = DataSource(name, folder, 2 if options.workers is None else options.workers)
    config = RecordConfig(
        **msgspec.structs.asdict(setup),
        model=options.model,
        command=redacted_command(["tracer", *sys.argv[1:]]),
        plan=plan_of(options, DEFAULT_PLAN[setup.device]),
        image_size=options.image_size or IMAGE_SIZE,
        seed=options.seed,
        data=data,
        ddp=DdpOptions(
            bucket_mb=options.bucket_mb,
            find_unused=options.find_unused,
            broadcast_buffers=not options.no_broadcast_buffers,
            gradient_as_bucket_view=options.gradient_as_bucket_view,
            static_graph=options.static_graph,
            comm_hook=options.comm_hook,
        ),
        bf16=options.amp == "bf16",
        channels_last=options.channels_last,
        compile=options.compile,
        grad_accumulation=options.grad_accumulation,
        learning_rate=LearningRate(options.lr, options.lr_scaling, options.lr_warmup or 0),
        zero_init_residual=options.zero_init_residual,
        epochs=EpochPlan(options.epochs, options.epoch_samples or SYNTHETIC_SAMPLES) if options.epochs else None,
        calibration=None if options.no_calibrate else _calibration(setup),
    )
    check_last_batch(config)
    return config


def plan_of(options: argparse.Namespace, defaults: Plan) -> Plan:
    """Return the steps to time and profile; how long to wait and how many rounds are the defaults' where not given."""
    return msgspec.structs.replace(
        defaults,
        wait=defaults.wait if options.wait is None else options.wait,
        warmup=options.warmup,
        active=options.active,
        light=options.light,
        stacks=not options.no_stacks,
        rounds=options.rounds or defaults.rounds,
    )


def _calibration(setup: Setup) -> CalibrationPlan | None:
    """Plan a short measurement of what the strategy uses; None if no two processes communicate."""
    calibrated = STRATEGY_TRAITS[setup.strategy].calibrated
    if setup.hosts * setup.devices < 2 or not calibrated:
        return None
    return CalibrationPlan(calibrated, CALIBRATED_FROM_BYTES, CALIBRATED_TO_BYTES[setup.device], factor=2)


def check_data(config: RecordConfig) -> None:
    """Raise TracerError where the data is not there or too little, and say what will be null without its test set."""
    if config.data is not None:
        from tracer.workload import check_first_batch, open_images

        images = open_images(config.data)
        check_first_batch(images, config.data, config.world_size, config.process_batch)
        if config.epochs is not None and images.test is None:
            say(f"accuracy will be null: {config.data.folder} holds no test set (test_batch)")


def describe(config: RecordConfig) -> str:
    """Say in one phrase what is recorded, defaults included."""
    where = {"cuda": "GPU", "cpu": "CPU rank"}[config.device] + ("s" if config.devices > 1 else "")
    hosts = f" on each of {config.hosts} hosts" if config.hosts > 1 else ""
    return f"{config.model}, {config.strategy}, batch {config.batch} a device, on {config.devices} {where}{hosts}"
