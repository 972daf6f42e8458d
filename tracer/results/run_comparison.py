"""`tracer.compare`: two runs' comparison with a frame and a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from analyzers.comparison import CHANGES, Comparison, comparison_json
from analyzers.comparison import compare as compared
from analyzers.paths import Where
from analyzers.reporting import frame_method
from analyzers.run import Calibration
from tracer.results.run_report import RunReport, report
from tracer.results.source import Paged
from tracer.views.html import comparison_cell, comparison_html


class RunComparison(Paged):
    """Two runs, `a` the baseline, or several launches of each; the first of them are `a` and `b`.

    `document` has every figure; the methods give it as a DataFrame, JSON or a page.
    """

    def __init__(self, a: Sequence[RunReport], b: Sequence[RunReport]) -> None:
        self.a, self.b = a[0], b[0]
        self.document: Comparison = compared([run.document for run in a], [run.document for run in b])

    @property
    def verdict(self) -> str:
        """Return what changed, in sentences."""
        return self.document.verdict

    changes = frame_method(CHANGES)

    def json(self) -> str:
        """Return what `tracer compare --json` prints."""
        return comparison_json(self.document)

    def _page(self) -> str:
        return comparison_html(self.document)

    def __repr__(self) -> str:
        return f"Run{self.document!r}"

    def _repr_html_(self) -> str:
        return comparison_cell(self.document)


def compare(
    a: Where | RunReport | list[Where | RunReport],
    b: Where | RunReport | list[Where | RunReport],
    *,
    links: str | Path | Calibration | None = None,
    steps: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    cache: str | Path | bool = True,
) -> RunComparison:
    """Compare two runs, `a` the baseline: each a place as `tracer.report` takes it, or what that returned.

        compared = tracer.compare("before", "after")
        compared.changes()

    What it returns has `verdict`, `document`, `changes()`, `open()`, `html(path)` and `json()`.
    A list on either side is several launches of the same: then launches are the sample, not steps.
    The other arguments are those of `tracer.report`.
    Raises tracer.TracerError.
    """
    read = partial(report, links=links, steps=steps, workers=workers, memory=memory, cache=cache)
    of_a, of_b = (
        [run if isinstance(run, RunReport) else read(run) for run in (side if isinstance(side, list) else [side])]
        for side in (a, b)
    )
    return RunComparison(of_a, of_b)
