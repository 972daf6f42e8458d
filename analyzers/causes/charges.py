"""Charges: the critical path by rank, cause, phase and place.

rank 0   |host|launch|kernels######|........waits|M=transfer=|        the walk goes back from the end, over to the last
rank 1   |host|..late...|launch|kernels##########|M=transfer=|        member where a member waited: rank 1 is charged
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, begins, distinct, places_since, values_at
from analyzers.causes.calibrated import Calibrated
from analyzers.causes.changes import Facts
from analyzers.causes.pace import Course
from analyzers.rank import Cause, EdgeKind, PointKind
from analyzers.trace import Kind


class Charge(IntEnum):
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

    @property
    def label(self) -> str:
        """Return its name in documents."""
        return self.name.lower()


_OF_HOST = {
    Cause.INPUT: Charge.INPUT,
    Cause.SYNCHRONIZE: Charge.SYNCHRONIZE,
    Cause.OPERATOR: Charge.OPERATOR,
    Cause.PYTHON: Charge.PYTHON,
    Cause.ALLOCATOR: Charge.ALLOCATOR,
    Cause.GC: Charge.GC,
    Cause.PROFILER: Charge.PROFILER,
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


# Who came within this part of a step of the last shares the walk with it.
NEAR = 0.01


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


@dataclass(frozen=True, eq=False)
class _Path(Columns):
    """The walk, from its end back: edges of the course, and when each one's source and target are."""

    edge: Int64
    since_ns: Float64
    until_ns: Float64


def walk(calibrated: Calibrated, facts: Facts) -> Walked:
    """Walk back over what binds, from the end of the typical steps to their beginning."""
    course = calibrated.course
    lags = calibrated.lags[course.edges.edge, 0]
    replayed = _replayed(course, lags)
    path = _expanded(course, lags, list(_walk(course, replayed)), replayed.begin_ns)
    rows = _charged(calibrated, facts, path)
    columns = (rows.rank, rows.instance, rows.cause, rows.phase, rows.place, rows.kind, rows.device)
    sums = distinct(*columns)
    ns = sums.summed(rows.ns)
    rank, instance, cause, phase, place, kind, device = (column[ns != 0] for column in sums.columns)
    charges = Charges(rank, instance, cause, phase, place, kind, ns[ns != 0], device)
    steps = len(course.steps)
    shares = shares_by_rank(course, replayed, lags)
    return Walked(charges, shares, facts.names, steps, (replayed.end_ns - replayed.begin_ns) / steps)


@dataclass(frozen=True, eq=False)
class Replayed:
    """One replay: times of all points after each visit, lengths of chains, and from where to where the walk goes.

    `ends` are the points of all ranks that the walk may begin at, and how far each is from its own begin one round
    before; `node` is the one that takes longest.
    """

    history: list[Float64]
    chains: Float64
    node: int
    begin_ns: float
    end_ns: float
    ends: Int64
    lengths: Float64


def _replayed(course: Course, lags: Float64) -> Replayed:
    """Replay the course once, and keep all times."""
    history: list[Float64] = []
    at_marks: list[Float64] = []
    for visit, times in course.replay(lags[:, None]):
        history.append(times[:, 0].copy())
        at_marks.append(times[course.marks[visit.place], 0] if len(course.marks) else times[:0, 0])
    chains = course.contracted.sums(lags[:, None])[:, 0]
    if not len(course.marks):
        node, begin_ns = int(history[-1].argmax()), float(course.begun_ns.min())
        end_ns = float(history[-1][node])
        return Replayed(history, chains, node, begin_ns, end_ns, np.array([node]), np.array([end_ns - begin_ns]))
    before = at_marks[-1 - len(course.steps)]
    lengths = at_marks[-1] - before
    longest = int(lengths.argmax())
    begin_ns, end_ns = float(before[longest]), float(at_marks[-1][longest])
    return Replayed(history, chains, int(course.marks[0, longest]), begin_ns, end_ns, course.marks[0], lengths)


def _walk(course: Course, replayed: Replayed) -> Iterator[tuple[int, float]]:
    """Yield the chains that bind, from a point of the last visit back, and when each one's target is."""
    contracted, visit = course.contracted, len(replayed.history) - 1
    history, chains, node = replayed.history, replayed.chains, replayed.node
    into = contracted.into
    while visit >= 0 and history[visit][node] > replayed.begin_ns:
        times = history[visit]
        if node not in into:
            return
        source, chain = max(into[node], key=lambda pair: times[pair[0]] + chains[pair[1]])
        yield chain, float(times[node])
        if source >= contracted.size:
            source, visit = int(contracted.carried[source - contracted.size]), visit - 1
        node = source


def _expanded(course: Course, lags: Float64, walked: list[tuple[int, float]], begin_ns: float) -> _Path:
    """Return the edges of walked chains, cut at the beginning."""
    chain_of = course.contracted.chain_of
    # Along a chain each edge's target is the next one's source: the latest target first.
    position = course.contracted.position[course.edges.target]
    order = np.lexsort((-position, chain_of))
    first = np.searchsorted(chain_of[order], np.arange(len(course.contracted.chains) + 1))
    chains = np.array([chain for chain, _ in walked], dtype=np.int64)
    ends = np.array([end for _, end in walked])
    counts = first[chains + 1] - first[chains]
    starts = np.repeat(first[chains], counts)
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    edges = order[starts + within]
    total = np.cumsum(lags[edges])
    base = np.repeat((total - lags[edges])[np.cumsum(counts) - counts], counts)
    until = np.repeat(ends, counts) - (total - lags[edges] - base)
    since = until - lags[edges]
    return _Path(edges, np.maximum(since, begin_ns), np.maximum(until, begin_ns))


