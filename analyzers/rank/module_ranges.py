"""Ranges that name modules: forwards, and FSDP's collectives.

Forwards are from the profiler, the recorder or FSDP.

A compiled region is a module of its own, whatever module holds it: what is inside of it cannot be told apart.

host    |pre_forward (a)|            |pre_backward (b)                       |
          |all_gather (a)|             |backward_prefetch for a: |all_gather (a)|
        asked for in its own turn                                  prefetched
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask
from analyzers.rank.communication import Communication
from analyzers.rank.host_threads import Host, Spans
from analyzers.trace import ROOT, Category, Events, Module, module_of

COMPILED = "Torch-Compiled Region"
# The ranges that hold the collectives themselves, and those that say whose turn it is.
_COLLECTIVES = ("FSDP::all_gather", "FSDP::post_backward_reduce", "FSDP::post_backward_all_reduce")
_PREFETCH = ("FSDP::backward_prefetch", "FSDP::forward_prefetch", "FSDP::prefetch")
_TURNS = ("FSDP::pre_forward", "FSDP::pre_backward")
_NAME = re.compile(r"FSDP::\w+(?: \((.+)\))?")
_FSDP_RANGE = re.compile(r"FSDP::(pre|post)_forward(?: \((.+)\))?")


class Source(str, Enum):  # StrEnum is Python 3.11's
    """Where layers come from."""

    MODULES = "modules"
    FSDP = "fsdp"
    OPERATORS = "operators"
    NODES = "nodes"  # of the backward, where nn.DataParallel's replicas leave nothing of the forward

    def __str__(self) -> str:
        return str(self.value)


def forwards(host: Host) -> tuple[Spans, Sequence[Module], Source]:
    """Return the modules' forwards as spans, and compiled regions, which are modules of their own."""
    events = host.events
    named = [module_of(name) for name in events.names]
    is_module = np.array([module is not None for module in named], dtype=bool)[events.name]
    is_module &= np.isin(events.category, (Category.ANNOTATION, Category.PYTHON))
    rows = np.flatnonzero(is_module)
    modules = [module for code in events.name[rows].tolist() if (module := named[code]) is not None]
    spans, source = host.spans(rows), Source.MODULES
    if not len(rows):
        spans, modules = _wrapped(host)
        source = Source.FSDP if len(spans) else Source.OPERATORS
    compiled = host.named(COMPILED)
    regions = [Module(events.names[code], "compiled region") for code in events.name[compiled].tolist()]
    more = host.spans(compiled)
    together = Spans(*(np.r_[getattr(spans, name), getattr(more, name)] for name in ("thread", "start_ns", "end_ns")))
    return together, [*modules, *regions], source


def _wrapped(host: Host) -> tuple[Spans, list[Module]]:
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
