"""One rank's trace becomes a `RankSummary`, small enough for a network.

In order: the rooms `analyzers.rank.host` (what ran around a launch), `analyzers.rank.idle` (why devices were idle),
`analyzers.rank.kernels` (what the compute is), `analyzers.rank.strategies` (what each parallelism's communication is
for), `analyzers.rank.columns` (when devices were busy, and whose each row is) and `analyzers.rank.parallelism` (what a
strategy did beyond its calls); then `ddp_reductions` and `sync_overhead`, what gradients cost.
`dependencies` says what had to come before what, `taking` which gradients a step takes.
`summary` puts them together; after it no file is read.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.columns import (
    CELLS,
    CPU_DEVICE,
    Breakdown,
    Communication,
    OtherLine,
    Parts,
    breakdown,
    cell_edges,
    device_label,
    device_labels,
    is_layer,
    kernel_times,
    layer_name,
    profiler_steps,
)
from analyzers.rank.dependencies import (
    EdgeKind,
    Edges,
    HostTrack,
    PointKind,
    Points,
    RankGraph,
    Section,
    Stretches,
    host_track,
)
from analyzers.rank.host import LayerSource
from analyzers.rank.idle import OTHERS, Cause, IdleTrack, Phase, main_function
from analyzers.rank.parallelism import ActionKind, PipelineActions
from analyzers.rank.strategies import FSDP, STRATEGIES, PackingPart, Purpose, role_of
from analyzers.rank.summary import (
    DeviceTrack,
    Measured,
    OnBytes,
    RankSummary,
    ReadRanks,
    RunSummary,
    has_causes,
    summarize,
    summarize_file,
    summary_of,
    with_lanes,
)
from analyzers.rank.sync_overhead import NOT_KNOWN
