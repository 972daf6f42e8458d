"""Folder for PYTHONPATH whose `sitecustomize` starts the recording of a script."""

from __future__ import annotations

from pathlib import Path

HOOK_FOLDER = Path(__file__).parent
