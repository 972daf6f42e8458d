"""FSDP and HSDP: collectives by the module that FSDP's ranges name.

host    |pre_forward (a)|            |pre_backward (b)                       |
          |all_gather (a)|             |backward_prefetch for a: |all_gather (a)|
        asked for in its own turn                                  prefetched

What is packed for a module lies in ranges of its own:

host     |FSDP::all_gather (a)|   |FSDP::all_gather_copy_out (a)|   |FSDP::post_backward_reduce (a)|
launch       ^                            ^                                ^
part       copy_in                      copy_out                         reduce
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.rank.host import Host
from analyzers.rank.strategies.protocol import (
    CALLED_BY_MODULES,
    Calls,
    Launches,
    Owners,
    Packing,
    Purpose,
    Strategy,
    dimension,
)
from analyzers.trace import OF_FSDP, ROOT, SHARDED, Collective, Events

# The ranges that hold the collectives themselves, and those that say whose turn it is.
_COLLECTIVES = ("FSDP::all_gather", "FSDP::post_backward_reduce", "FSDP::post_backward_all_reduce")
_PREFETCH = ("FSDP::backward_prefetch", "FSDP::forward_prefetch", "FSDP::prefetch")
_TURNS = ("FSDP::pre_forward", "FSDP::pre_backward")
_BACKWARD = ("FSDP::pre_backward", "FSDP::post_backward", "FSDP::backward_prefetch")
# FSDP1's ranges name no module: of what is called in its forward the module is that of the range around it.
_FIRST = "FullyShardedDataParallel"
_FIRST_PREFETCH = tuple(f"{_FIRST}._{when}_prefetch" for when in ("pre_forward", "pre_backward", "post_backward"))
_FIRST_BACKWARD = tuple(f"{_FIRST}._{name}_backward_" for name in ("pre", "post"))
_NAME = re.compile(r"FSDP::\w+(?: \((.+)\))?")


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    # FSDP1's range is around its module's forward, in which others communicate; these call functional collectives.
    sharded = calls.inside(*SHARDED) & ~calls.inside("_c10d_functional")
    # In compiled code and graphs its own ranges are gone, and a module or a node calls for everything.
    over, hidden = calls.over(FSDP.dimension) & calls.is_floating, calls.is_compiled | calls.is_replayed
    outside = ~calls.in_model | hidden
    yield Purpose.PARAMETERS, calls.of(Collective.ALL_GATHER) & (sharded | (over & outside))
    yield Purpose.GRADIENTS, calls.of(Collective.REDUCE_SCATTER, Collective.ALL_REDUCE) & sharded
    yield Purpose.GRADIENTS, calls.of(Collective.REDUCE_SCATTER) & over & outside
    yield Purpose.GRADIENTS, calls.of(Collective.ALL_REDUCE) & over & calls.is_compiled & calls.is_backward
    if FSDP.name in calls.recorded and not calls.recorded & CALLED_BY_MODULES:
        # Written with functional collectives (SimpleFSDP) it has no ranges.
        yield Purpose.PARAMETERS, calls.of(Collective.ALL_GATHER) & calls.is_floating & calls.in_model
        yield Purpose.GRADIENTS, calls.of(Collective.REDUCE_SCATTER) & calls.is_floating & calls.in_model


def _packing(launches: Launches) -> Packing:
    """Mark splitting and concatenating, and casts."""
    inside = launches.host.inside
    backward = inside(launches.places, "FSDP::pre_backward", "FSDP::post_backward", "FSDP::root_post_backward")
    return Packing(inside(launches.places, *OF_FSDP), backward)


def _owners(calls: Calls) -> Owners:
    host, events, called = calls.host, calls.host.events, calls.host.places(calls.called)
    collective = host.around(called, host.named(*_COLLECTIVES))
    turn = host.around(called, host.named(*_TURNS))
    ahead = host.around(called, host.named(*_PREFETCH)) >= 0
    modules: dict[str, int] = {}
    module, prefetched = (np.full(len(calls), UNKNOWN, dtype=np.int64) for _ in range(2))
    for row in np.flatnonzero(collective >= 0).tolist():
        name = _module(events, collective[row])
        module[row] = modules.setdefault(name, len(modules))
        if events.names[events.name[collective[row]]].startswith("FSDP::all_gather"):
            in_turn = turn[row] >= 0 and _module(events, turn[row]) == name and not ahead[row]
            prefetched[row] = 0 if in_turn else 1
    first = host.inside(called, _FIRST) & (collective < 0)
    ahead, backward = host.inside(called, *_FIRST_PREFETCH), host.inside(called, *_FIRST_BACKWARD)
    gathers = first & calls.of(Collective.ALL_GATHER)
    prefetched[gathers] = ahead[gathers]
    for row in np.flatnonzero(first & ~ahead & ~backward & (calls.module >= 0)).tolist():
        module[row] = modules.setdefault(calls.modules[calls.module[row]].name, len(modules))
    return Owners(module, tuple(modules), host.inside(called, *_BACKWARD) | (first & backward), prefetched)


def _module(events: Events, row: int) -> str:
    match = _NAME.fullmatch(events.names[events.name[row]])
    return match[1] if match is not None and match[1] else ROOT


FSDP = Strategy(
    name="fsdp",
    in_words="FSDP",
    # torchtitan's dimensions; with experts and context parallelism they are joined: dp_shard_cp, dp_shard_mod_ep.
    dimension=dimension(r"e?fsdp", r"dp_shard\w*", r"dp_mod_ep", "hsdp"),
    purposes=_purposes,
    packing=_packing,
    owners=_owners,
    why_no_buckets="gradients are reduced by a reduce_scatter of each sharded module; see --by layer.",
)


class PackingPart(IntEnum):
    """What a sharded module's packing is for: its all-gather, what is gathered, its reduction, or another thing."""

    COPY_IN = 0
    COPY_OUT = 1
    REDUCE = 2
    OTHER = 3


