"""`tracer calibrate`: measure what this machine's links can do, as nccl-tests does, through torch.distributed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from analyzers.units import binary_size
from tracer.atomic_files import refuse_existing, temporary_folder, write_text
from tracer.commands.options import (
    add_device_arguments,
    add_output_argument,
    check_torch,
    message_size,
    pick_devices,
    positive,
    progress,
    say,
)
from tracer.config import COLLECTIVES, DATA_TYPES, CalibrateConfig, CalibrationPlan, Collective, sent
from tracer.errors import TracerError, UsageError

if TYPE_CHECKING:
    from analyzers.run import Calibration

MIN_BYTES = 4 * 2**10
# gloo moves some GB/s, and no more from 16 MiB on than below.
DEFAULT_MAX_BYTES = {"cuda": 2**30, "cpu": 16 * 2**20}
# nccl-tests' usual -f: with factors of 4, interpolation was three times as far off (docs/dev/decisions/workload.md).
FACTOR = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer calibrate`."""
    add_device_arguments(parser)
    what = parser.add_argument_group("what is measured")
    what.add_argument("--collectives", metavar="NAME,...", help=f"default: {','.join(COLLECTIVES)}")
    what.add_argument(
        "--min", type=message_size, default=MIN_BYTES, metavar="BYTES", help="smallest message (default: 4K)"
    )
    what.add_argument("--max", type=message_size, metavar="BYTES", help="largest message (default: 1G, on a CPU 16M)")
    what.add_argument(
        "--factor", type=positive, default=FACTOR, metavar="N", help="factor between message sizes (default: 2)"
    )
    what.add_argument("--dtype", choices=DATA_TYPES, default="float32", help="default: float32")
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="print the file's JSON instead of the table")
    add_output_argument(out, "default: links.json")


def run(options: argparse.Namespace) -> int:
    """Measure, write, print."""
    from analyzers.run import LINKS, to_json
    from tracer.views.sections.results import calibration_text

    check_torch("tracer calibrate")
    config = configuration(options)
    output = options.output or Path(LINKS)
    refuse_existing(output, options.force)
    where = {"cuda": "GPUs", "cpu": "CPU ranks"}[config.device]
    sizes = f"{binary_size(config.plan.sizes[0])} to {binary_size(config.plan.sizes[-1])}"
    say(f"measuring {', '.join(config.plan.collectives)} of {sizes} between {config.processes} {where}")
    calibration = calibrate(config)
    write_text(output, to_json(calibration) + "\n", options.force)
    sys.stdout.write(to_json(calibration) + "\n" if options.json else calibration_text(calibration))
    say(f"written to {output}")
    return 0


def configuration(options: argparse.Namespace) -> CalibrateConfig:
    """Return what to measure, defaults filled in. Raises UsageError, and TracerError without links to measure."""
    device, count = pick_devices(options)
    largest = options.max or DEFAULT_MAX_BYTES[device]
    if options.min > largest:
        raise UsageError(f"--min {binary_size(options.min)} is larger than --max {binary_size(largest)}")
    if options.factor < 2:
        raise UsageError("--factor 1 would never reach --max: give 2 or more")
    if count < 2:
        raise TracerError("one device has no links to measure; --device cpu --ranks 2 measures gloo on this machine")
    collectives = _collectives(options.collectives)
    return CalibrateConfig(
        device, count, CalibrationPlan(collectives, options.min, largest, options.factor, options.dtype)
    )


def calibrate(config: CalibrateConfig) -> Calibration:
    """Run the ranks in a folder of their own, and read what they leave. Raises TracerError."""
    from analyzers.run import LINKS, read_calibration
    from tracer.launching import Job, launch, quiet_launcher, rank_arguments
    from tracer.recording import take_notes

    quiet_launcher()
    with temporary_folder("tracer-calibrate-") as folder, progress("row") as heard:
        arguments = rank_arguments("calibrate", sent(config), folder)
        launch(Job(arguments, config.device, config.processes), folder, heard)
        notes = take_notes(folder)
        for note in notes:
            say(note)
        if len(notes) == len(config.plan.collectives):
            raise TracerError("nothing was measured: this backend has none of these collectives")
        return read_calibration(folder / LINKS)


def _collectives(names: str | None) -> tuple[Collective, ...]:
    if names is None:
        return COLLECTIVES
    wanted = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    unknown = [name for name in wanted if name not in COLLECTIVES]
    if unknown:
        raise UsageError(f"--collectives: {unknown[0]!r} is not one of {', '.join(COLLECTIVES)}")
    return cast(tuple[Collective, ...], wanted)
