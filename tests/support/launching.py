"""Commands that launch ranks, run in this process, which has imported torch already; and what other processes need."""

from __future__ import annotations

import gc
import io
import os
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tracer.cli import main

ROOT = Path(__file__).resolve().parents[2]
QUICK = ROOT / "tests" / "support" / "quick"


def environment_of_training() -> dict[str, str]:
    """For a process that trains: this checkout, one thread, and no search for garbage."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(QUICK), str(ROOT)]), "OMP_NUM_THREADS": "1"}


def run_here(*arguments: str, before: Path | None = None) -> CompletedProcess[str]:
    """`tracer` with these arguments, as `subprocess.run` would tell of it; its ranks are processes of their own.

    They import from the folder `before` first.
    """
    out, errors = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, filter(None, (before, ROOT)))))
        # torch's launcher leaves the closing of its ranks' logs to the collector.
        warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)
        code = main(arguments)
        gc.collect()
    return CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())
