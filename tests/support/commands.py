"""Commands as a test runs them: in this process, with what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzers.rank.summary import RunSummary
from tests.support.samples import SAMPLES, summary_of
from tracer.cli import main
from tracer.reading import read_run


def remember_samples(monkeypatch: pytest.MonkeyPatch, charges: bool = False) -> None:
    """Have commands take summaries of samples from those that this process has made; other runs are read.

    With `charges` also where what charges need is asked for.
    """

    def remembered(path: Any, **how: Any) -> RunSummary:
        (one, *others) = [Path(each).resolve() for each in (path if isinstance(path, list) else [path])]
        explains = charges and how.get("causes")
        known = not others and one.parent == SAMPLES and one.is_dir() and how.get("steps") is None
        if not known or (explains and how.get("lanes")):
            return read_run(path, **how)
        return summary_of(one)

    monkeypatch.setattr("tracer.reading.read_run", remembered)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run `tracer`, which says one line and nothing on stdout: its exit status and the line."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return code, err
