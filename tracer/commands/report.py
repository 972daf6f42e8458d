"""`tracer report RUN`: where the time of a run's steps went."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from tracer.atomic_files import write_text
from tracer.commands.options import (
    add_gate_argument,
    add_output_argument,
    add_reading_arguments,
    add_run_argument,
    emit,
    here,
    judged,
    links_of,
    parsed,
    positive,
    read_page,
    refuse_all_existing,
    reported,
    write_page,
)
from tracer.errors import UsageError
from tracer.views import By, csv_text

if TYPE_CHECKING:
    from analyzers.comparison import Condition
    from analyzers.reporting import Report, Table
    from analyzers.run import Calibration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer report`."""
    add_run_argument(parser)
    view = parser.add_mutually_exclusive_group()
    view.add_argument("--full", action="store_true", help="every table, not one screen")
    view.add_argument(
        "--by",
        choices=get_args(By),
        help="one table; expert: also spread attention; kernel: also operators; cause, charge: of the critical path",
    )
    view.add_argument("--notes", action="store_true", help="also every warning and note, with what to do")
    parser.add_argument("--validate", action="store_true", help="also run torch's trace validator")
    add_gate_argument(parser, "'exposed_share > 0.1', 'max(windows.exposed_comm_ns) > 2ms'")
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="the report as JSON; with --by that table alone")
    out.add_argument("--summary", action="store_true", help="with --json: some kilobytes of it")
    out.add_argument(
        "--limit", type=positive, metavar="N", help="with --json --by: the N longest rows (default: what 20 kB hold)"
    )
    out.add_argument("--csv", type=here, metavar="DIR", help="also write the tables as CSV here")
    out.add_argument("--html", type=here, metavar="FILE", help="also write one page, which loads nothing")
    add_output_argument(out)
    add_reading_arguments(parser, steps=True, links=True, drawing=True)


def run(options: argparse.Namespace) -> int:
    """Read, report, print; return the conditions' exit code."""
    _check(options)
    gates = _gates(options.fail_on)
    tables = _tables(options.csv) if options.csv is not None else {}
    refuse_all_existing((options.output, options.html, *tables), options.force)
    with _reported(options, links_of(options)) as (run_report, document):
        for path, table in tables.items():
            write_text(path, csv_text(table.frame(run_report)), options.force)
        if document is not None:
            write_page(options.html, document, options.force)
        emit(options, partial(_json, options, run_report), partial(_text, options, run_report))
        return _judged(gates, run_report) if gates else 0


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that make no sense together."""
    if options.summary and not options.json:
        raise UsageError("--summary shortens the JSON: give --json --summary")
    if options.summary and options.by is not None:
        raise UsageError("--summary and --by are two documents: give one of them")
    if options.limit is not None and not (options.json and options.by is not None):
        raise UsageError("--limit shortens a table's JSON: give --json --by TABLE --limit N")


def _json(options: argparse.Namespace, run_report: Report) -> str:
    """Write the document that is asked for; by default the whole report."""
    from analyzers.reporting import to_json, to_summary_json, to_table_json

    if options.by is not None:
        return to_table_json(run_report, options.by, options.limit)
    return to_summary_json(run_report) if options.summary else to_json(run_report)


def _gates(conditions: Sequence[str]) -> list[Condition]:
    """Parse the conditions that were given; without any, what judges them need not be loaded. Raises UsageError."""
    if not conditions:
        return []
    from analyzers.comparison import names

    return parsed(conditions, names(of_comparison=False))


def _judged(gates: Sequence[Condition], run_report: Report) -> int:
    """Say which conditions hold; return the exit code."""
    from analyzers.comparison import RunFigures

    return judged(gates, RunFigures([run_report]), run_report.run.name)


def _tables(folder: Path) -> dict[Path, Table[Report]]:
    """Return the tables that --csv writes into a folder, by file."""
    from analyzers.reporting import TABLES

    return {folder / f"{name}.csv": table for name, table in TABLES.items()}


def _text(options: argparse.Namespace, run_report: Report, width: int | None = None, color: bool = False) -> str:
    """Write what is asked for; by default one screen."""
    from tracer.views.sections import first_screen_text, notices_text, report_text

    by: By | None = "rank" if options.full else options.by
    if by is not None:
        return report_text(run_report, by, width, color)
    # An address may hold a signature or a password.
    path = str(options.run[0]) if len(options.run) == 1 and isinstance(options.run[0], Path) else "RUN"
    screen = first_screen_text(run_report, path, width, color)
    return f"{screen.rstrip()}\n\n{notices_text(run_report, width, color).lstrip()}" if options.notes else screen


@contextmanager
def _reported(options: argparse.Namespace, links: Calibration | None) -> Iterator[tuple[Report, str | None]]:
    """Yield the report, and its page if one is asked for. Raises UsageError."""
    if options.html is not None:
        yield read_page(options, links)
        return
    if options.ranks is not None:
        raise UsageError("--ranks only applies to --html: it selects the ranks that the page draws")
    with reported(options, links) as run_report:
        yield run_report, None
