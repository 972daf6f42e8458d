"""Rules of advice on buckets, transfers and what they cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TypeVar

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, none_if_negative
from analyzers.layers import PASSES, BucketTimes
from analyzers.layers.strategies import AttentionRow, ExpertRow
from analyzers.rank import Purpose
from analyzers.reporting.remedies.advised import Advice, advised
from analyzers.reporting.remedies.observations import Evidence
from analyzers.statistics import LEAST_SHARE
from analyzers.trace import ROOT, Collective, itemsize
from analyzers.units import count, duration

StrategyRow = TypeVar("StrategyRow", ExpertRow, AttentionRow)
# A kernel that starts so soon behind another of its stream stood in a queue.
BEHIND_NS = 20_000
# A bucket whose transfer is not so many times the latency takes as long when it is smaller.
ABOVE_LATENCY = 2
# DDP's first bucket, which it makes small on purpose (torch.distributed._DEFAULT_FIRST_BUCKET_BYTES).
SMALLEST_BYTES = 2**20
# Of a 16-bit float.
HALF_BYTES = 2
_BUFFERS = f"({Purpose.BUFFERS.label})"


def _last_bucket(evidence: Evidence) -> Iterator[Advice]:
    buckets = evidence.buckets
    last = int(buckets.bucket.max(initial=UNKNOWN)) if buckets is not None else UNKNOWN
    if buckets is None or last == UNKNOWN:
        return
    rows = buckets.take(buckets.bucket == last)
    if rows.overlapped_ns.sum() > 0.5 * rows.dur_ns.sum() or _is_queue(evidence):
        return  # where links are the limit, its bytes take as long in another bucket
    figure = evidence.typical_of(rows.window, _exposed_transfer(rows))
    nbytes = none_if_negative(rows.nbytes[0])
    is_small = (nbytes or 0) < SMALLEST_BYTES
    transfer_ns = float(np.median(np.maximum(rows.transfer_ns, 0)))
    if is_small or evidence.latency_ns is None or transfer_ns < ABOVE_LATENCY * evidence.latency_ns:
        return  # a smaller one would take as long
    yield advised(
        "last_bucket",
        f"make the last bucket (bucket {last}{_size(nbytes)}) smaller: a smaller bucket_cap_mb",
        figure,
        f"the last bucket is reduced when the backward has ended: its exposed transfer is {evidence.part(figure)}",
    )


def _exposed_transfer(rows: BucketTimes) -> Int64:
    """Return the exposed transfer of each reduction; of what is unresolved none is known."""
    return np.where(rows.bound, 0, np.minimum(rows.exposed_ns, np.maximum(rows.transfer_ns, 0)))


def _fewer_bytes(evidence: Evidence) -> str:
    """Say how to send fewer: a hook that compresses to 16 bits saves nothing where gradients have no more."""
    widest = max((itemsize(dtype) for dtype in evidence.gradient_dtypes), default=0)
    hook = ["DDP's bf16_compress_hook"] if widest > HALF_BYTES else []
    return ", ".join([*hook, "gradient accumulation under no_sync"])


def _size(nbytes: int | None) -> str:
    return f", {nbytes / 1e6:.2f} MB" if nbytes is not None else ""


def _queued(evidence: Evidence) -> Iterator[Advice]:
    buckets = evidence.buckets
    if buckets is None or not _is_queue(evidence):
        return
    figure = evidence.typical_of(buckets.window, _exposed_transfer(buckets))
    if evidence.cost is not None:
        # Reductions may overlap one another.
        figure = min(figure, evidence.cost.exposed_transfer_ns)
    yield advised(
        "fewer_bytes",
        f"send fewer bytes ({_fewer_bytes(evidence)}), or use faster links; buckets of another size hold as many bytes",
        figure,
        f"the links are too slow for the gradients: {evidence.part(figure)} is transfer that no compute hides",
        f"buckets stand behind one another's transfers for {duration(_stood(evidence))} per step, added up",
    )


def _is_queue(evidence: Evidence) -> bool:
    return _stood(evidence) >= LEAST_SHARE * evidence.step_ns


def _stood(evidence: Evidence) -> int:
    """Return how long buckets stood behind others' transfers, added up, in ns per step."""
    if evidence.buckets is None:
        return 0
    rows = evidence.buckets.by_start()
    before, after = rows.take(np.arange(len(rows) - 1)), rows.take(np.arange(1, len(rows)))
    behind = (before.rank == after.rank) & (before.step == after.step)
    behind &= after.start_ns - (before.start_ns + before.dur_ns) <= BEHIND_NS
    # Behind a bucket that only waited a queue is waiting, not the links' limit.
    stood_ns = np.minimum(np.maximum(after.queued_ns, 0), np.maximum(before.transfer_ns, 0))
    return evidence.typical_of(after.window[behind], stood_ns[behind])