_PARTS = {
    "all_gather": PackingPart.COPY_IN,
    "all_gather_copy_out": PackingPart.COPY_OUT,
    "post_backward_reduce": PackingPart.REDUCE,
    "post_backward_all_reduce": PackingPart.REDUCE,
}
# Ranges that carry their module's name, the root's alone none (torch's FSDPParamGroup._with_fqn).
_OF_MODULE = re.compile(
    r"FSDP::(?P<what>all_gather|all_gather_copy_out|(?:pre|post)_forward|pre_backward|post_backward_\w+)"
    r"(?: \((?P<module>.+)\))?"
)


@dataclass(frozen=True, eq=False)
class PackedLaunches:
    """Of each launch: the sharded module that it packs for (indexes `modules`, -1 for none), and its PackingPart.

    `part` is -1 for launches outside of FSDP's ranges.
    """

    module: Int64
    part: Int64
    modules: tuple[str, ...]


def packed_launches(host: Host, launches: Int64) -> PackedLaunches:
    """Return which of FSDP's ranges each launch lies in."""
    places = host.places(launches)
    inside = host.inside(places, *OF_FSDP)
    names = host.events.names
    ranges = host.named("FSDP::")
    parts, codes = (np.full(len(names) + 1, UNKNOWN, dtype=np.int64) for _ in range(2))
    modules: dict[str, int] = {}
    for code in np.unique(host.events.name[ranges]).tolist():
        match = _OF_MODULE.fullmatch(names[code])
        if match is not None:
            parts[code] = _PARTS.get(match["what"], PackingPart.OTHER)
            codes[code] = modules.setdefault(match["module"] or ROOT, len(modules))
    telling = ranges[codes[host.events.name[ranges]] >= 0]
    around = host.around(places, telling)
    name = np.where(around >= 0, host.events.name[around], len(names))
    part = np.where(parts[name] >= 0, parts[name], PackingPart.OTHER)
    return PackedLaunches(codes[name], np.where(inside, part, UNKNOWN), tuple(modules))
