"""Replay of a pipeline's actions, in each rank's order.

    rank 0    F0 F1 .  .  B0 F2 .  B1 .  B2      F(s, m) runs after F(s-1, m), B(s, m) after B(s+1, m);
    rank 1    .  F0 B0 F1 B1 .  F2 B2            on a rank one action follows the other, in its order

Messages take no time. What is left empty between a rank's first action and its last is then the schedule's own doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import Int64
from analyzers.rank import ActionKind

# An action as schedules count them: its kind, its stage, its microbatch.
Action = tuple[ActionKind, int, int]
# Of what backward an action of these kinds is the input of.
_GIVES_GRADIENTS = (ActionKind.BACKWARD, ActionKind.BACKWARD_INPUT)


def dependencies(orders: Sequence[Sequence[Action]]) -> list[tuple[int, int]]:
    """Return pairs (before, after) of actions that messages bind, numbered through all ranks' orders.

    An action that occurs again (two passes of the schedule in one step) depends on the other's same occurrence. The
    last stage's backward follows its own forward.
    """
    actions = [action for order in orders for action in order]
    number = dict(zip(_occurrences(actions), range(len(actions)), strict=True))
    last = max((stage for _, stage, _ in actions), default=0)
    pairs = []
    for (kind, stage, microbatch, turn), after in number.items():
        same_input = (ActionKind.BACKWARD_INPUT, stage, microbatch, turn)
        if kind == ActionKind.FORWARD:
            before = [(ActionKind.FORWARD, stage - 1, microbatch, turn)]
        elif kind == ActionKind.BACKWARD_WEIGHT and same_input in number:
            before = [same_input]
        elif stage == last:
            before = [(ActionKind.FORWARD, stage, microbatch, turn)]
        else:
            before = [(gives, stage + 1, microbatch, turn) for gives in _GIVES_GRADIENTS]
        pairs += [(number[key], after) for key in before if key in number]
    return pairs


def _occurrences(actions: Sequence[Action]) -> list[tuple[ActionKind, int, int, int]]:
    """Return each action with how often it occurred before."""
    counted: Counter[Action] = Counter()
    turns = []
    for action in actions:
        turns.append((*action, counted[action]))
        counted[action] += 1
    return turns


def replay(lengths: Sequence[int], pairs: Sequence[tuple[int, int]], dur_ns: NDArray[np.int64]) -> Int64 | None:
    """Return when each action starts, at the earliest, the first at 0; None where actions wait for one another.

    Actions are numbered through the ranks, of which rank r has `lengths[r]`, in the order in which it runs them.
    `pairs` are (before, after) that bind besides. `dur_ns` has a row for each action, and a column for each replay.
    """
    bound = [*_in_turn(lengths), *pairs]
    count = int(sum(lengths))
    order = _in_order(count, bound)
    if order is None:
        return None
    ahead: list[list[int]] = [[] for _ in range(count)]
    for before, after in bound:
        ahead[after].append(before)
    # Plain integers: an array of two columns costs more in each operation than both of them.
    columns = []
    for column in dur_ns.reshape(count, -1).T.tolist():
        end = [0] * count
        for number in order:
            end[number] = max((end[before] for before in ahead[number]), default=0) + column[number]
        columns.append(np.array(end, dtype=np.int64) - column)
    return np.stack(columns, axis=1).reshape(dur_ns.shape) if columns else np.zeros(dur_ns.shape, dtype=np.int64)


def _in_order(count: int, bound: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return numbers so that each comes behind all that it is bound to; None where some wait for one another."""
    behind: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for before, after in bound:
        behind[before].append(after)
        missing[after] += 1
    order = [number for number in range(count) if not missing[number]]
    for number in order:  # which grows meanwhile
        for after in behind[number]:
            missing[after] -= 1
            if not missing[after]:
                order.append(after)
    return order if len(order) == count else None


def _in_turn(lengths: Sequence[int]) -> list[tuple[int, int]]:
    first = np.r_[0, np.cumsum(np.asarray(lengths, dtype=np.int64))]
    return [
        (number, number + 1)
        for begin, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)
        for number in range(begin, end - 1)
    ]


def one_f_one_b(stages: int, microbatches: int) -> list[list[Action]]:
    """Return what each rank does under 1F1B, one stage each (torch's Schedule1F1B, PipeDream-Flush)."""
    orders = []
    for stage in range(stages):
        warm_up = min(microbatches, stages - stage)
        order: list[Action] = [(ActionKind.FORWARD, stage, number) for number in range(warm_up)]
        for number in range(microbatches):
            order.append((ActionKind.BACKWARD, stage, number))
            if warm_up + number < microbatches:
                order.append((ActionKind.FORWARD, stage, warm_up + number))
        orders.append(order)
    return orders


def gpipe(stages: int, microbatches: int) -> list[list[Action]]:
    """Return what each rank does under GPipe: all forwards, then all backwards."""
    kinds = (ActionKind.FORWARD, ActionKind.BACKWARD)
    return [[(kind, stage, number) for kind in kinds for number in range(microbatches)] for stage in range(stages)]


SCHEDULES = {"1F1B": one_f_one_b, "GPipe": gpipe}


def schedule_name(orders: Sequence[Sequence[Action]]) -> str | None:
    """Return which of SCHEDULES an observed order is, ranks by stage; None for any other."""
    observed = [list(order) for order in orders]
    microbatches = len({action[2] for action in observed[0]}) if observed else 0
    names = (name for name, make in SCHEDULES.items() if observed == make(len(observed), microbatches))
    return next(names, None)
