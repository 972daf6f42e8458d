"""Checks of `tracer record`: packages, contradicting or ineffective options."""

from __future__ import annotations

import argparse
import importlib.util
import math
import re

from tracer.config import IMAGE_SIZE, STRATEGY_TRAITS, RecordConfig, Setup, StrategyTraits
from tracer.errors import NEEDS_TORCH, TracerError, UsageError, refuse_windows

# As setup.cfg's extra `workload` has it.
LEAST_OF_WORKLOAD = (2, 6)


def check_torch(command: str) -> None:
    """Raise TracerError where a command has no torch, or a system on which nothing can be recorded."""
    refuse_windows(command)
    if importlib.util.find_spec("torch") is None:
        raise TracerError(f"{command} {NEEDS_TORCH}")


def check_workload(command: str) -> None:
    """Raise TracerError where a command cannot train the built-in workload."""
    from importlib.metadata import version

    check_torch(command)
    own = version("torch")
    if tuple(map(int, re.findall(r"\d+", own)[:2])) < LEAST_OF_WORKLOAD:
        least = ".".join(map(str, LEAST_OF_WORKLOAD))
        raise TracerError(f"{command}'s own models need torch {least}, and here is {own}: record a script of yours")
    if importlib.util.find_spec("torchvision") is None:
        # Of torchvision alone pip takes the newest, and the torch that goes with it.
        raise TracerError(f"{command}'s own models need torchvision: pip install torchvision 'torch=={own}'")


# By how much a ResNet shrinks its images.
LAST_STAGE_STRIDE = {"resnet18": 32, "resnet50": 32, "resnet18-cifar": 8}
DDP_OPTIONS = (
    "--bucket-mb",
    "--find-unused",
    "--no-broadcast-buffers",
    "--gradient-as-bucket-view",
    "--static-graph",
    "--comm-hook",
)


def check_usage(options: argparse.Namespace, setup: Setup) -> None:
    """Raise UsageError, with its reason, for the first of the options that is to be refused."""
    traits = STRATEGY_TRAITS[setup.strategy]
    # What a strategy has nothing against has no text.
    refusals = {
        traits.not_on_several: setup.hosts * setup.devices > 1,
        traits.not_on_cpu: setup.device == "cpu",
        traits.not_over_hosts: setup.hosts > 1,
        **_ddp_refusals(options, traits),
        **_model_refusals(options, setup.batch),
        **_data_refusals(options),
        traits.not_channels_last: options.channels_last,
        traits.not_compiled: options.compile,
        **_learning_refusals(options),
    }
    for reason, refused in refusals.items():
        if refused and reason:
            raise UsageError(reason)


def _ddp_refusals(options: argparse.Namespace, traits: StrategyTraits) -> dict[str, bool]:
    given = [option for option in DDP_OPTIONS if _is_given(options, option)]
    refusals = {f"{option} only applies to DDP: give --strategy ddp": not traits.takes_ddp_options for option in given}
    return refusals | {
        f"--no-broadcast-buffers only applies to models with buffers: {options.model} has none": (
            options.no_broadcast_buffers and not _is_resnet(options)
        ),
        "--find-unused has no effect with --static-graph, which finds unused parameters once": (
            options.find_unused and options.static_graph
        ),
        "--static-graph takes its graph from a backward that synchronizes: leave out --grad-accumulation": (
            options.static_graph and options.grad_accumulation > 1
        ),
    }


def _model_refusals(options: argparse.Namespace, batch: int) -> dict[str, bool]:
    size = options.image_size or IMAGE_SIZE
    return {
        "--image-size does not apply to the transformer, which has no images": options.image_size is not None
        and _is_text(options),
        "--channels-last does not apply to the transformer, which has no images": options.channels_last
        and _is_text(options),
        "BatchNorm needs two samples, since a ResNet's last stage is one pixel here: give --batch 2 or more": (
            batch == 1 and _ends_in_one_pixel(options.model, size)
        ),
        "vgg16 halves its images five times: give --image-size 32 or more": options.model == "vgg16" and size < 32,
    }


def _data_refusals(options: argparse.Namespace) -> dict[str, bool]:
    return {
        "--data does not apply to the transformer, which trains on tokens": options.data is not None
        and _is_text(options),
        f"--data {(options.data or '').partition(':')[0]} has images of {IMAGE_SIZE} x {IMAGE_SIZE} pixels: "
        "leave out --image-size": (options.data is not None and options.image_size not in (None, IMAGE_SIZE)),
        "--workers requires --data: synthetic batches need no workers": options.workers is not None
        and options.data is None,
    }


def _learning_refusals(options: argparse.Namespace) -> dict[str, bool]:
    return {
        "--epoch-samples requires --epochs": options.epoch_samples is not None and options.epochs is None,
        "--epoch-samples does not apply to --data, whose epoch is all of it: leave it out": (
            options.epoch_samples is not None and options.data is not None
        ),
        "--lr-warmup requires --epochs": options.lr_warmup is not None and options.epochs is None,
        "--lr-warmup requires --lr-scaling linear": (options.lr_warmup is not None and options.lr_scaling is None),
        f"--zero-init-residual only applies to ResNets: {options.model} has no residual blocks": (
            options.zero_init_residual and not _is_resnet(options)
        ),
    }


def check_last_batch(config: RecordConfig) -> None:
    """Raise UsageError if an epoch ends with one sample on a device, which BatchNorm cannot take."""
    if config.epochs is None or not _ends_in_one_pixel(config.model, config.image_size):
        return
    rank_samples = math.ceil(config.epoch_samples / config.world_size)
    last = rank_samples % config.process_batch or config.process_batch
    if config.traits.one_process:
        # torch.chunk's parts: all of one size, but for the last.
        part = math.ceil(last / config.devices)
        last = last % part or part
    if last == 1:
        raise UsageError(
            f"an epoch of {config.epoch_samples} samples leaves one sample on a device for its last step, and "
            "BatchNorm needs two: "
            "give another --batch"
        )


def _ends_in_one_pixel(model: str, image_size: int) -> bool:
    """Whether a BatchNorm of the model's last stage sees one value of each sample alone."""
    return image_size <= LAST_STAGE_STRIDE.get(model, 0)


def _is_given(options: argparse.Namespace, option: str) -> bool:
    value = getattr(options, option.removeprefix("--").replace("-", "_"))
    return value is not None and value is not False


def _is_resnet(options: argparse.Namespace) -> bool:
    return bool(options.model.startswith("resnet"))


def _is_text(options: argparse.Namespace) -> bool:
    return bool(options.model == "transformer")
