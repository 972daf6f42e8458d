"""Read and measure traces of distributed PyTorch training.

import analyzers
run = analyzers.load("traces/resnet18-ddp4")
analyzers.breakdown(run).to_frame()
"""

from analyzers.breakdown import Breakdown, breakdown
from analyzers.errors import AnalysisError
from analyzers.manifest import Manifest
from analyzers.run import RankTrace, Run, load

__all__ = ["AnalysisError", "Breakdown", "Manifest", "RankTrace", "Run", "breakdown", "load"]
