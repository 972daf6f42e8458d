"""Steps as they would go if no rank were late.

    rank 0   ffff ggg ....aaaa     rank 1 as the others     ffff gggaaaa
    rank 1   ffffffff gggaaaa                               ffff gggaaaa

A rank's own times are replaced by the median of the others', gradient by gradient. Where a step begins follows from
where the one before it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from analyzers.arrays import Float64
from analyzers.errors import NotReplayable
from analyzers.prediction.replay import Played, RecordedSteps
from analyzers.prediction.sharded_replay import ShardedSteps
from analyzers.ranks import MANY, RankNumber

Steps = TypeVar("Steps", RecordedSteps, ShardedSteps)
# A step's ranks meet in its reductions: what it ends with depends on the begin of none but the step before.
PASSES = 2


class Cause(StrEnum):
    """What is taken from a late rank; the values are what documents hold."""

    ALL = "all"
    COMPUTE = "compute"  # its device works longer
    HOST = "host"  # its host launches later, input included
    INPUT = "input"  # its host waits longer for its DataLoader

    __str__ = str.__str__


# The rank that stands out, if any; and every rank as the median of all.
LATE, EVERY = "late", "all"


@dataclass(frozen=True)
class Chosen:
    """A rank and its place among those recorded; None: all of them."""

    number: RankNumber | None
    place: int | None


@dataclass(frozen=True)
class Levelling:
    """The rank, by its place among those recorded, that is to be as the median of the others, and in what.

    `rank` None: each rank is as the median of all.
    """

    rank: int | None
    cause: Cause = Cause.ALL


def levelled(steps: RecordedSteps, level: Levelling) -> RecordedSteps:
    """Return the same steps with a rank's times replaced by the others'."""
    if level.cause is Cause.INPUT:
        return _fed(steps, level.rank)
    names = ["buffers_ns", "host_gap_ns"]
    if level.cause is not Cause.HOST:
        names += ["work_ns", "recorded_ns", "copy_ns", "total_ns", "total_recorded_ns", "packing_ns"]
        names += ["gaps_ns", "total_gaps_ns"]
    changed: dict[str, Any] = {name: _as_others(getattr(steps, name), level.rank) for name in names}
    hosts, tails = steps.host_ns + steps.done_ns, steps.tail_host_ns + steps.recorded_ns[..., -1]
    own_host_ns = steps.own_host_ns
    if level.cause is not Cause.COMPUTE:
        hosts, tails, own_host_ns = (_as_others(times, level.rank) for times in (hosts, tails, own_host_ns))
    new = replace(steps, **changed)
    # A launch comes when it came, or when the others' did, however far the work has come by then: at least as far as at
    # the gradient before it.
    host_ns, tail_host_ns = hosts - new.done_ns, tails - new.recorded_ns[..., -1]
    return replace(new, host_ns=host_ns, tail_host_ns=tail_host_ns, own_host_ns=own_host_ns)


def _fed(steps: RecordedSteps, rank: int | None) -> RecordedSteps:
    """Return the same steps with input that comes as soon as the others'. The next step's launches wait for it."""
    late_ns = _late_input_ns(steps, rank)
    own_host_ns = np.maximum(steps.own_host_ns - late_ns, 0)
    return replace(steps, tail_host_ns=steps.tail_host_ns - late_ns, own_host_ns=own_host_ns)


def levelled_sharded(steps: ShardedSteps, level: Levelling) -> ShardedSteps:
    """Return the same steps of FSDP2 with a rank's times replaced by the others'."""
    if level.cause is Cause.INPUT:
        late_ns = _late_input_ns(steps, level.rank)
        own_host_ns = np.maximum(steps.own_host_ns - late_ns, 0)
        return replace(steps, tail_limit_ns=steps.tail_limit_ns - late_ns, own_host_ns=own_host_ns)
    of_device, of_host = ["work_ns", "own_ns", "tail_ns"], ["limit_ns", "launched_ns", "tail_limit_ns", "own_host_ns"]
    names = {Cause.COMPUTE: of_device, Cause.HOST: of_host}.get(level.cause, of_device + of_host)
    changed: dict[str, Any] = {name: _as_others(getattr(steps, name), level.rank) for name in names}
    return replace(steps, **changed)


def _late_input_ns(steps: RecordedSteps | ShardedSteps, rank: int | None) -> Float64:
    """Return how much longer ranks wait for input than the others."""
    return np.asarray(np.maximum(steps.input_ns - _as_others(steps.input_ns, rank), 0), np.float64)


def _as_others(times: Float64, rank: int | None) -> Float64:
    """Return times, ranks first, with one rank's replaced by the median of the others', or all by the median of all."""
    if rank is None:
        return np.broadcast_to(np.median(times, axis=0), times.shape).copy()
    if len(times) < 2:
        return times
    changed = times.copy()
    changed[rank] = np.median(np.delete(times, rank, axis=0), axis=0)
    return changed


def settled(steps: Steps, play: Callable[[Steps], Played]) -> Played:
    """Play steps each of which begins, on every rank, where the one before it ended.

    Of steps that follow none that is known, ranks are as far apart as in the median of the others.
    """
    played = play(steps)
    for _ in range(PASSES):
        end_ns = steps.begin_ns + played.span_ns
        apart_ns = np.roll(end_ns - end_ns.min(axis=0), 1, axis=1)
        known = apart_ns[:, steps.follows] if steps.follows.any() else np.zeros_like(apart_ns)
        begin_ns = np.where(steps.follows, apart_ns, np.median(known, axis=1, keepdims=True))
        steps = replace(steps, begin_ns=begin_ns)
        played = play(steps)
    return played


def host_floor_ns(before: Steps, after: Steps, step_ns: float, is_levelled: bool) -> float:
    """Return what the slowest host takes a step, which is the least that a step takes; 0 where nothing tells.

    Under the profiler hosts are slower. None takes longer than the run's own step without it, `step_ns`. What a late
    host takes longer than the others is its own, and what the profiler adds is alike on all: it goes from the step as
    it is. Hosts that are faster are so with what the profiler adds, too.
    """
    recorded_ns = float(np.median(before.own_host_ns, axis=1).max())
    if not recorded_ns:
        return 0.0
    slowest_ns = min(recorded_ns, step_ns)
    if is_levelled:
        saved_ns = before.own_host_ns.max(axis=0) - after.own_host_ns.max(axis=0)
        return max(slowest_ns - float(np.median(saved_ns)), 0.0)
    return float(np.median(after.own_host_ns, axis=1).max()) * slowest_ns / recorded_ns


def slow_floor_ns(before: Steps, after: Steps, step_ns: float, left: float) -> float:
    """Return the most that the slowest host may take a levelled step, as far as a profile tells.

    Its time is the profile's, of which `left` was kept, or the run's own step; and of what a late host takes longer, as
    much is the profiler's as of the rest.
    """
    recorded_ns, levelled_ns = (float(np.median(each.own_host_ns, axis=1).max()) for each in (before, after))
    if not recorded_ns:
        return 0.0
    return min(recorded_ns / left, step_ns) * levelled_ns / recorded_ns


def chosen_rank(
    name: str, ranks: Sequence[RankNumber], late: RankNumber | None, wanted: int | str | None
) -> Chosen | None:
    """Return the rank whose lateness is asked about; None where that is nobody's. Raises NotReplayable."""
    if wanted is None or (wanted == LATE and late is None):
        return None
    number = late if wanted == LATE else None if wanted == EVERY else RankNumber(int(wanted))
    if number is None:
        return Chosen(None, None)
    if number not in ranks:
        known = ", ".join(map(str, ranks[:MANY])) + " and others" * (len(ranks) > MANY)
        raise NotReplayable(f"{name}: rank {number} is not in the run; those in it are {known}")
    if len(ranks) < 2:
        raise NotReplayable(f"{name}: rank {number} is alone in the run: there are no others to be like")
    return Chosen(number, ranks.index(number))