def _launched_late(evidence: Evidence) -> Iterator[Advice]:
    if evidence.buckets is None:
        return
    figure = evidence.typical_of(evidence.buckets.window, np.maximum(evidence.buckets.late_launch_ns, 0))
    yield advised(
        "late_launch",
        "launch less: a larger batch, fewer and larger buckets, torch.compile or CUDA graphs",
        figure,
        f"the CPU launches all-reduces {evidence.share(figure)} after their buckets are ready, added up",
    )


def _buffers(evidence: Evidence) -> Iterator[Advice]:
    of_lines = evidence.of_lines
    if of_lines is None or _BUFFERS not in of_lines.lines or evidence.is_data_parallel or not evidence.complete:
        return
    rows = of_lines.take(of_lines.line == of_lines.lines.index(_BUFFERS))
    if not len(rows):
        return
    # Waiting would be there without them, at the next collective.
    moved = evidence.typical_of(rows.window, rows.exposed_transfer_ns)
    figure = round(evidence.copies.buffers_ns) + moved
    copied = ""
    if evidence.copies.buffers:
        copied = f", with {evidence.copies.buffers:.0f} copies and the gaps before them"
    yield advised(
        "buffers",
        f"switch off DDP's broadcast of buffers ({_no_broadcast(evidence.torch_version)}), if each rank may have its "
        "own running statistics",
        figure,
        f"DDP broadcasts buffers in every forward: {evidence.part(figure)}{copied}",
    )


def _no_broadcast(version: str | None) -> str:
    """Return the argument of DDP's that switches the broadcast off, which torch 2.15 gave another name."""
    names = {False: "broadcast_buffers=False", True: "forward_sync_buffers=False"}
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    if numbers is None:
        return f"{names[False]}; in torch 2.15 {names[True]}"
    return names[(int(numbers[1]), int(numbers[2])) >= (2, 15)]


def _has_buckets(evidence: Evidence) -> bool:
    return evidence.buckets is not None and len(evidence.buckets) > 0


def _packing(evidence: Evidence) -> Iterator[Advice]:
    if evidence.cost is None or not _has_buckets(evidence):
        return
    figure = evidence.cost.packing_ns
    yield advised(
        "packing",
        "copy gradients into buckets in fewer kernels (batched_grad_copy in torch 2.15)",
        figure,
        f"copying gradients into buckets takes {evidence.part(figure)}, in which nothing else computes",
    )


def _copied_out(evidence: Evidence) -> Iterator[Advice]:
    if not _has_buckets(evidence):
        return
    figure = round(evidence.copies.gradients_ns)
    yield advised(
        "copies_out",
        "let gradients be views of their buckets (gradient_as_bucket_view=True)",
        figure,
        f"copying reduced gradients out of buckets takes {evidence.part(figure)}",
        f"{evidence.copies.gradients:.0f} copies per step, with the gaps before them",
    )


def _no_prefetch(evidence: Evidence) -> Iterator[Advice]:
    of_lines = evidence.of_lines
    if of_lines is None:
        return
    # Nothing runs yet that could hide the model's own, which comes first.
    of_model = of_lines.line == (of_lines.lines.index(ROOT) if ROOT in of_lines.lines else UNKNOWN)
    rows = of_lines.take((of_lines.kind == Collective.ALL_GATHER) & (of_lines.prefetched == 0) & ~of_model)
    exposed_ns = rows.exposed_transfer_ns if evidence.complete else np.zeros(len(rows), dtype=np.int64)
    figure = evidence.typical_of(rows.window, exposed_ns)
    late = rows.take(exposed_ns > 0)
    modules, passes = set(late.line.tolist()), sorted({PASSES[backward] for backward in late.backward.tolist()})
    yield advised(
        "prefetch",
        "prefetch parameters (set_modules_to_forward_prefetch, set_modules_to_backward_prefetch)",
        figure,
        f"parameters are gathered only when their module needs them: {evidence.part(figure)} is their exposed transfer",
        f"all-gathers of {count(len(modules), 'module')} are launched in the module's own turn ({', '.join(passes)})",
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
        f"compute that runs beside communication is slower, by {evidence.part(cost.contention_ns)}",
        how,
    )


