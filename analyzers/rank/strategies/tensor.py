"""Tensor and sequence parallelism: activations gathered and reduced by modules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzers.arrays import Mask
from analyzers.rank.strategies.protocol import Calls, Purpose, Strategy, callers, dimension
from analyzers.trace import Collective

# These gather statistics over all samples, whatever holds the weights.
_STATISTICS = re.compile(r"SyncBatchNorm", re.IGNORECASE)
# A loss over logits that are spread over ranks (loss parallelism) is no module, and reduces in its operators.
_LOSS = re.compile(r"aten::(?:cross_entropy_loss|_?log_softmax|nll_loss\w*)")


def _purposes(calls: Calls) -> Iterator[tuple[Purpose, Mask]]:
    kinds = calls.of(Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    spread = (kinds | calls.of(Collective.ALL_TO_ALL)) & calls.is_floating
    statistics = calls.in_module(_STATISTICS) | calls.inside_any(_STATISTICS)
    yield Purpose.ACTIVATIONS, spread & calls.over(TENSOR.dimension) & (calls.in_model | calls.is_replayed)
    # FSDP without ranges and compiled context parallelism look alike; programs with a tensor parallelism of their own,
    # such as Megatron's, are not recognized when they are recorded.
    is_explained = TENSOR.name not in calls.recorded and bool(calls.recorded & {"fsdp", "context"})
    if not is_explained:
        yield Purpose.ACTIVATIONS, kinds & calls.is_floating & calls.in_model & ~statistics
    yield Purpose.ACTIVATIONS, kinds & calls.is_floating & calls.inside_any(_LOSS)
    # Kernels of their own (symmetric memory, vLLM's cross_device_reduce) are written for these activations.
    yield Purpose.ACTIVATIONS, kinds & calls.is_library


TENSOR = Strategy(
    name="tensor",
    in_words="tensor parallel",
    dimension=dimension("tp", "sp", "asynctp", r"tensor_(?:model_)?parallel\w*"),
    purposes=_purposes,
    owners=callers,
)
