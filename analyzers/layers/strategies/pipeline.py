"""Pipelines across ranks: stages, actions, each stage's bubble in three parts.

    measured           F0 F1 .  . .B0 .F2 ....B1     what the device leaves empty from first action to last
    replay, measured   F0 F1 . . B0 F2 . B1          less this: what messages and hosts add (rest)
    replay, equal      F0 F1 . . B0 F2 B1            less this: what unequal stages add; and this: the schedule's own

Both replays keep each rank's order, and messages are free in them. In the second, every forward takes the mean forward
of the step, and every backward the mean backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, none_if_negative
from analyzers.collectives import Exchange
from analyzers.layers.strategies.pipeline_replay import Action, dependencies, replay
from analyzers.notices import Code, Notice
from analyzers.rank import ActionKind, PipelineActions
from analyzers.ranks import RankNumber
from analyzers.texts import listed

# So many ranks or steps are named.
_LISTED = 8
MISSING = "the run lacks {ranks} of the pipeline"
UNTOLD = (
    "the trace of rank {ranks} does not tell one microbatch from the next (no ranges of modules or of the schedule; "
    "messages alone tell them of one stage per rank, whose backwards a thread of their own launches)"
)
INTERLEAVED = (
    "the schedule of ranks {ranks} is interleaved, since messages go round: each holds several stages, and nothing "
    "tells which of them an action is of, nor its microbatch (no ranges of the schedule)"
)
NAMELESS = "the trace of rank {ranks} does not tell between which ranks some messages are"
UNORDERED = "messages do not tell the order of the stages on ranks {ranks}"
UNEVEN = "ranks {ranks} do not hold the same microbatches in {steps}"
DEADLOCKED = "in the order seen on ranks {ranks}, actions wait for one another in {steps}"


class PipelineAction(msgspec.Struct, frozen=True):
    """One microbatch's forward or backward.

    `kind`: `F`, `B`, `I`, `W`.
    """

    kind: str
    microbatch: int
    start_ns: int
    dur_ns: int
    busy_ns: int


class PipelineRow(msgspec.Struct, frozen=True):
    """One stage of a pipeline in one step: docs/measuring.md, Pipelines."""

    rank: int
    step: int
    stage: int | None
    actions: list[PipelineAction]
    bubble_ns: int
    schedule_ns: int | None
    imbalance_ns: int | None
    rest_ns: int | None


@dataclass(frozen=True, eq=False)
class PipelineStep:
    """One step of one pipeline that all of its ranks hold: each rank's actions in order, and two replays of them.

    `dur_ns` has a row for each action, through the ranks in order: equal stages, then as measured; `start_ns` likewise.
    """

    step: int
    orders: list[list[Action]]
    dur_ns: Int64
    start_ns: Int64

    @property
    def makespan_ns(self) -> tuple[int, int]:
        """Return what the step takes from the first action to the last, with equal stages and as measured."""
        equal, measured = (self.start_ns + self.dur_ns).max(axis=0).tolist()
        return equal, measured


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Ranks that exchange one pipeline's messages, by stage where the trace tells; its steps, and rows of all of it.

    `steps` are those of which the parts are known; `why` says what the others lack.
    """

    ranks: tuple[RankNumber, ...]
    rows: list[PipelineRow]
    steps: list[PipelineStep]
    why: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Member:
    """One rank's actions; `number` is the row's step as most ranks count it, `stage` as far as is known."""

    rank: RankNumber
    actions: PipelineActions
    step: Int64
    stage: Int64
    stretch: dict[tuple[int, int], int]
    later_ns: int


def pipelines(exchange: Exchange) -> list[Pipeline]:
    """Return the pipelines of a run whose ranks are matched and on one clock; none for a run without."""
    by_rank = {rank: one.pipeline for _, rank, one in exchange.run.numbered() if one.pipeline is not None}
    return [_pipeline(exchange, {rank: by_rank[rank] for rank in ranks}) for ranks in _connected(by_rank)]


def pipeline_notices(found: Sequence[Pipeline]) -> list[Notice]:
    """Return why parts of bubbles are null."""
    return [
        Notice(Code.PIPELINE_IS_NULL, f"parts of the pipeline's bubble are not known: {why}")
        for one in found
        for why in one.why
    ]


