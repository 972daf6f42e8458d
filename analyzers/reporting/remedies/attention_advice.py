"""Rules of advice on attention that is spread over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from analyzers.layers.strategies import AttentionRow
from analyzers.reporting.remedies.advised import Advice, advised
from analyzers.reporting.remedies.observations import Evidence


def advice_on_attention(evidence: Evidence) -> Iterator[Advice]:
    """Yield what uneven attention and its exposed transfers give reason for."""
    yield from _uneven_attention(evidence)
    yield from _attention_transfer(evidence)


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


def _in_median_step(rows: Sequence[AttentionRow], value: Callable[[AttentionRow], float]) -> int:
    """Return the median over steps of what each step's rows add up to, ns."""
    total: Counter[int] = Counter()
    for row in rows:
        total[row.step] += round(value(row))
    return round(median(total.values()))


def _most_over_mean(values: Sequence[int]) -> float:
    return max(values) - sum(values) / len(values)
