"""No calls that wait for the device, such as `.item()`."""

from __future__ import annotations

import numpy as np

from analyzers.causes import Lags
from analyzers.rank import EdgeKind
from analyzers.scenarios.copies import behind_copies, pageable_copies
from analyzers.scenarios.scenario import everywhere


def without_synchronizing(lags: Lags) -> Lags:
    """Return the lags without waits of stream and event synchronizations, and of pageable copies to the host.

    A synchronization of the whole device stays, as does one behind a copy to the device.
    """
    names = lags.facts.call_name
    call = lags.facts.call
    waits = np.array(["Stream" in name or "Event" in name for name in names], dtype=bool)
    to_host = pageable_copies(lags, "DtoH")
    after_copy = behind_copies(lags, pageable_copies(lags, "HtoD"))
    chosen = (waits & ~after_copy) | to_host
    blocks = (lags.graph.edges.kind == EdgeKind.BLOCK) & (call >= 0) & chosen[call]
    return lags.without(blocks)


SYNCHRONIZE = everywhere(
    "synchronize",
    "no .item() or .cpu() in the step, or less often",
    "synchronizing calls",
    without_synchronizing,
    lambda subject: bool((subject.lags.graph.edges.kind == EdgeKind.BLOCK).any()),
    "no calls that wait for the device",
)
