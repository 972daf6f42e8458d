"""FSDP's packing by module: copies into and out of gathered parameters.

host     |FSDP::all_gather (a)   |   |FSDP::all_gather_copy_out (a)|   |FSDP::post_backward_reduce (a)|
launch       ^                            ^                                ^
part       copy_in                      copy_out                         reduce
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from analyzers.arrays import UNKNOWN, Int64
from analyzers.intervals import Intervals, union_of
from analyzers.rank.host import Host
from analyzers.trace import OF_FSDP, ROOT


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


def host_spans(host: Host) -> dict[PackingPart, Intervals]:
    """Return when the host was in FSDP's ranges of each part; those of one part are apart."""
    names, ranges = host.events.names, host.named("FSDP::")
    part = np.full(len(names), UNKNOWN, dtype=np.int64)
    for code in np.unique(host.events.name[ranges]).tolist():
        match = _OF_MODULE.fullmatch(names[code])
        if match is not None:
            part[code] = _PARTS.get(match["what"], UNKNOWN)
    of_range = part[host.events.name[ranges]]
    rows = {each: ranges[of_range == each] for each in (PackingPart.COPY_IN, PackingPart.COPY_OUT)}
    return {each: union_of(host.events.start_ns[own], host.events.end_ns[own]) for each, own in rows.items()}


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
