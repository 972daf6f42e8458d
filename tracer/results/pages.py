"""Pages written to a file, or opened in a browser."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path

from analyzers.paths import local_path
from tracer.atomic_files import write_text


def written(path: str | Path, page: str, force: bool) -> Path:
    """Write a page, and return where it is. Raises TracerError where a file is there and `force` is not given."""
    place = local_path(path).absolute()
    write_text(place, page, force)
    return place


def opened(page: str) -> Path:
    """Write a page into a temporary folder, open it in a browser if there is one, and return where it is."""
    place = written(Path(tempfile.mkdtemp(prefix="tracer-")) / "report.html", page, force=False)
    webbrowser.open(place.as_uri())
    return place
