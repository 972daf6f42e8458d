"""`tracer export RUN`: a run's lanes as a file for other viewers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from tracer.atomic_files import new_file, refuse_existing
from tracer.commands.options import (
    add_output_argument,
    add_reading_arguments,
    add_run_argument,
    links_of,
    read_drawn,
    tell,
    tell_warnings,
)
from tracer.errors import UsageError

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
    what = "run.pftrace: lanes of each rank and device; run.zip: the same beside the raw traces, as one timeline"
    add_output_argument(parser.add_argument_group("output"), what, required=True)
    add_reading_arguments(parser, steps=True, links=True, drawing=True)


def run(options: argparse.Namespace) -> int:
    """Read, and write the file."""
    from tracer.views.perfetto import check_perfetto

    output: Path = options.output
    if output.suffix not in WRITERS:
        raise UsageError(f"{output}: the name's ending selects the format: end it in {' or '.join(WRITERS)}")
    refuse_existing(output, options.force)
    check_perfetto()
    links = links_of(options)
    summary, run_report, drawn = read_drawn(options, links)
    with new_file(output, options.force) as file:
        note = WRITERS[output.suffix](file, Drawn(summary, run_report, drawn, links))
    left_out = len(summary.ranks) - len({lane.rank for lane in drawn})
    note += f"\nnote: {left_out} of {len(summary.ranks)} ranks are left out; --ranks names others" if left_out else ""
    megabytes = f"{output.stat().st_size / 1e6:.3g} MB"
    tell_warnings(run_report.run.warnings)
    tell(f"{output}: {megabytes}; open it at https://ui.perfetto.dev, or with `tracer view RUN --perfetto`{note}")
    return 0


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


# What writes each format, by the ending of the file's name, and returns notes on it.
WRITERS: dict[str, Callable[[IO[bytes], Drawn], str]] = {TRACE: _trace, ".zip": _archive}
