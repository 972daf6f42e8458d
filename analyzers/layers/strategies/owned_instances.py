"""Collectives with the module that they are for and their pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np

from analyzers.arrays import UNKNOWN, Int64, Mask, values_at
from analyzers.collectives import Exchange
from analyzers.rank import layer_name

Item = TypeVar("Item")
Shared = TypeVar("Shared", bound=Hashable)


class Pass(StrEnum):
    """What calls a collective; a forward is recomputed where the backward runs it again (activation checkpointing)."""

    FORWARD = "forward"
    RECOMPUTED = "recomputed"
    BACKWARD = "backward"

    @property
    def label(self) -> str:
        """Return the name that every output uses."""
        return str(self.value)


@dataclass(frozen=True)
class Owned:
    """One instance: its number, step (0 where devices have no other), group, and who calls; None for no module."""

    number: int
    step: int
    group: int
    module: str | None
    called_in: Pass


def owned_instances(exchanged: Exchange, rows: Mask) -> list[Owned]:
    """Return the instances that hold such rows of the table, by start, with what any member says of its module."""
    instances = exchanged.matching.instances
    if not len(instances):
        return []
    modules, module, backward, recomputed = _columns(exchanged)
    entries = instances.members
    of_member = instances.of_member
    chosen = np.zeros(len(instances), dtype=bool)
    chosen[of_member[rows[entries]]] = True
    chosen &= (instances.group >= 0) & (instances.window >= 0)
    best = np.full(len(instances), UNKNOWN, dtype=np.int64)
    np.maximum.at(best, of_member, module[entries])
    any_backward, any_recomputed = np.zeros((2, len(instances)), dtype=bool)
    np.logical_or.at(any_backward, of_member, backward[entries])
    np.logical_or.at(any_recomputed, of_member, recomputed[entries])
    return [
        Owned(
            number=number,
            step=int(instances.window[number]),
            group=int(instances.group[number]),
            module=modules[best[number]] if best[number] >= 0 else None,
            called_in=Pass.RECOMPUTED
            if any_recomputed[number]
            else Pass.BACKWARD
            if any_backward[number]
            else Pass.FORWARD,
        )
        for number in exchanged.order[chosen[exchanged.order]].tolist()
    ]


def _columns(exchanged: Exchange) -> tuple[list[str], Int64, Mask, Mask]:
    """Return all ranks' modules as lines are called, and for each row of the table its module, and how it is called."""
    codes: dict[str, int] = {}
    module, backward, recomputed = [], [], []
    for measured in exchanged.run.measured:
        comm = measured.communication
        names = [codes.setdefault(layer_name(name), len(codes)) for name in comm.owners.modules]
        module.append(values_at(np.array(names, dtype=np.int64), comm.owners.module))
        backward.append(comm.owners.backward)
        recomputed.append(comm.recomputed)
    return [*codes], np.concatenate(module), np.concatenate(backward), np.concatenate(recomputed)


def grouped(items: Iterable[Item], key: Callable[[Item], Shared]) -> list[tuple[Shared, list[Item]]]:
    """Return items by a key, in the order in which keys first come."""
    groups: dict[Shared, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [*groups.items()]


def waited_ns(exchanged: Exchange, numbers: Sequence[int], counted: Mask | None = None) -> int | None:
    """Return what members of instances waited, added; None where there is no instance, or some are unresolved.

    Of members' entries `counted` alone, if given.
    """
    transfers = exchanged.transfers
    if not _are_resolved(exchanged, numbers):
        return None
    entries = _entries(exchanged, numbers)
    entries = entries if counted is None else entries[counted[entries]]
    return int(np.maximum(transfers.wait_ns[entries], 0).sum())


def transferred_ns(exchanged: Exchange, numbers: Sequence[int]) -> int | None:
    """Return what instances' transfers take, added; None where there is none, or some are unresolved."""
    if not _are_resolved(exchanged, numbers):
        return None
    return int(exchanged.transfers.transfer_ns[list(numbers)].sum())


def exposed_ns(exchanged: Exchange, numbers: Sequence[int]) -> int:
    """Return what of members' kernels no compute of their own device hides, added."""
    rows = exchanged.matching.instances.members[_entries(exchanged, numbers)]
    return int(exchanged.matching.table.exposed_ns[rows].sum())


def exposed_transfer_ns(exchanged: Exchange, numbers: Sequence[int]) -> int | None:
    """Return the same behind the waiting: transfer that nothing hides; None where some are unresolved."""
    exposed = exchanged.exposed_transfer_ns[exchanged.matching.instances.members[_entries(exchanged, numbers)]]
    return int(exposed.sum()) if len(exposed) and (exposed != UNKNOWN).all() else None


def _are_resolved(exchanged: Exchange, numbers: Sequence[int]) -> bool:
    """Whether there are instances, and of all of them waiting and transfer are known."""
    chosen = list(numbers)
    unresolved = exchanged.matching.instances.partial[chosen] | (exchanged.transfers.transfer_ns[chosen] < 0)
    return bool(chosen) and not unresolved.any()


def _entries(exchanged: Exchange, numbers: Sequence[int]) -> Int64:
    first = exchanged.matching.instances.first
    spans = [np.arange(first[number], first[number + 1]) for number in numbers]
    return np.concatenate([np.zeros(0, dtype=np.int64), *spans]).astype(np.int64)
