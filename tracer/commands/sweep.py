"""`tracer sweep`: how training scales over devices and batches, measured, beside what subtraction would have said."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from analyzers.errors import AnalysisError
from analyzers.scaling import study
from analyzers.study import Scaling, cells_frame, epochs_frame, strong_frame, to_json, weak_frame
from analyzers.summary import RunSummary
from tracer.commands.report import terminal
from tracer.errors import TracerError, UsageError
from tracer.files import refuse_existing, write_bytes
from tracer.views.page import page
from tracer.views.palette import DARK, LIGHT
from tracer.views.plots import PICTURES, plots
from tracer.views.scaling import as_markdown, text
from tracer.workers import read

NAME = "sweep"
HELP = "how training scales over devices and batches, measured from a sweep's recordings"
# Below a sweep's folder, unless --output says otherwise.
REPORT = "report"
TABLES = {
    "cells.csv": cells_frame,
    "weak.csv": weak_frame,
    "strong.csv": strong_frame,
    "epochs.csv": epochs_frame,
}
DOCUMENT, MARKDOWN, PAGE = "scaling.json", "scaling.md", "scaling.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `tracer sweep`."""
    parser.add_argument("--report", type=Path, metavar="DIR", help="report the sweep that lies in this folder")
    out = parser.add_argument_group("output")
    out.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where tables, plots and page go (default: DIR/report)"
    )
    out.add_argument(
        "--json", action="store_true", help="print the study as JSON instead of tables; files only where -o says so"
    )
    out.add_argument("--force", action="store_true", help="replace files that exist")


def run(options: argparse.Namespace) -> int:
    """Report a sweep."""
    if options.report is None:
        raise UsageError("give --report DIR, the folder of a sweep")
    return _report(options)


def _report(options: argparse.Namespace) -> int:
    """Print the study, and write its files."""
    folder = options.output or (None if options.json else options.report / REPORT)
    if folder is not None:
        for name in (DOCUMENT, MARKDOWN, PAGE, *TABLES, *PICTURES):
            refuse_existing(folder / name, options.force)
    found = study(options.report, _read)
    sys.stdout.write(to_json(found) + "\n" if options.json else text(found, *terminal()))
    written = _write(folder, found, options.force) if folder is not None else []
    if written and not options.json:
        print(f"written to {folder}: {', '.join(written)}")
    if not options.json:
        for cell in [cell for cell in found.cells if cell.measured][-1:]:
            print(f"next: tracer report {shlex.quote(str(options.report / cell.name))}")
    return 0


def _read(path: Path) -> RunSummary:
    """A cell's summary; what ends one cell's reading must not end the study."""
    try:
        return read(path)
    except TracerError as error:
        raise AnalysisError(str(error)) from error


def _write(folder: Path, found: Scaling, force: bool) -> list[str]:
    """The study's files; their names. Pictures of an earlier report that this one has not are removed."""
    pictures = plots(found, LIGHT)
    if force:
        for name in set(PICTURES) - set(pictures):
            (folder / name).unlink(missing_ok=True)
    files = dict(_files(found, pictures))
    for name, data in files.items():
        write_bytes(folder / name, data, force)
    return list(files)


def _files(found: Scaling, pictures: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Every file by name, the page first."""
    yield PAGE, page(found, pictures, plots(found, DARK)).encode()
    yield MARKDOWN, as_markdown(found, pictures).encode()
    yield from pictures.items()
    for name, frame in TABLES.items():
        yield name, frame(found).to_csv(index=False).encode()
    yield DOCUMENT, (to_json(found) + "\n").encode()
