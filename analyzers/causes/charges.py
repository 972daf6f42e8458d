"""Charges: the critical path by rank, cause, phase and place.

path      |host..............|launch|kernel####|transfer====|
charges   python|input|python|launch|compute   |transfer    |      each nanosecond is one; what merely waited is none
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, Labelled, begins, distinct, places_since, values_at
from analyzers.causes.calibrated import Calibrated
from analyzers.causes.changes import Facts
from analyzers.causes.critical_path import Path, Replayed, shares_by_rank, walk
from analyzers.causes.pace import Course
from analyzers.rank import Cause, EdgeKind, Phase
from analyzers.trace import Kind


class Charge(Labelled):
    """What a nanosecond of the critical path is."""

    COMPUTE = 0
    PACKING = 1
    COPY = 2
    TRANSFER = 3
    KERNEL_GAP = 4
    LAUNCH = 5
    OPERATOR = 6
    PYTHON = 7
    GC = 8
    INPUT = 9
    ALLOCATOR = 10
    SYNCHRONIZE = 11
    PROFILER = 12
    UNRESOLVED = 13
    UNKNOWN = 14


# The host's own causes have the same names here.
_OF_HOST = {
    Cause[name]: Charge[name] for name in ("INPUT", "SYNCHRONIZE", "OPERATOR", "PYTHON", "ALLOCATOR", "GC", "PROFILER")
}
_OF_EDGE = {
    EdgeKind.CALL: Charge.LAUNCH,
    EdgeKind.LAUNCH: Charge.LAUNCH,
    EdgeKind.STREAM: Charge.KERNEL_GAP,
    EdgeKind.WAIT: Charge.KERNEL_GAP,
    EdgeKind.BLOCK: Charge.SYNCHRONIZE,
    EdgeKind.TRANSFER: Charge.TRANSFER,
    EdgeKind.ARRIVE: Charge.TRANSFER,
}
_OF_KIND = {Kind.COMPUTE: Charge.COMPUTE, Kind.COPY: Charge.COPY, Kind.COMM: Charge.UNRESOLVED}


@dataclass(frozen=True, eq=False)
class Charges(Columns):
    """Lengths of the critical path of all typical steps, added up by all else that is said of them.

    `rank` is a rank's place, -1 for transfers and what is unresolved, `device` one of its devices, -1 for none;
    `instance` a collective's, -1 for all but transfers; `place` a name's number, -1 for none; `kind` an EdgeKind. The
    sum of `ns` is the time walked, exactly.
    """

    rank: Int64
    instance: Int64
    cause: Int64
    phase: Int64
    place: Int64
    kind: Int64
    ns: Int64
    device: Int64


@dataclass(frozen=True, eq=False)
class Walked:
    """The critical path of so many typical steps: its charges, and each rank's share of it, which add up to 1.

    `names` are those that the charges' places index. The walk follows whoever was last, by however little: shares are
    of all whose arrival was within a hundredth of a step of the last.
    """

    charges: Charges
    by_rank: Float64
    names: tuple[str, ...]
    steps: int
    step_ns: float


def charges_of(calibrated: Calibrated, facts: Facts, replayed: Replayed) -> Walked:
    """Walk back over what binds, from the end of the typical steps to their beginning, in the likeliest variant."""
    course = calibrated.course
    lags = calibrated.lags[course.edges.edge, 0]
    path = walk(replayed, lags)
    rows = Charges.joined([_charged(calibrated, facts, path), _before_source(facts, course, path, replayed)])
    columns = (rows.rank, rows.instance, rows.cause, rows.phase, rows.place, rows.kind, rows.device)
    sums = distinct(*columns)
    ns = sums.summed(rows.ns)
    rank, instance, cause, phase, place, kind, device = (column[ns != 0] for column in sums.columns)
    charges = Charges(rank, instance, cause, phase, place, kind, ns[ns != 0], device)
    steps = len(course.steps)
    shares = shares_by_rank(replayed, lags)
    return Walked(charges, shares, facts.names, steps, (replayed.end_ns - replayed.begin_ns) / steps)


def _charged(calibrated: Calibrated, facts: Facts, path: Path) -> Charges:
    """Return the parts of the path, a row each, in whole nanoseconds whose sum is its length."""
    course, graph = calibrated.course, calibrated.course.graph
    edge = course.edges.edge[path.edge]
    length = np.rint(path.until_ns).astype(np.int64) - np.rint(path.since_ns).astype(np.int64)
    rank = graph.edge_rank[edge]
    instance = graph.instance[edge]
    kind = graph.edges.kind[edge].astype(np.int64)
    charged = causes_of_edges(facts, edge)
    rank = np.where((charged == Charge.TRANSFER) | (charged == Charge.UNRESOLVED), UNKNOWN, rank)
    phase, place = facts.phase[edge], facts.place[edge]
    kept = calibrated.variants[0].kept
    unknown = np.minimum(np.rint(graph.edges.unknown_ns[edge] * kept).astype(np.int64), np.maximum(length, 0))
    nowhere = np.full(len(edge), UNKNOWN)
    device = np.where(rank >= 0, facts.device[edge], UNKNOWN)
    known = Charges(rank, instance, charged, phase, place, kind, length - unknown, device)
    nothing_known = replace(known, instance=nowhere, cause=np.full_like(charged, Charge.UNKNOWN), ns=unknown)
    stretches = kind == EdgeKind.STRETCH
    hosts = _by_state(facts, edge[stretches], known.take(stretches))
    return Charges.joined([known.take(~stretches), nothing_known.take(~stretches), hosts])


def _before_source(facts: Facts, course: Course, path: Path, replayed: Replayed) -> Charges:
    """Return what lies before the source that the walk ends at, where that is later than the first: it is unknown."""
    edge = course.edges.edge[path.edge[-1:]]
    since_ns = float(path.since_ns[-1]) if len(path) else replayed.end_ns
    left_ns = round(since_ns) - round(replayed.begin_ns)
    nowhere = np.full(len(edge), UNKNOWN)
    cause = np.full(len(edge), Charge.UNKNOWN)
    phase, kind = np.full(len(edge), Phase.NOT_KNOWN), facts.graph.edges.kind[edge].astype(np.int64)
    rank = facts.graph.edge_rank[edge]
    return Charges(rank, nowhere, cause, phase, nowhere, kind, np.full(len(edge), left_ns), facts.device[edge])


def causes_of_edges(facts: Facts, edges: Int64) -> Int64:
    """Return what each edge is charged for; of a host's stretches, which have several causes, UNKNOWN."""
    graph = facts.graph
    kind = graph.edges.kind[edges].astype(np.int64)
    of_edge, of_kind = (np.full(max(of) + 1, Charge.UNKNOWN, dtype=np.int64) for of in (EdgeKind, Kind))
    of_edge[list(_OF_EDGE)] = list(_OF_EDGE.values())
    of_kind[list(_OF_KIND)] = list(_OF_KIND.values())
    packs = values_at(facts.of_activities("packing"), facts.activity[edges], 0) > 0
    runs = np.where(packs, Charge.PACKING, of_kind[facts.kind[edges]])
    cause: Int64 = np.where(kind == EdgeKind.RUN, runs, of_edge[kind])
    cause[facts.is_own_part_of_waiting[edges]] = Charge.SYNCHRONIZE
    return np.where(graph.unresolved[edges], Charge.UNRESOLVED, cause)


