"""Reading of ranks by processes or Dask, and listing of runs.

Decisions: docs/decisions/reading.md
"""

from tracer.reading.processes import Readers, read_lanes, read_run
from tracer.reading.run_listing import ListedRun, listed

__all__ = [
    "ListedRun",
    "Readers",
    "listed",
    "read_lanes",
    "read_run",
]
