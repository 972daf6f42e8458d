"""Every sample run, loaded and reported once each.

In traces/ those that git knows, not what somebody recorded beside them. More runs, for the second tier of tests, are in
folders `shared/traces*` beside the checkout, and in those that `TRACER_TRACES` names, separated like PATH.
"""

from __future__ import annotations

import filecmp
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

import analyzers
from analyzers.rank.summary import RunSummary, summarize
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.run import RESULTS
from analyzers.run.loading import Run
from tests.support import once, tiers

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "traces"
SHARED = ROOT.parent / "shared"
ADDED = [
    *sorted(SHARED.glob("traces*")),
    *(Path(name) for name in os.environ.get("TRACER_TRACES", "").split(os.pathsep) if name),
]


def runs_in(folder: Path) -> list[Path]:
    """The folders in a folder, sorted, without hidden ones, and without those of a study's results alone."""
    return sorted(
        run
        for run in folder.iterdir()
        if run.is_dir() and not run.name.startswith(".") and not (run / RESULTS).is_file()
    )


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


def each_once(runs: Iterable[Path]) -> list[Path]:
    """Those of the runs whose files are not, byte for byte, those of one before, whatever it is called."""
    kept: dict[Path, dict[str, int]] = {}
    for run in runs:
        sizes = {str(file.relative_to(run)): file.stat().st_size for file in run.rglob("*") if file.is_file()}
        alike = [other for other, known in kept.items() if known == sizes]
        if not any(filecmp.cmpfiles(run, other, sizes, shallow=False)[0] == [*sizes] for other in alike):
            kept[run] = sizes
    return [*kept]


def params(runs: Iterable[Path], slow: str = "") -> list[ParameterSet]:
    """Runs as parameters of a test: those that are not the project's own, and the slow one, are in the second tier."""
    return [
        pytest.param(run, id=run.name, marks=pytest.mark.slow if run.name == slow else ())
        if run.parent == SAMPLES
        else pytest.param(run, id=f"{run.parent.name}/{run.name}", marks=pytest.mark.slow)
        for run in runs
    ]


def at_hand(runs: Iterable[Path]) -> list[Path]:
    """Those of the runs that this process's tier of tests reads."""
    return [run for run in runs if run.parent == SAMPLES or not tiers.is_first()]


RUNS = each_once([*known_to_git(SAMPLES), *(run for folder in ADDED for run in runs_in(folder))])
OWN = [run for run in RUNS if run.parent == SAMPLES]
REPORTED = params(RUNS)
# Those that readers of Kineto's JSON, HTA's and the tests' own, can read.
OF_KINETO = [run for run in RUNS if not any(run.glob("*.sqlite"))]


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
    """The summary of a run, with its lanes and causes, made once by one of all processes; raises what refuses it."""
    return once.pickled(f"summary of {path}", lambda: summarize(path, lanes=True, causes=True))


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


@cache
def without_causes(path: Path) -> RunSummary:
    """The summary of a run that was read without what charges, gains and predictions need."""
    return summarize(path, causes=False)
