"""Charges: the critical path of the typical steps, each nanosecond with its rank, cause, phase and place.

rank 0   |host|launch|kernels######|........waits|M=transfer=|        the walk goes back from the end, over to the last
rank 1   |host|..late...|launch|kernels##########|M=transfer=|        member where a member waited: rank 1 is charged
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from analyzers.arrays import UNKNOWN, Columns, Float64, Int64, distinct, values_at
from analyzers.causes.calibrated import Calibrated, lags_of
from analyzers.causes.changes import Facts
from analyzers.causes.pace import ContractedStep, Course
from analyzers.rank import Cause, EdgeKind, Phase
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


@dataclass(frozen=True, eq=False)
class Charges(Columns):
    """Lengths of the critical path of all typical steps, added up by all else that is said of them.

    `rank` is a rank's place, -1 for transfers and what is unresolved, `instance` a collective's, -1 for all but
    transfers, `place` indexes `names`, -1 for none. The sum of `ns` is the time walked, exactly.
    """

    rank: Int64
    instance: Int64
    cause: Int64
    phase: Int64
    place: Int64
    kind: Int64
    ns: Int64
    names: tuple[str, ...]
    steps: int


@dataclass(frozen=True, eq=False)
class _Path(Columns):
    """The walk, from its end back: edges of the course, and when each one's source and target are."""

    edge: Int64
    since_ns: Float64
    until_ns: Float64


def charges_of(calibrated: Calibrated, facts: Facts) -> Charges:
    """Walk back over what binds, from the end of the typical steps to their beginning."""
    course = calibrated.course
    lags = lags_of(calibrated.hosts, calibrated.variants[0])[course.edges.edge]
    path = _in_steps(course, lags)
    rows = _charged(calibrated, facts, path)
    columns = tuple(getattr(rows, name) for name in ("rank", "instance", "cause", "phase", "place", "kind"))
    sums = distinct(*columns)
    kept = sums.summed(rows.ns) != 0
    return Charges(*(column[kept] for column in sums.columns), sums.summed(rows.ns)[kept], rows.names, rows.steps)


def _in_steps(course: Course, lags: Float64) -> _Path:
    """Return the critical path of one round of the typical steps."""
    contracted = course.contracted
    history: list[Float64] = []
    at_marks: list[Float64] = []
    for visit, times in course.replay(lags[:, None]):
        history.append(times[:, 0].copy())
        at_marks.append(times[course.marks[visit.place], 0] if len(course.marks) else times[:0, 0])
    node, begin_ns = _ends(course, history, at_marks)
    chains = contracted.sums(lags[:, None])[:, 0]
    walked = list(_walk(course, history, chains, node, begin_ns))
    return _expanded(course, lags, walked, begin_ns)


def _ends(course: Course, history: list[Float64], at_marks: list[Float64]) -> tuple[int, float]:
    """Return the point that the walk begins at, and the instant that it ends at: one round earlier, or the source."""
    if not len(course.marks):
        return int(history[-1].argmax()), float(course.begun_ns.min())
    before = at_marks[-1 - len(course.steps)]
    longest = int((at_marks[-1] - before).argmax())
    return int(course.marks[0, longest]), float(before[longest])


def _walk(
    course: Course, history: list[Float64], chains: Float64, node: int, begin_ns: float
) -> Iterator[tuple[int, float]]:
    """Yield the chains that bind, from a point of the last visit back, and when each one's target is."""
    contracted, visit = course.contracted, len(history) - 1
    into = [_into(step) for step in contracted.steps]
    carried = [dict(zip(step.carried_to.tolist(), step.carried_from.tolist(), strict=True)) for step in contracted.steps]
    while visit >= 0 and history[visit][node] > begin_ns:
        place, times = visit % len(course.steps), history[visit]
        if node not in into[place]:
            return
        source, chain = max(into[place][node], key=lambda pair: times[pair[0]] + chains[pair[1]])
        yield chain, float(times[node])
        if source in carried[place]:
            source, visit = carried[place][source], visit - 1
        node = source


def _into(step: ContractedStep) -> dict[int, list[tuple[int, int]]]:
    """Return the sources and chains of each point."""
    into: dict[int, list[tuple[int, int]]] = {}
    for node, source, chain, other, other_chain in step.into:
        pairs = into.setdefault(node, [])
        pairs += [(of, by) for of, by in ((source, chain), (other, other_chain)) if of not in (node, UNKNOWN)]
    return into


def _expanded(course: Course, lags: Float64, walked: list[tuple[int, float]], begin_ns: float) -> _Path:
    """Return the edges of walked chains, cut at the beginning."""
    chain_of = course.contracted.chain_of
    # Along a chain each edge's target is the next one's source: the latest target first.
    position = course.contracted.position[course.edges.target]
    order = np.lexsort((-position, chain_of))
    first = np.searchsorted(chain_of[order], np.arange(course.contracted.chains + 1))
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
    known = (rank, instance, charged, phase, place, kind, length - unknown)
    parts = [known, (rank, nowhere, np.full_like(charged, Charge.UNKNOWN), phase, place, kind, unknown)]
    stretches = kind == EdgeKind.STRETCH
    hosts = _by_state(facts, edge[stretches], rank[stretches], length[stretches])
    parts = [tuple(column[~stretches] for column in part) for part in parts]
    columns = [np.concatenate(columns) for columns in zip(*parts, hosts, strict=True)]
    return Charges(*columns, facts.names, len(course.steps))


def _run_cause(facts: Facts, edge: Int64) -> Int64:
    cause = np.full(max(Kind) + 1, Charge.UNKNOWN)
    cause[list(_OF_KIND)] = list(_OF_KIND.values())
    packing = values_at(facts.of_activities("packing"), facts.activity[edge], 0) > 0
    return np.where(packing, Charge.PACKING, cause[facts.kind[edge]])


def _by_state(facts: Facts, edge: Int64, rank: Int64, length: Int64) -> tuple[Int64, ...]:
    """Return stretches of the host by what their thread was in, in proportion, whole nanoseconds that add up."""
    stretches = facts.stretches
    first = np.searchsorted(stretches.edge, edge)
    counts = np.searchsorted(stretches.edge, edge, side="right") - first
    of = np.repeat(np.arange(len(edge)), counts)
    piece = np.repeat(first, counts) + np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    whole = np.bincount(of, stretches.ns[piece], len(edge))
    done = np.cumsum(stretches.ns[piece])
    before = done - stretches.ns[piece]
    base = before[np.searchsorted(of, of)]
    scale = length[of] / np.maximum(whole[of], 1)
    ns = np.rint((done - base) * scale).astype(np.int64) - np.rint((before - base) * scale).astype(np.int64)
    cause = np.full(max(Cause) + 1, Charge.UNKNOWN)
    cause[list(_OF_HOST)] = list(_OF_HOST.values())
    bare = np.flatnonzero(counts == 0)
    nothing = np.full(len(bare), UNKNOWN)
    none = np.full(len(of), UNKNOWN)
    return (
        np.r_[rank[of], rank[bare]],
        np.r_[none, nothing],
        np.r_[cause[stretches.cause[piece]], np.full(len(bare), Charge.PYTHON)],
        np.r_[stretches.phase[piece], np.full(len(bare), Phase.NOT_KNOWN)],
        np.r_[stretches.place[piece], nothing],
        np.full(len(of) + len(bare), EdgeKind.STRETCH),
        np.r_[ns, length[bare]],
    )
