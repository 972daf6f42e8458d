"""Reports and comparisons for Python: figures, frames, pages, notebooks' cells.

`source` reads a run. `run_report`, `run_comparison`, `run_prediction` and `sweep_study` are what `tracer.report`,
`tracer.compare`, `tracer.whatif` and `tracer.sweep` return.

Decisions: docs/dev/decisions/structure.md
"""

from tracer.results.run_comparison import RunComparison, compare
from tracer.results.run_prediction import RunPrediction, given_links, whatif
from tracer.results.run_report import RunReport, report
from tracer.results.sweep_study import SweepStudy, sweep
