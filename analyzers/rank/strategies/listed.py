"""All strategies, in order, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.arrays import UNKNOWN
from analyzers.rank.strategies.after_backward import AFTER_BACKWARD
from analyzers.rank.strategies.context import CONTEXT
from analyzers.rank.strategies.data_parallel import DATA_PARALLEL
from analyzers.rank.strategies.ddp import DDP
from analyzers.rank.strategies.expert import EXPERT
from analyzers.rank.strategies.fsdp import FSDP
from analyzers.rank.strategies.metrics import METRICS
from analyzers.rank.strategies.pipeline import PIPELINE
from analyzers.rank.strategies.protocol import Calls, Launches, Owners, Packing, Purpose, Strategy
from analyzers.rank.strategies.tensor import TENSOR
from analyzers.rank.strategies.zero import ZERO

# Who is asked first has the call: the narrower its own ranges, the earlier.
STRATEGIES = (DATA_PARALLEL, FSDP, DDP, ZERO, CONTEXT, EXPERT, PIPELINE, TENSOR, AFTER_BACKWARD, METRICS)


@dataclass(frozen=True, eq=False)
class Assigned:
    """Purpose and strategy of each row of a rank's communication (index into STRATEGIES, -1 unknown)."""

    purpose: NDArray[np.int8]
    strategy: NDArray[np.int8]


def assign(calls: Calls, strategies: tuple[Strategy, ...] = STRATEGIES) -> Assigned:
    """Ask each strategy for its calls; who is asked first has them.

    The ranges around a CUDA graph's launch do not identify replayed calls; their group's description or the kernel's
    name does.
    """
    purpose = np.full(len(calls), Purpose.OTHER, dtype=np.int8)
    strategy = np.full(len(calls), UNKNOWN, dtype=np.int8)
    if not len(calls):
        return Assigned(purpose, strategy)
    told = ~calls.is_replayed | calls.is_library
    for code, asked in enumerate(strategies):
        tells = told | calls.over(asked.dimension)
        for carried, chosen in asked.purposes(calls):
            new = chosen & tells & (strategy == UNKNOWN)
            purpose[new], strategy[new] = carried, code
    return Assigned(purpose, strategy)


def owners(calls: Calls, assigned: Assigned, strategies: tuple[Strategy, ...] = STRATEGIES) -> Owners:
    """Return the module of each row, as the strategy that has it says; of what nobody has, as any says.

    Which pass a row is of, and whether it was prefetched, its strategy may say of a row whose module it does not know.
    """
    module, prefetched = (np.full(len(calls), UNKNOWN, dtype=np.int64) for _ in range(2))
    backward = calls.is_backward.copy()  # of what is for no module, too
    names: dict[str, int] = {}
    for code, asked in enumerate(strategies):
        if asked.owners is None or not np.isin(assigned.strategy, (code, UNKNOWN)).any():
            continue
        said = asked.owners(calls)
        new = (said.module >= 0) & (module < 0) & np.isin(assigned.strategy, (code, UNKNOWN))
        nameless = (assigned.strategy == code) & (said.module < 0)
        prefetched[nameless], backward[nameless] = said.prefetched[nameless], said.backward[nameless]
        table = np.array([names.setdefault(name, len(names)) for name in said.modules] + [UNKNOWN], dtype=np.int64)
        module[new], prefetched[new], backward[new] = table[said.module[new]], said.prefetched[new], said.backward[new]
    return Owners(module, tuple(names), backward, prefetched)


def packing(launches: Launches, strategies: tuple[Strategy, ...] = STRATEGIES) -> Packing:
    """Return what all strategies call packing, together."""
    rows, backward, replicas = np.zeros((3, len(launches.rows)), dtype=bool)
    for asked in strategies:
        if asked.packing is None:
            continue
        packed = asked.packing(launches)
        rows, backward = rows | packed.rows, backward | packed.backward
        replicas = replicas if packed.replicas is None else replicas | packed.replicas
    return Packing(rows, backward, replicas)


def role_of(description: str, strategies: tuple[Strategy, ...] = STRATEGIES) -> str | None:
    """Return the strategy that a process group's description names; None where it names none."""
    return next((asked.name for asked in strategies if asked.dimension.search(description)), None)
