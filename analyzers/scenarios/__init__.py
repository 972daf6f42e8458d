"""Scenarios: what a change would bring, by two replays.

T    |host|....|kernels|..wait..|        pace of the lags as they are
T'   |host|....|kernels|..|              pace of the lags that a scenario changes; T - T' is its gain

Each kind has a name, a cure, and what it makes of the lags; to add one is to add a module and a line to `KINDS`:
`ranks` (stragglers, stages), `shared_work`, `host_time`, `synchronizing`, `copies`, `buffers`, `accumulation`,
`optimizer`, `small` (collectives, unused parameters), `links`. `scenario` says what they are, `removal` takes away work
and time, `time_slices` shows devices that are shared, `findings` replays, and takes those worth naming.

Decisions: docs/dev/decisions/causes.md
"""

from collections.abc import Iterator

from analyzers.scenarios.accumulation import ACCUMULATION
from analyzers.scenarios.buffers import BUFFERS, without_buffers
from analyzers.scenarios.copies import COPIES
from analyzers.scenarios.findings import (
    CAPS,
    FSDP,
    ODD,
    OF_SETTINGS,
    TENTH,
    TWENTIETH,
    Findings,
    Gain,
    find_findings,
    gain_between,
    gains_of,
    printed_interval,
)
from analyzers.scenarios.host_time import ALLOCATOR, COLLECT_LESS, COLLECTIONS, GRAPH, HOST, INPUT, host_at
from analyzers.scenarios.links import HIDDEN, HOOK, LINKS
from analyzers.scenarios.optimizer import OPTIMIZER
from analyzers.scenarios.ranks import STRAGGLER, of_rank
from analyzers.scenarios.removal import (
    launched_in,
    relieved,
    running,
    share_in,
    strain,
    transferring,
    without_activities,
    without_host_time,
)
from analyzers.scenarios.scenario import LEAST_SHARE, Kind, Scenario, Subject, Told
from analyzers.scenarios.shared_work import ALIKE, EXPERTS, STAGES
from analyzers.scenarios.small import COALESCE, UNUSED
from analyzers.scenarios.synchronizing import SYNCHRONIZE

KINDS = (
    *(STRAGGLER, ALIKE, EXPERTS, STAGES),
    *(INPUT, SYNCHRONIZE, COPIES, ALLOCATOR, COLLECTIONS),
    *(BUFFERS, ACCUMULATION, OPTIMIZER, COALESCE, UNUSED),
    *(HOOK, LINKS, HIDDEN, HOST, GRAPH),
)


def scenarios(subject: Subject) -> Iterator[Scenario]:
    """Yield the scenarios of all kinds that a run can have."""
    for kind in KINDS:
        yield from kind.find(subject)
