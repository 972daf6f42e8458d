"""Read and measure traces of distributed PyTorch training.

import analyzers
run = analyzers.load("traces/resnet18-ddp4")
analyzers.breakdown(run).to_frame()
analyzers.TABLES["collectives"].frame(analyzers.report(run))

Nothing flows back: trace -> run -> rank -> collectives -> layers -> reporting -> prediction, comparison, hta. Below the
rooms are modules that know none of them: `arrays`, `intervals`, `statistics`, `units`; `step_parts` for what a step is
made of; `lazy_fields` for what is computed when asked for; `paths` and `json_documents` for files; `errors`, `notices`
and `texts` for what is said, `redaction` and `command_lines` for what is not; `ranks` for their numbers; `memory` for
what reading may take; `lazy_exports` for this page.

Decisions: docs/dev/decisions/structure.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzers.lazy_exports import export_lazily

if TYPE_CHECKING:
    from analyzers.collectives import Exchange, exchange
    from analyzers.comparison import (
        CHANGES,
        SWEEP_TABLES,
        Comparison,
        Scaling,
        SweepComparison,
        compare,
        compare_sweeps,
        headline_figures,
        study,
    )
    from analyzers.errors import AnalysisError, TracerError
    from analyzers.hta import to_hta
    from analyzers.prediction import SCENARIOS, WhatIf, whatif
    from analyzers.prediction import Options as WhatIfOptions
    from analyzers.rank import Breakdown, RunSummary, breakdown, kernel_times, summarize
    from analyzers.reporting import TABLES, Lanes, Report, lanes, report
    from analyzers.run import Calibration, Manifest, RankTrace, Run, load, read_calibration

__all__ = [
    "CHANGES",
    "SCENARIOS",
    "SWEEP_TABLES",
    "TABLES",
    "AnalysisError",
    "Breakdown",
    "Calibration",
    "Comparison",
    "Exchange",
    "Lanes",
    "Manifest",
    "RankTrace",
    "Report",
    "Run",
    "RunSummary",
    "Scaling",
    "SweepComparison",
    "TracerError",
    "WhatIf",
    "WhatIfOptions",
    "breakdown",
    "compare",
    "compare_sweeps",
    "exchange",
    "headline_figures",
    "kernel_times",
    "lanes",
    "load",
    "read_calibration",
    "report",
    "study",
    "summarize",
    "to_hta",
    "whatif",
]

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "analyzers.collectives": ("Exchange", "exchange"),
        "analyzers.comparison": (
            "CHANGES",
            "SWEEP_TABLES",
            "Comparison",
            "Scaling",
            "SweepComparison",
            "compare",
            "compare_sweeps",
            "headline_figures",
            "study",
        ),
        "analyzers.errors": ("AnalysisError", "TracerError"),
        "analyzers.hta": ("to_hta",),
        "analyzers.prediction": ("Options as WhatIfOptions", "SCENARIOS", "WhatIf", "whatif"),
        "analyzers.rank": ("Breakdown", "RunSummary", "breakdown", "kernel_times", "summarize"),
        "analyzers.reporting": ("TABLES", "Lanes", "Report", "lanes", "report"),
        "analyzers.run": ("Calibration", "Manifest", "RankTrace", "Run", "load", "read_calibration"),
    },
)
