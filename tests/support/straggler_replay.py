"""Replays of the published jobs, in plain Python, without tracer: as their authors have it, and from rows alone.

A step begins at once on all workers. An operation begins when all that it waits for has ended; one that communicates
ends when its transfer is over, which begins when the last of those it meets has begun. The *slowdown* of a job is the
time of all steps with durations as they were, over that with ideal ones: of computing operations the mean of all like
them in all workers and steps, of transfers the median.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median

from tests.support.kineto_files import Event
from tests.support.stragglers import Job, Kind, Operation

# A transfer that ends so long before all have begun took no time: somebody's clock is off.
_IMPOSSIBLE_NS = -10_000_000
# Behind the last microbatch each of these waits for the one before, whatever it runs on.
_TAIL = (Kind.COLLECTION, Kind.LAYERNORM, Kind.EMBEDDING, Kind.GRADIENTS, Kind.NORM, Kind.OPTIMIZER)
# What operations of a worker wait for, by the words that leave it out.
DEPENDENCIES = (
    *("compute in order", "messages in order", "sends for compute", "compute for receives", "receives for compute"),
    *("first backward's messages", "compute for parameters", "tail in order"),
)


@dataclass(frozen=True)
class Node:
    """An operation of a rank: what it is like, whom it meets, and the places in its step of what it waits for."""

    rank: int
    like: str
    communicates: bool
    meets: Hashable
    waits: tuple[int, ...]
    start_ns: float
    end_ns: float


Step = list[Node]


@dataclass(frozen=True)
class Replay:
    """Steps to be replayed; all times are of all of them together, ns."""

    steps: Sequence[Step]

    @cached_property
    def _own(self) -> list[list[float]]:
        return [_own_durations(step) for step in self.steps]

    @cached_property
    def _ideal(self) -> dict[str, float]:
        """The ideal duration by what operations are like."""
        alike: dict[tuple[bool, str], list[float]] = defaultdict(list)
        for step, durations in zip(self.steps, self._own, strict=True):
            for node, duration in zip(step, durations, strict=True):
                alike[node.communicates, node.like].append(duration)
        return {like: (median if communicates else fmean)(values) for (communicates, like), values in alike.items()}

    @property
    def recorded_ns(self) -> float:
        """Return the time as it was recorded."""
        return sum(max(node.end_ns for node in step) - min(node.start_ns for node in step) for step in self.steps)

    def time_ns(self, ideal_ranks: Collection[int] = ()) -> float:
        """Return the time with durations as they were, but for those of some ranks, which are ideal."""
        ideal = self._ideal
        return sum(
            _span(step, [ideal[node.like] if node.rank in ideal_ranks else took for node, took in pairs])
            for step, durations in zip(self.steps, self._own, strict=True)
            for pairs in [list(zip(step, durations, strict=True))]
        )

    @cached_property
    def ideal_ns(self) -> float:
        """Return the time with ideal durations alone."""
        return self.time_ns({node.rank for node in self.steps[0]})

    @property
    def slowdown(self) -> float:
        """Return what was published: both times are replayed, so that what hosts delayed is in neither."""
        return self.time_ns() / self.ideal_ns

    def share_of(self, ranks: Collection[int]) -> float:
        """Return the share of what ideal durations save that is saved where these ranks alone have them."""
        as_it_was = self.time_ns()
        return (as_it_was - self.time_ns(ranks)) / (as_it_was - self.ideal_ns)


def _own_durations(step: Step) -> list[float]:
    """What each operation took once all that it meets had begun."""
    begun: dict[Hashable, float] = {}
    for node in step:
        begun[node.meets] = max(begun.get(node.meets, node.start_ns), node.start_ns)
    took = (node.end_ns - (begun[node.meets] if node.communicates else node.start_ns) for node in step)
    return [duration if duration > _IMPOSSIBLE_NS else 0 for duration in took]


def _span(step: Step, durations: Sequence[float]) -> float:
    """When the last operation of a step ends; raises ValueError where operations wait for one another."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    waiting: Counter[Hashable] = Counter()
    followers: dict[int, list[Hashable]] = defaultdict(list)
    for place, node in enumerate(step):
        members[node.meets].append(place)
        waiting[node.meets] += len(node.waits)
        for other in node.waits:
            followers[other].append(node.meets)
    ready = [meeting for meeting in members if not waiting[meeting]]
    ends: dict[int, float] = {}
    while ready:
        together = members[ready.pop()]
        begun = max((ends[other] for place in together for other in step[place].waits), default=0)
        for place in together:
            ends[place] = begun + durations[place]
            for meeting in followers[place]:
                waiting[meeting] -= 1
                if not waiting[meeting]:
                    ready.append(meeting)
    if len(ends) < len(step):
        raise ValueError(f"{len(step) - len(ends)} of {len(step)} operations wait for one another")
    return max(ends.values())


def as_published(job: Job, without: Collection[str] = ()) -> list[Step]:
    """The steps of a job as it was read, with its authors' dependencies but for those left out."""
    steps = []
    for workers in job.steps.values():
        step: Step = []
        for operations in workers.values():
            first = len(step)
            waits = _published_waits(operations, without)
            rank = job.rank_of(operations[0].worker)
            step += [_node(rank, one, [first + place for place in waits[at]]) for at, one in enumerate(operations)]
        steps.append(step)
    return steps


def _node(rank: int, one: Operation, waits: Sequence[int]) -> Node:
    communicates = one.kind.is_message or one.kind.is_collective
    return Node(rank, one.kind, communicates, one.meeting, tuple(waits), one.start_ns, one.end_ns)


