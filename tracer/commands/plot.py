"""`tracer plot RUN --kind KIND -o FILE`: a run's figures as pictures to publish."""

from __future__ import annotations

import argparse
import sys

from tracer.atomic_files import refuse_existing, write_bytes
from tracer.commands.options import (
    add_output_argument,
    add_reading_arguments,
    cell_reader,
    links_of,
    read,
    run_place,
    sweep_folder,
    tell,
    tell_warnings,
)
from tracer.errors import UsageError
from tracer.views import BANDWIDTH, KINDS, SCALING, size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer plot`."""
    parser.add_argument(
        "run",
        type=run_place,
        nargs="+",
        metavar="RUN",
        help="a folder of traces, a trace file, several hosts' folders; with --kind scaling a sweep's folder",
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        required=True,
        help="breakdown: each rank's mean step; timeline, buckets: one step; layers: the longest; bandwidth: busbw by "
        "message size; scaling: a sweep's speedups",
    )
    out = parser.add_argument_group("output")
    add_output_argument(out, "the picture: .png, .svg or .pdf", required=True)
    add_reading_arguments(parser, links=True)


def run(options: argparse.Namespace) -> int:
    """Read, draw, write."""
    from tracer.views.plots import FORMS

    form = options.output.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise UsageError(f"-o {options.output}: a picture ends in {', '.join(f'.{name}' for name in FORMS)}")
    if options.links is not None and options.kind != BANDWIDTH:
        raise UsageError(f"--links only applies to --kind {BANDWIDTH}: {options.kind} shows no bandwidth")
    refuse_existing(options.output, options.force)
    drawn = _scaling(options, form) if options.kind == SCALING else _picture(options, form)
    write_bytes(options.output, drawn, options.force)
    tell(f"{options.output}: written ({size(len(drawn))})", sys.stderr)
    return 0


def _picture(options: argparse.Namespace, form: str) -> bytes:
    from analyzers.reporting import report
    from tracer.views.plots import report_picture

    links = links_of(options)
    summary = read(options, causes=False)
    run_report = report(summary, links)
    tell_warnings(run_report.run.warnings)
    return report_picture(run_report, options.kind, form, links or summary.calibration)


def _scaling(options: argparse.Namespace, form: str) -> bytes:
    from analyzers.comparison import study
    from tracer.views.plots import scaling_picture

    if len(options.run) > 1:
        raise UsageError(f"--kind {SCALING} draws one sweep: give one folder")
    scaling = study(sweep_folder(options.run[0]), cell_reader(options))
    tell_warnings(scaling.warnings)
    return scaling_picture(scaling, form)
