"""Verdict of a scaling study, and what limits scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.comparison.scaling_document import CellRow, Ratio, StrongRow, WeakRow
from analyzers.statistics import LEAST_SHARE
from analyzers.step_parts import COMPUTE, COPY, IDLE, TRANSFER, UNRESOLVED, WAITING
from analyzers.units import ms, percent

# From this efficiency on nothing limits scaling.
SCALES = 0.95
# What may be done about a part's growth.
_REMEDIES = {
    COMPUTE: "Kernels run slower or copy gradients: look at packing and contention",
    WAITING: "Ranks do not launch at the same time: find the late one",
    TRANSFER: "The links limit it: larger batch, compressed gradients, faster links",
    UNRESOLVED: "Record all ranks to tell why",
    COPY: "Copies are not hidden: look at what is copied",
    IDLE: "The CPU limits it: larger batch, torch.compile, CUDA graphs",
}


def verdict(cells: Sequence[CellRow], weak: Sequence[WeakRow], strong: Sequence[StrongRow]) -> str:
    """Say how far training scales: the most efficient cell on the most devices, and its strong scaling."""
    best = _best(weak)
    if best is None:
        fixed = _best(strong)
        if fixed is None:
            timed = [cell for cell in cells if cell.step.median_ns]
            return f"{len(timed)} cells are timed, but none on one GPU and on several that can be compared."
        return _sentence(fixed, "the global batch fixed")
    fixed_row = next((row for row in strong if row.cell == best.cell and row.speedup is not None), None)
    also = ""
    if fixed_row is not None and fixed_row.speedup is not None:
        also = f" With the global batch of {fixed_row.global_batch:,} fixed it is {_times(fixed_row.speedup)} as fast."
    return _sentence(best, f"{best.batch:,} samples per GPU") + also


def _best(rows: Sequence[WeakRow] | Sequence[StrongRow]) -> WeakRow | StrongRow | None:
    """Return the most efficient row among those on the most devices."""
    known = [row for row in rows if row.gpus > 1 and row.efficiency is not None]
    most = max((row.gpus for row in known), default=0)
    return max((row for row in known if row.gpus == most), key=_efficiency, default=None)


def _efficiency(row: WeakRow | StrongRow) -> float:
    return row.efficiency.value if row.efficiency is not None else 0.0


def _sentence(row: WeakRow | StrongRow, what: str) -> str:
    speedup = row.scaled_speedup if isinstance(row, WeakRow) else row.speedup
    times = _times(speedup) if speedup is not None else "not known to be"
    uncertain = ", which is uncertain" if row.efficiency is not None and row.efficiency.uncertain else ""
    return (
        f"{row.gpus} GPUs train {times} as fast as one ({row.strategy}, {what}): "
        f"an efficiency of {percent(_efficiency(row))}{uncertain}."
    )


def _times(ratio: Ratio) -> str:
    return f"{ratio.value:.2f} times"


def limits(cells: Sequence[CellRow], weak: Sequence[WeakRow]) -> list[str]:
    """Say for each strategy's cell on the most devices what made its step longer than that on one, most first."""
    by_name = {cell.name: cell for cell in cells}
    strategies = dict.fromkeys(row.strategy for row in weak if row.gpus > 1)
    said: list[str] = []
    for strategy in strategies:
        row = _best([row for row in weak if row.strategy == strategy])
        if isinstance(row, WeakRow) and row.baseline is not None:
            said += _limit(row, by_name[row.cell], by_name[row.baseline])
    return said


def _limit(row: WeakRow, cell: CellRow, baseline: CellRow) -> Iterator[str]:
    name = f"{row.strategy} on {row.gpus} GPUs at batch {row.batch:,}"
    if _efficiency(row) >= SCALES:
        yield f"{name}: nothing limits it by more than {percent(1 - SCALES)}."
        return
    grown = {part: growth for part in _REMEDIES if (growth := _growth(part.field, cell, baseline)) is not None}
    span_ns = cell.measured["span_ns"].median if "span_ns" in cell.measured else None
    if not grown or not span_ns:
        yield f"{name}: no traces tell what limits it."
        return
    part = max(grown, key=lambda each: grown[each])
    if grown[part] < LEAST_SHARE * span_ns:
        yield f"{name}: no part of the profiled step grew, so that the traces do not tell what limits it."
        return
    by = f"by about {ms(grown[part])} per profiled step of {ms(span_ns)}"
    yield f"{name}: {part.words} grew most, {by}. {_REMEDIES[part]}."


def _growth(part: str, cell: CellRow, baseline: CellRow) -> float | None:
    """Return how much longer a part of the mean profiled step is than on one device; None where that is not known."""
    lengths = []
    for row in (cell, baseline):
        share, span = row.shares.get(part), row.measured.get("span_ns")
        if share is None or span is None or span.median is None:
            return None
        lengths.append(share * span.median)
    return lengths[0] - lengths[1]
