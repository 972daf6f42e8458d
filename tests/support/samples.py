"""Every sample run, loaded and reported once each.

In traces/ those that git knows, not what somebody recorded beside them. `TRACER_TRACES` may name more folders of runs,
separated like PATH, each read whole.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

import analyzers
from analyzers.rank.summary import RunSummary, summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.run.loading import Run
from tests.support import once

SAMPLES = Path(__file__).resolve().parents[2] / "traces"
ADDED = [Path(name) for name in os.environ.get("TRACER_TRACES", "").split(os.pathsep) if name]


def runs_in(folder: Path) -> list[Path]:
    """The folders in a folder, sorted, without hidden ones."""
    return sorted(run for run in folder.iterdir() if run.is_dir() and not run.name.startswith("."))


def known_to_git(folder: Path) -> list[Path]:
    """The runs in a folder that git knows; all of them where it knows none, as in an unpacked archive."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=folder, capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:  # no git here
        listed = ""
    known = {Path(name).parts[0] for name in listed.split("\0") if "/" in name}
    return [run for run in runs_in(folder) if run.name in known or not known]


RUNS = [*known_to_git(SAMPLES), *(run for folder in ADDED for run in runs_in(folder))]
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
def summary_of(path: Path) -> RunSummary:
    """The summary of a run, with its lanes, made once by one of all processes; raises what refuses it."""
    return once.pickled(f"summary of {path}", lambda: summarize(path, lanes=True))


def summarized(path: Path) -> RunSummary:
    """The same; refused runs as `load` has it."""
    try:
        return summary_of(path)
    except analyzers.AnalysisError:
        load(path)
        raise


@cache
def reported(path: Path) -> Report:
    """The report of a run, made likewise."""
    summary = summarized(path)
    return once.pickled(f"report of {path}", lambda: report(summary))
