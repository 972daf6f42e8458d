"""Reading of ranks by processes or Dask, listing of runs.

`processes` chooses who reads, `dask_cluster` is one of them; `known_ranks` and `known_report` have what the room
`tracer.reading.cache` keeps, for which nothing is read. `run_listing` lists the runs below a folder.
`second_opinion` asks torch what it thinks of traces.

Decisions: docs/dev/decisions/reading.md
"""

from tracer.reading.cache import why_unusable
from tracer.reading.known_report import open_report
from tracer.reading.processes import Readers, read_lanes, read_run, start_method, with_undrawn
from tracer.reading.run_listing import ListedRun, leads_out, list_runs
from tracer.reading.second_opinion import second_opinions