def _charged(calibrated: Calibrated, facts: Facts, path: _Path) -> Charges:
    """Return the parts of the path, a row each, in whole nanoseconds whose sum is its length."""
    course, graph = calibrated.course, calibrated.course.graph
    edge = course.edges.edge[path.edge]
    # Edges may run back in time by the clocks' error: what one takes away another has too much.
    length = np.rint(path.until_ns).astype(np.int64) - np.rint(path.since_ns).astype(np.int64)
    rank = graph.edge_rank[edge]
    instance = graph.instance[edge]
    kind = graph.edges.kind[edge].astype(np.int64)
    cause = np.full(max(EdgeKind) + 1, Charge.UNKNOWN)
    cause[list(_OF_EDGE)] = list(_OF_EDGE.values())
    charged = cause[kind]
    runs = kind == EdgeKind.RUN
    charged[runs] = _run_cause(facts, edge[runs])
    charged[graph.unresolved[edge]] = Charge.UNRESOLVED
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


def _run_cause(facts: Facts, edge: Int64) -> Int64:
    cause = np.full(max(Kind) + 1, Charge.UNKNOWN)
    cause[list(_OF_KIND)] = list(_OF_KIND.values())
    packing = values_at(facts.of_activities("packing"), facts.activity[edge], 0) > 0
    return np.where(packing, Charge.PACKING, cause[facts.kind[edge]])


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
    cause = np.full(max(Cause) + 1, Charge.UNKNOWN)
    cause[list(_OF_HOST)] = list(_OF_HOST.values())
    if facts.graph.parts[0].on_host:
        cause[Cause.OPERATOR] = Charge.COMPUTE
    in_pieces = replace(
        whole.take(of),
        cause=cause[stretches.cause[piece]],
        phase=stretches.phase[piece],
        place=stretches.place[piece],
        ns=ns,
    )
    bare = whole.take(counts == 0)
    return Charges.joined([in_pieces, replace(bare, cause=np.full(len(bare), Charge.PYTHON))])


def shares_by_rank(course: Course, replayed: Replayed, lags: Float64) -> Float64:
    """Return each rank's share of the critical paths of all that were about last: weights run back over the graph.

    They go in equal parts over arrivals within a hundredth of the step of the last, at the end likewise, and else over
    what binds. Transfers have no rank.
    """
    weights = _chain_weights(course, replayed)
    edge, chain_of = course.edges.edge, course.contracted.chain_of
    graph = course.graph
    rank = graph.edge_rank[edge]
    own = (graph.edges.kind[edge] != EdgeKind.TRANSFER) & (rank >= 0)
    ns = np.bincount(rank[own], (weights[chain_of] * lags)[own], len(graph.ranks))
    total = ns.sum()
    return ns / total if total > 0 else np.full(len(ns), 1 / max(len(ns), 1))


def _chain_weights(course: Course, replayed: Replayed) -> Float64:
    """Return how much of the critical paths runs over each chain, in the last round."""
    contracted, steps = course.contracted, len(course.steps)
    near_ns = NEAR * (replayed.end_ns - replayed.begin_ns) / steps
    is_meeting = course.graph.points.kind == PointKind.MEETING
    weights = np.zeros(len(contracted.chains) + 1)
    at_end = replayed.ends[replayed.lengths >= replayed.lengths.max() - near_ns * steps]
    waiting = dict.fromkeys(at_end.tolist(), 1 / len(at_end))
    into, chains = contracted.into, contracted.chains
    order = np.lexsort((contracted.position[chains.target], chains.step))
    nodes = chains.target[order]
    by_step = np.split(nodes[begins(nodes)], np.searchsorted(chains.step[order][begins(nodes)], np.arange(1, steps)))
    last = len(replayed.history) - 1
    for visit in range(last, max(last - steps, -1), -1):
        times = replayed.history[visit]
        for node in by_step[visit % steps][::-1].tolist():
            weight = waiting.pop(node, 0.0)
            if weight:
                bound = _binding(into[node], times, replayed.chains, near_ns if is_meeting[node] else 0.0)
                for source, chain in bound:
                    weights[chain] += weight / len(bound)
                    waiting[source] = waiting.get(source, 0.0) + weight / len(bound)
        waiting = {
            int(contracted.carried[source - contracted.size]): weight
            for source, weight in waiting.items()
            if source >= contracted.size
        }
    return weights


def _binding(pairs: list[tuple[int, int]], times: Float64, chains: Float64, near_ns: float) -> list[tuple[int, int]]:
    """Return what a point waits for last, and what comes so near to that."""
    arrivals = [times[source] + chains[chain] for source, chain in pairs]
    latest = max(arrivals)
    if not near_ns:
        return [pairs[arrivals.index(latest)]]
    return [pair for pair, arrival in zip(pairs, arrivals, strict=True) if arrival >= latest - near_ns]
