"""Output options: JSON or text, to a file or terminal, and pages."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from analyzers.texts import utf8
from tracer.atomic_files import refuse_existing, write_text
from tracer.commands.options.progress_bar import working
from tracer.commands.options.run import here, read_drawn
from tracer.views import plain, size

if TYPE_CHECKING:
    from analyzers.notices import Notice
    from analyzers.reporting import Report
    from analyzers.run import Calibration


def add_output_argument(
    parser: argparse._ActionsContainer, meaning: str = "write to a file instead of stdout", required: bool = False
) -> None:
    """Add -o, and --force, without which nothing that exists is replaced."""
    parser.add_argument("-o", "--output", type=here, required=required, metavar="FILE", help=meaning)
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def refuse_all_existing(paths: Iterable[Path | None], force: bool) -> None:
    """Raise TracerError where one of the files that are asked for exists and may not be replaced."""
    for path in paths:
        if path is not None:
            refuse_existing(path, force)


def emit(options: argparse.Namespace, document: Callable[[], str], text: Callable[..., str]) -> None:
    """Write a result to the file of -o, or else to stdout: with --json its document, else its text. Raises TracerError.

    `text` takes what `terminal` gives, and nothing where it goes to a file.
    """
    is_file = options.output is not None
    with working("figures"):
        said = document() + "\n" if options.json else text() if is_file else text(*terminal())
    if is_file:
        write_text(options.output, said, options.force)
    else:
        sys.stdout.write(said)


def terminal(stream: TextIO | None = None) -> tuple[int | None, bool]:
    """Return how many columns stdout, or another stream, has, None if it is no terminal, and if it may have colors."""
    stream = stream or sys.stdout
    is_terminal = stream.isatty()
    # Windows' older console would show the codes of colors; its Terminal names its session.
    has_colors = os.environ.get("TERM") != "dumb" if sys.platform != "win32" else "WT_SESSION" in os.environ
    color = is_terminal and has_colors and not os.environ.get("NO_COLOR")
    return shutil.get_terminal_size(_size(stream)).columns if is_terminal else None, color


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of a terminal, for when stdout is none; one that was never told its size says 0."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def read_page(options: argparse.Namespace, links: Calibration | None) -> tuple[Report, str]:
    """Return a run's report, and its page, with the usual predictions if it can be replayed."""
    from analyzers.prediction import usual
    from analyzers.reporting import path_lanes
    from tracer.views.html import report_html

    summary, report, drawn = read_drawn(options, links)
    with working("the page"):
        calibration, paths = links or summary.calibration, path_lanes(summary, report)
        return report, report_html(report, drawn, calibration, usual(summary, links), paths)


def write_page(path: Path, document: str, force: bool) -> None:
    """Write a page, and say on stderr that it is there."""
    write_text(path, document, force)
    tell(f"{path}: written ({size(len(utf8(document)))}); open it in a browser", sys.stderr)


def tell_warnings(warnings: Sequence[Notice]) -> None:
    """Say on stderr what is doubtful about a run that a picture, a timeline or a table of HTA shows without words.

    What only grades trust is left to the report.
    """
    from analyzers.notices import Weight
    from tracer.views.sections import folded

    doubtful = [warning for warning in warnings if warning.code.facts.weight is not Weight.GRADED]
    for warning in folded(doubtful):
        tell(f"warning: {warning}", sys.stderr)


def tell(text: str, stream: TextIO | None = None) -> None:
    """Print lines at once, to stdout or another stream, without characters that would steer a terminal."""
    print(*map(plain, text.split("\n")), sep="\n", file=stream or sys.stdout, flush=True)
