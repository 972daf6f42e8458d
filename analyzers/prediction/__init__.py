"""Recorded steps replayed with other buckets, GPUs or links.

In order: `bucket_rule` is DDP's own, `link_model` says how long an all-reduce takes, `strain` how much longer than
alone, `replay` plays steps, `levelling` takes a rank's lateness out of them, `model` sets them up from a run, `predict`
answers `tracer whatif`, `scenarios` arranges the answers. `assumption` is what they rest on.

Decisions: docs/decisions/prediction.md
"""

from analyzers.prediction.levelling import Cause
from analyzers.prediction.link_model import Affine, Hosts, LinkModel, calibrated
from analyzers.prediction.model import MeasuredFrom
from analyzers.prediction.predict import (
    EVERY,
    LATE,
    Baseline,
    Kind,
    Options,
    Scenario,
    WhatIf,
    micro_batches,
    whatif,
)
from analyzers.prediction.scenarios import (
    USUAL_MB,
    AtGpus,
    ScaleOut,
    against_own,
    doubts,
    is_own,
    scale_out,
    scenarios_frame,
    to_json,
    usual,
)

__all__ = [
    "EVERY",
    "LATE",
    "USUAL_MB",
    "Affine",
    "AtGpus",
    "Baseline",
    "Cause",
    "Hosts",
    "Kind",
    "LinkModel",
    "MeasuredFrom",
    "Options",
    "ScaleOut",
    "Scenario",
    "WhatIf",
    "against_own",
    "calibrated",
    "doubts",
    "is_own",
    "micro_batches",
    "scale_out",
    "scenarios_frame",
    "to_json",
    "usual",
    "whatif",
]
