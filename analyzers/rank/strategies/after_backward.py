"""Gradients reduced by the program itself after the backward (Megatron, DeepSpeed).

backward  |AccumulateGrad [8, 8]||AccumulateGrad [8]|
behind                                                 |all_reduce 72|                     all gradients together
behind                                                 |all_reduce 64||all_reduce 8|       one after the other
behind                                                 |all_reduce 1|                      a norm, or a loss
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, rows_by
from analyzers.rank.strategies.metrics import MOST_ELEMENTS
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, dimension
from analyzers.trace import ACCUMULATE, NODE, OPTIMIZER, STEP, TAKES_GRADIENT, Collective


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    """Yield what is reduced between the backward and the optimizer, and what is gathered behind that."""
    outside = ~calls.in_model & calls.is_floating
    reduced = outside & calls.of(Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
    gathered = outside & calls.of(Collective.ALL_GATHER, Collective.BROADCAST)
    last = _is_behind(calls, (NODE, "Optimizer.step"))
    behind, late = reduced & _is_behind(calls, (NODE,)), reduced & last & calls.inside("_c10d_functional")
    updated = gathered & last & calls.inside(STEP) & ~calls.inside(NODE)
    if not (behind | late | updated).any():
        return
    taken = _count_taken(calls)
    most = max(*(len(sizes) for sizes in taken.values()), 0, 0)
    large = calls.elements > max(MOST_ELEMENTS, most)
    # DTensor reduces partial gradients where they are first used: for the norm, to be clipped, in the optimizer.
    late &= calls.elements > most
    gradients = (behind & large) | late | _in_gradients_sizes(calls, behind, taken)
    yield Purpose.GRADIENTS, gradients
    # Parameters are gathered where their gradients are reduced; others gather figures behind an update.
    over = np.isin(calls.group, np.unique(calls.group[gradients | (reduced & calls.inside(TAKES_GRADIENT))]))
    yield Purpose.PARAMETERS, updated & over & (calls.elements > 1)


def _in_gradients_sizes(calls: Calls, behind: Mask, taken: dict[int, list[int]]) -> Mask:
    """Whether calls are as long as gradients, or as all of them together, where most gradients of a step are so.

    Where no shapes tell, calls of more than one element, as many as half of the gradients, are one for each.
    """
    gradients = np.zeros(len(calls), dtype=bool)
    rows = np.flatnonzero(behind & (calls.elements > 0))
    step = _step_at(calls, calls.host.places(calls.launches[rows]).instant_ns)
    for number, places in rows_by(step).items():
        sizes, of_step = taken.get(number, []), rows[places]
        several = of_step[calls.elements[of_step] > 1]
        if not sizes:
            continue
        if min(sizes) < 0:
            gradients[several] = 2 * len(several) > len(sizes)
            continue
        if calls.elements[several].sum() == sum(sizes):
            gradients[several] = True
            continue
        gradients[several] = calls.elements[several] == sum(sizes)
        left, alike = Counter(sizes), []
        for row in of_step.tolist():
            left[int(calls.elements[row])] -= 1
            alike += [row] if left[int(calls.elements[row])] >= 0 else []
        gradients[alike] |= 2 * len(alike) > len(sizes)
    return gradients


def _count_taken(calls: Calls) -> dict[int, list[int]]:
    """Return the elements of the gradients that each step takes, by the step's place; -1 where no shape says."""
    host, events = calls.host, calls.host.events
    nodes = host.named(TAKES_GRADIENT)
    takers = host.named(ACCUMULATE)
    takers = takers[events.inputs[takers] >= 0]
    around = host.around(takers, nodes)
    elements = np.full(len(events), UNKNOWN, dtype=np.int64)
    of_inputs = np.array([shapes.elements() for shapes in events.shapes], dtype=np.int64)
    elements[around[around >= 0]] = of_inputs[events.inputs[takers]][around >= 0]
    taken: dict[int, list[int]] = {}
    steps = _step_at(calls, events.start_ns[nodes]).tolist()
    for step, count in zip(steps, elements[nodes].tolist(), strict=True):
        taken.setdefault(step, []).append(count)
    return taken


def _step_at(calls: Calls, instant_ns: Int64) -> Int64:
    """Return the place of the step that an instant lies in or behind, 0 before the first."""
    steps = np.sort(calls.host.events.start_ns[calls.host.named(STEP)])
    return np.searchsorted(steps, instant_ns, side="right")


def _is_behind(calls: Calls, prefixes: tuple[str, ...]) -> Mask:
    """Whether the last of a step's ranges and modules that began before a call's launch has one of these names."""
    host, events = calls.host, calls.host.events
    marks = np.r_[host.named(*prefixes), host.named(OPTIMIZER)]
    others = np.r_[host.named(STEP), host.named("nn.Module: ")]
    is_wanted = np.zeros(len(events), dtype=bool)
    is_wanted[host.named(*prefixes)] = True
    wanted, start_ns = is_wanted[np.r_[marks, others]], events.start_ns[np.r_[marks, others]]
    order = np.argsort(start_ns, kind="stable")
    launched_ns = calls.places.instant_ns
    last = np.searchsorted(start_ns[order], launched_ns, side="right") - 1
    behind: Mask = np.r_[wanted[order], False][last] & (calls.launches >= 0)
    return behind


AFTER_BACKWARD = Strategy(
    name="after_backward",
    in_words="after the backward",
    dimension=dimension("gradients"),
    purposes=_purposes,
    why_no_buckets="gradients are reduced after the backward, by the program itself, so that nothing of it hides them.",
)
