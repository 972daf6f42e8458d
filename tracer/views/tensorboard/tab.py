"""Pages and files that TensorBoard's tab shows: reports, studies, errors."""

from __future__ import annotations

from pathlib import Path

from analyzers.comparison import study
from analyzers.errors import AnalysisError
from analyzers.paths import read_file
from analyzers.prediction import usual
from analyzers.rank import summarize
from analyzers.ranks import MANY
from analyzers.reporting import drawn_ranks, lanes, report
from analyzers.run import find
from tracer.reading import ListedRun, Readers, leads_out, read_lanes, read_run
from tracer.views import DARK, LIGHT
from tracer.views.html import error_html, report_html, scaling_html
from tracer.views.plots import plots

STATIC = Path(__file__).with_name("static")

# The files that the tab loads, by the name that it asks for, with their type.
ASSETS = {"index.js": ("tab.js", "text/javascript"), "tab.css": ("tab.css", "text/css")}
# TensorBoard's threads must not be forked.
_HERE = Readers(workers=1)


def asset(name: str) -> tuple[bytes, str]:
    """Return a file that the tab loads, and its type."""
    file, mimetype = ASSETS[name]
    return read_file(STATIC / file), mimetype


def page(run: ListedRun) -> str:
    """Build a run's or sweep's page as `tracer report --html` and `tracer sweep` do; if there is none, say why."""
    link = leads_out(run.path, run.root)
    if link is not None:
        return error_html(run.name, f"{link}: leads out of the log directory, or nowhere; copy what it names into it")
    try:
        return _of_sweep(run.path) if run.is_sweep else _of_run(run.path)
    except AnalysisError as error:
        return error_html(run.name, str(error))


def _of_sweep(path: Path) -> str:
    swept = study(path, summarize)
    return scaling_html(swept, plots(swept, LIGHT), plots(swept, DARK))


def _of_run(path: Path) -> str:
    few = len(find(path).files) <= MANY
    run = read_run(path, lanes=few, schedules=True, by=_HERE)
    run_report = report(run)
    run = run if few else read_lanes(run, path, drawn_ranks(run_report), by=_HERE)
    return report_html(run_report, lanes(run, run_report), run.calibration, usual(run))
