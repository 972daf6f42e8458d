"""Row types of sharded modules: all-gathers and reductions by cause, and packing.

Of each collective that FSDP calls: whose it is, was it prefetched, what hid it, and why the rest is exposed
(`exposed_causes`). Of each module: what was packed for it, and whether it was resharded after its forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from analyzers.arrays import UNKNOWN, Int64, natural
from analyzers.collectives import Exchange
from analyzers.layers.strategies.exposed_causes import Causes, Queued, causes, late_launch_ns, queued
from analyzers.layers.strategies.hidden_by import PASSES, Beside, HiddenBy, beside
from analyzers.rank import FSDP, STRATEGIES, Communication, Measured, PackingPart, device_label, layer_name
from analyzers.ranks import RankIndex, RankNumber
from analyzers.trace import Collective

# Kinds of collectives that FSDP calls.
_GATHER, _REDUCE = Collective.ALL_GATHER, Collective.REDUCE_SCATTER


class ShardedCollective(msgspec.Struct, frozen=True):
    """One collective of FSDP's on one rank; instants from the run's earliest event. See docs/measuring.md.

    The five parts of `exposed_ns` add up to it, `hidden_by` to `overlapped_ns`. `queued_ns` and `late_launch_ns` are
    how long it stood, exposed or not.
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
    """What is packed for one sharded module in one window, ns, and whether it was resharded after its forward.

    `module` is null for packing of which no range says whose it is, `reshard_after_forward` where a step has no forward
    or no backward of the module's.
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
    """Sharded modules' collectives, a row each on each rank, and what is packed for them in each window."""

    collectives: list[ShardedCollective] = []
    modules: list[ShardedModule] = []


def sharded_rows(exchanged: Exchange, name_of: Callable[[str], str]) -> ShardedRows:
    """Return a row for every collective of FSDP's, by rank and start; `name_of` is what the report calls a line."""
    collectives: list[ShardedCollective] = []
    modules: list[ShardedModule] = []
    for index, number, measured in exchanged.run.numbered():
        rows = np.flatnonzero(measured.communication.strategy == STRATEGIES.index(FSDP))
        if len(rows):
            looked_at = _looked_at(exchanged, index, measured, [name_of(line.name) for line in measured.work.lines])
            collectives += [_row(exchanged, number, looked_at, row) for row in rows.tolist()]
        if len(rows) or len(measured.work.packed.of):
            modules += _modules(measured, number, rows)
    return ShardedRows(collectives, modules)


@dataclass(frozen=True, eq=False)
class _LookedAt:
    """One rank's communication with what each row stood behind, and why it is exposed."""

    comm: Communication
    first: int
    wait_ns: Int64
    nbytes: Int64
    queued: Queued
    late_ns: Int64
    causes: Causes
    hidden: Beside


def _looked_at(exchanged: Exchange, index: RankIndex, measured: Measured, names: list[str]) -> _LookedAt:
    comm, first = measured.communication, int(exchanged.first_row[index])
    wait_ns, stood, late_ns = exchanged.wait_ns(index), queued(comm), late_launch_ns(comm)
    resolved = exchanged.is_resolved[first : first + len(comm)]
    divided = causes(measured, wait_ns, resolved, stood.ns, late_ns)
    nbytes = exchanged.nbytes(index)
    return _LookedAt(comm, first, wait_ns, nbytes, stood, late_ns, divided, beside(measured, names))


def _row(exchanged: Exchange, number: RankNumber, looked_at: _LookedAt, row: int) -> ShardedCollective:
    comm, owned, why = looked_at.comm, looked_at.comm.owners, looked_at.causes
    shift_ns = exchanged.clocks.shift_of(number) + exchanged.origin_ns
    instance = int(exchanged.matching.instance[looked_at.first + row])
    kind, behind = Collective(int(comm.kind[row])), int(looked_at.queued.behind[row])
    # What reduces gradients is of the backward, whether a range says so or not.
    backward = bool(owned.backward[row]) or kind != _GATHER
    launched_ns, exposed_ns = int(comm.launched_ns[row]), int(comm.exposed_ns[row])
    return ShardedCollective(
        rank=number,
        device=device_label(int(comm.device[row])),
        step=natural(comm.window[row]),
        module=_module(comm, row),
        kind=kind.label,
        direction=PASSES[backward],
        collective=int(exchanged.index[instance]) if instance >= 0 else None,
        bytes=natural(looked_at.nbytes[row]),
        prefetched=None if owned.prefetched[row] < 0 else bool(owned.prefetched[row]),
        launched_ns=launched_ns - shift_ns if launched_ns != UNKNOWN else None,
        start_ns=int(comm.start_ns[row]) - shift_ns,
        dur_ns=int(comm.dur_ns[row]),
        wait_ns=natural(looked_at.wait_ns[row]),
        queued_ns=natural(looked_at.queued.ns[row]),
        queued_behind=Collective(int(comm.kind[behind])).label if behind >= 0 else None,
        late_launch_ns=natural(looked_at.late_ns[row]),
        overlapped_ns=int(comm.dur_ns[row]) - exposed_ns,
        exposed_ns=exposed_ns,
        exposed_wait_ns=int(why.wait_ns[row]),
        exposed_queued_ns=int(why.queued_ns[row]),
        exposed_late_ns=int(why.late_ns[row]),
        exposed_slow_ns=int(why.slow_ns[row]),
        exposed_unknown_ns=int(why.unknown_ns[row]),
        hidden_by=looked_at.hidden.of(row),
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
