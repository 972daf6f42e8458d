"""Source of a report: the run's place, and how to read it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from analyzers.paths import Where, places
from analyzers.prediction import usual
from analyzers.ranks import MANY
from analyzers.reporting import Report, drawn_ranks, lanes, report
from analyzers.run import Calibration, find, read_calibration
from tracer.reading import Readers, read_lanes, read_run, start_method, with_undrawn
from tracer.second_reading import read_twice
from tracer.views.html import report_html


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
        return read_twice(lambda: report(read_run(self.run, steps=self.steps, by=self._readers()), self.links))

    def page(self) -> str:
        """Read the run again with what is drawn, and build its page. Raises AnalysisError, TracerError."""
        return read_twice(self._page)

    def _page(self) -> str:
        by = self._readers()
        draws_all = len(find(self.run).files) <= MANY
        summary = read_run(self.run, lanes=draws_all, schedules=True, steps=self.steps, by=by)
        document = report(summary, self.links)
        if not draws_all:
            summary = read_lanes(summary, self.run, drawn_ranks(document), self.steps, by=by)
            document = with_undrawn(document, summary)
        calibration = self.links or summary.calibration
        return report_html(document, lanes(summary, document), calibration, usual(summary, self.links))

    def _readers(self) -> Readers:
        # A fork of a program with threads may hang; a spawned process runs the caller's script again.
        forks = start_method(places(self.run)) == "fork" and threading.active_count() == 1
        return Readers(1 if self.workers is None and not forks else self.workers, cache=self.cache)


def calibration_of(links: str | Path | Calibration | None) -> Calibration | None:
    """Return the calibration that a user gives, or the file that holds it. Raises AnalysisError."""
    return read_calibration(Path(links)) if isinstance(links, str | Path) else links
