"""Experts per step and layer: tokens, imbalance, waiting for dispatch and combine.

    forward      dispatch ---> experts compute ---> combine       the rank with most tokens computes longest, and
    backward     combine's gradient -> compute -> dispatch's      the others wait for it in what comes behind

A layer is the module that calls; where the trace has no modules, the place among the step's dispatches stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Mask
from analyzers.collectives import Exchange, Key
from analyzers.layers.strategies.owned_instances import (
    Owned,
    Pass,
    exposed_ns,
    grouped,
    owned_instances,
    transferred_ns,
    waited_ns,
)
from analyzers.layers.strategies.token_routing import Sent, Splits, are_outward, routed, routing, sent
from analyzers.notices import Code, Notice
from analyzers.rank import Purpose
from analyzers.trace import INTEGRAL, Collective

# Kernels of libraries that are written for tokens.
_LIBRARY = (Collective.DISPATCH, Collective.COMBINE)
_KINDS = (Collective.ALL_TO_ALL, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, *_LIBRARY)


def expert_rows(exchanged: Exchange) -> list[ExpertRow]:
    """Return a row per step, group, layer and pass in which tokens go to experts and back, in the order of time."""
    carries = _carries_tokens(exchanged)
    moved = owned_instances(exchanged, carries)
    if not moved:
        return []
    waits = _Waits(exchanged)
    names = _layer_names({one.module for one in moved if one.module is not None})
    placing = _Placing(exchanged, carries)
    return [
        row
        for (step, _), in_group in grouped(moved, lambda one: (one.step, placing.ranks_or_group(one)))
        for layer, by_order, of_layer in _layers(placing, names, in_group)
        for row in _rows(waits, _Place(step, layer, by_order, placing.is_lacking(of_layer)), of_layer)
    ]


def _carries_tokens(exchanged: Exchange) -> Mask:
    """Whether rows of the table carry tokens, rather than how many there are."""
    table = exchanged.matching.table
    whole = np.array([*(call.dtype in INTEGRAL for call in table.calls), False], dtype=bool)[table.call]
    carries: Mask = (table.purpose == Purpose.TOKENS) & np.isin(table.kind, _KINDS) & ~whole & ~table.is_copy
    return carries


def _layer_names(modules: set[str]) -> dict[str, str]:
    """Return the layer of each module that calls: the outermost of them that holds it (`moe` of `moe.experts`)."""
    return {
        module: min((other for other in modules if f"{module}.".startswith(f"{other}.")), key=len) for module in modules
    }


class _Placing:
    """Where exchanges stand that no module calls: kernels of other libraries by their rank's own order.

    rank 0     D C D C D C        a turn is a dispatch (D) with what follows up to the next, counted on each rank, so
    turn       0 0 1 1 2 2        that a kernel that could not be matched moves no other
    """

    def __init__(self, exchanged: Exchange, carries: Mask) -> None:
        self.exchanged = exchanged
        table, alone = exchanged.matching.table, carries & (exchanged.matching.instance < 0)
        is_library = np.isin(table.kind, _LIBRARY)
        self.turn = np.full(len(table), UNKNOWN, dtype=np.int64)
        rows = np.flatnonzero(carries & is_library)
        rows = rows[np.lexsort((table.start_ns[rows], table.window[rows], table.device[rows], table.rank[rows]))]
        place = np.stack([table.rank[rows], table.device[rows], table.window[rows]])
        first = np.r_[True, (np.diff(place) != 0).any(axis=0)][: len(rows)]
        goes_out = table.kind[rows] == Collective.DISPATCH
        turns = np.cumsum(goes_out & (first | ~np.r_[False, goes_out[:-1]][: len(rows)]))
        # What comes before the first dispatch belongs to one before the window, and has -1.
        before = (turns - goes_out)[first]
        self.turn[rows] = turns - 1 - np.repeat(before, np.diff(np.r_[np.flatnonzero(first), len(rows)]))
        lost = alone & is_library
        self._lost_turns = set(zip(table.window[lost].tolist(), self.turn[lost].tolist(), strict=True))
        self._lost_steps = set(table.window[alone & ~is_library].tolist())

    def ranks_or_group(self, one: Owned) -> tuple[int, ...]:
        """Return what tells groups apart: of other libraries, whose every kernel has its own sequence, the ranks."""
        is_library = self.exchanged.matching.instances.kind[one.number] in _LIBRARY
        return self.exchanged.matching.table.groups[one.group].ranks if is_library else (UNKNOWN, one.group)

    def turn_of(self, one: Owned) -> int:
        """Return the turn of an instance, as most members count."""
        instances = self.exchanged.matching.instances
        turns = self.turn[instances.members[instances.first[one.number] : instances.first[one.number + 1]]]
        numbers, count = np.unique(turns, return_counts=True)
        return int(numbers[np.argmax(count)])

    def is_lacking(self, exchanges: Sequence[Owned]) -> bool:
        """Whether of a layer's tokens some are in no instance, so that what is added up would lack them."""
        steps = {one.step for one in exchanges}
        return bool(steps & self._lost_steps) or any(
            (one.step, self.turn_of(one)) in self._lost_turns for one in exchanges if self._lost_turns
        )


