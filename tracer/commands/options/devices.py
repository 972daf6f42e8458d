"""Options `--gpus` and `--device`, and the devices they select here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tracer.commands.options.values import positive
from tracer.errors import TracerError, UsageError

if TYPE_CHECKING:
    from tracer.config import DeviceType

CPU_RANKS = 2


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --gpus, --device, --ranks."""
    where = parser.add_argument_group("devices (default: all GPUs of this machine, or else two CPU ranks)")
    where.add_argument("--gpus", type=positive, metavar="N", help="record on N GPUs")
    where.add_argument("--device", choices=["cuda", "cpu"], help="cpu: communicate with gloo")
    where.add_argument("--ranks", type=positive, metavar="N", help="record N ranks on the CPU")


def pick_devices(options: argparse.Namespace) -> tuple[DeviceType, int]:
    """Return the device type and count that the options ask for: see `devices_of`."""
    return devices_of(options.device, options.gpus, options.ranks)


def devices_of(kind: DeviceType | None, gpus: int | None, ranks: int | None) -> tuple[DeviceType, int]:
    """Return device type and count. What was asked for explicitly is taken or refused, never changed.

    Raises UsageError, and TracerError for more GPUs than there are.
    """
    import torch

    if gpus is not None and (kind == "cpu" or ranks is not None):
        raise UsageError("--gpus counts GPUs; on a CPU give --device cpu --ranks N")
    if kind == "cuda" and ranks is not None:
        raise UsageError("--ranks counts ranks on the CPU; on GPUs give --gpus N")
    available = torch.cuda.device_count()
    if gpus is not None or kind == "cuda":
        wanted = gpus or available or 1
        if wanted > available:
            raise TracerError(
                f"torch can use {available} GPUs here, not {wanted}: give fewer, or --device cpu --ranks N"
            )
        return "cuda", wanted
    if kind == "cpu" or ranks is not None or not available:
        return "cpu", ranks or CPU_RANKS
    return "cuda", available
