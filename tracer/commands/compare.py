"""`tracer compare A B`: what changed between two runs, or two sweeps, by more than steps differ among themselves."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from analyzers.errors import AnalysisError
from analyzers.paths import Place, open_file, read_file
from tracer.commands.options import (
    add_gate_argument,
    add_output_argument,
    add_reading_arguments,
    add_steps_argument,
    cell_reader,
    emit,
    here,
    judged,
    links_of,
    parsed,
    read,
    read_drawn,
    refuse_all_existing,
    run_place,
    sweep_folder,
    write_page,
)
from tracer.errors import UsageError

if TYPE_CHECKING:
    from analyzers.comparison import AlignedStep, Comparison, Condition, Scaling, SweepComparison
    from analyzers.reporting import Lanes, Report
    from analyzers.run import Calibration

# In how many bytes a saved document says what it is: as we write it in the first, elsewhere if its keys were sorted.
HEAD = 1 << 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer compare`."""
    what = "a run as `tracer report` takes it, its saved --json, a sweep's folder, or that one's scaling.json"
    parser.add_argument("a", type=run_place, metavar="A", help=f"the baseline: {what}")
    parser.add_argument("b", type=run_place, metavar="B", help="what is compared with it: another of the same")
    parser.add_argument(
        "--links",
        type=here,
        metavar="FILE",
        help="what the links of both can do (default: each run's own links.json)",
    )
    parser.add_argument("--full", action="store_true", help="every figure that was compared, table by table")
    parser.add_argument("--json", action="store_true", help="the whole comparison as JSON")
    parser.add_argument("--html", type=here, metavar="FILE", help="also write it as one page, which loads nothing")
    add_output_argument(parser)
    add_steps_argument(parser)
    add_reading_arguments(parser)
    add_gate_argument(parser, "'step_ns > 1.05*baseline and changed(step_ns)'; figures are B's, `baseline` A's")


def run(options: argparse.Namespace) -> int:
    """Read both, compare, print; return the conditions' exit code."""
    from analyzers.comparison import cell_names, names

    refuse_all_existing((options.output, options.html), options.force)
    kinds = {_is_sweep(options.a), _is_sweep(options.b)}
    if len(kinds) > 1:
        raise UsageError("one of A and B is a sweep and the other is a run: give two runs or two sweeps")
    of_sweeps = kinds == {True}
    gates = parsed(options.fail_on, cell_names() if of_sweeps else names(of_comparison=True))
    return _of_sweeps(options, gates) if of_sweeps else _of_runs(options, gates)


def _of_runs(options: argparse.Namespace, gates: list[Condition]) -> int:
    from analyzers.comparison import RunFigures, aligned_steps, compare

    links = links_of(options)
    (a, lanes_a), (b, lanes_b) = (_report(options, where, links) for where in (options.a, options.b))
    comparison = compare(a, b)
    steps = aligned_steps(a, b, (lanes_a, lanes_b)) if options.html is not None else None
    _show(options, comparison, steps)
    return judged(gates, RunFigures(b, a, comparison), f"{b.run.name} against {a.run.name}")


def _of_sweeps(options: argparse.Namespace, gates: list[Condition]) -> int:
    from analyzers.comparison import compare_sweeps, judged_cells

    if options.links is not None:
        raise UsageError("--links only applies to runs: sweeps are compared by steps and efficiency")
    comparison = compare_sweeps(_study(options, options.a), _study(options, options.b))
    _show(options, comparison)
    codes = [judged([gate], figures, where) for gate in gates for where, figures in judged_cells(comparison, gate)]
    return max(codes, default=0)


def _show(
    options: argparse.Namespace,
    comparison: Comparison | SweepComparison,
    steps: tuple[AlignedStep, AlignedStep] | None = None,
) -> None:
    from analyzers.comparison import comparison_json
    from tracer.views.html import comparison_html
    from tracer.views.sections.results import comparison_text

    if options.html is not None:
        write_page(options.html, comparison_html(comparison, steps), options.force)
    show = partial(comparison_text, full=options.full, paths=(str(options.a), str(options.b)))
    emit(options, partial(comparison_json, comparison), partial(show, comparison))


def _is_sweep(path: Place) -> bool:
    from analyzers.comparison import SCALING_SCHEMA as STUDY
    from analyzers.run import SWEEP

    try:
        return (path / SWEEP).is_file() or _is_saved(path, STUDY)
    except (OSError, AnalysisError):
        return False  # whoever reads it as a run says why it cannot be read


def _is_saved(path: Place, schema: str) -> bool:
    """Whether a file is a document of ours, by how it begins; a trace begins otherwise."""
    try:
        if not path.is_file():
            return False
        pattern = re.compile(rb'"schema"\s*:\s*"%s/' % schema.partition("/")[0].encode())
        with open_file(path) as file:
            return pattern.search(file.read(HEAD)) is not None
    except OSError:
        return False  # whoever reads it as a run says why it cannot be read


def _report(options: argparse.Namespace, path: Place, links: Calibration | None) -> tuple[Report, Sequence[Lanes]]:
    """Return a run's report, made from its traces or as it was saved, and what a page draws of the former.

    Raises AnalysisError, UsageError.
    """
    from analyzers.reporting import REPORT_SCHEMA as REPORT
    from analyzers.reporting import from_json, report

    if not _is_saved(path, REPORT):
        if options.html is None:
            return report(read(options, path), links), ()
        _, run_report, drawn = read_drawn(options, links, [path])
        return run_report, drawn
    if links is not None:
        raise UsageError(f"{path}: --links does not apply to a saved report, which has its links already: leave it out")
    try:
        return from_json(read_file(path)), ()
    except AnalysisError as error:
        raise AnalysisError(f"{path}: {error}") from error


def _study(options: argparse.Namespace, path: Place) -> Scaling:
    from analyzers.comparison import scaling_from_json as study_from_json
    from analyzers.comparison import study

    if path.is_dir():
        return study(sweep_folder(path), cell_reader(options))
    try:
        return study_from_json(read_file(path))
    except AnalysisError as error:
        raise AnalysisError(f"{path}: {error}") from error
