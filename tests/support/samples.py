"""Every recorded run there is, loaded and reported once each.

`TRACER_TRACES` may name more folders of runs, separated like PATH.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

import analyzers
from analyzers.rank.summary import RunSummary, summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.run.loading import Run

SAMPLES = Path(__file__).resolve().parents[2] / "traces"
FOLDERS = [SAMPLES, *map(Path, filter(None, os.environ.get("TRACER_TRACES", "").split(os.pathsep)))]
RUNS = [run for folder in FOLDERS for run in sorted(folder.iterdir()) if run.is_dir() and not run.name.startswith(".")]
REPORTED = [pytest.param(path, id=path.name) for path in RUNS]


def load(path: Path) -> Run:
    """A run; another's that is refused in one line is done with. Samples of the project itself are never refused."""
    if path.parent == SAMPLES:
        return analyzers.load(path)
    try:
        return analyzers.load(path)
    except analyzers.AnalysisError as error:
        assert "\n" not in str(error)
        assert str(path) in str(error)
        pytest.skip(f"refused: {error}")


@cache
def summarized(path: Path) -> RunSummary:
    """The summary of a run, with its lanes, each made once; refused runs as `load` has it."""
    try:
        return summarize(path, lanes=True)
    except analyzers.AnalysisError:
        load(path)
        raise


@cache
def reported(path: Path) -> Report:
    """The report of a run, each made once."""
    return report(summarized(path))
