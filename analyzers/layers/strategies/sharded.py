"""Row types of sharded modules: all-gathers and reductions by cause, and packing.

Of each collective that FSDP calls: whose it is, was it prefetched, what hid it, and why the rest is exposed
(`exposed_causes`). Of each module: what was packed for it, and whether it was resharded after its forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from analyzers.arrays import Int64, instants, labels, typed_rows, values_at
from analyzers.collectives import Exchange
from analyzers.layers.strategies.exposed_causes import causes, late_launch_ns, queued
from analyzers.rank import (
    FSDP,
    STRATEGIES,
    Communication,
    Measured,
    PackingPart,
    Parts,
    device_label,
    device_labels,
    layer_name,
)
from analyzers.ranks import RankIndex, RankNumber
from analyzers.trace import Collective

PASSES = ("forward", "backward")


class HiddenBy(msgspec.Struct, frozen=True):
    """How long a line's compute ran beside communication."""

    layer: str
    direction: str = msgspec.field(name="pass")  # forward or backward
    ns: int


@dataclass(frozen=True)
class Beside:
    """The compute that ran beside each kernel of one rank's communication, longest first, by row."""

    parts: Parts
    first: Int64
    names: Sequence[str]

    def of(self, kernel: int) -> list[HiddenBy]:
        """Return what hid one kernel."""
        low, high = self.first[kernel], self.first[kernel + 1]
        lines, backward, ns = (
            column[low:high].tolist() for column in (self.parts.line, self.parts.backward, self.parts.ns)
        )
        rows = [
            HiddenBy(self.names[line], PASSES[back], length)
            for line, back, length in zip(lines, backward, ns, strict=True)
        ]
        return sorted(rows, key=lambda row: -row.ns)


def beside(measured: Measured, names: Sequence[str]) -> Beside:
    """Return what hid one rank's communication, under the names that its lines have in the report."""
    parts = measured.work.beside
    order = np.argsort(parts.of, kind="stable")
    first = np.searchsorted(parts.of[order], np.arange(len(measured.communication) + 1))
    return Beside(parts.take(order), first, names)


# Kinds of collectives that FSDP calls.
_GATHER, _REDUCE = Collective.ALL_GATHER, Collective.REDUCE_SCATTER


class ShardedCollective(msgspec.Struct, frozen=True):
    """One collective of FSDP's on one rank: docs/measuring.md, Sharded modules.

    `prefetched`: called for before its module's turn. `queued_ns`: behind others, exposed or not. `queued_behind`: the
    last one's kind.
    """

    rank: int
    device: int | str
    step: int | None
    module: str | None
    kind: str
    direction: str = msgspec.field(name="pass")
    collective: int | None
    bytes: int | None
    prefetched: bool | None
    launched_ns: int | None
    start_ns: int
    dur_ns: int
    wait_ns: int | None
    queued_ns: int | None
    queued_behind: str | None
    late_launch_ns: int | None
    overlapped_ns: int
    exposed_ns: int
    exposed_wait_ns: int
    exposed_queued_ns: int
    exposed_late_ns: int
    exposed_slow_ns: int
    exposed_unknown_ns: int
    hidden_by: list[HiddenBy]


class ShardedModule(msgspec.Struct, frozen=True):
    """What is packed for one sharded module in one window.

    `reshard_after_forward`: gathered again. `copy_in_ns`, `copy_out_ns`: of the all-gather's buffer. `reduce_ns`: of
    gradients. `other_ns`: such as casts.
    """

    rank: int
    device: int | str
    step: int
    module: str | None
    reshard_after_forward: bool | None
    copy_in_ns: int
    copy_out_ns: int
    reduce_ns: int
    other_ns: int


class ShardedRows(msgspec.Struct, frozen=True):
    """FSDP's collectives on each rank, and what is packed for each module."""

    collectives: list[ShardedCollective] = []
    modules: list[ShardedModule] = []


def sharded_rows(exchanged: Exchange, name_of: Callable[[str], str]) -> ShardedRows:
    """Return a row for every collective of FSDP's, by rank and start; `name_of` is what the report calls a line."""
    collectives: list[ShardedCollective] = []
    modules: list[ShardedModule] = []
    for index, number, measured in exchanged.run.numbered():
        rows = np.flatnonzero(measured.communication.strategy == STRATEGIES.index(FSDP))
        if len(rows):
            collectives += _collectives(exchanged, index, rows, [name_of(line.name) for line in measured.work.lines])
        if len(rows) or len(measured.work.packed.of):
            modules += _modules(measured, number, rows)
    return ShardedRows(collectives, modules)