# --- strategies ---


def _experts(evidence: Evidence) -> Iterator[Advice]:
    """Where ranks wait behind the experts' compute for one that computed longer, whatever its host did."""
    known = [row for row in evidence.experts if row.wait_for_compute_ns is not None and len(row.ranks) > 1]
    if not known or evidence.cost is None:
        return
    waited = _in_median_step(known, lambda row: (row.wait_for_compute_ns or 0) / (len(row.ranks) - 1))
    figure = min(waited, evidence.cost.exposed_wait_ns)
    # With times of light windows tokens are those of other steps, and say nothing of this waiting.
    told = [row for row in known if row.imbalance is not None and row.combine_wait_for_busiest_ns is not None]
    most = ""
    if told:
        row = max(told, key=lambda one: one.imbalance or 0)
        most = f"in {row.layer} a rank's experts receive up to {row.imbalance:.2f} times the mean"
    yield advised(
        "expert_imbalance",
        "spread tokens evenly over experts (a load-balancing loss, a bias per expert that follows its load, a "
        "capacity factor), or place busy experts on different ranks",
        figure,
        f"experts are unevenly loaded: ranks wait {evidence.part(figure)} for the one whose experts compute longest",
        most,
    )


def _uneven_attention(evidence: Evidence) -> Iterator[Advice]:
    rows = [row for row in evidence.attention if row.imbalance is not None]
    if not rows or evidence.cost is None:
        return
    longer = _in_median_step(rows, lambda row: _most_over_mean([ns for ns in row.attention_ns if ns is not None]))
    figure = min(longer, evidence.cost.exposed_wait_ns)
    worst = max(row.imbalance or 0 for row in rows)
    yield advised(
        "attention_imbalance",
        "give each rank an early and a late part of the sequence (the load balancing of torch's context_parallel, "
        "zigzag)",
        figure,
        f"attention is unevenly spread: on the slowest rank it takes {evidence.part(figure)} longer than on average",
        f"in one layer up to {worst:.2f} times as long; behind a causal mask later tokens attend to more",
    )


def _attention_transfer(evidence: Evidence) -> Iterator[Advice]:
    rows = [row for row in evidence.attention if row.exposed_transfer_ns is not None]
    if not rows:
        return
    gathered = [row for row in rows if {sent.kind for sent in row.transfers} == {"all_gather"}]
    longer = sum(row.longer == "transfer" for row in rows)
    if 2 * longer > len(rows):
        text = "spread sequences over fewer ranks, or make them longer: no ring hides transfers behind less attention"
    elif gathered:
        # Gradients of keys and values go round in a ring whatever is set; of passes that hold both, none is counted.
        text, rows = (
            'pass keys and values on in a ring beside attention (in torch set_rotate_method("alltoall"))',
            gathered,
        )
    else:
        text = "launch each transfer of the ring before the attention that can hide it"
    figure = _in_median_step(rows, lambda row: (row.exposed_transfer_ns or 0) / len(row.ranks))
    sent_along = "all-gathers of keys and values are" if rows is gathered else "transfers of attention are"
    yield advised(
        "attention_transfer",
        text,
        figure,
        f"{sent_along} exposed for {evidence.part(figure)}",
        _where_longer(longer, len(evidence.attention)),
    )


def _where_longer(longer: int, of: int) -> str:
    return (
        f"the transfer takes longer than attention itself in {longer} of {of} cases (layer, pass, step)"
        if longer
        else ""
    )


def _in_median_step(rows: Sequence[StrategyRow], value: Callable[[StrategyRow], float]) -> int:
    """Return the median over steps of what each step's rows add up to, ns."""
    total: Counter[int] = Counter()
    for row in rows:
        total[row.step] += round(value(row))
    return round(median(total.values()))


def _most_over_mean(values: Sequence[int]) -> float:
    return max(values) - sum(values) / len(values)


RULES = (
    *(_last_bucket, _queued, _launched_late, _buffers, _packing, _copied_out, _no_prefetch, _contention),
    *(_experts, _uneven_attention, _attention_transfer),
)
