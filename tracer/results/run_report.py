"""`tracer.report`: a run's report with frames, figures and a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from analyzers.comparison import headline_figures
from analyzers.notices import Notice
from analyzers.paths import Where, local_path
from analyzers.reporting import TABLES, Advice, Headline, Report, frame_method, to_json
from analyzers.run import Calibration, find
from tracer.atomic_files import new_file
from tracer.errors import UsageError
from tracer.results.source import Paged, Picture, Source
from tracer.views import KINDS, SCALING
from tracer.views.html import report_cell
from tracer.views.perfetto import check_perfetto, groups, write_trace
from tracer.views.plots import report_picture
from tracer.views.sections import step_sentence, trust_words

PERFETTO = ".pftrace"


class RunReport(Paged):
    """A run's report. `document` has every figure; the methods give it as DataFrames, JSON or a page."""

    def __init__(self, document: Report, source: Source) -> None:
        self.document = document
        self.source = source

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

    windows = frame_method(TABLES["windows"])
    steps = frame_method(TABLES["steps"])
    devices = frame_method(TABLES["devices"])
    collectives = frame_method(TABLES["collectives"])
    members = frame_method(TABLES["members"])
    waiting = frame_method(TABLES["waiting"])
    groups = frame_method(TABLES["groups"])
    buckets = frame_method(TABLES["buckets"])
    layers = frame_method(TABLES["layers"])
    sharded = frame_method(TABLES["sharded"])
    experts = frame_method(TABLES["experts"])
    pipeline = frame_method(TABLES["pipeline"])
    kernels = frame_method(TABLES["kernels"])
    operators = frame_method(TABLES["operators"])
    charges = frame_method(TABLES["charges"])

    def json(self) -> str:
        """Return what `tracer report --json` prints."""
        return to_json(self.document)

    def plot(self, kind: str = "breakdown") -> Picture:
        """Draw a breakdown, timeline, buckets, layers or bandwidth, as `tracer plot` does. Raises TracerError."""
        kinds = [name for name in KINDS if name != SCALING]
        if kind not in kinds:
            raise UsageError(f"{kind!r}: a report has pictures of {', '.join(kinds)}")
        calibration = self.source.links or (find(self.source.run).calibration if kind == "bandwidth" else None)
        return Picture(partial(report_picture, self.document, kind, calibration=calibration))

    def perfetto(self, path: str | Path, force: bool = False) -> Path:
        """Read the run again, write its lanes for https://ui.perfetto.dev (.pftrace), and return where they are.

        Raises TracerError.
        """
        place = local_path(path).absolute()
        if place.suffix != PERFETTO:
            raise UsageError(f"{place}: end the name in {PERFETTO}")
        check_perfetto()
        with new_file(place, force) as file:
            self.source.draw(lambda summary, document, lanes: write_trace(file, groups(lanes, document)))
        return place

    def _page(self) -> str:
        return self.source.page()

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
    memory: str | int | None = None,
    cache: str | Path | bool = True,
) -> RunReport:
    """Read a run and report where the time of its steps went.

        report = tracer.report("traces/resnet18-ddp4")
        report.headline.sentence, report.headline.remedy
        report.collectives().groupby("bytes")["busbw_gbps"].median()
        report.open()

    What it returns has `name`, `headline`, `verdict`, `advice`, `warnings` and the whole `document`; `figures()` to
    log; DataFrames `windows()`, `steps()`, `devices()`, `collectives()`, `members()`, `waiting()`, `groups()`,
    `buckets()`, `layers()`, `sharded()`, `experts()`, `pipeline()`, `kernels()`,
    `operators()`, `charges()`; and `plot(kind)`, `open()`, `html(path)`, `json()`, `perfetto(path)`.

    `run` is a folder of traces, a trace file, a URL, or a list of several hosts' folders. `links` is a calibration, or
    its file, to be used in place of the run's own; `steps` names the annotation that is a step; `workers` says how many
    processes read ranks, `memory` what reading one may take ("4GB", or bytes). What ranks say is kept in the commands'
    cache for the next time, in another folder that `cache` names, or with `cache=False` nowhere.
    Raises tracer.TracerError.
    """
    source = Source.of(run, links, steps, workers, memory, cache)
    return RunReport(source.report(), source)