def _connected(by_rank: dict[RankNumber, PipelineActions]) -> Iterator[list[RankNumber]]:
    """Yield ranks that exchange messages, directly or by way of others."""
    left = set(by_rank)
    while left:
        reached, queue = set(), [min(left)]
        while queue:
            rank = queue.pop()
            if rank in reached:
                continue
            reached.add(rank)
            near = {*by_rank[rank].peers, *(other for other in left if rank in by_rank[other].peers)}
            queue += [RankNumber(other) for other in near if other in by_rank]
        left -= reached
        yield sorted(reached)


def _pipeline(exchange: Exchange, by_rank: dict[RankNumber, PipelineActions]) -> Pipeline:
    stage_of = _stages(by_rank)
    members = [_member(exchange, rank, actions, stage_of.get(rank)) for rank, actions in by_rank.items()]
    members.sort(key=lambda member: (int(member.stage.min(initial=UNKNOWN)), member.rank))
    why = _incomplete(by_rank, members)
    steps, failed = ([], []) if why else _replayed(members)
    parts = {key: part for one in steps for key, part in _parts(members, one).items()}
    ranks = tuple(member.rank for member in members)
    why += [text.format(ranks=listed(ranks, _LISTED), steps=_steps_listed(numbers)) for text, numbers in failed]
    numbered = [] if _is_interleaved(by_rank) else members
    rows = [row for member in numbered for row in _rows(exchange, member, parts)]
    return Pipeline(ranks, sorted(rows, key=lambda row: (row.rank, row.step, row.stage or 0)), steps, tuple(why))


def _steps_listed(steps: Sequence[int]) -> str:
    return f"step{'s' * (len(steps) > 1)} {listed(steps, _LISTED)}"


def _stages(by_rank: dict[RankNumber, PipelineActions]) -> dict[RankNumber, int]:
    """Return the stage of each rank by its place in the chain of messages, from the rank that receives nothing."""
    stages: dict[RankNumber, int] = {}
    heads = [rank for rank, one in by_rank.items() if one.previous == UNKNOWN and one.is_told]
    rank = heads[0] if len(heads) == 1 else None
    while rank is not None and rank not in stages:
        stages[rank] = len(stages)
        following = RankNumber(by_rank[rank].following)
        rank = following if following in by_rank and by_rank[following].previous == rank else None
    return stages


def _is_interleaved(by_rank: dict[RankNumber, PipelineActions]) -> bool:
    """Whether messages go round: a rank's own say so, or each takes from another, where no range names stages."""
    is_ring = all(one.previous in by_rank and (one.stage < 0).all() for one in by_rank.values())
    return is_ring or any(one.goes_round for one in by_rank.values())


def _member(exchange: Exchange, rank: RankNumber, actions: PipelineActions, stage: int | None) -> _Member:
    named = np.where(actions.stage < 0, UNKNOWN if stage is None else stage, actions.stage)
    higher = exchange.matching.renumbered_by.get(rank, 0)
    keys = np.stack([actions.step, named]) if len(actions) else np.zeros((2, 0), dtype=np.int64)
    return _Member(
        rank=rank,
        actions=actions,
        step=keys[0] - higher,
        stage=keys[1],
        stretch={
            (number - higher, named_stage if named_stage >= 0 or stage is None else stage): bubble
            for number, named_stage, bubble in actions.stretch.T.tolist()
        },
        later_ns=exchange.clocks.shift_of(rank) + exchange.origin_ns,
    )


def _incomplete(by_rank: dict[RankNumber, PipelineActions], members: Sequence[_Member]) -> list[str]:
    """Return why nothing can be replayed: ranks that are missing, or say too little."""
    peers = {peer for one in by_rank.values() for peer in one.peers}
    missing = sorted(peers - set(by_rank))
    if missing:
        return [MISSING.format(ranks=f"rank{'s' * (len(missing) > 1)} {listed(missing, _LISTED)}")]
    if _is_interleaved(by_rank):
        return [INTERLEAVED.format(ranks=listed(by_rank, _LISTED))]
    untold = [rank for rank, one in by_rank.items() if not one.is_told]
    if untold:
        return [UNTOLD.format(ranks=listed(untold, _LISTED))]
    nameless = [rank for rank, one in by_rank.items() if one.nameless]
    if nameless:
        return [NAMELESS.format(ranks=listed(nameless, _LISTED))]
    stages = np.unique(np.concatenate([member.stage for member in members]))
    if not np.array_equal(stages, np.arange(len(stages))):
        return [UNORDERED.format(ranks=listed(by_rank, _LISTED))]
    return []


