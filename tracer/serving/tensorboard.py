"""TensorBoard started on loopback over a folder."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from analyzers.errors import install_hint
from analyzers.texts import encodable
from tracer.errors import TracerError
from tracer.own_python import safe_environment
from tracer.serving.files import LOOPBACK

MISSING = f"TensorBoard is not installed: {install_hint('tensorboard')}"
_PROCESS = "tracer.serving.tensorboard_process"
# Every user of the machine sees a command's words: the path below which it serves goes by the environment.
ROOT = "TRACER_TENSORBOARD_ROOT"
# Its faster reader is a server at another loopback port, which gives the data to any user of the machine.
_OWN_READER = "--load_fast=false"
# TensorBoard's own.
TENSORBOARD_PORT = 6006


def check_tensorboard() -> None:
    """Raise TracerError where TensorBoard is missing."""
    if importlib.util.find_spec("tensorboard") is None:
        raise TracerError(MISSING)


def check_names(logdir: Path) -> None:
    """Raise TracerError where TensorBoard, which encodes the names of all that is in a folder, would list nothing."""
    for folder, _, files in os.walk(logdir):
        for path in (Path(folder), *(Path(folder, file) for file in files)):
            if (name := encodable(str(path))) != str(path):
                raise TracerError(f"{name}: TensorBoard reads no names that are not UTF-8; rename this one")


def command(logdir: Path, port: int = TENSORBOARD_PORT) -> list[str]:
    """Build the command that starts TensorBoard over a folder, to be reached from this machine alone."""
    where = ["--logdir", str(logdir), "--host", LOOPBACK, "--port", str(port)]
    return [sys.executable, "-m", _PROCESS, *where, _OWN_READER]


def tensorboard_address(root: str, port: int = TENSORBOARD_PORT) -> str:
    """Return the address where TensorBoard shows our tab."""
    return f"http://{LOOPBACK}:{port}{root}/#tracer"


def serve_tensorboard(logdir: Path, root: str, port: int = TENSORBOARD_PORT) -> int:
    """Run TensorBoard over a folder, below a path, until interrupted; returns its exit code.

    Raises TracerError if it is missing.
    """
    check_tensorboard()
    return subprocess.run(
        command(logdir, port), env=os.environ | safe_environment() | {ROOT: root}, check=False
    ).returncode
