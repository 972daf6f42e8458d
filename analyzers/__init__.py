"""Read and measure traces of distributed PyTorch training.

import analyzers
run = analyzers.load("traces/resnet18-ddp4")
analyzers.breakdown(run).to_frame()
analyzers.collectives_frame(analyzers.report(run))
"""

from analyzers.breakdown import Breakdown, breakdown
from analyzers.calibration import Calibration, read_calibration
from analyzers.cellchanges import compare_sweeps
from analyzers.compare import compare
from analyzers.comparison import Comparison, SweepComparison, changes_frame
from analyzers.document import Report
from analyzers.errors import AnalysisError
from analyzers.exchange import Exchange, exchange
from analyzers.frames import buckets_frame, collectives_frame, layers_frame, windows_frame
from analyzers.hta import to_hta
from analyzers.lanes import Lanes, lanes
from analyzers.manifest import Manifest
from analyzers.rank import RankTrace
from analyzers.report import report
from analyzers.run import Run, load
from analyzers.scaling import study
from analyzers.scenarios import scenarios_frame
from analyzers.study import Scaling, cells_frame, epochs_frame, strong_frame, weak_frame
from analyzers.summary import RunSummary, summarize
from analyzers.whatif import Options as WhatIfOptions
from analyzers.whatif import WhatIf, whatif

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
    "WhatIf",
    "WhatIfOptions",
    "breakdown",
    "buckets_frame",
    "cells_frame",
    "changes_frame",
    "collectives_frame",
    "compare",
    "compare_sweeps",
    "epochs_frame",
    "exchange",
    "lanes",
    "layers_frame",
    "load",
    "read_calibration",
    "report",
    "scenarios_frame",
    "strong_frame",
    "study",
    "summarize",
    "to_hta",
    "weak_frame",
    "whatif",
    "windows_frame",
]
