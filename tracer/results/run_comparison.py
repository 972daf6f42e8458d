"""`tracer.compare`: two runs' comparison with a frame and a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.comparison import Comparison, changes_frame, comparison_json
from analyzers.comparison import compare as compared
from analyzers.paths import Where
from analyzers.run import Calibration
from tracer.results.run_report import RunReport, opened, report, written
from tracer.views.html import comparison_cell, comparison_html

if TYPE_CHECKING:
    import pandas as pd


class RunComparison:
    """Two runs, `a` the baseline. `document` has every figure; the methods give it as a DataFrame, JSON or a page."""

    def __init__(self, a: RunReport, b: RunReport) -> None:
        self.a = a
        self.b = b
        self.document: Comparison = compared(a.document, b.document)

    @property
    def verdict(self) -> str:
        """Return what changed, in sentences."""
        return self.document.verdict

    def changes(self) -> pd.DataFrame:
        """Return one row per figure: a, b, p, whether it changed."""
        return changes_frame(self.document)

    def json(self) -> str:
        """Return what `tracer compare --json` prints."""
        return comparison_json(self.document)

    def html(self, path: str | Path, force: bool = False) -> Path:
        """Write the comparison's page, and return where it is. Raises TracerError."""
        return written(path, comparison_html(self.document), force)

    def open(self) -> Path:
        """Write the page to a temporary folder, open it in a browser if there is one, and return where it is."""
        return opened(comparison_html(self.document))

    def __repr__(self) -> str:
        return f"Run{self.document!r}"

    def _repr_html_(self) -> str:
        return comparison_cell(self.document)


def compare(
    a: Where | RunReport,
    b: Where | RunReport,
    *,
    links: str | Path | Calibration | None = None,
    steps: str | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
) -> RunComparison:
    """Compare two runs, `a` the baseline: each a place as `tracer.report` takes it, or what that returned.

    The other arguments are those of `tracer.report`.
    Raises analyzers.AnalysisError, tracer.TracerError.
    """
    reports = [
        run if isinstance(run, RunReport) else report(run, links=links, steps=steps, workers=workers, cache=cache)
        for run in (a, b)
    ]
    return RunComparison(*reports)
