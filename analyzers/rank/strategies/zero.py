"""ZeRO of DeepSpeed and Megatron: hooks reduce gradients, modules gather parameters.

host     |module a: |all_gather|   |      |AccumulateGrad |reduce_scatter| |      both over one group: what is gathered
group                 0                                     0                     are parameters, and no activations
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.arrays import Mask
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, callers, dimension
from analyzers.trace import TAKES_GRADIENT, Collective


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    reduced = calls.of(Collective.REDUCE_SCATTER, Collective.ALL_REDUCE, Collective.REDUCE) & calls.is_floating
    hooked = reduced & calls.inside(TAKES_GRADIENT)
    yield Purpose.GRADIENTS, hooked
    scattered = np.unique(calls.group[hooked & calls.of(Collective.REDUCE_SCATTER) & (calls.group >= 0)])
    gathered = calls.of(Collective.ALL_GATHER) & calls.is_floating & calls.in_model
    yield Purpose.PARAMETERS, gathered & np.isin(calls.group, scattered)


ZERO = Strategy(
    name="zero",
    dimension=dimension(r"zero\w*"),
    purposes=_purposes,
    owners=callers,
    in_words="ZeRO",
    why_no_buckets="gradients are reduced by the program's own hooks, whose buckets no trace tells.",
)
