"""Read and measure traces of distributed PyTorch training.

import analyzers
run = analyzers.load("traces/resnet18-ddp4")
analyzers.breakdown(run).to_frame()
"""

from analyzers.breakdown import Breakdown, breakdown
from analyzers.errors import AnalysisError
from analyzers.manifest import Manifest
from analyzers.run import RankTrace, Run, load
from analyzers.summary import RunSummary, summarize

__all__ = ["AnalysisError", "Breakdown", "Manifest", "RankTrace", "Run", "RunSummary", "breakdown", "load", "summarize"]
