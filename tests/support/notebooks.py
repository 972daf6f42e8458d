"""Notebooks of docs/, kept without outputs, and executed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


def read(path: Path) -> Any:
    """A notebook as it stands."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def executed(path: Path) -> Any:
    """The same notebook, run from its start by this checkout, with what its cells put out."""
    from nbclient import NotebookClient

    notebook = read(path)
    # This checkout, whatever is installed.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    NotebookClient(
        notebook, kernel_name="python3", timeout=300, resources={"metadata": {"path": str(path.parent)}}
    ).execute(env=environment)
    return notebook
