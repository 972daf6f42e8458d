"""Commands that launch ranks, run in this process: it has imported torch already, which takes a process seconds."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tracer.cli import main

ROOT = Path(__file__).resolve().parents[2]


def run_here(*arguments: str) -> CompletedProcess[str]:
    """`tracer` with these arguments, as `subprocess.run` would tell of it; its ranks are processes of their own."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        patch.setenv("PYTHONPATH", str(ROOT))
        # torch's launcher leaves the closing of its ranks' logs to the collector.
        warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)
        code = main(arguments)
    return CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())
