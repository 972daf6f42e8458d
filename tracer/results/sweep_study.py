"""`tracer.sweep`: how training scales, from a recorded sweep."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from analyzers.comparison import SWEEP_TABLES, Scaling, scaling_json, study
from analyzers.paths import local_path
from analyzers.rank import RunSummary
from analyzers.reporting import frame_method
from tracer.results.source import Paged, Picture, Source
from tracer.views.html import scaling_html
from tracer.views.plots import scaling_picture
from tracer.views.sections.results import scaling_text


class SweepStudy(Paged):
    """How training scales: `document` has every figure, the methods are DataFrames, JSON, a picture and a page."""

    def __init__(self, document: Scaling) -> None:
        self.document = document

    @property
    def verdict(self) -> str:
        """Return how far training scales, in a sentence."""
        return self.document.verdict

    cells = frame_method(SWEEP_TABLES["cells"])
    weak = frame_method(SWEEP_TABLES["weak"])
    strong = frame_method(SWEEP_TABLES["strong"])
    epochs = frame_method(SWEEP_TABLES["epochs"])

    def plot(self) -> Picture:
        """Draw speedups over GPUs, as `tracer plot --kind scaling` does. Raises TracerError."""
        return Picture(partial(scaling_picture, self.document))

    def json(self) -> str:
        """Return what `tracer sweep --report DIR --json` prints."""
        return scaling_json(self.document)

    def _page(self) -> str:
        return scaling_html(self.document)

    def __repr__(self) -> str:
        return scaling_text(self.document)


def sweep(
    folder: str | Path,
    *,
    steps: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    cache: str | Path | bool = True,
) -> SweepStudy:
    """Report how training scales, from the folder that `tracer sweep` recorded; nothing is recorded.

        swept = tracer.sweep("traces/sweep-resnet18-h200x2")
        swept.weak()[["strategy", "gpus", "batch", "scaled_speedup"]]

    What it returns has `verdict`, `document`, `cells()`, `weak()`, `strong()`, `epochs()`, `plot()`, `open()`,
    `html(path)` and `json()`. The other arguments are those of `tracer.report`. Raises tracer.TracerError.
    """
    source = Source.of(folder, None, steps, workers, memory, cache)

    def read(cell: Path) -> RunSummary:
        return replace(source, run=cell).read(lambda summary: summary, causes=False)

    return SweepStudy(study(local_path(folder), read))
