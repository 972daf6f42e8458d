"""One rank's trace becomes a `RankSummary`, small enough for a network.

In order: `activity` (when devices computed, communicated, copied), `windows` and `time_breakdown`; the rooms
`analyzers.rank.host` (what ran around a launch), `analyzers.rank.idle` (why devices were idle),
`analyzers.rank.kernels` (what the compute is) and `analyzers.rank.strategies` (what each parallelism's communication
is for); `calls` finds which collective a kernel carries out; `attribution`, `communication` and `layer_time` are the
columns that result, `ddp_reductions`, `sync_overhead` and `gradient_schedule` what gradients cost. `summary` puts them
together; after it no file is read.

Decisions: docs/decisions/rank.md
"""

from analyzers.rank.activity import CPU_DEVICE, device_label
from analyzers.rank.attribution import OWN_LINES, OtherLine, is_layer, layer_name
from analyzers.rank.communication import Communication
from analyzers.rank.gradient_schedule import GradientSchedule, queued
from analyzers.rank.host import Source
from analyzers.rank.idle import OTHERS, Cause, Idle, IdleTrack, Phase
from analyzers.rank.layer_time import Parts, kernel_times
from analyzers.rank.strategies import FSDP, STRATEGIES, PackingPart, Purpose, role_of
from analyzers.rank.summary import (
    DeviceTrack,
    Measured,
    OnBytes,
    RankSummary,
    RunSummary,
    summarize,
    summary_of,
    with_lanes,
)
from analyzers.rank.sync_overhead import NOT_KNOWN
from analyzers.rank.time_breakdown import CELLS, Breakdown, breakdown, cell_edges, joined
from analyzers.rank.windows import profiler_steps

__all__ = [
    "CELLS",
    "CPU_DEVICE",
    "FSDP",
    "NOT_KNOWN",
    "OTHERS",
    "OWN_LINES",
    "STRATEGIES",
    "Breakdown",
    "Cause",
    "Communication",
    "DeviceTrack",
    "GradientSchedule",
    "Idle",
    "IdleTrack",
    "Measured",
    "OnBytes",
    "OtherLine",
    "PackingPart",
    "Parts",
    "Phase",
    "Purpose",
    "RankSummary",
    "RunSummary",
    "Source",
    "breakdown",
    "cell_edges",
    "device_label",
    "is_layer",
    "joined",
    "kernel_times",
    "layer_name",
    "profiler_steps",
    "queued",
    "role_of",
    "summarize",
    "summary_of",
    "with_lanes",
]
