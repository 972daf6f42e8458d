"""Recorded steps replayed with other buckets, GPUs or links.

In order: `bucket_rule` is DDP's own, `link_model` says how long collectives take, `strain` how much longer than alone,
`replay` plays steps, `hosts` has what a step takes hosts, `levelling` takes a rank's lateness out, `model` is all of
that, `run_model` sets it up from a run; `sharded_replay` plays steps of FSDP2, `sharded_model` sets them up, `sharded`
answers for them. `predict` answers `tracer whatif` with `answers`, `scenarios` arranges them. `assumption` is what they
rest on, `evidence` what speaks against them.

Decisions: docs/dev/decisions/prediction.md
"""

from analyzers.prediction.answers import (
    Baseline,
    Kind,
    Options,
    Prefetch,
    Scenario,
    Sharding,
    WhatIf,
    known_within,
    microbatches,
)
from analyzers.prediction.evidence import MeasuredFrom
from analyzers.prediction.levelling import EVERY, LATE, Cause
from analyzers.prediction.link_model import Affine, Hosts, LinkModel
from analyzers.prediction.predict import whatif
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
