"""Commands as a test runs them: in this process, with what they say."""

from __future__ import annotations

import pytest

from tracer.cli import main


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run `tracer`, which says one line and nothing on stdout: its exit status and the line."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return code, err
