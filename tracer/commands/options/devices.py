"""Options of devices and hosts: `--gpus`, `--device`, and torchrun's."""

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


# Options of a job over several hosts, as torchrun spells them, and reads them.
OPTIONS = {
    "--nnodes": ("N", "number of hosts, each of which runs this command"),
    "--node-rank": ("K", "this host's number, from 0 (static)"),
    "--rdzv-backend": ("NAME", "static (default) or c10d"),
    "--rdzv-endpoint": ("HOST:PORT", "where hosts meet"),
    "--rdzv-id": ("ID", "the job's name, the same on every host"),
    "--rdzv-conf": ("K=V,...", "further settings of the backend"),
    "--master-addr": ("HOST", "address of host 0 (static)"),
    "--master-port": ("PORT", "a free port on host 0 (default: 29500)"),
}


def add_host_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --nnodes, --node-rank, --rdzv-*, --master-*."""
    where = parser.add_argument_group("several hosts (torchrun's options)")
    for option, (value, help_text) in OPTIONS.items():
        where.add_argument(option, metavar=value, help=help_text)


def torchrun_options(options: argparse.Namespace) -> tuple[str, ...]:
    """Return those that were given, as torchrun takes them; empty on one host. Raises UsageError."""
    given = {option: getattr(options, option.strip("-").replace("-", "_")) for option in OPTIONS}
    arguments = tuple(f"{option}={value}" for option, value in given.items() if value is not None)
    if arguments and options.nnodes is None:
        raise UsageError(f"{arguments[0].partition('=')[0]} only applies to a job on several hosts: give --nnodes")
    return arguments


def host_count(options: argparse.Namespace) -> int:
    """Return how many hosts the job has. Raises UsageError if that is not one number."""
    if options.nnodes is None:
        return 1
    if not options.nnodes.isdigit() or int(options.nnodes) < 1:
        raise UsageError(
            f"--nnodes {options.nnodes}: the number of hosts cannot change during a recording: give one number"
        )
    return int(options.nnodes)
