"""A folder for PYTHONPATH: its `sitecustomize` is the first of our code that runs in a script's processes."""

from pathlib import Path

HOOK_FOLDER = Path(__file__).parent
