"""Read and measure traces of distributed PyTorch training.

import analyzers
run = analyzers.load("traces/resnet18-ddp4")
analyzers.breakdown(run).to_frame()
analyzers.collectives_frame(analyzers.report(run))

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
        Comparison,
        Scaling,
        SweepComparison,
        cells_frame,
        changes_frame,
        compare,
        compare_sweeps,
        epochs_frame,
        headline_figures,
        strong_frame,
        study,
        weak_frame,
    )
    from analyzers.errors import AnalysisError, TracerError
    from analyzers.hta import to_hta
    from analyzers.prediction import Options as WhatIfOptions
    from analyzers.prediction import WhatIf, scenarios_frame, whatif
    from analyzers.rank import Breakdown, RunSummary, breakdown, kernel_times, summarize
    from analyzers.reporting import (
        Lanes,
        Report,
        buckets_frame,
        charges_frame,
        collectives_frame,
        groups_frame,
        kernels_frame,
        lanes,
        layers_frame,
        members_frame,
        operators_frame,
        report,
        sharded_frame,
        steps_frame,
        waiting_frame,
        windows_frame,
    )
    from analyzers.run import Calibration, Manifest, RankTrace, Run, load, read_calibration

__all__ = [
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
    "buckets_frame",
    "cells_frame",
    "changes_frame",
    "charges_frame",
    "collectives_frame",
    "compare",
    "compare_sweeps",
    "epochs_frame",
    "exchange",
    "groups_frame",
    "headline_figures",
    "kernel_times",
    "kernels_frame",
    "lanes",
    "layers_frame",
    "load",
    "members_frame",
    "operators_frame",
    "read_calibration",
    "report",
    "scenarios_frame",
    "sharded_frame",
    "steps_frame",
    "strong_frame",
    "study",
    "summarize",
    "to_hta",
    "waiting_frame",
    "weak_frame",
    "whatif",
    "windows_frame",
]

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "analyzers.collectives": ("Exchange", "exchange"),
        "analyzers.comparison": (
            "Comparison",
            "Scaling",
            "SweepComparison",
            "cells_frame",
            "changes_frame",
            "compare",
            "compare_sweeps",
            "epochs_frame",
            "headline_figures",
            "strong_frame",
            "study",
            "weak_frame",
        ),
        "analyzers.errors": ("AnalysisError", "TracerError"),
        "analyzers.hta": ("to_hta",),
        "analyzers.prediction": ("Options as WhatIfOptions", "WhatIf", "scenarios_frame", "whatif"),
        "analyzers.rank": ("Breakdown", "RunSummary", "breakdown", "kernel_times", "summarize"),
        "analyzers.reporting": (
            "Lanes",
            "Report",
            "buckets_frame",
            "charges_frame",
            "collectives_frame",
            "groups_frame",
            "kernels_frame",
            "lanes",
            "layers_frame",
            "members_frame",
            "operators_frame",
            "report",
            "sharded_frame",
            "steps_frame",
            "waiting_frame",
            "windows_frame",
        ),
        "analyzers.run": ("Calibration", "Manifest", "RankTrace", "Run", "load", "read_calibration"),
    },
)
