"""FSDP's collectives by the module that FSDP's ranges name.

host    |pre_forward (a)|            |pre_backward (b)                       |
          |all_gather (a)|             |backward_prefetch for a: |all_gather (a)|
        asked for in its own turn                                  prefetched
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.rank.communication import Communication
from analyzers.rank.host import Host
from analyzers.trace import ROOT, Events

# The ranges that hold the collectives themselves, and those that say whose turn it is.
_COLLECTIVES = ("FSDP::all_gather", "FSDP::post_backward_reduce", "FSDP::post_backward_all_reduce")
_PREFETCH = ("FSDP::backward_prefetch", "FSDP::forward_prefetch", "FSDP::prefetch")
_TURNS = ("FSDP::pre_forward", "FSDP::pre_backward")
_NAME = re.compile(r"FSDP::\w+(?: \((.+)\))?")


@dataclass(frozen=True, eq=False)
class Sharding:
    """Of each row of a rank's communication: the module it is for (indexes `modules`, -1: for none), and the pass.

    `prefetched` is 1 where it was asked for before its module's turn, 0 in its turn, -1 where that has no meaning.
    """

    module: Int64
    modules: tuple[str, ...]
    backward: Mask
    prefetched: Int64


def sharding(host: Host, comm: Communication) -> Sharding:
    """Return FSDP's part in one rank's communication."""
    events = host.events
    called = np.where(comm.called >= 0, comm.called, UNKNOWN)
    collective = host.around(called, host.named(*_COLLECTIVES))
    turn = host.around(called, host.named(*_TURNS))
    ahead = host.around(called, host.named(*_PREFETCH)) >= 0
    modules: dict[str, int] = {}
    module, prefetched = (np.full(len(comm), UNKNOWN, dtype=np.int64) for _ in range(2))
    for row in np.flatnonzero(collective >= 0).tolist():
        name = _module(events, collective[row])
        module[row] = modules.setdefault(name, len(modules))
        if events.names[events.name[collective[row]]].startswith("FSDP::all_gather"):
            in_turn = turn[row] >= 0 and _module(events, turn[row]) == name and not ahead[row]
            prefetched[row] = 0 if in_turn else 1
    backward = host.inside(called, "FSDP::pre_backward", "FSDP::post_backward", "FSDP::backward_prefetch")
    return Sharding(module, tuple(modules), backward, prefetched)


def _module(events: Events, row: int) -> str:
    match = _NAME.fullmatch(events.names[events.name[row]])
    return match[1] if match is not None and match[1] else ROOT