def causes_of_states(facts: Facts) -> Int64:
    """Return by `Cause` what a host's stretch is charged for: on a CPU run operators compute."""
    cause = np.full(max(Cause) + 1, Charge.UNKNOWN, dtype=np.int64)
    cause[list(_OF_HOST)] = list(_OF_HOST.values())
    if any(part.on_host for part in facts.graph.parts):
        cause[Cause.OPERATOR] = Charge.COMPUTE
    return cause


def _by_state(facts: Facts, edge: Int64, whole: Charges) -> Charges:
    """Return stretches of the host by what their thread was in, in proportion, whole nanoseconds that add up."""
    stretches = facts.stretches
    first = np.searchsorted(stretches.edge, edge)
    counts = np.searchsorted(stretches.edge, edge, side="right") - first
    of = np.repeat(np.arange(len(edge)), counts)
    piece = np.repeat(first, counts) + places_since(begins(of))
    done = np.cumsum(stretches.ns[piece])
    before = done - stretches.ns[piece]
    base = before[np.searchsorted(of, of)]
    scale = whole.ns[of] / np.maximum(np.bincount(of, stretches.ns[piece], len(edge))[of], 1)
    ns = np.rint((done - base) * scale).astype(np.int64) - np.rint((before - base) * scale).astype(np.int64)
    in_pieces = replace(
        whole.take(of),
        cause=causes_of_states(facts)[stretches.cause[piece]],
        phase=stretches.phase[piece],
        place=stretches.place[piece],
        ns=ns,
    )
    # No state is known of a stretch without length, nor where its thread has no rows at all.
    bare = whole.take(counts == 0)
    return Charges.joined([in_pieces, replace(bare, cause=np.full(len(bare), Charge.PYTHON))])
