"""Forward ranges of modules, from the profiler, the recorder or FSDP.

What is inside of a compiled region cannot be told apart: all of it is of the module around the region, which is the one
that was compiled or holds it. A region that no module's range holds is a module of its own.

host     |nn.Module: layers.0                  |          |Torch-Compiled Region: 1/0 |
            |Torch-Compiled Region: 0/0    |                    ^
launch           ^ layers.0                               a module of its own
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from analyzers.arrays import UNKNOWN
from analyzers.rank.host.host_threads import Host, Spans
from analyzers.trace import ROOT, Category, Module, module_of

COMPILED = "Torch-Compiled Region"
# The class that stands for one where no module holds it.
REGION = "compiled region"
_FSDP_RANGE = re.compile(r"FSDP::(pre|post)_forward(?: \((.+)\))?")


class LayerSource(StrEnum):
    """Where layers come from."""

    MODULES = "modules"
    FSDP = "fsdp"
    OPERATORS = "operators"
    NODES = "nodes"  # of the backward, where nn.DataParallel's replicas leave nothing of the forward


def forwards(host: Host) -> tuple[Spans, Sequence[Module], LayerSource]:
    """Return the modules' forwards as spans, and compiled regions, which are modules of their own."""
    events = host.events
    named = [module_of(name) for name in events.names]
    is_module = np.array([module is not None for module in named], dtype=bool)[events.name]
    is_module &= np.isin(events.category, (Category.ANNOTATION, Category.PYTHON))
    rows = np.flatnonzero(is_module)
    modules = [module for code in events.name[rows].tolist() if (module := named[code]) is not None]
    spans, source = host.spans(rows), LayerSource.MODULES
    if not len(rows):
        spans, modules = _find_wrapped(host)
        source = LayerSource.FSDP if len(spans) else LayerSource.OPERATORS
    compiled = host.named(COMPILED)
    more = host.spans(compiled)
    holders = (
        spans.around(host.places(compiled)).tolist() if source == LayerSource.MODULES else [UNKNOWN] * len(compiled)
    )
    regions = [
        modules[holder] if holder >= 0 else Module(events.names[code], REGION)
        for holder, code in zip(holders, events.name[compiled].tolist(), strict=True)
    ]
    together = Spans(*(np.r_[getattr(spans, name), getattr(more, name)] for name in ("thread", "start_ns", "end_ns")))
    return together, [*modules, *regions], source


def _find_wrapped(host: Host) -> tuple[Spans, list[Module]]:
    """Return what FSDP wraps: from the end of its work before a forward to the start of that behind it."""
    events = host.events
    rows = host.named("FSDP::pre_forward", "FSDP::post_forward")
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    opened: dict[tuple[int, str], int] = {}
    thread: list[int] = []
    start: list[int] = []
    end: list[int] = []
    modules: list[Module] = []
    for row in rows.tolist():
        match = _FSDP_RANGE.fullmatch(events.names[events.name[row]])
        if match is None:
            continue
        key = (int(events.thread[row]), match[2] or ROOT)
        if match[1] == "pre":
            opened[key] = int(events.end_ns[row])
        elif key in opened:
            thread.append(key[0])
            start.append(opened.pop(key))
            end.append(int(events.start_ns[row]))
            modules.append(Module(key[1], "FSDP"))
    return Spans(*(np.array(column, dtype=np.int64) for column in (thread, start, end))), modules
