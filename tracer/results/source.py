"""Reader of runs for Python, with writers of pages and pictures."""

from __future__ import annotations

import tempfile
import threading
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from analyzers.paths import Where, local_path, places
from analyzers.prediction import usual
from analyzers.rank import RunSummary
from analyzers.ranks import MANY
from analyzers.reporting import Lanes, Report, drawn_ranks, lanes, path_lanes
from analyzers.reporting import report as build
from analyzers.run import Calibration, find, read_calibration
from tracer.atomic_files import write_bytes, write_text
from tracer.environment import MOST_PROCESSES, SIZES, cache_folder, memory, memory_size
from tracer.errors import UsageError
from tracer.reading import Readers, read_lanes, read_run, start_method, with_undrawn
from tracer.second_reading import read_twice
from tracer.views.html import report_html
from tracer.views.plots import FORMS

T = TypeVar("T")


class Paged(ABC):
    """A result that has a page."""

    @abstractmethod
    def _page(self) -> str:
        """Build the page."""

    def html(self, path: str | Path, force: bool = False) -> Path:
        """Write the page, for which a report's run is read again, and return where it is. Raises TracerError."""
        place = local_path(path).absolute()
        write_text(place, self._page(), force)
        return place

    def open(self) -> Path:
        """Write the page to a temporary folder, open it in a browser if there is one, and return where it is."""
        place = self.html(Path(tempfile.mkdtemp(prefix="tracer-")) / "report.html")
        webbrowser.open(place.as_uri())
        return place


class Picture:
    """A picture, which a notebook shows; `save` writes it to a file."""

    def __init__(self, draw: Callable[[str], bytes]) -> None:
        self._draw, self._png = draw, draw("png")

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Write the picture as its name's ending says: .png, .svg or .pdf. Raises TracerError."""
        place = local_path(path).absolute()
        form = place.suffix.lower().removeprefix(".")
        if form not in FORMS:
            raise UsageError(f"{place}: a picture ends in {', '.join(f'.{name}' for name in FORMS)}")
        write_bytes(place, self._draw(form), force)
        return place

    def __repr__(self) -> str:
        return "Picture: a notebook shows it, save(path) writes it"

    def _repr_png_(self) -> bytes:
        return self._png


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
    memory: int | None = None
    cache: Path | None = None

    @staticmethod
    def of(
        run: Where,
        links: str | Path | Calibration | None = None,
        steps: str | None = None,
        workers: int | None = None,
        memory: str | int | None = None,
        cache: str | Path | bool = True,
    ) -> Source:
        """Build it from what a user gives: see `tracer.report`. Raises TracerError."""
        if steps is not None and (not isinstance(steps, str) or not steps):
            raise UsageError(f"steps={steps!r}: give the name of the annotation that is a step")
        if workers is not None and (type(workers) is not int or not 1 <= workers <= MOST_PROCESSES):
            raise UsageError(f"workers={workers!r}: give a number of processes, 1 or more")
        return Source(run, calibration_of(links), steps, workers, memory_of(memory), cache_of(cache))

    def read(self, act: Callable[[RunSummary], T], causes: bool = True) -> T:
        """Read the run, and do something with it. Raises TracerError."""
        return read_twice(lambda: act(read_run(self.run, causes=causes, steps=self.steps, by=self._readers())))

    def report(self) -> Report:
        """Read the run, and report it. Raises TracerError."""
        return self.read(lambda summary: build(summary, self.links))

    def page(self) -> str:
        """Read the run again with what is drawn, and build its page. Raises TracerError."""

        def page(summary: RunSummary, document: Report, drawn: Sequence[Lanes]) -> str:
            calibration, predicted = self.links or summary.calibration, usual(summary, self.links)
            return report_html(document, drawn, calibration, predicted, path_lanes(summary, document))

        return self.draw(page)

    def draw(self, act: Callable[[RunSummary, Report, Sequence[Lanes]], T]) -> T:
        """Read the run with what is drawn, and do something with that. Raises TracerError."""
        return read_twice(lambda: act(*self._drawn()))

    def _drawn(self) -> tuple[RunSummary, Report, Sequence[Lanes]]:
        by = self._readers()
        draws_all = len(find(self.run).files) <= MANY
        summary = read_run(self.run, lanes=draws_all, causes=True, steps=self.steps, by=by)
        document = build(summary, self.links)
        if not draws_all:
            summary = read_lanes(summary, self.run, drawn_ranks(document), self.steps, by=by)
            document = with_undrawn(document, summary)
        return summary, document, lanes(summary, document)

    def _readers(self) -> Readers:
        # A fork of a program with threads may hang; a spawned process runs the caller's script again.
        forks = start_method(places(self.run)) == "fork" and threading.active_count() == 1
        workers = 1 if self.workers is None and not forks else self.workers
        return Readers(workers, memory=self.memory, cache=self.cache)


def calibration_of(links: str | Path | Calibration | None) -> Calibration | None:
    """Return the calibration that a user gives, or the file that holds it. Raises TracerError."""
    if links is None or isinstance(links, Calibration):
        return links
    if not isinstance(links, str | Path):
        raise UsageError(f"links={links!r}: give a calibration, or its file")
    return read_calibration(local_path(links))


def memory_of(given: str | int | None) -> int | None:
    """Return the bytes that reading one rank may take, as a user or else the environment says. Raises UsageError."""
    if given is None:
        return memory()
    if isinstance(given, str):
        return memory_size(given, "memory: ")
    if type(given) is not int or given < 1:
        raise UsageError(f"memory={given!r}: {SIZES}, or bytes")
    return given


def cache_of(given: str | Path | bool | None) -> Path | None:
    """Return the folder of a cache: the commands' own, none, or a user's. Raises UsageError."""
    if given is None or isinstance(given, bool):
        return cache_folder() if given else None
    if not isinstance(given, str | Path):
        raise UsageError(f"cache={given!r}: give a folder, True or False")
    return local_path(given).absolute()