def _published_waits(operations: Sequence[Operation], without: Collection[str]) -> dict[int, set[int]]:
    """What each operation of a worker waits for on the worker itself, by places."""
    waits: dict[int, set[int]] = defaultdict(set)
    for what, earlier, later in _published_edges(operations):
        if what not in without:
            waits[later].add(earlier)
    return waits


def _published_edges(operations: Sequence[Operation]) -> Iterator[tuple[str, int, int]]:
    place = {(one.kind, one.number): at for at, one in enumerate(operations)}
    compute = [at for at, one in enumerate(operations) if one.kind.computes]
    chains = [("compute in order", compute)]
    chains += [
        ("messages in order", [at for at, one in enumerate(operations) if one.kind == kind])
        for kind in Kind
        if kind.is_message
    ]
    chains.append(("tail in order", [compute[-1], *(place[kind, 0] for kind in _TAIL if (kind, 0) in place)]))
    for what, chain in chains:
        for earlier, later in pairwise(chain):
            yield what, earlier, later
    yield "compute for parameters", place[Kind.PARAMETERS, 0], compute[0]
    for at, one in enumerate(operations):
        kind = Kind.FORWARD if one.kind.is_forward else Kind.BACKWARD
        if one.kind.sends:
            yield "sends for compute", place[kind, one.number], at
        if one.kind.receives:
            yield "compute for receives", at, place[kind, one.number]
        if one.kind.receives and one.number:
            yield "receives for compute", place[kind, one.number - 1], at
    turn = next(number for number, at in enumerate(compute) if operations[at].kind == Kind.BACKWARD)
    for kind in (Kind.BACKWARD_RECV, Kind.BACKWARD_SEND):
        if turn >= 2 and (kind, 0) in place:
            yield "first backward's messages", compute[turn - 2], place[kind, 0]


def from_rows(folder: Path) -> list[Step]:
    """The steps of converted traces, with what their rows say that operations wait for, in order of steps."""
    steps: dict[str, Step] = defaultdict(list)
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_bytes())
        for name, nodes in _Reading(document["distributedInfo"]["rank"], document["traceEvents"]).steps().items():
            first = len(steps[name])
            steps[name] += [
                replace(node, meets=node.meets or (file, at), waits=tuple(first + other for other in node.waits))
                for at, node in enumerate(nodes)
            ]
    return list(steps.values())


class _Reading:
    """One rank's rows, read from one host call to the next as a device would obey them.

    A message's stream waits for what its caller's stream, the one on which compute runs, holds when it is called. A row
    called `wait` lets that stream wait for the first of its group's messages that nothing has waited for.
    """

    def __init__(self, rank: int, rows: Sequence[Event]) -> None:
        self._rank = rank
        self._kernels = {row["args"]["correlation"]: row for row in rows if row["cat"] == "kernel"}
        host = [row for row in rows if row["cat"] != "kernel"]
        self._host = sorted(host, key=itemgetter("ts"))
        self._compute = next(row["tid"] for row in self._kernels.values() if not row["name"].startswith("nccl"))
        self._called: Counter[Hashable] = Counter()
        self._nodes: Step = []
        # By stream the last node, by group the messages that nothing waits for yet, and what the next kernel waits for:
        # of compute's stream, and of a message's.
        self._last: dict[int, int] = {}
        self._pending: dict[str, deque[int]] = defaultdict(deque)
        self._awaited: list[int] = []
        self._joined: list[int] = []

    def steps(self) -> dict[str, Step]:
        """Return each step's nodes by the name of its mark; steps are synchronized and share no wait."""
        steps: dict[str, Step] = {}
        said: Event = {}
        for row in self._host:
            name, args = row["name"], row["args"]
            if name.startswith("ProfilerStep#"):
                self._nodes = steps[name] = []
                self._last.clear()
            elif name == "record_param_comms":
                said = args
                self._joined = []
            elif name == "cudaStreamWaitEvent" and said["Collective name"] == "wait":
                self._awaited.append(self._pending[said["Process Group Name"]].popleft())
            elif name == "cudaStreamWaitEvent":
                self._joined = [self._last[self._compute]] if self._compute in self._last else []
            elif args.get("correlation") in self._kernels:
                self._launch(self._kernels[args["correlation"]])
        return steps

    def _launch(self, kernel: Event) -> None:
        """Add a kernel's node: it waits for the one before on its stream, and for what the stream was told to."""
        stream = kernel["tid"]
        waits = [self._last[stream]] if stream in self._last else []
        if stream == self._compute:
            waits, self._awaited = [*waits, *self._awaited], []
        else:
            waits, self._joined = [*waits, *self._joined], []
            self._pending[kernel["args"]["Process Group Name"]].append(len(self._nodes))
        self._last[stream] = len(self._nodes)
        self._nodes.append(self._node(kernel, waits))

    def _node(self, kernel: Event, waits: Sequence[int]) -> Node:
        args, begin, end = kernel["args"], kernel["ts"] * 1000, (kernel["ts"] + kernel["dur"]) * 1000
        call = args.get("Collective name")
        if call is None:
            return Node(self._rank, kernel["name"], False, None, tuple(waits), begin, end)
        ranks, group = json.loads(args["Process Group Ranks"]), args["Process Group Name"]
        like = f"{call} {args['Process Group Description']}"
        if call not in ("send", "recv"):
            return Node(self._rank, like, True, (group, args["Seq"]), tuple(waits), begin, end)
        peer = ranks[args["Dst Rank" if call == "send" else "Src Rank"]]
        pair = (self._rank, peer) if call == "send" else (peer, self._rank)
        key = (group, *pair)
        self._called[key] += 1
        like += " ahead" if pair[0] < pair[1] else " back"
        return Node(self._rank, like, True, (key, self._called[key]), tuple(waits), begin, end)
