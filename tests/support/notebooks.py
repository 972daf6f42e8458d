"""Notebooks of docs/: executed, compared with the outputs that they hold, and written anew.

`python -m tests.support.notebooks` writes the outputs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
DIGITS = 3


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
        notebook,
        kernel_name="python3",
        timeout=300,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute(env=environment)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def outputs(notebook: Any) -> list[list[tuple[list[str], str]]]:
    """What each code cell put out: its kinds, and its text.

    Without what differs from version to version of pandas and matplotlib: white space, the last digits, pictures, HTML.
    """
    return [[_stable(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


def _stable(output: Any) -> tuple[list[str], str]:
    data = output.get("data", {})
    text = output.get("text", data.get("text/plain", ""))
    # pandas breaks wide frames where it finds room.
    return sorted(data), re.sub(r"[\s\\]+", " ", re.sub(r"-?\d+\.\d+", _rounded, text)).strip()


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.{DIGITS}g}"


def write_outputs() -> None:
    """Run every notebook, and keep its outputs where they are not the same already."""
    import nbformat

    for path in NOTEBOOKS:
        notebook = executed(path)
        if outputs(notebook) != outputs(read(path)):
            nbformat.write(notebook, path)


if __name__ == "__main__":
    write_outputs()
