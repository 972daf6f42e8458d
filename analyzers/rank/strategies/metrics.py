"""Norms and metrics: gradient norms, losses, counts, statistics of normalization."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzers.arrays import Mask
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, dimension
from analyzers.trace import NODE, Collective

_NORMS = re.compile(r"aten::(?:linalg_vector_norm|_foreach_norm|norm)\b|clip_grad|SyncBatchNorm", re.IGNORECASE)
# Losses, counts and norms are a number for each of something; gradients and activations are longer.
MOST_ELEMENTS = 4096


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    kinds = calls.of(Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE, Collective.GATHER)
    few = (calls.elements >= 0) & (calls.elements <= MOST_ELEMENTS)
    few &= ~calls.in_model & ~calls.inside(NODE)
    trains = len(calls.nodes.row) > 0
    yield Purpose.NORMS, kinds & calls.inside_any(_NORMS)
    yield Purpose.NORMS, kinds & calls.over(METRICS.dimension)
    yield Purpose.NORMS, (kinds | calls.of(Collective.BROADCAST)) & few & trains


METRICS = Strategy(
    name="metrics", in_words="norms and metrics", dimension=dimension(r"loss\w*", "batch"), purposes=_purposes
)
