"""Ranks read by several processes, or by Dask's workers; which runs a folder holds."""

from tracer.reading.processes import Readers, read_lanes, read_run
from tracer.reading.run_listing import Found, listed

__all__ = [
    "Found",
    "Readers",
    "listed",
    "read_lanes",
    "read_run",
]
