"""Reading of ranks by processes or Dask, listing of runs.

`processes` chooses who reads, `dask_cluster` is one of them, `run_listing` lists the runs below a folder.
`second_opinion` asks torch what it thinks of traces.

Decisions: docs/decisions/reading.md
"""

from tracer.reading.processes import Readers, read_lanes, read_run, start_method, with_undrawn
from tracer.reading.run_listing import ListedRun, leads_out, listed
from tracer.reading.second_opinion import second_opinions

__all__ = [
    "ListedRun",
    "Readers",
    "leads_out",
    "listed",
    "read_lanes",
    "read_run",
    "second_opinions",
    "start_method",
    "with_undrawn",
]
