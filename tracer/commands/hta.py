"""`tracer hta RUN ANALYSIS`: HolisticTraceAnalysis' analyses of a run that tracer has read, in exact times."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tracer.atomic_files import new_file, refuse_existing, write_text
from tracer.commands.export import TRACE
from tracer.commands.options import (
    add_output_argument,
    here,
    memory,
    not_negative,
    positive,
    run_place,
    tell,
    tell_warnings,
    terminal,
)
from tracer.errors import UsageError
from tracer.views import csv_text

if TYPE_CHECKING:
    from analyzers.hta import Analysis, CriticalPath
    from analyzers.run import Run

PATH, DIFF = "critical-path", "diff"
OF_RANKS = ("idle", "queue", "launches", "kernels")
DEFAULT_TOP = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer hta`."""
    parser.add_argument(
        "run", type=run_place, metavar="RUN", help="a folder of traces, or a trace file; a path or a URL"
    )
    parser.add_argument(
        "analysis",
        choices=(PATH, *OF_RANKS, DIFF),
        metavar="ANALYSIS",
        help="critical-path: of one step; idle: why streams were idle; queue: how much was queued; "
        "launches: what launching took; kernels: time by type and kernel; diff: against RUN2",
    )
    parser.add_argument("other", type=run_place, nargs="?", metavar="RUN2", help="the other run, for diff")
    parser.add_argument("--rank", type=not_negative, metavar="N", help="default: all; critical-path, diff: the first")
    parser.add_argument(
        "--step", type=not_negative, metavar="K", help="for critical-path, diff (default: that of median length)"
    )
    parser.add_argument(
        "--top", type=positive, default=DEFAULT_TOP, metavar="N", help=f"rows of a table (default: {DEFAULT_TOP})"
    )
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="all rows as JSON")
    out.add_argument("--csv", type=here, metavar="DIR", help="also write the tables as CSV here")
    add_output_argument(out, "critical-path: also the run's timeline with the path in it")


def run(options: argparse.Namespace) -> int:
    """Read, let HTA analyze, print."""
    from analyzers.hta import critical_path, hta_library, path_tables, to_json
    from analyzers.run import load
    from tracer.views.perfetto import check_perfetto
    from tracer.views.sections.results import hta_text

    _check_usage(options)
    hta_library()
    if options.output is not None:
        check_perfetto()
    source = load(options.run, memory=memory())
    tell_warnings(source.warnings)
    path = critical_path(source, options.rank, options.step) if options.analysis == PATH else None
    analysis = path_tables(path) if path is not None else _analyzed(source, options)
    analysis = replace(analysis, facts={"run": source.name, **analysis.facts})
    _check_tables(options, analysis)
    if path is not None and options.output is not None:
        _write_timeline(source, path, options)
    if options.csv is not None:
        for table in analysis.tables:
            write_text(options.csv / f"{table.name}.csv", csv_text(table.to_frame()), options.force)
    sys.stdout.write(f"{to_json(analysis)}\n" if options.json else hta_text(analysis, options.top, *terminal()))
    return 0


def _check_usage(options: argparse.Namespace) -> None:
    """Raise UsageError, and TracerError for a file that exists already."""
    if options.analysis == DIFF and options.other is None:
        raise UsageError("diff compares two runs: tracer hta RUN diff RUN2")
    if options.analysis != DIFF and options.other is not None:
        raise UsageError(f"{options.analysis} analyzes one run: leave out {options.other}")
    if options.step is not None and options.analysis not in (PATH, DIFF):
        raise UsageError("--step only applies to critical-path and diff")
    if options.output is not None and options.analysis != PATH:
        raise UsageError("-o only applies to critical-path, whose timeline it writes")
    if options.output is not None:
        if options.output.suffix != TRACE:
            raise UsageError(f"{options.output}: is a Perfetto timeline: end its name in {TRACE}")
        refuse_existing(options.output, options.force)


def _check_tables(options: argparse.Namespace, analysis: Analysis) -> None:
    """Raise TracerError before anything is written."""
    for table in analysis.tables if options.csv is not None else ():
        refuse_existing(options.csv / f"{table.name}.csv", options.force)


def _analyzed(source: Run, options: argparse.Namespace) -> Analysis:
    from analyzers.hta import diff, idle, kernels, launches, queue
    from analyzers.run import load

    if options.analysis == DIFF:
        other = load(options.other, memory=memory())
        tell_warnings(other.warnings)
        return diff(source, other, options.rank, options.step)
    analyses = dict(zip(OF_RANKS, (idle, queue, launches, kernels), strict=True))
    return analyses[options.analysis](source, options.rank)


def _write_timeline(source: Run, path: CriticalPath, options: argparse.Namespace) -> None:
    """Write the full windows' lanes, which the path belongs to, and the path on the same clock."""
    from analyzers.rank import summary_of
    from analyzers.reporting import lanes, report
    from tracer.views.perfetto import groups, path_group, write_trace

    summary = summary_of(source, lanes=True).of_full_windows()
    run_report = report(summary)
    drawn = lanes(summary, run_report)
    origin_ns = next(lane.shift_ns for lane in drawn if lane.rank == path.rank)
    with new_file(options.output, options.force) as file:
        write_trace(file, chain([path_group(path, origin_ns)], groups(drawn, run_report)))
    tell(f"{options.output}: written; open it at https://ui.perfetto.dev", sys.stderr)
