"""`tracer export RUN`: a run's lanes as a file for other viewers, or its rows for databases."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from tracer.atomic_files import new_file, refuse_existing, write_bytes
from tracer.commands.options import (
    add_output_argument,
    add_reading_arguments,
    add_run_argument,
    links_of,
    read_drawn,
    refuse_all_existing,
    reported,
    tell,
    tell_warnings,
)
from tracer.errors import UsageError
from tracer.views import size
from tracer.views.rows import FORMATS, RowFormat, row_files

if TYPE_CHECKING:
    from analyzers.rank import RunSummary
    from analyzers.reporting import Lanes, Report
    from analyzers.run import Calibration

TRACE = ".pftrace"


class Drawn(NamedTuple):
    """What there is to write: a run, its report, its lanes, and the calibration that was given."""

    summary: RunSummary
    report: Report
    lanes: Sequence[Lanes]
    links: Calibration | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer export`."""
    add_run_argument(parser)
    what = (
        "run.pftrace: lanes; run.zip: lanes over the raw traces; "
        f"{' or '.join(f'runs{each.suffix}' for each in FORMATS)}: a folder of tables, to which each run adds its rows"
    )
    add_output_argument(parser.add_argument_group("output"), what, required=True)
    add_reading_arguments(parser, steps=True, links=True, drawing=True)


def run(options: argparse.Namespace) -> int:
    """Write what the name's ending says."""
    output: Path = options.output
    if output.suffix not in WRITERS:
        raise UsageError(f"{output}: the name's ending selects the format: end it in {' or '.join(WRITERS)}")
    WRITERS[output.suffix](options)
    return 0


def _rows(row_format: RowFormat, options: argparse.Namespace) -> None:
    """Write a file for each table into the folder, beside those of other runs."""
    if options.ranks is not None:
        raise UsageError("--ranks only applies to timelines: it selects the ranks that are drawn")
    row_format.check()
    with reported(options, links_of(options)) as run_report:
        files = dict(row_files(row_format, run_report, options.run[0], options.output))
        refuse_all_existing(files, options.force)
        for file, data in files.items():
            write_bytes(file, data, options.force)
        tell_warnings(run_report.run.warnings)
    written = size(sum(map(len, files.values())))
    tell(f"{options.output}: {len(files)} tables, {written}; each is a folder, with a file of every run")


def _timeline(write: Callable[[IO[bytes], Drawn], str], options: argparse.Namespace) -> None:
    """Write the lanes in a format for Perfetto."""
    from tracer.views.perfetto import check_perfetto

    output: Path = options.output
    refuse_existing(output, options.force)
    check_perfetto()
    links = links_of(options)
    summary, run_report, drawn = read_drawn(options, links)
    with new_file(output, options.force) as file:
        note = write(file, Drawn(summary, run_report, drawn, links))
    left_out = len(summary.ranks) - len({lane.rank for lane in drawn})
    note += f"\nnote: {left_out} of {len(summary.ranks)} ranks are left out; --ranks names others" if left_out else ""
    megabytes = f"{output.stat().st_size / 1e6:.3g} MB"
    tell_warnings(run_report.run.warnings)
    tell(f"{output}: {megabytes}; open it at https://ui.perfetto.dev, or with `tracer view RUN --perfetto`{note}")


def _trace(file: IO[bytes], drawn: Drawn) -> str:
    """Write the lanes; there is nothing to note."""
    from tracer.views.perfetto import groups, write_trace

    write_trace(file, groups(drawn.lanes, drawn.report))
    return ""


def _archive(file: IO[bytes], drawn: Drawn) -> str:
    """Write a run's lanes next to the raw traces of the ranks that have lanes; return notes on it."""
    from analyzers.reporting import lanes, report
    from tracer.views.perfetto import write_archive

    full = drawn.summary.of_full_windows()
    run_report = report(full, drawn.links)
    ranks = tuple(rank for rank in full.ranks if rank.timed.tracks is not None)
    write_archive(file, replace(full, ranks=ranks), lanes(full, run_report), run_report)
    notes = []
    if drawn.summary.is_light:
        notes.append("lanes are those of the full window, which the raw traces are of")
    if run_report.run.clock.applied:
        notes.append("each rank is on the clock of its own trace, and ranks' clocks differ")
    return "".join(f"\nnote: {note}" for note in notes)


# What writes each format, by the ending of the file's name, and says so.
WRITERS: dict[str, Callable[[argparse.Namespace], None]] = {
    TRACE: partial(_timeline, _trace),
    ".zip": partial(_timeline, _archive),
    **{row_format.suffix: partial(_rows, row_format) for row_format in FORMATS},
}
