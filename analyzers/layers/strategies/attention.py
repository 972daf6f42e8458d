"""Attention of a spread sequence, per layer, against its transfers.

compute    aaaa  aaaa  aaaa        what attention's operators launch, on each rank: with a causal mask a rank with
ring         ====  ====            later tokens has more of it; a transfer that takes longer cannot be hidden
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from analyzers.collectives import Exchange
from analyzers.layers.strategies.owned_instances import (
    Owned,
    Pass,
    exposed_ns,
    exposed_transfer_ns,
    grouped,
    owned_instances,
    transferred_ns,
    waited_ns,
)
from analyzers.rank import Purpose
from analyzers.trace import Collective

# Attention that no module is known to call: as a line of communication that is for no layer is called.
_NO_MODULE = f"({Purpose.ATTENTION.label})"
# Rank, step, layer, whether the backward.
Place = tuple[int, int, str, bool]


def attention_rows(exchanged: Exchange) -> list[AttentionRow]:
    """Return a row per step, group, layer and pass in which keys and values travel, in the order of time."""
    moved = owned_instances(exchanged, exchanged.matching.table.purpose == Purpose.ATTENTION)
    computed = _computed(exchanged)
    rows = []
    # What the backward runs again is of the backward, as its compute is.
    for key, of_layer in grouped(
        moved, lambda one: (one.step, one.group, one.module or _NO_MODULE, one.called_in != Pass.FORWARD)
    ):
        rows.append(_row(exchanged, key, of_layer, computed))
    return rows


def _computed(exchanged: Exchange) -> dict[Place, int]:
    """Return attention's compute on each rank, ns; under no module's name that of all of them together."""
    computed: dict[Place, int] = {}
    for _, number, measured in exchanged.run.numbered():
        parts, steps = measured.work.attention, measured.windows.step
        lines = [line.name for line in measured.work.lines]
        columns = (steps[parts.of].tolist(), parts.line.tolist(), parts.backward.tolist(), parts.ns.tolist())
        for step, line, backward, ns in zip(*columns, strict=True):
            for layer in (lines[line], _NO_MODULE):
                place = (int(number), step, layer, backward)
                computed[place] = computed.get(place, 0) + ns
    return computed


def _row(
    exchanged: Exchange, place: tuple[int, int, str, bool], of_layer: Sequence[Owned], computed: dict[Place, int]
) -> AttentionRow:
    step, group, layer, backward = place
    key = exchanged.matching.table.groups[group]
    attention = [computed.get((rank, step, layer, backward)) for rank in key.ranks]
    known = [ns for ns in attention if ns is not None]
    numbers = [one.number for one in of_layer]
    transfer_ns = transferred_ns(exchanged, numbers)
    mean_ns = sum(known) / len(known) if known and len(known) == key.size else None
    longer = None
    if mean_ns is not None and transfer_ns is not None:
        longer = "attention" if mean_ns >= transfer_ns else "transfer"
    return AttentionRow(
        step=step,
        layer=layer,
        group=key.name,
        ranks=list(key.ranks),
        direction=(Pass.BACKWARD if backward else Pass.FORWARD).label,
        attention_ns=attention,
        imbalance=max(known) / mean_ns if mean_ns else None,
        transfers=[
            _transfers(exchanged, kind, [one.number for one in alike])
            for kind, alike in grouped(
                of_layer, lambda one: Collective(int(exchanged.matching.instances.kind[one.number]))
            )
        ],
        transfer_ns=transfer_ns,
        longer=longer,
        wait_ns=waited_ns(exchanged, numbers),
        exposed_ns=exposed_ns(exchanged, numbers),
        exposed_transfer_ns=exposed_transfer_ns(exchanged, numbers),
    )


def _transfers(exchanged: Exchange, kind: Collective, numbers: Sequence[int]) -> AttentionTransfers:
    nbytes = exchanged.transfers.nbytes[np.array(numbers)].tolist()
    return AttentionTransfers(
        kind=kind.label,
        count=len(numbers),
        bytes=sum(nbytes) if min(nbytes) >= 0 else None,
        transfer_ns=transferred_ns(exchanged, numbers),
        wait_ns=waited_ns(exchanged, numbers),
        exposed_ns=exposed_ns(exchanged, numbers),
    )


class AttentionTransfers(msgspec.Struct, frozen=True):
    """Collectives of one kind for a layer's attention, added over members."""

    kind: str
    count: int
    bytes: int | None
    transfer_ns: int | None
    wait_ns: int | None
    exposed_ns: int


class AttentionRow(msgspec.Struct, frozen=True):
    """Attention of one layer whose sequence is spread over ranks, beside its transfers.

    Times of members are added. `attention_ns`: by rank. `imbalance`: the most over the mean. `longer`: `attention`, the
    mean, or `transfer`, all together.
    """

    step: int
    layer: str
    group: str
    ranks: list[int]
    direction: str = msgspec.field(name="pass")
    attention_ns: list[int | None]
    imbalance: float | None
    transfers: list[AttentionTransfers]
    transfer_ns: int | None
    longer: str | None
    wait_ns: int | None
    exposed_ns: int
    exposed_transfer_ns: int | None