def _replayed(members: Sequence[_Member]) -> tuple[list[PipelineStep], list[tuple[str, list[int]]]]:
    """Replay every step that all ranks hold in full; return the others by what is wrong with them."""
    steps, uneven, deadlocked = [], [], []
    for number in np.unique(np.concatenate([member.step for member in members])).tolist():
        rows = [np.flatnonzero(member.step == number) for member in members]
        orders = [_order(member, chosen) for member, chosen in zip(members, rows, strict=True)]
        if not _is_whole(orders):
            uneven.append(number)
            continue
        busy = np.concatenate([member.actions.busy_ns[chosen] for member, chosen in zip(members, rows, strict=True)])
        kind = np.concatenate([member.actions.kind[chosen] for member, chosen in zip(members, rows, strict=True)])
        dur_ns = np.stack([_equal(busy, kind), busy], axis=1)
        start_ns = replay([len(order) for order in orders], dependencies(orders), dur_ns)
        if start_ns is None:
            deadlocked.append(number)
        else:
            steps.append(PipelineStep(number, orders, dur_ns, start_ns))
    failed = [(text, numbers) for text, numbers in ((UNEVEN, uneven), (DEADLOCKED, deadlocked)) if numbers]
    return steps, failed


def _order(member: _Member, rows: Int64) -> list[Action]:
    columns = (member.actions.kind, member.stage, member.actions.microbatch)
    kinds, stages, microbatches = (column[rows].tolist() for column in columns)
    return [(ActionKind(kind), stage, number) for kind, stage, number in zip(kinds, stages, microbatches, strict=True)]


def _is_whole(orders: Sequence[Sequence[Action]]) -> bool:
    """Whether every stage has the same forwards, and backwards of the same microbatches, whole or apart."""
    forwards: dict[int, list[int]] = {}
    backwards: dict[int, set[int]] = {}
    for kind, stage, microbatch in (action for order in orders for action in order):
        forwards.setdefault(stage, [])
        backwards.setdefault(stage, set())
        if kind == ActionKind.FORWARD:
            forwards[stage].append(microbatch)
        else:
            backwards[stage].add(microbatch)
    distinct = {(tuple(sorted(forwards[stage])), tuple(sorted(backwards[stage]))) for stage in forwards}
    return all(map(len, orders)) and len(distinct) == 1


def _equal(busy_ns: Int64, kind: Int64) -> Int64:
    """Return for each action the mean of its kind, in whole nanoseconds."""
    total, count = np.bincount(kind, weights=busy_ns), np.bincount(kind)
    mean = (total // np.maximum(count, 1)).astype(np.int64)
    return mean[kind]


def _parts(members: Sequence[_Member], one: PipelineStep) -> dict[tuple[RankNumber, int, int], tuple[int, int]]:
    """Return for each rank, step and stage the bubble of the replay with equal stages, and of that as measured."""
    parts = {}
    first = np.r_[0, np.cumsum([len(order) for order in one.orders])]
    for member, order, begin in zip(members, one.orders, first.tolist(), strict=False):
        start = one.start_ns[begin : begin + len(order)]
        end = start + one.dur_ns[begin : begin + len(order)]
        stages = np.array([action[1] for action in order])
        for stage in np.unique(stages).tolist():
            low, high = start[stages == stage].min(axis=0), end[stages == stage].max(axis=0)
            busy = np.maximum(np.minimum(end, high) - np.maximum(start, low), 0).sum(axis=0)
            equal, measured = (high - low - busy).tolist()
            parts[member.rank, one.step, stage] = equal, measured
    return parts


def _rows(
    exchange: Exchange, member: _Member, parts: dict[tuple[RankNumber, int, int], tuple[int, int]]
) -> Iterator[PipelineRow]:
    actions = member.actions
    start = actions.start_ns - member.later_ns
    for (step, stage), bubble_ns in member.stretch.items():
        rows = np.flatnonzero((member.step == step) & (member.stage == stage))
        columns = (actions.kind, actions.microbatch, start, actions.end_ns - actions.start_ns, actions.busy_ns)
        listed = zip(*(column[rows].tolist() for column in columns), strict=True)
        equal, measured = parts.get((member.rank, step, stage), (None, None))
        yield PipelineRow(
            rank=member.rank,
            step=step,
            stage=none_if_negative(stage),
            actions=[PipelineAction(ActionKind(kind).label, *more) for kind, *more in listed],
            bubble_ns=bubble_ns,
            schedule_ns=equal,
            imbalance_ns=None if equal is None or measured is None else measured - equal,
            rest_ns=None if measured is None else bubble_ns - measured,
        )
