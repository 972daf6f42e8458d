"""Context parallelism: attention over a sequence spread over ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzers.arrays import Mask
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, callers, dimension
from analyzers.trace import Collective

# Attention's operators and nodes: what is dispatched inside them replaces them (torch.distributed.tensor's
# context_parallel), and no other parallelism's collectives run there.
ATTENTION = re.compile(
    r"aten::_?(?:scaled_dot_product|flash|efficient|cudnn)\w*attention|ScaledDotProduct\w*Attention\w*Backward|"
    r"flex_attention|RingAttention",
    re.IGNORECASE,
)
# In an attention module only a ring's messages and Ulysses' all-to-alls are its own: tensor parallelism reduces there.
_MODULE = re.compile(r"attention|attn", re.IGNORECASE)


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    floating, collective = calls.is_floating, calls.of(Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    exchange = calls.of(Collective.ALL_TO_ALL, Collective.SEND_RECV)
    over = calls.over(CONTEXT.dimension) & calls.in_model
    yield Purpose.ATTENTION, (collective | exchange) & floating & (calls.inside_any(ATTENTION) | over)
    yield Purpose.ATTENTION, exchange & floating & calls.in_module(_MODULE)
    if calls.is_alone(CONTEXT.name):
        # Compiled code has no operator of attention around its collectives.
        yield Purpose.ATTENTION, (collective | exchange) & floating & calls.in_model & calls.is_compiled


CONTEXT = Strategy(
    name="context",
    in_words="context parallel",
    dimension=dimension("cp", "sp_ulysses", "ulysses", "ring", r"context_parallel\w*"),
    purposes=_purposes,
    owners=callers,
)
