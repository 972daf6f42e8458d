"""`tracer compare A B`: what changed between two runs, or two sweeps, by more than steps differ among themselves."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from analyzers.errors import AnalysisError
from analyzers.paths import Place, open_file, read_file
from analyzers.texts import typed
from tracer.commands.options import (
    add_gate_argument,
    add_output_argument,
    add_reading_arguments,
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
    what = "a run, its report's saved --json, a sweep's folder, or its scaling.json"
    parser.add_argument("runs", type=run_place, nargs="+", metavar="RUN", help=f"A, the baseline, and B: each {what}")
    parser.add_argument(
        "--against",
        type=run_place,
        nargs="+",
        metavar="B",
        help="several launches of B, behind several of A: the sample is then launches, not steps",
    )
    parser.add_argument(
        "--links", type=here, metavar="FILE", help="what the links of both can do (default: each run's own links.json)"
    )
    parser.add_argument("--full", action="store_true", help="every figure that was compared")
    add_gate_argument(parser, "'step_ns > 1.05*baseline and changed(step_ns)'; figures are B's, `baseline` A's")
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="the comparison as JSON")
    out.add_argument("--html", type=here, metavar="FILE", help="also write one page, which loads nothing")
    add_output_argument(out)
    add_reading_arguments(parser, steps=True)


def run(options: argparse.Namespace) -> int:
    """Read both, compare, print; return the conditions' exit code."""
    from analyzers.comparison import cell_names, names

    refuse_all_existing((options.output, options.html), options.force)
    of_a, of_b = _sides(options)
    kinds = {_is_sweep(place) for place in (*of_a, *of_b)}
    if len(kinds) > 1:
        raise UsageError("one of A and B is a sweep and the other is a run: give two runs or two sweeps")
    of_sweeps = kinds == {True}
    gates = parsed(options.fail_on, cell_names() if of_sweeps else names(of_comparison=True))
    if not of_sweeps:
        return _of_runs(options, gates, of_a, of_b)
    if len(of_a) > 1 or len(of_b) > 1:
        raise UsageError("--against is for launches of runs: give two sweeps, each is several runs already")
    return _of_sweeps(options, gates, of_a[0], of_b[0])


def _sides(options: argparse.Namespace) -> tuple[list[Place], list[Place]]:
    """Return the runs of A and of B."""
    if options.against is not None:
        return options.runs, options.against
    if len(options.runs) != 2:
        raise UsageError("give two runs, A and B; several launches of each as: compare A1 A2 A3 --against B1 B2 B3")
    return options.runs[:1], options.runs[1:]


def _of_runs(
    options: argparse.Namespace, gates: list[Condition], places_a: Sequence[Place], places_b: Sequence[Place]
) -> int:
    from analyzers.comparison import RunFigures, aligned_steps, compare

    links = links_of(options)
    (of_a, lanes_a), (of_b, lanes_b) = (
        zip(*(_report(options, place, links) for place in places), strict=True) for places in (places_a, places_b)
    )
    comparison = compare(of_a, of_b)
    draws = options.html is not None and not comparison.are_launches
    steps = aligned_steps(of_a[0], of_b[0], (lanes_a[0], lanes_b[0])) if draws else None
    _show(options, comparison, steps)
    return judged(gates, RunFigures(of_b, of_a, comparison), f"{comparison.b} against {comparison.a}")


def _of_sweeps(options: argparse.Namespace, gates: list[Condition], a: Place, b: Place) -> int:
    from analyzers.comparison import compare_sweeps, judged_cells

    if options.links is not None:
        raise UsageError("--links only applies to runs: sweeps are compared by steps and efficiency")
    comparison = compare_sweeps(_study(options, a), _study(options, b))
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
    against = ["--against", *map(str, options.against)] if options.against else []
    show = partial(comparison_text, full=options.full, typed=typed(*map(str, options.runs), *against))
    emit(options, partial(comparison_json, comparison), partial(show, comparison))


def _is_sweep(path: Place) -> bool:
    from analyzers.comparison import SCALING_SCHEMA as STUDY
    from analyzers.run import RESULTS, SWEEP

    try:
        return (path / SWEEP).is_file() or (path / RESULTS).is_file() or _is_saved(path, STUDY)
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
    from analyzers.prediction import WHATIF_SCHEMA as WHATIF
    from analyzers.reporting import DIGEST_SCHEMA as DIGEST
    from analyzers.reporting import REPORT_SCHEMA as REPORT
    from analyzers.reporting import TABLE_SCHEMA as TABLE
    from analyzers.reporting import from_json, report

    partial_documents = {
        DIGEST: "a report's summary (--summary)",
        TABLE: "one table of a report (--by)",
        WHATIF: "what `tracer whatif` predicts",
    }
    for schema, what in partial_documents.items():
        if _is_saved(path, schema):
            raise AnalysisError(f"{path} is {what}, without the run's steps: save `tracer report RUN --json`")
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
        raise AnalysisError(f"{path}: ", *error.args) from error


def _study(options: argparse.Namespace, path: Place) -> Scaling:
    from analyzers.comparison import read_study, study

    return study(sweep_folder(path), cell_reader(options)) if path.is_dir() else read_study(path)
