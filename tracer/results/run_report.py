"""`tracer.report`: a run's report with frames, figures and a page."""

from __future__ import annotations

import tempfile
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.comparison import headline_figures
from analyzers.notices import Notice
from analyzers.paths import Where, local_path, places
from analyzers.prediction import usual
from analyzers.ranks import MANY
from analyzers.reporting import (
    Advice,
    Headline,
    Report,
    drawn_ranks,
    lanes,
    path_lanes,
    table_function,
    to_json,
)
from analyzers.reporting import report as build
from analyzers.run import Calibration, find, read_calibration
from tracer.atomic_files import write_text
from tracer.reading import Readers, read_lanes, read_run, start_method, with_undrawn
from tracer.second_reading import read_twice
from tracer.views.html import report_cell, report_html
from tracer.views.sections import step_sentence, trust_words

if TYPE_CHECKING:
    import pandas as pd


def written(path: str | Path, page: str, force: bool) -> Path:
    """Write a page, and return where it is. Raises TracerError where a file is there and `force` is not given."""
    place = local_path(path).absolute()
    write_text(place, page, force)
    return place


def opened(page: str) -> Path:
    """Write a page into a temporary folder, open it in a browser if there is one, and return where it is."""
    place = written(Path(tempfile.mkdtemp(prefix="tracer-")) / "report.html", page, force=False)
    webbrowser.open(place.as_uri())
    return place


@dataclass(frozen=True)
class Source:
    """A run's place; `links` replaces its own calibration, `steps` names the annotation that is a step.

    `cache` is the folder in which what ranks say is kept for the next time, if any.
    Without `workers` ranks are read by one process a core, if that takes no copy of a program with threads, else here.
    """

    run: Where
    links: Calibration | None = None
    steps: str | None = None
    workers: int | None = None
    cache: Path | None = None

    def report(self) -> Report:
        """Read the run, and report it. Raises AnalysisError, TracerError."""
        return read_twice(
            lambda: build(read_run(self.run, causes=True, steps=self.steps, by=self._readers()), self.links)
        )

    def page(self) -> str:
        """Read the run again with what is drawn, and build its page. Raises AnalysisError, TracerError."""
        return read_twice(self._page)

    def _page(self) -> str:
        by = self._readers()
        draws_all = len(find(self.run).files) <= MANY
        summary = read_run(self.run, lanes=draws_all, causes=True, steps=self.steps, by=by)
        document = build(summary, self.links)
        if not draws_all:
            summary = read_lanes(summary, self.run, drawn_ranks(document), self.steps, by=by)
            document = with_undrawn(document, summary)
        calibration = self.links or summary.calibration
        return report_html(
            document, lanes(summary, document), calibration, usual(summary, self.links), path_lanes(summary, document)
        )

    def _readers(self) -> Readers:
        # A fork of a program with threads may hang; a spawned process runs the caller's script again.
        forks = start_method(places(self.run)) == "fork" and threading.active_count() == 1
        return Readers(1 if self.workers is None and not forks else self.workers, cache=self.cache)


def calibration_of(links: str | Path | Calibration | None) -> Calibration | None:
    """Return the calibration that a user gives, or the file that holds it. Raises AnalysisError."""
    return read_calibration(Path(links)) if isinstance(links, str | Path) else links


def _table(name: str) -> Callable[[RunReport], pd.DataFrame]:
    return table_function(name, lambda report: report.document)


class RunReport:
    """A run's report. `document` has every figure; the methods give it as DataFrames, JSON or a page."""

    def __init__(self, document: Report, source: Source) -> None:
        self.document = document
        self._source = source

    @property
    def name(self) -> str:
        """Return the run's name."""
        return self.document.run.name

    @property
    def headline(self) -> Headline:
        """Return the main problem, its share of the step, the first remedy, and how far to trust them."""
        return self.document.summary.headline

    @property
    def verdict(self) -> str:
        """Return what a step takes and what it is made of, in sentences."""
        return self.document.summary.verdict

    @property
    def advice(self) -> list[Advice]:
        """Return what to change, strongest first, each with what it would bring at most."""
        return self.document.summary.advice

    @property
    def warnings(self) -> list[Notice]:
        """Return what makes figures doubtful."""
        return self.document.run.warnings

    def figures(self, prefix: str = "tracer/") -> dict[str, float]:
        """Return the main figures for a metric logger; what is not known is left out."""
        return {f"{prefix}{name}": value for name, value in headline_figures(self.document).items()}

    windows = _table("windows")
    steps = _table("steps")
    collectives = _table("collectives")
    members = _table("members")
    waiting = _table("waiting")
    groups = _table("groups")
    buckets = _table("buckets")
    layers = _table("layers")
    sharded = _table("sharded")
    kernels = _table("kernels")
    operators = _table("operators")
    charges = _table("charges")

    def json(self) -> str:
        """Return what `tracer report --json` prints."""
        return to_json(self.document)

    def html(self, path: str | Path, force: bool = False) -> Path:
        """Read the run again, write its page, and return where it is. Raises AnalysisError, TracerError."""
        return written(path, self._source.page(), force)

    def open(self) -> Path:
        """Write the page to a temporary folder, open it in a browser if there is one, and return where it is."""
        return opened(self._source.page())

    def __repr__(self) -> str:
        step, trust = step_sentence(self.document), trust_words(self.headline)
        return f"RunReport({self.name})\nMain problem: {self.headline.sentence}\n{step}\nTrust is {trust}"

    def _repr_html_(self) -> str:
        return report_cell(self.document)


def report(
    run: Where,
    *,
    links: str | Path | Calibration | None = None,
    steps: str | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
) -> RunReport:
    """Read a run and report where the time of its steps went.

    `run` is a folder of traces, a trace file, a URL, or a list of several hosts' folders. `links` is a calibration, or
    its file, to be used in place of the run's own; `steps` names the annotation that is a step; `workers` says how many
    processes read ranks. `cache` is a folder of yours alone in which what ranks say is kept for the next time; without
    it nothing is, and the commands' is not used. Raises analyzers.AnalysisError, tracer.TracerError.
    """
    kept = None if cache is None else local_path(cache).absolute()
    source = Source(run, calibration_of(links), steps, workers, kept)
    return RunReport(source.report(), source)
