"""Which kernels belong together, by brute force: the oracle for undamaged runs, and for small cases every alignment.

    found = oracle(read_run(folder))                 sets of (rank, device, correlation)
    judge(matched, found, left(damaged)).wrong       what a matcher paired that does not belong together

No code of the project. The oracle trusts order alone, since nothing is missing, and then verifies everything else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from statistics import median
from typing import Any

from tests.support import damage as perturb
from tests.support.damage import Document, Event, Member

AGREE_NS = 1_000_000
SYNCHRONIZING = ("allreduce", "_allgather", "allgather", "_reduce_scatter", "reduce_scatter", "all_to_all", "barrier")
UNEVEN = ("all_to_all",)

Together = frozenset[Member]


@dataclass(frozen=True)
class Seen:
    """An NCCL kernel as its trace tells of it; what no row says is None."""

    member: Member
    name: str
    kind: str | None
    group: tuple[Any, ...] | None
    signature: tuple[Any, ...]
    step: int | None
    thread: int | None
    launch_ns: int
    start_ns: int
    end_ns: int
    stream: int

    @property
    def synchronizes(self) -> bool:
        return self.kind is not None and self.kind.startswith(SYNCHRONIZING)


def seen(document: Document) -> list[Seen]:
    """The NCCL kernels of a trace in the order of their launches."""
    events = document["traceEvents"]
    steps = perturb.steps(document)
    calls = {e["args"].get("correlation"): e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    said = {perturb.external_id(e): e["args"] for e in events if e.get("name") == "record_param_comms"}
    kernels = [
        _seen(event, calls.get(event["args"]["correlation"]), said, steps, perturb.rank_of(document))
        for event in filter(perturb.is_nccl, events)
    ]
    return sorted(kernels, key=lambda kernel: kernel.member[2])


def _seen(
    event: Event, call: Event | None, said: Mapping[Any, Any], steps: Mapping[int, tuple[int, int]], rank: int
) -> Seen:
    args = event["args"]
    known = args if "Collective name" in args else said.get(args.get("External id"), {})
    kind = known.get("Collective name")
    launch = perturb.start_ns(call) if call else perturb.start_ns(event)
    inside = [number for number, (start, end) in steps.items() if call and start <= launch < end]
    sizes = () if kind is None or kind.startswith(UNEVEN) else (known["In msg nelems"], known["Out msg nelems"])
    return Seen(
        member=(rank, args["device"], args["correlation"]),
        name=event["name"],
        kind=kind,
        group=_group(known, rank),
        signature=("message" if kind in ("send", "recv") else kind, *sizes, known.get("dtype")),
        step=inside[0] if inside else None,
        thread=call["tid"] if call else None,
        launch_ns=launch,
        start_ns=perturb.start_ns(event),
        end_ns=perturb.end_ns(event),
        stream=args["stream"],
    )


def _group(known: Mapping[str, Any], rank: int) -> tuple[Any, ...] | None:
    """What tells groups apart: name and ranks, and for a message who sends to whom."""
    if not known:
        return None
    ends = (known.get("Src Rank", rank), known.get("Dst Rank", rank)) if {"Src Rank", "Dst Rank"} & set(known) else ()
    return known["Process Group Name"], known["Process Group Ranks"], *ends


def oracle(documents: Sequence[Document]) -> list[Together]:
    """The instances of an undamaged run."""
    ranks = [seen(document) for document in documents]
    if len(documents) == 1 and not any(kernel.kind for kernel in ranks[0]):
        return launched_together(ranks[0])
    stepped = list(by_place(ranks))
    offsets = _offsets(stepped)
    checked = [kernels for kernels in stepped if agree(kernels, offsets)]
    before = list(takewhile(lambda kernels: ends_agree(kernels, offsets), last_of_heads(ranks)))
    return [frozenset(kernel.member for kernel in kernels) for kernels in checked + before]


def by_place(ranks: Sequence[Sequence[Seen]]) -> Iterator[list[Seen]]:
    """Kernels at one place of a group's sequence in a step, where all ranks that have the step have as many."""
    sequences: dict[Any, dict[int, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for kernels in ranks:
        for kernel in kernels:
            if kernel.group and kernel.step is not None:
                sequences[kernel.group, kernel.step][kernel.member[0]].append(kernel)
    for of_ranks in sequences.values():
        if len(set(map(len, of_ranks.values()))) == 1:
            yield from map(list, zip(*of_ranks.values(), strict=True))


def last_of_heads(ranks: Sequence[Sequence[Seen]]) -> Iterator[list[Seen]]:
    """What was launched before the first step, from the last backwards, as far as every rank has it.

    Only where each rank has one stream of NCCL kernels: without metadata nothing else tells groups apart.
    """
    if any(len({kernel.stream for kernel in kernels}) > 1 for kernels in ranks):
        return
    heads = []
    for kernels in ranks:
        first = min((kernel.member[2] for kernel in kernels if kernel.step is not None), default=None)
        heads.append([kernel for kernel in reversed(kernels) if first is None or kernel.member[2] < first])
    for together in zip(*heads, strict=False):
        if len({kernel.name for kernel in together}) > 1:
            return
        yield list(together)


def _offsets(instances: Sequence[Sequence[Seen]]) -> dict[int, int]:
    """By rank, the median by which its ends are later than those of the first member."""
    apart: dict[int, list[int]] = defaultdict(list)
    for kernels in instances:
        if kernels[0].synchronizes and kernels[0].member[0] == 0:
            for kernel in kernels:
                apart[kernel.member[0]].append(kernel.end_ns - kernels[0].end_ns)
    return {rank: round(median(found)) for rank, found in apart.items()}


def agree(kernels: Sequence[Seen], offsets: Mapping[int, int]) -> bool:
    """Whether kernels can be one operation: alike, and if they synchronize, ended together."""
    alike = len({kernel.signature for kernel in kernels}) == 1
    return alike and (not kernels[0].synchronizes or ends_agree(kernels, offsets))


def ends_agree(kernels: Sequence[Seen], offsets: Mapping[int, int]) -> bool:
    ends = [kernel.end_ns - offsets.get(kernel.member[0], 0) for kernel in kernels]
    return max(ends) - min(ends) <= AGREE_NS


def launched_together(kernels: Sequence[Seen]) -> list[Together]:
    """One process with several devices: one thread launches an operation on each device in turn."""
    devices = len({kernel.member[1] for kernel in kernels})
    found: list[Together] = []
    by_thread = sorted(kernels, key=lambda kernel: (kernel.thread or 0, kernel.launch_ns))
    for _, launches in groupby(by_thread, key=lambda kernel: (kernel.thread or 0, kernel.name)):
        row = list(launches)
        for start in range(0, len(row), devices):
            members = frozenset(kernel.member for kernel in row[start : start + devices])
            if len({device for _, device, _ in members}) == devices:
                found.append(members)
    return found


def left(documents: Iterable[Document]) -> set[Member]:
    """The NCCL kernels that are still there."""
    return {member for document in documents for member in perturb.members(document)}


@dataclass(frozen=True)
class Verdict:
    """What became of a matching: sets that no instance holds, and how many of the kernels that could be matched are."""

    wrong: list[Together]
    matched: int
    matchable: int

    @property
    def share(self) -> float:
        return self.matched / self.matchable if self.matchable else 1.0


def judge(found: Iterable[Iterable[Member]], whole: Iterable[Iterable[Member]], remaining: set[Member]) -> Verdict:
    """Hold a matching of what remains against the whole instances of the undamaged run.

    An instance can be matched when nothing of it is lost; it is when exactly its kernels were found together.
    """
    instances = [frozenset(members) for members in whole]
    of = {member: instance for instance in instances for member in instance}
    paired = [frozenset(members) for members in found]
    wrong = [members for members in paired if len(members) > 1 and not _within_one(members, of)]
    entire = [members for members in instances if members <= remaining]
    exact = set(paired)
    return Verdict(wrong, sum(len(members) for members in entire if members in exact), sum(map(len, entire)))


def _within_one(members: Together, of: Mapping[Member, Together]) -> bool:
    return all(member in of for member in members) and members <= of[next(iter(members))]


# Small cases: every monotone alignment of two ranks.


@dataclass(frozen=True)
class Short:
    """A kernel for the exhaustive search."""

    signature: Any
    end_ns: int
    synchronizes: bool = True


Alignment = tuple[tuple[int, int], ...]


def alignments(a: Sequence[Short], b: Sequence[Short], i: int = 0, j: int = 0) -> Iterator[Alignment]:
    """All ways to pair kernels of like signature without crossing, the empty one too."""
    yield ()
    for k in range(i, len(a)):
        for m in range(j, len(b)):
            if a[k].signature == b[m].signature:
                for rest in alignments(a, b, k + 1, m + 1):
                    yield ((k, m), *rest)


def score(a: Sequence[Short], b: Sequence[Short], pairs: Alignment, tolerance_ns: int, offset_ns: int | None) -> float:
    """Each pair is worth 1 when its ends agree, down to -1 when they are a tolerance apart; no pair is worth nothing.

    Without a known offset between the clocks, their median difference is taken for it.
    """
    apart = [b[m].end_ns - a[k].end_ns for k, m in pairs if a[k].synchronizes]
    offset = offset_ns if offset_ns is not None else median(apart or [0])
    return len(pairs) - sum(2 * min(1.0, abs(difference - offset) / tolerance_ns) for difference in apart)


def best_alignments(
    a: Sequence[Short],
    b: Sequence[Short],
    *,
    tolerance_ns: int = 100_000,
    offset_ns: int | None = None,
    margin: float = 0.0,
) -> list[Alignment]:
    """Every alignment whose score is within a margin of the best, the best first."""
    assert len(a) <= 7 >= len(b), "too many to try them all"
    scored = sorted(((score(a, b, pairs, tolerance_ns, offset_ns), pairs) for pairs in alignments(a, b)), reverse=True)
    return [pairs for worth, pairs in scored if worth >= scored[0][0] - margin]


def disputed(pairs: Iterable[tuple[int, int]], good: Iterable[Alignment]) -> set[tuple[int, int]]:
    """Pairs of which some good alignment pairs a member with another."""
    others = [(k, m) for alignment in good for k, m in alignment]
    return {(k, m) for k, m in pairs if any((k == i) != (m == j) for i, j in others)}
