"""What had to come before what on one rank: `RankGraph`.

In order: `points` says what the graph is, `host_calls` finds calls of the runtime and the order in which threads make
them, `device_order` what launches, streams and blocking calls wait for, `stream_waits` what streams wait for, `ranges`
what a change would take away; `cpu_run` has all that for a host that computes, and `building` puts it together.
`launching_threads` draws from it what the host did.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.dependencies.building import rank_graph
from analyzers.rank.dependencies.launching_threads import HostTrack, host_track
from analyzers.rank.dependencies.points import (
    EdgeKind,
    Edges,
    PointKind,
    Points,
    Ranges,
    RankGraph,
    Section,
    Stretches,
    TakenGradients,
)
