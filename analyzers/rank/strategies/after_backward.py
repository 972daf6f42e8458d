"""Gradients reduced by the program itself after the backward (Megatron, DeepSpeed)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.arrays import Mask
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, dimension
from analyzers.trace import NODE, OPTIMIZER, STEP, TAKES_GRADIENT, Collective


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    """Yield what is reduced between the backward and the optimizer, and what is gathered behind that.

    A vector of norms holds at most one number for each parameter; what is longer is gradients.
    """
    outside = ~calls.in_model & calls.is_floating & (calls.elements > _parameters(calls))
    reduced = calls.of(Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE)
    gathered = calls.of(Collective.ALL_GATHER, Collective.BROADCAST)
    # DTensor reduces partial gradients where they are first used: for the norm, to be clipped, in the optimizer.
    behind = _behind(calls, (NODE, "Optimizer.step"))
    yield Purpose.GRADIENTS, outside & reduced & behind
    yield Purpose.PARAMETERS, outside & gathered & behind & calls.inside(STEP) & ~calls.inside(NODE)


def _parameters(calls: Calls) -> int:
    """Return how many gradients a step takes at most."""
    events = calls.host.events
    steps = np.sort(events.start_ns[calls.host.named(STEP)])
    taken = events.start_ns[calls.host.named(TAKES_GRADIENT)]
    return int(np.bincount(np.searchsorted(steps, taken, side="right"), minlength=1).max())


def _behind(calls: Calls, prefixes: tuple[str, ...]) -> Mask:
    """Whether the last of a step's ranges and modules that began before a call's launch has one of these names."""
    host, events = calls.host, calls.host.events
    marks = np.r_[host.named(*prefixes), host.named(OPTIMIZER)]
    others = np.r_[host.named(STEP), host.named("nn.Module: ")]
    wanted = np.isin(np.r_[marks, others], host.named(*prefixes))
    start_ns = events.start_ns[np.r_[marks, others]]
    order = np.argsort(start_ns, kind="stable")
    launched_ns = host.places(calls.launches).instant_ns
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
