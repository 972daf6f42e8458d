"""Section on experts' tokens and on attention of spread sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median
from typing import TypeVar

from analyzers.layers.strategies import AttentionRow, ExpertRow
from analyzers.reporting import Report
from tracer.views import Heading, Paragraph, Place, Section, Table, milliseconds, numbers, texts

Row = TypeVar("Row", ExpertRow, AttentionRow)
_NONE = "No experts, and no attention over spread sequences: nothing here is known to carry tokens, keys or values."
_EXPERTS = (
    "tokens: what a rank's experts receive (in a backward, their gradients); imbalance: the largest rank's "
    "over the mean; waiting: the mean per rank. In a backward the combine's gradient comes before the dispatch's."
)
_ATTENTION = (
    "attention: compute of its operators, the mean per rank; imbalance: the largest rank's figure over the mean; "
    "transfer: all its collectives together; exposed: the mean per rank, waiting included."
)


def by_expert(report: Report) -> Section:
    """List every layer with experts, and every layer whose sequence is spread: medians over steps."""
    return [*_experts(report.experts), *_attention(report.attention)] or [Heading(_NONE)]


def _experts(rows: Sequence[ExpertRow]) -> Section:
    if not rows:
        return []
    heads = [*texts("layer", "pass"), *numbers("tokens\nmost", "tokens\nmean", "imbalance")]
    heads += numbers("dispatch\nwaiting", "dispatch\ntransfer", "combine\nwaiting", "combine\ntransfer")
    layers = _by_layer(rows)
    cells = [[*of, *_expert_cells(alike)] for of, alike in layers]
    return [
        Heading("Layers with experts: medians over steps, ms"),
        Table(heads, [cells], places=_places(layers)),
        Paragraph(_EXPERTS, is_faint=True),
    ]


def _expert_cells(rows: Sequence[ExpertRow]) -> list[str]:
    received = [[tokens for tokens in row.tokens_received if tokens is not None] for row in rows]
    whole = [tokens for tokens, row in zip(received, rows, strict=True) if len(tokens) == len(row.tokens_received)]
    return [
        _count(whole, max),
        _count(whole, lambda tokens: sum(tokens) / len(tokens)),
        _ratio([row.imbalance for row in rows]),
        milliseconds(_median([_share(row.dispatch_wait_ns, row) for row in rows])),
        milliseconds(_median([row.dispatch_transfer_ns for row in rows])),
        milliseconds(_median([_share(row.combine_wait_ns, row) for row in rows])),
        milliseconds(_median([row.combine_transfer_ns for row in rows])),
    ]


def _attention(rows: Sequence[AttentionRow]) -> Section:
    if not rows:
        return []
    heads = [*texts("layer", "pass"), *numbers("attention", "imbalance"), *texts("collectives")]
    heads += [*numbers("transfer"), *texts("longer"), *numbers("waiting", "exposed")]
    layers = _by_layer(rows)
    cells = [[*of, *_attention_cells(alike)] for of, alike in layers]
    return [
        Heading("Layers whose sequence is spread over ranks: medians over steps, ms"),
        Table(heads, [cells], places=_places(layers)),
        Paragraph(_ATTENTION, is_faint=True),
    ]


def _attention_cells(rows: Sequence[AttentionRow]) -> list[str]:
    known = [[ns for ns in row.attention_ns if ns is not None] for row in rows]
    longer = {row.longer for row in rows}
    return [
        milliseconds(_median([sum(ns) / len(ns) if ns else None for ns in known])),
        _ratio([row.imbalance for row in rows]),
        ", ".join(f"{sent.count} {sent.kind}" for sent in rows[0].transfers),
        milliseconds(_median([row.transfer_ns for row in rows])),
        longer.pop() or "-" if len(longer) == 1 else "either",
        milliseconds(_median([_share(row.wait_ns, row) for row in rows])),
        milliseconds(_median([row.exposed_ns / len(row.ranks) for row in rows])),
    ]


def _places(layers: Sequence[tuple[tuple[str, str], list[Row]]]) -> list[Place]:
    return [Place(layer=layer) for (layer, _), _ in layers]


def _by_layer(rows: Sequence[Row]) -> list[tuple[tuple[str, str], list[Row]]]:
    """Return rows of one layer and pass, in the order in which these first come, the forward's first."""
    order = {key: place for place, key in enumerate(dict.fromkeys((row.direction, row.layer) for row in rows))}
    ordered = sorted(rows, key=lambda row: (row.direction != "forward", order[row.direction, row.layer]))
    return [(of, list(alike)) for of, alike in groupby(ordered, key=lambda row: (row.layer, row.direction))]


def _share(value_ns: int | None, row: ExpertRow | AttentionRow) -> float | None:
    """Return a rank's part of what all ranks' figures add up to."""
    return None if value_ns is None else value_ns / len(row.ranks)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _ratio(values: Sequence[float | None]) -> str:
    value = _median(values)
    return "-" if value is None else f"{value:.2f}"


def _count(tokens: Sequence[list[int]], figure: Callable[[list[int]], float]) -> str:
    value = _median([figure(one) for one in tokens])
    return "-" if value is None else f"{value:,.0f}"
