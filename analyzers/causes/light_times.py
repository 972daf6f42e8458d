"""Light durations of steps whose light window is odd.

The two windows are of different steps: what is odd in the light one need not be in the full one, whose steps the graph
has. There the light window's durations are not this step's: each takes the median of its like in the other steps.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, middles
from analyzers.causes.changes import Facts
from analyzers.causes.joining import RunGraph
from analyzers.causes.likes import likes
from analyzers.rank import EdgeKind


def without_odd(graph: RunGraph, facts: Facts, typical: Collection[int]) -> RunGraph:
    """Return the graph with the light durations of typical light steps, given by number, and of their like."""
    edges = graph.edges
    rows = np.flatnonzero(np.isin(edges.kind, (EdgeKind.RUN, EdgeKind.TRANSFER)) & (edges.light_ns != UNKNOWN))
    step = graph.points.step[edges.target[rows]]
    odd = ~np.isin(step, list(typical))
    if not odd.any() or odd.all():
        return graph
    instance = np.maximum(graph.instance[rows], 0)
    of_instance = len(facts.names) + graph.like_instance[instance] if len(graph.like_instance) else instance
    name = np.where(edges.kind[rows] == EdgeKind.TRANSFER, of_instance, facts.name[rows])
    rank = graph.edge_rank[rows]
    alike = likes(rows, name * len(graph.ranks) + rank, rank, step, graph.points.time_ns[edges.target[rows]])
    light_ns = edges.light_ns.copy()
    light_ns[rows[odd]] = _medians(alike.in_any_step, light_ns[rows], odd)
    return replace(graph, edges=replace(edges, light_ns=light_ns))


def _medians(key: Int64, light_ns: Int64, odd: Mask) -> Int64:
    """Return for what is odd the median of its like that is not, UNKNOWN where there is none."""
    order = np.lexsort((light_ns[~odd], key[~odd]))
    known = key[~odd][order]
    first = np.searchsorted(known, key[odd])
    past = np.searchsorted(known, key[odd], side="right")
    median = middles(light_ns[~odd][order], first, past)
    return np.where(np.isnan(median), UNKNOWN, np.nan_to_num(median)).astype(np.int64)
