"""Section on experts' tokens and on attention of spread sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median
from typing import Any, TypeVar

from analyzers.layers.strategies import AttentionRow, ExpertRow
from analyzers.reporting import Report
from tracer.views import HELP, Field, Heading, Paragraph, Place, Section, milliseconds, table

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
    return [
        Heading("Layers with experts: medians over steps, ms"),
        table(_EXPERT_FIELDS, _by_layer(rows), place=_place),
        Paragraph(_EXPERTS, is_faint=True),
    ]


def _tokens(rows: Sequence[ExpertRow], figure: Callable[[list[int]], float]) -> str:
    """Write the median over steps of a figure of all ranks' tokens, from steps in which all are known."""
    received = [[tokens for tokens in row.tokens_received if tokens is not None] for row in rows]
    whole = [tokens for tokens, row in zip(received, rows, strict=True) if len(tokens) == len(row.tokens_received)]
    value = _median([figure(tokens) for tokens in whole])
    return "-" if value is None else f"{value:,.0f}"


def _attention(rows: Sequence[AttentionRow]) -> Section:
    if not rows:
        return []
    return [
        Heading("Layers whose sequence is spread over ranks: medians over steps, ms"),
        table(_ATTENTION_FIELDS, _by_layer(rows), place=_place),
        Paragraph(_ATTENTION, is_faint=True),
    ]


def _attention_mean(row: AttentionRow) -> float | None:
    known = [ns for ns in row.attention_ns if ns is not None]
    return sum(known) / len(known) if known else None


def _longer(rows: Sequence[AttentionRow]) -> str:
    longer = {row.longer for row in rows}
    return longer.pop() or "-" if len(longer) == 1 else "either"


def _place(rows: Sequence[Row]) -> Place:
    return Place(layer=rows[0].layer)


def _by_layer(rows: Sequence[Row]) -> list[list[Row]]:
    """Return rows of one layer and pass, in the order in which these first come, the forward's first."""
    order = {key: place for place, key in enumerate(dict.fromkeys((row.direction, row.layer) for row in rows))}
    ordered = sorted(rows, key=lambda row: (row.direction != "forward", order[row.direction, row.layer]))
    return [list(alike) for _, alike in groupby(ordered, key=lambda row: (row.layer, row.direction))]


def _share(value_ns: int | None, row: ExpertRow | AttentionRow) -> float | None:
    """Return a rank's part of what all ranks' figures add up to."""
    return None if value_ns is None else value_ns / len(row.ranks)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(median(known)) if known else None


def _ratio(values: Sequence[float | None]) -> str:
    value = _median(values)
    return "-" if value is None else f"{value:.2f}"


def _times(head: str, meaning: str, value_of: Callable[[Row], float | None]) -> Field[list[Row]]:
    """Build the column of the median over steps of a time."""
    return Field(head, help=meaning, cell=lambda rows: milliseconds(_median([value_of(row) for row in rows])))


_LAYER: Sequence[Field[Any]] = (
    Field("layer", True, cell=lambda rows: rows[0].layer),
    Field("pass", True, help=HELP["direction"], cell=lambda rows: rows[0].direction),
)
_IMBALANCE: Field[Any] = Field(
    "imbalance", help=HELP["imbalance"], cell=lambda rows: _ratio([row.imbalance for row in rows])
)
_EXPERT_FIELDS: Sequence[Field[list[ExpertRow]]] = (
    *_LAYER,
    Field("tokens\nmost", help="Tokens that the busiest rank's experts receive.", cell=lambda rows: _tokens(rows, max)),
    Field(
        "tokens\nmean",
        help="Tokens that a rank's experts receive in the mean.",
        cell=lambda rows: _tokens(rows, lambda tokens: sum(tokens) / len(tokens)),
    ),
    _IMBALANCE,
    _times(
        "dispatch\nwaiting",
        "Waiting for the ranks that send tokens to this rank's experts.",
        lambda row: _share(row.dispatch_wait_ns, row),
    ),
    _times("dispatch\ntransfer", "The transfer of tokens to the experts' ranks.", lambda row: row.dispatch_transfer_ns),
    _times(
        "combine\nwaiting", "Waiting for the ranks that send tokens back.", lambda row: _share(row.combine_wait_ns, row)
    ),
    _times(
        "combine\ntransfer", "The transfer of tokens back from the experts' ranks.", lambda row: row.combine_transfer_ns
    ),
)
_ATTENTION_FIELDS: Sequence[Field[list[AttentionRow]]] = (
    *_LAYER,
    _times("attention", "Compute of the attention operators, the mean over ranks.", _attention_mean),
    _IMBALANCE,
    Field("collectives", True, cell=lambda rows: ", ".join(f"{sent.count} {sent.kind}" for sent in rows[0].transfers)),
    _times("transfer", HELP["transfer_ns"], lambda row: row.transfer_ns),
    Field("longer", True, help="What takes longer: the attention or its communication.", cell=_longer),
    _times("waiting", HELP["wait_ns"], lambda row: _share(row.wait_ns, row)),
    _times("exposed", HELP["exposed_ns"], lambda row: row.exposed_ns / len(row.ranks)),
)
