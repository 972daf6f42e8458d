"""Our columns as HolisticTraceAnalysis' Trace, and its analyses.

`adapter` makes the Trace, `library` is the only module that imports HTA (and is imported where it is needed), `tables`
and `critical_paths` arrange what it finds.

Decisions: docs/dev/decisions/hta.md
"""

from analyzers.hta.adapter import hta_library, to_hta
from analyzers.hta.critical_paths import DEPENDENCY, CriticalPath, critical_path, path_tables
from analyzers.hta.tables import Analysis, Cell, Figures, diff, idle, kernels, launches, queue, to_json
