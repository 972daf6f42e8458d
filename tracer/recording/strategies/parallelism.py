"""List of strategies, what they say of a program, steps without synchronization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from analyzers.run import Parallelism
from tracer.recording.strategies.compilation import compiled
from tracer.recording.strategies.context import Context
from tracer.recording.strategies.data_parallel import DataParallel
from tracer.recording.strategies.ddp import Ddp
from tracer.recording.strategies.expert import Expert
from tracer.recording.strategies.fsdp import Fsdp
from tracer.recording.strategies.meshes import recorded_meshes
from tracer.recording.strategies.module_names import MOST_ROWS
from tracer.recording.strategies.pipeline import Pipelining
from tracer.recording.strategies.program import Program
from tracer.recording.strategies.protocol import RecordedStrategy
from tracer.recording.strategies.tensor import Tensor

# Characters of why something is unknown.
_LONGEST = 200
# In the order in which a run's strategy names them.
STRATEGIES: tuple[RecordedStrategy, ...] = (Ddp(), Fsdp(), DataParallel(), Tensor(), Pipelining(), Context(), Expert())

Answer = TypeVar("Answer")


def parallelism_of(program: Program, strategies: Sequence[RecordedStrategy] = STRATEGIES) -> Parallelism:
    """Return how a program is parallelized. What cannot be read of it is named as unknown, and nothing is raised."""
    unknown: dict[str, str] = {}

    def asked(name: str, question: Callable[[], Answer]) -> Answer | None:
        try:
            return question()
        except Exception as error:  # private names of torch, any version of it
            unknown[name] = f"{type(error).__name__}: {error}"[:_LONGEST]
            return None

    described = {strategy.name: asked(strategy.name, partial(strategy.describe, program)) for strategy in strategies}
    rows: dict[str, Any] = {"mesh": asked("mesh", lambda: recorded_meshes(program.meshes, program.rank)) or []}
    for facts in described.values():
        rows |= facts or {}
    lists = {key: value for key, value in rows.items() if isinstance(value, list)}
    return Parallelism(
        strategies=[name for name, facts in described.items() if facts is not None],
        unknown=unknown,
        compiled=asked("compiled", lambda: compiled(program)),
        left_out=sum(max(0, len(value) - MOST_ROWS) for value in lists.values()),
        **(rows | {key: value[:MOST_ROWS] for key, value in lists.items()}),
    )


def strategy_name(strategies: Sequence[str], size: int) -> str | None:
    """Return the strategies' names in one, such as `fsdp+tensor`; None where several processes use none of them."""
    return "+".join(strategies) or ("single" if size == 1 else None)


def ordered(strategies: Iterable[str]) -> list[str]:
    """Return the names in the order of the list of strategies, others behind."""
    order = [strategy.name for strategy in STRATEGIES]
    return sorted(strategies, key=lambda name: order.index(name) if name in order else len(order))


def no_sync(model: nn.Module) -> AbstractContextManager[None] | None:
    """Return where a model's steps run without gradient synchronization; None where its strategies cannot."""
    for strategy in STRATEGIES:
        context = strategy.no_sync(model)
        if context is not None:
            return context
    return None


@contextmanager
def without_sync(model: nn.Module, optimizer: Optimizer | None) -> Iterator[None]:
    """Steps without gradient synchronization; afterwards every replica is again what all were before."""
    unsynchronized = no_sync(model)
    assert unsynchronized is not None
    assert optimizer is not None
    state = [*model.parameters(), *model.buffers()]
    state += [
        value for values in optimizer.state.values() for value in values.values() if isinstance(value, torch.Tensor)
    ]
    saved = [tensor.detach().clone() for tensor in state]
    with unsynchronized:
        yield
    with torch.no_grad():
        for tensor, before in zip(state, saved, strict=True):
            tensor.copy_(before)
