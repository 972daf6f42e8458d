"""`tracer report RUN`: where the time of a run's steps went."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.calibration import Calibration, read_calibration
from analyzers.document import Report, to_json
from analyzers.figures import RunFigures, names
from analyzers.frames import buckets_frame, collectives_frame, layers_frame, windows_frame
from analyzers.report import report
from analyzers.scenarios import usual
from tracer.commands.gates import add_gate_argument, judged, parsed
from tracer.commands.reading import (
    add_drawing_arguments,
    add_reading_arguments,
    add_run_argument,
    read,
    read_drawn,
)
from tracer.errors import UsageError
from tracer.files import refuse_existing, write_text
from tracer.views.communication import size
from tracer.views.html import page
from tracer.views.text import text

if TYPE_CHECKING:
    import pandas as pd

NAME = "report"
HELP = "where the time of a run's steps went, measured from its traces"
# The tables that --csv writes, by file.
TABLES: dict[str, Callable[[Report], pd.DataFrame]] = {
    "windows.csv": windows_frame,
    "collectives.csv": collectives_frame,
    "buckets.csv": buckets_frame,
    "layers.csv": layers_frame,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tracer report`."""
    add_run_argument(parser)
    parser.add_argument(
        "--by",
        choices=["rank", "step", "collective", "bucket", "layer"],
        default="rank",
        help="medians per rank (default), every step, every collective, DDP's buckets, or the model's layers",
    )
    parser.add_argument(
        "--links", type=Path, metavar="FILE", help="what the links can do (default: the run's own links.json)"
    )
    parser.add_argument("--json", action="store_true", help="the whole report, every step and rank, as JSON")
    parser.add_argument("--csv", type=Path, metavar="DIR", help="also write the tables as CSV into this folder")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="also write all of it as one page for a browser, which loads nothing"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the report to a file instead of stdout"
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    add_gate_argument(parser, "'exposed_share > 0.1', 'max(windows.exposed_comm_ns) > 2ms'")
    add_drawing_arguments(parser)
    add_reading_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Read, report, print; the exit code is that of the conditions."""
    gates = parsed(options.fail_on, names(of_comparison=False))
    tables = {options.csv / name: frame for name, frame in TABLES.items()} if options.csv is not None else {}
    for path in (options.output, options.html, *tables):
        if path is not None:
            refuse_existing(path, options.force)
    links = read_calibration(options.links) if options.links is not None else None
    found, document = _read(options, links)
    for path, frame in tables.items():
        write_text(path, frame(found).to_csv(index=False), options.force)
    if document is not None:
        write_page(options.html, document, options.force)
    if options.output is not None:
        write_text(
            options.output,
            to_json(found) + "\n" if options.json else text(found, options.by),
            options.force,
        )
    else:
        sys.stdout.write(to_json(found) + "\n" if options.json else for_terminal(found, options.by))
    return judged(gates, RunFigures(found), found.run.name)


def _read(options: argparse.Namespace, links: Calibration | None) -> tuple[Report, str | None]:
    """The report, and as a page where one is asked for. Raises UsageError."""
    if options.html is None:
        if options.ranks is not None:
            raise UsageError("--ranks is of --html: it says which ranks are drawn in time")
        return report(read(options), links), None
    return read_page(options, links)


def read_page(options: argparse.Namespace, links: Calibration | None) -> tuple[Report, str]:
    """A run's report, and its page, with the usual predictions where it can be replayed."""
    summary, found, drawn = read_drawn(options, links)
    return found, page(found, drawn, links or summary.calibration, usual(summary, links))


def write_page(path: Path, document: str, force: bool) -> None:
    """Write a page, and say on stderr that it is there."""
    write_text(path, document, force)
    print(f"{path}: written ({size(path.stat().st_size)}); open it in a browser", file=sys.stderr)


def for_terminal(found: Report, by: str = "rank") -> str:
    """The text report as this terminal, or none, can show it."""
    return text(found, by, *terminal())  # type: ignore[arg-type]  # argparse's choices are the literal's


def terminal() -> tuple[int | None, bool]:
    """How many columns stdout has, none where it is no terminal, and whether it may have colors."""
    is_terminal = sys.stdout.isatty()
    color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return shutil.get_terminal_size().columns if is_terminal else None, color
