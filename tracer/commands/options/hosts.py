"""Options of torchrun for a job over several hosts."""

from __future__ import annotations

import argparse

from tracer.errors import UsageError

# As torchrun spells them, and reads them.
OPTIONS = {
    "--nnodes": ("N", "number of hosts; every host runs this command"),
    "--node-rank": ("K", "number of this host, from 0 (for --rdzv-backend static)"),
    "--rdzv-backend": ("NAME", "static (default) or c10d"),
    "--rdzv-endpoint": ("HOST:PORT", "address at which hosts meet"),
    "--rdzv-id": ("ID", "the job's name, the same on every host"),
    "--rdzv-conf": ("K=V,...", "further settings of the backend"),
    "--master-addr": ("HOST", "address of host 0 (for --rdzv-backend static)"),
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
