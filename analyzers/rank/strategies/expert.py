"""Expert parallelism: tokens dispatched to their experts and combined again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzers.arrays import Mask
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, callers, dimension
from analyzers.trace import Collective

_EXPERTS = re.compile(r"(?:^|[._ ])(?:\w*moe\w*|\w*experts?\w*)(?:$|[._ ])", re.IGNORECASE)


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    exchange = calls.of(Collective.ALL_TO_ALL)
    gathered = calls.of(Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    yield Purpose.TOKENS, calls.of(Collective.DISPATCH, Collective.COMBINE)
    # DeepEP's barrier before a dispatch whose layout is known.
    yield Purpose.TOKENS, calls.of(Collective.BARRIER) & calls.is_library
    yield Purpose.TOKENS, exchange & calls.in_module(_EXPERTS)
    # Sizes are exchanged first, as whole numbers.
    yield Purpose.TOKENS, exchange & calls.inside("_c10d_functional_autograd::all_to_all_single")
    over = calls.over(EXPERT.dimension)
    yield Purpose.TOKENS, (exchange | (gathered & calls.in_model)) & over


EXPERT = Strategy(
    name="expert",
    in_words="expert parallel",
    dimension=dimension("ep", "etp", r"expert_(?:model_|tensor_)\w*", r"moe_ep\w*"),
    purposes=_purposes,
    owners=callers,
)
