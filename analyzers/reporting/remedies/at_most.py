"""Advice that no replay can be made of, and its bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import msgspec

from analyzers.reporting.measures import SyncCost
from analyzers.reporting.remedies.advised import Advice, Evidence, advised
from analyzers.reporting.remedies.strategy_advice import (
    advice_on_attention,
    advice_on_pipelines,
    advice_on_sharded,
    advice_on_tensor,
)
from analyzers.statistics import LEAST_SHARE
from analyzers.units import duration

# What these would hide must find compute to hide behind.
_HIDES = {"reduce_scatter_group", "max_connections", "attention_transfer", "async_tp"}
# Cheaper forms of compute: they stand on a line of their own, and are no finding.
CHEAPER_FORMS = {"fp32", "layout"}
# Of these what takes less than a twentieth of the step is not worth a line.
FORMS_SHARE = 0.05


def advice_at_most(evidence: Evidence) -> list[Advice]:
    """Return what may be worth doing, what may bring most first; nothing where half of the windows are empty."""
    if evidence.step_ns <= 0:
        return []
    proposed = [_bounded(evidence, piece) for piece in chain.from_iterable(rule(evidence) for rule in _RULES)]
    step_ns = evidence.trained_ns
    shared = [
        msgspec.structs.replace(
            piece, at_most_ns=min(piece.figure_ns, round(step_ns)), share=min(piece.figure_ns / step_ns, 1.0)
        )
        for piece in proposed
        if piece.figure_ns >= (FORMS_SHARE if piece.code in CHEAPER_FORMS else LEAST_SHARE) * step_ns
    ]
    return sorted(shared, key=lambda piece: (piece.code in CHEAPER_FORMS, -piece.figure_ns))


def _bounded(evidence: Evidence, proposed: Advice) -> Advice:
    """Bound a gain from hiding communication by the compute that is left to hide it: links may be the limit."""
    if evidence.free_compute_ns is None or proposed.code not in _HIDES:
        return proposed
    free_ns = round(max(evidence.free_compute_ns, 0))
    if free_ns >= proposed.figure_ns:
        return proposed
    left = f"only {evidence.share(free_ns)} of compute has no communication beside it yet"
    because = "; ".join(filter(None, [proposed.because, left]))
    return msgspec.structs.replace(proposed, at_most_ns=free_ns, because=because)


def is_cheap(cost: SyncCost, step_ns: float) -> bool:
    """Whether no part of what communication costs is worth a line."""
    parts = (cost.exposed_wait_ns, cost.exposed_transfer_ns, cost.exposed_unresolved_ns, cost.packing_ns)
    more = (cost.packing_copies_ns, cost.idle_ns, cost.contention_ns or 0)
    return max(*parts, *more) < LEAST_SHARE * step_ns


def _data_parallel(evidence: Evidence) -> Iterator[Advice]:
    """Of nn.DataParallel what its one process costs, which drives all devices from threads in Python."""
    if evidence.driven_ns is not None:
        yield advised(
            "data_parallel",
            "use DistributedDataParallel, with one process per GPU, instead of nn.DataParallel",
            evidence.driven_ns,
            "one process drives all GPUs (nn.DataParallel)",
            "parameters and gradients cross the links in every step, and GPUs wait for the one CPU",
        )


def _contention(evidence: Evidence) -> Iterator[Advice]:
    cost = evidence.cost
    if cost is None or cost.contention_ns is None:
        return
    estimated = "estimated from like kernels without communication beside them"
    how = estimated if cost.contention_is_estimate else "measured against steps without synchronization"
    yield advised(
        "contention",
        "let NCCL take fewer SMs (NCCL_MAX_CTAS), if its bandwidth allows, and measure again",
        cost.contention_ns,
        "compute that runs beside communication is slower",
        how,
    )


def _tensor(evidence: Evidence) -> Iterator[Advice]:
    yield from advice_on_tensor(evidence, evidence.tensor, evidence.is_async_tp_on)


def _cheaper_forms(evidence: Evidence) -> Iterator[Advice]:
    """Say what of the compute has a known cheaper form: bounds alone, never added to gains."""
    yield advised(
        "fp32",
        'train in bf16 (torch.autocast), or let FP32 products run as TF32 (torch.set_float32_matmul_precision("high"))',
        evidence.products_ns,
        "matrix products and convolutions run in FP32, outside of tensor cores",
        f"these kernels take {duration(evidence.products_ns)} per {evidence.step_word}",
    )
    yield advised(
        "layout",
        "convert model and input to channels_last (memory_format=torch.channels_last)",
        evidence.layout_ns,
        "convolutions run in NCHW: layout copies, and batch norm outside of channels_last",
        f"these kernels take {duration(evidence.layout_ns)} per {evidence.step_word}",
    )


_RULES: Iterable[Callable[[Evidence], Iterator[Advice]]] = (
    *(_data_parallel, _contention, advice_on_sharded, _tensor, advice_on_attention, advice_on_pipelines),
    _cheaper_forms,
)