def _layers(
    placing: _Placing, names: dict[str, str], in_step: Sequence[Owned]
) -> Iterator[tuple[str, bool, list[Owned]]]:
    """Yield a step's exchanges by layer; where no module calls them, by order: each dispatch begins a layer."""
    for layer, of_layer in grouped(in_step, lambda one: None if one.module is None else names[one.module]):
        if layer is not None:
            yield layer, False, of_layer
            continue
        for _, of_pass in grouped(of_layer, lambda one: one.called_in):
            exchanges = [sent(placing.exchanged, one.number) for one in of_pass]
            turns = np.cumsum(np.diff(np.r_[False, are_outward(exchanges, set())].astype(np.int64)) == 1) - 1
            if all(one.kind in _LIBRARY for one in exchanges):
                turns = np.array([placing.turn_of(one) for one in of_pass], dtype=np.int64)
            for turn, pairs in grouped(zip(turns.tolist(), of_pass, strict=True), lambda pair: pair[0]):
                yield f"dispatch {turn}" if turn >= 0 else "before dispatch 0", True, [one for _, one in pairs]


@dataclass(frozen=True)
class _Place:
    """Which step and layer; `is_lacking`: some rank's tokens of it are in no instance."""

    step: int
    layer: str
    by_order: bool
    is_lacking: bool


class _Waits:
    """What the rows of all layers look at: who was waited for, and whether since it computed longer."""

    def __init__(self, exchanged: Exchange) -> None:
        self.exchanged = exchanged
        self.for_compute = _computed_longer(exchanged)
        members = exchanged.matching.instances.members
        self.for_rank = exchanged.matching.table.rank[members[exchanged.transfers.waits_for]]


def _computed_longer(exchanged: Exchange) -> Mask:
    """Whether the member that each entry waited for computed longer than the entry's own device, by half the wait.

    Since their group's first collective of the step: a rank that lagged behind there and caught up computed no longer.
    """
    instances, table = exchanged.matching.instances, exchanged.matching.table
    culprit, wait = exchanged.transfers.waits_for, np.maximum(exchanged.transfers.wait_ns, 0)
    if not len(instances):
        return np.zeros(0, dtype=bool)
    rows, number = instances.members, instances.of_member
    keys = np.stack([instances.group[number], table.rank[rows], table.device[rows]])
    order = np.lexsort((number, *keys[::-1]))
    busy, step = table.busy_ns[rows[order]], instances.step[number[order]]
    member = np.r_[True, (np.diff(keys[:, order]) != 0).any(axis=0)]
    begins = member | np.r_[True, np.diff(step) != 0]
    # The first of a step is compared with the first of the step before.
    start = np.flatnonzero(begins)
    which = np.cumsum(begins) - 1
    since = np.where(begins, np.where(member, -1, start[np.maximum(which - 1, 0)]), start[which])
    length = np.full(len(rows), np.nan)
    length[order] = np.where(since >= 0, busy - busy[since], np.nan)
    longer: Mask = length[culprit] - length >= 0.5 * wait
    return longer


def _rows(waits: _Waits, place: _Place, of_layer: Sequence[Owned]) -> Iterator[ExpertRow]:
    """Yield a row for each pass of a layer."""
    known: set[Splits] = set()
    passes = dict(grouped(of_layer, lambda one: one.called_in))
    for called_in in Pass:
        if called_in in passes:
            exchanges = [sent(waits.exchanged, one.number) for one in passes[called_in]]
            groups = dict.fromkeys(one.group for one in passes[called_in])
            keys = [waits.exchanged.matching.table.groups[group] for group in groups]
            yield _row(waits, place, (called_in, keys), (exchanges, are_outward(exchanges, known)))