def _collectives(exchanged: Exchange, index: RankIndex, rows: Int64, names: list[str]) -> list[ShardedCollective]:
    """Return some rows of a rank's communication with what each stood behind, and why it is exposed."""
    number, measured = exchanged.run.ranks[index].rank, exchanged.run.measured[index]
    comm, owned, first = measured.communication, measured.communication.owners, int(exchanged.first_row[index])
    shift_ns = exchanged.clocks.shift_of(number) + exchanged.origin_ns
    wait_ns, stood, late_ns = exchanged.wait_ns(index), queued(comm), late_launch_ns(comm)
    here = slice(first, first + len(comm))
    waited_ns, resolved = exchanged.exposed_wait_ns[here], exchanged.is_resolved[here]
    hidden, kinds = beside(measured, names), labels(Collective, comm.kind)
    # What reduces gradients is of the backward, whether a range says so or not.
    backward = owned.backward[rows] | (comm.kind[rows] != _GATHER)
    return typed_rows(
        ShardedCollective,
        causes(comm.exposed_ns, waited_ns, resolved, stood.ns, late_ns).take(rows),
        rank=number,
        device=device_labels(comm.device[rows]),
        step=comm.window[rows],
        module=[_module(comm, row) for row in rows.tolist()],
        kind=[kinds[row] for row in rows.tolist()],
        direction=[PASSES[is_backward] for is_backward in backward.tolist()],
        collective=values_at(exchanged.index, exchanged.matching.instance[first + rows]),
        bytes=exchanged.nbytes(index)[rows],
        prefetched=owned.prefetched[rows],
        launched_ns=instants(comm.launched_ns[rows], shift_ns),
        start_ns=comm.start_ns[rows] - shift_ns,
        dur_ns=comm.dur_ns[rows],
        wait_ns=wait_ns[rows],
        queued_ns=stood.ns[rows],
        queued_behind=[kinds[row] if row >= 0 else None for row in stood.behind[rows].tolist()],
        late_launch_ns=late_ns[rows],
        overlapped_ns=(comm.dur_ns - comm.exposed_ns)[rows],
        exposed_ns=comm.exposed_ns[rows],
        hidden_by=[hidden.of(row) for row in rows.tolist()],
    )


def _module(comm: Communication, row: int) -> str | None:
    module = int(comm.owners.module[row])
    return layer_name(comm.owners.modules[module]) if module >= 0 else None


def _modules(measured: Measured, number: RankNumber, rows: Int64) -> Iterator[ShardedModule]:
    """Yield a row for each module that communicates or packs in each window."""
    windows, packed = measured.windows, measured.work.packed
    keys = list(zip(windows.device.tolist(), windows.step.tolist(), strict=True))
    parts: dict[tuple[int, int], dict[str | None, list[int]]] = {key: {} for key in keys}
    calls = _calls(measured.communication, rows)
    for device, step, module in calls:
        if module is not None and (device, step) in parts:
            parts[device, step].setdefault(module, [0] * len(PackingPart))
    columns = (packed.of.tolist(), packed.module.tolist(), packed.part.tolist(), packed.ns.tolist())
    for window, code, part, ns in zip(*columns, strict=True):
        module = layer_name(packed.modules[code]) if code >= 0 else None
        parts[keys[window]].setdefault(module, [0] * len(PackingPart))[part] += ns
    for (device, step), lines in parts.items():
        for module, line in lines.items():
            resharded = _resharded(calls.get((device, step, module), set()))
            yield ShardedModule(number, device_label(device), step, module, resharded, *line)


def _calls(comm: Communication, rows: Int64) -> dict[tuple[int, int, str | None], set[tuple[int, bool]]]:
    """Return which kinds each module calls in which pass, by device and step."""
    calls: dict[tuple[int, int, str | None], set[tuple[int, bool]]] = {}
    for row in rows.tolist():
        key = (int(comm.device[row]), int(comm.window[row]), _module(comm, row))
        calls.setdefault(key, set()).add((int(comm.kind[row]), bool(comm.owners.backward[row])))
    return calls


def _resharded(calls: set[tuple[int, bool]]) -> bool | None:
    """Whether a module that was gathered for its forward was gathered again for its backward.

    None where the step holds no all-gather in the forward, or no reduction, so that it may have had no backward.
    """
    kinds = {kind for kind, _ in calls}
    if (_GATHER, False) not in calls or _REDUCE not in kinds:
        return None
    return (_GATHER, True) in calls
