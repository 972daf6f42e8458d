"""Rows and summary of charges, as documents have them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from analyzers.arrays import Int64, distinct, labels
from analyzers.causes.charges import Charge, Walked
from analyzers.causes.model import Model
from analyzers.collectives import Exchange, line_names, lines_of
from analyzers.rank import EdgeKind, Phase, device_label


class ChargeRow(msgspec.Struct, frozen=True):
    """Part of the critical path of all typical steps together: docs/measuring.md, Charges.

    `group`: of transfers. `phase`: as in IdleRows. `at`: the operator, function, module or range.
    """

    rank: int | None
    device: int | str | None
    group: str | None
    cause: str
    phase: str
    at: str | None
    ns: int


_Place = tuple[int | None, int | str | None, str | None, str, str, str | None]


class ChargesSummary(msgspec.Struct, frozen=True):
    """The critical path of so many typical `steps`, added up: docs/measuring.md, Charges.

    `by_edge`: `stretch` (a thread's own time), `call`, `launch`, `stream`, `wait`, `run` (on the device), `block`,
    `arrive`, `transfer`. `replay_error`: by the controls alone, over the unprofiled step, less 1.
    """

    charged_ns: int
    steps: int
    step_ns: float
    by_rank: dict[str, float]
    by_cause: dict[str, int]
    by_group: dict[str, int]
    by_phase: dict[str, int]
    by_edge: dict[str, int]
    unknown_ns: int
    replay_error: float | None


def charge_rows(model: Model, exchanged: Exchange) -> list[ChargeRow]:
    """Return the charges of a run, the largest first."""
    walked, ranks = model.walked, model.graph.ranks
    charges = walked.charges
    group = _group_names(charges.instance, exchanged)
    at = [walked.names[place] if place >= 0 else None for place in charges.place.tolist()]
    sums: dict[_Place, int] = {}
    for rank, device, line, cause, phase, where, ns in zip(
        charges.rank.tolist(),
        charges.device.tolist(),
        group,
        labels(Charge, charges.cause),
        labels(Phase, charges.phase),
        at,
        charges.ns.tolist(),
        strict=True,
    ):
        of_rank, of_device = ranks[rank] if rank >= 0 else None, device_label(device) if device >= 0 else None
        place = (of_rank, of_device, line, cause, phase, where)
        sums[place] = sums.get(place, 0) + ns
    rows = [ChargeRow(*place, ns) for place, ns in sums.items() if ns]
    return sorted(rows, key=lambda row: -row.ns)


def _group_names(instance: Int64, exchanged: Exchange) -> list[str | None]:
    """Return the name of each collective's group, as the report's groups have it; None for what is no collective."""
    matching = exchanged.matching
    if not len(matching.instances):
        return [None] * len(instance)
    lines = lines_of(matching.table)
    names = line_names(lines.known)
    known = np.maximum(instance, 0)
    of_row = lines.of_row[matching.instances.members[matching.instances.first[known]]]
    return [
        None if number < 0 else names[lines.known[line]] if line >= 0 else "unknown"
        for number, line in zip(instance.tolist(), of_row.tolist(), strict=True)
    ]


def charges_summary(model: Model, rows: Iterable[ChargeRow]) -> ChargesSummary:
    """Return the sums of a run's charges, the largest first."""
    rows, walked = list(rows), model.walked
    return ChargesSummary(
        charged_ns=int(walked.charges.ns.sum()),
        steps=walked.steps,
        step_ns=walked.step_ns,
        by_rank={str(rank): float(share) for rank, share in zip(model.graph.ranks, walked.by_rank, strict=True)},
        by_cause=_sums((row.cause, row.ns) for row in rows),
        by_group=_sums((row.group, row.ns) for row in rows if row.group is not None),
        by_phase=_sums((row.phase, row.ns) for row in rows),
        by_edge=_by_edge(walked),
        unknown_ns=sum(row.ns for row in rows if row.cause == Charge.UNKNOWN.label),
        replay_error=model.calibrated.replay_error,
    )


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, ns in pairs:
        sums[name] = sums.get(name, 0) + ns
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _by_edge(walked: Walked) -> dict[str, int]:
    kinds = distinct(walked.charges.kind)
    return _sums(
        (EdgeKind(kind).name.lower(), ns)
        for kind, ns in zip(kinds.columns[0].tolist(), kinds.summed(walked.charges.ns).tolist(), strict=True)
    )
