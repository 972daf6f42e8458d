"""Verdict of a sweep, and what limits its scaling, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from analyzers.comparison.scaling_document import CellRow, Ratio, StrongRow, WeakRow, device_noun
from analyzers.comparison.scaling_pairs import Pair, Row, paired
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
# Of ranks on a CPU, whatever grew.
_CORES_LIMIT = "The cores that ranks share limit it, not links: more cores, or fewer ranks"


def verdict(cells: Sequence[CellRow], weak: Sequence[WeakRow], strong: Sequence[StrongRow]) -> str:
    """Say how far training scales: the most efficient cell on the most devices, and its strong scaling."""
    noun, best = device_noun(cells), _best(weak)
    row = best or _best(strong)
    if row is None or row.efficiency is None or row.speedup is None:
        timed = [cell for cell in cells if cell.step.median_ns]
        return f"{len(timed)} cells are timed, but none on one {noun} and on several that can be compared."
    speedup, what = row.speedup, f"{row.batch:,} samples per {noun}" if best else "the global batch fixed"
    sentence = f"{row.gpus} {noun}s train {_times(speedup)} as fast as one ({row.strategy}, {what})"
    if speedup.few_blocks:
        launches = "one launch each" if {cell.launches for cell in cells} <= {None, 1} else "so few launches"
        sentence += f" in {launches}: it is not known whether other launches would."
    else:
        efficiency = f"an efficiency of {percent(row.efficiency.value)}"
        sentence += f": {efficiency if speedup.is_told else 'nothing nearer can be told'}."
    fixed = next((other for other in strong if best and other.cell == best.cell), None)
    if fixed is None or fixed.speedup is None:
        return sentence
    times, is_known = _times(fixed.speedup), fixed.speedup.is_told or fixed.speedup.few_blocks
    also = f"{'it is' if is_known else 'that cannot be told:'} {times} as fast"
    return f"{sentence} With the global batch of {fixed.global_batch:,} fixed {also}."


def _best(rows: Sequence[Row]) -> Row | None:
    """Return, among those on the most devices, the most efficient row that is told; where none is, the one best known.

    The most efficient by the least that its efficiency may be.
    """
    known = [(row, row.efficiency) for row in rows if row.gpus > 1 and row.efficiency is not None]
    most = max((row.gpus for row, _ in known), default=0)

    def order(one: tuple[Row, Ratio]) -> tuple[bool, float]:
        ratio = one[1]
        return ratio.is_told, ratio.low or ratio.value if ratio.is_told else -_width(ratio)

    return max((one for one in known if one[0].gpus == most), key=order)[0] if known else None


def _width(ratio: Ratio) -> float:
    """Return how far apart the ends are between which a ratio lies, over itself."""
    return inf if ratio.low is None or ratio.high is None else (ratio.high - ratio.low) / ratio.value


def _times(ratio: Ratio) -> str:
    """Write a ratio with its interval; of one that is not told, that alone."""
    value = f"{ratio.value:.2f} times"
    if ratio.low is None or ratio.high is None or ratio.few_blocks:
        return f"about {value}"
    between = f"{ratio.low:.2f} to {ratio.high:.2f}"
    if not ratio.is_told:
        return f"{between} times"
    return value if f"{ratio.low:.2f}" == f"{ratio.high:.2f}" else f"{value} ({between})"


def limits(cells: Sequence[CellRow], weak: Sequence[WeakRow]) -> list[str]:
    """Say for each strategy's cell on the most devices what made its step longer than that on one, most first."""
    by_name = {cell.name: cell for cell in cells}
    strategies = dict.fromkeys(row.strategy for row in weak if row.gpus > 1)
    said: list[str] = []
    for strategy in strategies:
        row = _best([row for row in weak if row.strategy == strategy])
        if row is not None and row.baseline is not None and row.efficiency is not None:
            name = f"{row.strategy} on {row.gpus} {device_noun(cells)}s at batch {row.batch:,}"
            cell = by_name[row.cell]
            limit = _better_strategy(cell, cells) or _limit(row.efficiency, cell, by_name[row.baseline])
            said.append(f"{name}: {limit}.")
    return said


def _better_strategy(cell: CellRow, cells: Sequence[CellRow]) -> str | None:
    """Say of a cell of DataParallel how much faster DDP is, where it is faster for certain."""
    twin = next(
        (each for each in cells if (each.strategy, each.gpus, each.batch) == ("ddp", cell.gpus, cell.batch)), None
    )
    against = paired(twin, cell) if twin is not None and cell.strategy == "dp" else None
    if not isinstance(against, Pair):
        return None
    ratio = against.ratio(1)
    is_faster = not ratio.few_blocks and (ratio.low or 0) > 1
    return f"use DDP: {_times(ratio)} as fast" if is_faster else None


def _limit(efficiency: Ratio, cell: CellRow, baseline: CellRow) -> str:
    if efficiency.few_blocks or (not efficiency.is_told and (efficiency.high or SCALES) >= SCALES):
        return "whether anything limits it cannot be told"
    if efficiency.value >= SCALES:
        return f"nothing limits it by more than {percent(1 - SCALES)}"
    grown = {part: growth for part in _REMEDIES if (growth := _growth(part.field, cell, baseline)) is not None}
    span_ns = cell.measured["span_ns"].median if "span_ns" in cell.measured else None
    if not grown or not span_ns:
        return "no traces tell what limits it"
    part = max(grown, key=lambda each: grown[each])
    if grown[part] < LEAST_SHARE * span_ns:
        return "no part of the profiled step grew, so that the traces do not tell what limits it"
    by = f"by about {ms(grown[part])} in the mean, per profiled step of {ms(span_ns)}"
    return f"{part.words} grew most, {by}. {_CORES_LIMIT if cell.on_cpu else _REMEDIES[part]}"


def _growth(part: str, cell: CellRow, baseline: CellRow) -> float | None:
    """Return how much longer a part of the mean profiled step is than on one device; None where that is not known."""
    lengths = []
    for row in (cell, baseline):
        share, span = row.shares.get(part), row.measured.get("span_ns")
        if share is None or span is None or span.median is None:
            return None
        lengths.append(share * span.median)
    return lengths[0] - lengths[1]