def _row(waits: _Waits, place: _Place, of: tuple[Pass, list[Key]], moved: tuple[list[Sent], list[bool]]) -> ExpertRow:
    exchanged, (exchanges, outward), (called_in, (key, *others)) = waits.exchanged, moved, of
    is_ordered = len(key.ranks) == key.size
    route = routing(routed(exchanges, outward) if is_ordered and not place.is_lacking else [], key.size)
    busiest = key.ranks[route.busiest] if route.busiest is not None else None
    there = [one.number for one, goes_out in zip(exchanges, outward, strict=True) if goes_out]
    back = [one.number for one, goes_out in zip(exchanges, outward, strict=True) if not goes_out]
    # Which way a backward's exchange goes without a module cannot be told from a forward that runs again.
    is_known = not place.is_lacking and (not place.by_order or called_in == Pass.FORWARD)
    there, back = (there, back) if is_known else ([], [])
    dispatch, combine = (back, there) if called_in == Pass.BACKWARD else (there, back)
    is_of_step = busiest is not None and not exchanged.run.is_light
    for_busiest = waits.for_rank == busiest if is_of_step else np.zeros(len(waits.for_rank), dtype=bool)
    return ExpertRow(
        step=place.step,
        layer=place.layer,
        by_order=place.by_order,
        group=", ".join([key.name, *(other.name for other in others)]),
        ranks=list(key.ranks),
        direction=called_in.label,
        exchanges=len(exchanges),
        is_partial=key.is_partial,
        tokens_to=route.tokens_to,
        tokens_received=route.received,
        received_bytes=route.received_bytes,
        imbalance=route.imbalance,
        busiest_rank=busiest,
        dispatch_wait_ns=waited_ns(exchanged, dispatch),
        dispatch_wait_for_busiest_ns=waited_ns(exchanged, dispatch, for_busiest) if is_of_step else None,
        dispatch_transfer_ns=transferred_ns(exchanged, dispatch),
        combine_wait_ns=waited_ns(exchanged, combine),
        combine_wait_for_busiest_ns=waited_ns(exchanged, combine, for_busiest) if is_of_step else None,
        combine_transfer_ns=transferred_ns(exchanged, combine),
        wait_for_compute_ns=waited_ns(exchanged, back, waits.for_compute),
        exposed_ns=exposed_ns(exchanged, [one.number for one in exchanges]),
    )


def expert_notices(exchanged: Exchange, rows: Sequence[ExpertRow]) -> list[Notice]:
    """Say what of experts is not known, and why."""
    notices = []
    if any(row.by_order for row in rows):
        text = (
            "layers with experts are numbered in the step's order: the trace does not tell whose tokens are exchanged"
        )
        notices.append(Notice(Code.EXPERTS_GO_BY_ORDER, text))
    unknown = [row for row in rows if row.tokens_to is None or None in row.tokens_to]
    if unknown:
        notices.append(Notice(Code.TOKENS_ARE_NULL, f"who sends how many tokens to whom is not known: {_why(unknown)}"))
    if exchanged.run.is_light and any(row.imbalance is not None for row in rows):
        text = (
            "tokens come from the full profile and times from the light profile, which recorded other steps: there "
            "tokens may go to other experts"
        )
        notices.append(Notice(Code.TOKENS_OF_OTHER_STEPS, text))
    return notices


def _why(unknown: Sequence[ExpertRow]) -> str:
    if any(row.is_partial for row in unknown):
        return "ranks are missing from the run"
    if all(set(row.received_bytes) == {None} for row in unknown):
        return "these kernels do not tell how much they carry, ranks contradict one another, or some are not matched"
    return "splits are cut short, or there are none, or they do not count tokens"


class ExpertRow(msgspec.Struct, frozen=True):
    """A layer's experts in a step and pass: docs/measuring.md, Experts and spread attention.

    Times of members are added. `by_order`: layers are numbered dispatches. `pass`: may be `recomputed`; in a backward
    tokens are gradients. `tokens_to`: by sender, what each of `ranks` gets. `wait_for_compute_ns`: for ranks whose
    experts computed longer.
    """

    step: int
    layer: str
    by_order: bool
    group: str
    ranks: list[int]
    direction: str = msgspec.field(name="pass")
    exchanges: int
    is_partial: bool
    tokens_to: list[list[int] | None] | None
    tokens_received: list[int | None]
    received_bytes: list[int | None]
    imbalance: float | None
    busiest_rank: int | None
    dispatch_wait_ns: int | None
    dispatch_wait_for_busiest_ns: int | None
    dispatch_transfer_ns: int | None
    combine_wait_ns: int | None
    combine_wait_for_busiest_ns: int | None
    combine_transfer_ns: int | None
    wait_for_compute_ns: int | None
    exposed_ns: int
