"""Phases of training on the host: forward, backward, optimizer, between steps.

    marks     |fwd| |fwd|   |bwd||bwd|   |optimizer|  |loader|   |fwd|
    phase     forward.......backward.....optimizer.|between......|forward

Time between two marks belongs to the later one, but for what lies between an optimizer or the loader and a forward, or
around the beginning of a profiler's step: that is between steps, as is the loader itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.arrays import Int64, Labelled
from analyzers.intervals import EMPTY, Intervals, union_of
from analyzers.rank.host import Autograd, Host, Spans
from analyzers.rank.idle.data_loading import fetches
from analyzers.trace import DDP_FORWARD, DP_FORWARD, OPTIMIZER, STEP


class Phase(Labelled):
    """What part of a step the host was in."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    BETWEEN_STEPS = 3
    NOT_KNOWN = 4  # nothing on the host says

    @property
    def label(self) -> str:
        """Return its name in documents."""
        return "unknown" if self == Phase.NOT_KNOWN else super().label


@dataclass(frozen=True, eq=False)
class Phases:
    """All of the host's time, in order, tile by tile, and the phase of each tile."""

    start_ns: Int64
    end_ns: Int64
    phase: Int64

    def at(self, instant_ns: Int64) -> Int64:
        """Return the phase at each instant."""
        phase: Int64 = self.phase[np.searchsorted(self.start_ns, instant_ns, side="right") - 1]
        return phase


_BEFORE, _AFTER = np.iinfo(np.int64).min // 4, np.iinfo(np.int64).max // 4


def phases(host: Host, nodes: Autograd, modules: Spans) -> Phases:
    """Return the phases of a rank's host; `modules` are the forwards of its modules."""
    loader = fetches(host.events)
    optimizer = _union(host, host.named(OPTIMIZER)) - loader
    backward = _union(host, nodes.row) - (loader | optimizer)
    forward = _forward(host, nodes, modules) - (loader | optimizer | backward)
    parts = (
        (forward, Phase.FORWARD),
        (backward, Phase.BACKWARD),
        (optimizer, Phase.OPTIMIZER),
        (loader, Phase.BETWEEN_STEPS),
    )
    start = np.concatenate([part.start for part, _ in parts])
    end = np.concatenate([part.end for part, _ in parts])
    phase = np.concatenate([np.full(len(part), label) for part, label in parts])
    if not len(start):
        return Phases(np.array([_BEFORE]), np.array([_AFTER]), np.array([int(Phase.NOT_KNOWN)]))
    order = np.argsort(start, kind="stable")
    return _filled(start[order], end[order], phase[order], np.sort(host.events.start_ns[host.named(STEP)]))


def _union(host: Host, rows: Int64) -> Intervals:
    return union_of(host.events.start_ns[rows], host.events.end_ns[rows]) if len(rows) else EMPTY


def _forward(host: Host, nodes: Autograd, modules: Spans) -> Intervals:
    """Return when a forward ran: modules, wrappers, and operators that autograd numbers; without any, all operators.

    Those in nodes (what checkpoints compute again) or on threads that mark no step are no forward's.
    """
    events = host.events
    operators = nodes.operators
    steps = host.named(STEP)
    if len(steps):
        is_step = np.zeros(len(events), dtype=bool)
        is_step[steps] = True
        operators = operators[np.isin(events.thread[operators], events.thread[steps]) & ~is_step[operators]]
    operators = operators[nodes.spans.outermost(host.places(operators)) < 0]
    numbered = operators[events.forward[operators] >= 0]
    rows = np.r_[numbered, host.named(DDP_FORWARD, DP_FORWARD)]
    if not len(rows) and not len(modules):
        rows = operators
    return _union(host, rows) | union_of(modules.start_ns, modules.end_ns)


def _filled(start: Int64, end: Int64, phase: Int64, steps: Int64) -> Phases:
    """Return marks, which are disjoint and in order, as tiles of all time."""
    begun = np.searchsorted(steps, start, side="right") - np.searchsorted(steps, np.r_[_BEFORE, end[:-1]], side="left")
    before = np.r_[Phase.OPTIMIZER, phase[:-1]]
    is_between = (before >= Phase.OPTIMIZER) & (phase == Phase.FORWARD) | (begun > 0)
    is_between[0] = True
    gap_phase = np.where(is_between, Phase.BETWEEN_STEPS, phase)
    starts = np.stack([np.r_[_BEFORE, end[:-1]], start], axis=1).ravel()
    labels = np.stack([gap_phase, phase], axis=1).ravel()
    starts, labels = np.r_[starts, end[-1]], np.r_[labels, Phase.BETWEEN_STEPS]
    ends = np.r_[starts[1:], _AFTER]
    real = ends > starts
    return Phases(starts[real], ends[real], labels[real])
