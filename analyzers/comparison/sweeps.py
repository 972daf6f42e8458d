"""Comparison of two sweeps, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from analyzers.comparison.change import NOTHING, Method, Samples, changes
from analyzers.comparison.document import SWEEPS_SCHEMA, CellChange, SweepComparison
from analyzers.comparison.scaling_document import CellRow, Scaling, StrongRow, WeakRow
from analyzers.comparison.serial import OF_BLOCKS
from analyzers.units import percent

Place = tuple[str, int, int]
STEP, WEAK, STRONG = "step_ns", "weak_efficiency", "strong_efficiency"
MEASURES = (STEP, WEAK, STRONG)


class _CellRows(NamedTuple):
    """A cell of one sweep, with its scaling."""

    cell: CellRow
    weak: WeakRow
    strong: StrongRow


def compare_sweeps(a: Scaling, b: Scaling) -> SweepComparison:
    """Compare B's cells with A's, the baseline; those that only one sweep has are listed."""
    of_a, of_b = _by_place(a), _by_place(b)
    cells_a, cells_b = ({cell.name: cell for cell in study.cells} for study in (a, b))
    places = list(dict.fromkeys([*of_a, *of_b]))
    judged = changes(
        {
            (place, name): (_samples(cells_a, of_a.get(place), name), _samples(cells_b, of_b.get(place), name))
            for place in places
            for name in MEASURES
        },
        OF_BLOCKS,
    )
    cells = [
        CellChange(
            *place,
            {name: judged[place, name] for name in MEASURES if (place, name) in judged},
            [*_why("A", of_a.get(place)), *_why("B", of_b.get(place)), *_uneven(of_a.get(place), of_b.get(place))],
        )
        for place in places
    ]
    warnings = [*(warning.within("A: ") for warning in a.warnings), *(warning.within("B: ") for warning in b.warnings)]
    return SweepComparison(SWEEPS_SCHEMA, a.name, b.name, _verdict(cells), Method(), warnings, cells)


def _by_place(study: Scaling) -> dict[Place, _CellRows]:
    rows = map(_CellRows, study.cells, study.weak, study.strong)
    return {(cell_rows.cell.strategy, cell_rows.cell.gpus, cell_rows.cell.batch): cell_rows for cell_rows in rows}


def _samples(cells: Mapping[str, CellRow], rows: _CellRows | None, name: str) -> Samples:
    """Return a cell's figure from one sweep; an efficiency's steps are the baseline's blocks over the cell's."""
    if rows is None:
        return NOTHING
    if name == STEP:
        return Samples(rows.cell.step.median_ns, dict(enumerate(_blocks(rows.cell))))
    row, gpus = (rows.weak, 1) if name == WEAK else (rows.strong, rows.cell.gpus)
    baseline = cells.get(row.baseline or "")
    if row.efficiency is None or baseline is None or baseline is rows.cell:
        return NOTHING
    # Blocks of two recordings have nothing in common: in which order they are paired does not matter.
    paired = zip(_blocks(baseline), _blocks(rows.cell), strict=False)
    return Samples(row.efficiency.value, {k: one / many / gpus for k, (one, many) in enumerate(paired)})


def _blocks(cell: CellRow) -> list[float]:
    """Return the blocks of steps that a cell's time is over; a time under the profiler has none."""
    return [] if cell.step.is_profiled else cell.blocks_ns


def _why(name: str, rows: _CellRows | None) -> Iterator[str]:
    """Yield why a cell in one sweep has no figures."""
    if rows is None:
        yield f"{name} has no such cell"
    elif rows.cell.why:
        yield f"{name}: {rows.cell.why}"


def _uneven(a: _CellRows | None, b: _CellRows | None) -> Iterator[str]:
    """Yield in what two cells in one place are not the same thing."""
    if a is None or b is None:
        return
    workloads: tuple[Mapping[str, str | None], ...] = (a.cell.workload, b.cell.workload)
    for name in workloads[0].keys() & workloads[1].keys():
        if workloads[0][name] != workloads[1][name]:
            yield f"A's {name} is {workloads[0][name]}, B's {workloads[1][name]}"
    if a.cell.is_apart(b.cell):
        yield "A's launches and B's ran on different hosts"
    if a.cell.step.source != b.cell.step.source and a.cell.step.source and b.cell.step.source:
        yield f"A's step is {a.cell.step.source}, B's {b.cell.step.source}"


def _verdict(cells: list[CellChange]) -> str:
    """Say in one sentence in how many cells the step changed, and where most."""
    steps = [(cell, cell.measures[STEP]) for cell in cells if STEP in cell.measures]
    timed = [(cell, change) for cell, change in steps if change.difference is not None]
    marked = [(cell, change) for cell, change in timed if change.is_marked]
    sentence = (
        f"Of {len(cells)} cells {len(timed)} are timed in both sweeps; in {len(marked)} of them the step changed by "
    )
    sentence += "more than its own spread"
    if marked:
        cell, change = max(marked, key=lambda cell_change: abs(cell_change[1].relative or 0))
        way = "longer" if (change.difference or 0) > 0 else "shorter"
        sentence += (
            f", most in {cell.strategy}{cell.gpus} at batch {cell.batch}: {percent(abs(change.relative or 0))} {way}"
        )
    return sentence + "."
