"""Commands as a test runs them: in this process, with what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzers.rank.summary import RunSummary
from analyzers.reporting.build import report
from analyzers.reporting.document import Report
from analyzers.run import Calibration
from tests.support.samples import SAMPLES, reported, summary_of
from tracer.cli import main
from tracer.reading import read_run


def remember_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands take samples' summaries, and reports of these, from those that were made; other runs are read."""
    known: dict[int, Path] = {}

    def remembered(path: Any, **how: Any) -> RunSummary:
        (one, *others) = [Path(each).resolve() for each in (path if isinstance(path, list) else [path])]
        is_sample = not others and one.parent == SAMPLES and one.is_dir() and how.get("steps") is None
        if not is_sample:
            return read_run(path, **how)
        known[id(summary_of(one))] = one
        return summary_of(one)

    def report_remembered(run: RunSummary, links: Calibration | None = None) -> Report:
        return report(run, links) if links is not None or id(run) not in known else reported(known[id(run)])

    monkeypatch.setattr("tracer.reading.read_run", remembered)
    monkeypatch.setattr("analyzers.reporting.report", report_remembered)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run `tracer`, which says one line and nothing on stdout: its exit status and the line."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return code, err
