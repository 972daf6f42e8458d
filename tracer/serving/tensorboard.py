"""TensorBoard started on loopback over a folder."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from tracer.errors import TracerError
from tracer.serving.files import LOOPBACK

MISSING = "TensorBoard is not installed: pip install 'tracer-toolkit[tensorboard]'"
# TensorBoard's own.
TENSORBOARD_PORT = 6006


def check_tensorboard() -> None:
    """Raise TracerError where TensorBoard is missing."""
    if importlib.util.find_spec("tensorboard") is None:
        raise TracerError(MISSING)


def command(logdir: Path, port: int = TENSORBOARD_PORT) -> list[str]:
    """Build the command that starts TensorBoard over a folder, to be reached from this machine alone."""
    return [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", LOOPBACK, "--port", str(port)]


def tensorboard_address(port: int = TENSORBOARD_PORT) -> str:
    """Return the address where TensorBoard shows our tab."""
    return f"http://{LOOPBACK}:{port}/#tracer"


def serve_tensorboard(logdir: Path, port: int = TENSORBOARD_PORT) -> int:
    """Run TensorBoard over a folder until interrupted; returns its exit code. Raises TracerError if it is missing."""
    check_tensorboard()
    return subprocess.run(command(logdir, port), check=False).returncode
