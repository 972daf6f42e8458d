"""Reports and comparisons for Python: figures, frames, pages, notebooks' cells.

`run_report` and `run_comparison` are what `tracer.report` and `tracer.compare` return, with their
pages.

Decisions: docs/dev/decisions/structure.md
"""

from tracer.results.run_comparison import RunComparison, compare
from tracer.results.run_report import RunReport, report
