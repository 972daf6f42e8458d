"""Study of a sweep: its cells, their scaling, what is doubtful."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from analyzers.comparison.scaling_cell import ASSUMED, WIDE, measured, missing
from analyzers.comparison.scaling_document import (
    DEFINITIONS,
    SCALING_SCHEMA,
    CellRow,
    Scaling,
    StrongRow,
    WeakRow,
    definitions,
    device_noun,
    scaling_from_json,
)
from analyzers.comparison.scaling_limits import limits, verdict
from analyzers.comparison.scaling_pairs import Singles
from analyzers.errors import TracerError, UnreadableDocument
from analyzers.notices import Code, Notice
from analyzers.paths import Place, read_file
from analyzers.rank import RunSummary, summarize
from analyzers.run import HIGH_DISTORTION, RESULTS, SINGLE, SWEEP, Cell, Sweep, cell_folder, read_sweep
from analyzers.texts import AND_MORE, listed

# Why a cell that is not done has no figures, where its sweep.json does not say.
NOT_DONE = {
    "out_of_memory": "out of memory",
    "failed": "its recording failed",
    "skipped": "it was skipped",
    "pending": "it is not recorded yet",
}
# What is written down of a study beside its cells; all other warnings follow from these.
BESIDE_CELLS = (Code.CELL_LEFT_OUT, Code.ROUNDS_ARE_MISSING, Code.SAVED)
# What a study says of its cells' run.json.
ABOUT_RUN_JSON = (Code.RUN_JSON_UNREADABLE, Code.BUCKETS_LEFT_ASIDE)
# How many cells a warning names.
_named = partial(listed, most=6, rest=AND_MORE)


def study(folder: str | Path, read: Callable[[Path], RunSummary] = summarize) -> Scaling:
    """Study a sweep's folder; a cell that cannot be read is a row with the reason. Raises UnreadableDocument.

    A folder without a sweep, in which RESULTS lie, is what they say.
    """
    folder = Path(folder)
    if not (folder / SWEEP).is_file() and (folder / RESULTS).is_file():
        return read_study(folder / RESULTS)
    sweep, warnings = read_sweep(folder)
    rows = [_row(folder, cell, read) for cell in sweep.cells]
    return scaling(sweep, rows, [*warnings, *_missing_rounds(sweep)])


def read_study(file: Place) -> Scaling:
    """Read a study's cells that were written down, and make all else anew. Raises UnreadableDocument, OSError."""
    try:
        written = scaling_from_json(read_file(file))
    except UnreadableDocument as error:
        raise UnreadableDocument(f"{file}: ", *error.args) from error
    cells = [_with_launches(cell, written.settings) for cell in written.cells]
    sweep = Sweep(name=written.name, command=written.command, settings=written.settings)
    return scaling(sweep, cells, [warning for warning in written.warnings if warning.code in BESIDE_CELLS])


def _with_launches(cell: CellRow, settings: Mapping[str, Any]) -> CellRow:
    """Return a cell with its number of launches, which older versions did not write: rounds are launches."""
    if cell.launches is not None or not cell.step.median_ns:
        return cell
    return replace(cell, launches=1 if settings.get("rounds", 1) == 1 else max(len(cell.blocks_ns), 1))


def _missing_rounds(sweep: Sweep) -> Iterator[Notice]:
    """Yield that cells are not recorded in every round: what launches differ by is not known of them."""
    lacking = [f"{cell.name} ({cell.rounds})" for cell in sweep.cells if cell.state != "done" and cell.is_recorded]
    if lacking:
        text = f"not all of {sweep.rounds} rounds over the grid are recorded: {_named(lacking)}"
        yield Notice(Code.ROUNDS_ARE_MISSING, text, Code.ROUNDS_ARE_MISSING.facts.do)


def _row(folder: Path, cell: Cell, read: Callable[[Path], RunSummary]) -> CellRow:
    if not cell.is_recorded:
        return missing(cell, cell.why or NOT_DONE[cell.state])
    try:
        return measured(cell, read(cell_folder(folder, cell)))
    except TracerError as error:
        return missing(cell, f"cannot be read: {error.for_shell}")
    except OSError as error:
        return missing(cell, f"cannot be read: {error}")


def scaling(sweep: Sweep, cells: Sequence[CellRow], warnings: Sequence[Notice] = ()) -> Scaling:
    """Build the whole study from cells that are measured, or are rows without figures."""
    singles = Singles.of(cells)
    weak, strong = [singles.weak(cell) for cell in cells], [singles.strong(cell) for cell in cells]
    return Scaling(
        schema=SCALING_SCHEMA,
        name=sweep.name,
        command=sweep.command,
        settings=sweep.settings,
        cells=list(cells),
        weak=weak,
        strong=strong,
        definitions=definitions(device_noun(cells)),
        warnings=[*warnings, *_warnings(cells), *_host_warnings(cells, [*weak, *strong])],
        verdict=verdict(cells, weak, strong),
        limits=limits(cells, weak),
    )


def _warnings(cells: Sequence[CellRow]) -> Iterator[Notice]:
    """Yield what a reader must know before the numbers."""
    for cell in cells:
        yield from _cell_warnings(cell)
    timed = [cell for cell in cells if cell.step.median_ns]
    if profiled := [cell.name for cell in timed if cell.step.is_profiled]:
        text = f"timed under the profiler alone, which stretches steps: {_named(profiled)}"
        yield Notice(Code.TIMED_UNDER_PROFILER, text)
    if uncertain := [cell.name for cell in timed if cell.step.uncertain]:
        wide = f"steps scatter: the 95 % intervals of their medians are wider than {100 * WIDE:.0f} %"
        yield Notice(Code.STEPS_SCATTER, f"{wide}, and what follows from them is uncertain: {_named(uncertain)}")
    if stretched := [cell for cell in timed if (cell.distortion or 0) > HIGH_DISTORTION]:
        most, names = max(stretched, key=lambda cell: cell.distortion or 0), _named([cell.name for cell in stretched])
        times = f"up to {'about ' * most.distortion_uncertain}{most.distortion:.2f} times"
        text = f"the profiler stretches steps, {times}, and waiting and idle time with them: {names}"
        yield Notice(Code.PROFILER_DISTORTS, text)
    yield from _baseline_warnings(timed)
    yield from _epoch_warnings(timed)


def _cell_warnings(cell: CellRow) -> Iterator[Notice]:
    """Yield what could not be read of one cell."""
    if cell.why and cell.state == "done":
        yield Notice(Code.CELL_UNREADABLE, f"{cell.name}: {cell.why}")
    for warning in cell.warnings:
        if warning.code in ABOUT_RUN_JSON:
            yield warning.within(f"{cell.name}: ")
    if cell.missing_ranks:
        text = f"{cell.name}: {cell.missing_ranks} of its ranks cannot be read; its figures are from the others"
        yield Notice(Code.RANKS_MISSING, text)


def _baseline_warnings(cells: Sequence[CellRow]) -> Iterator[Notice]:
    recorded = [cell for cell in cells if cell.gpus == 1 and cell.recorded_as not in (None, SINGLE)]
    if recorded:
        how = sorted({str(cell.recorded_as) for cell in recorded})
        names = _named([cell.name for cell in recorded])
        text = f"baselines recorded under {', '.join(how)} on one device, which has costs of its own: {names}"
        yield Notice(Code.BASELINE_OF_STRATEGY, text)
    if any(cell.on_cpu for cell in cells):
        text = "devices are ranks that share the cores of one CPU: expect no speedup"
        yield Notice(Code.CORES_ARE_SHARED, text)


def _host_warnings(cells: Sequence[CellRow], rows: Sequence[WeakRow | StrongRow]) -> Iterator[Notice]:
    """Yield which cells have launches on other hosts than their baselines."""
    named = {cell.name: cell for cell in cells}
    if apart := {row.cell for row in rows if row.baseline and named[row.cell].is_apart(named[row.baseline])}:
        text = "these cells' speedups compare launches on different hosts, and include the difference between the hosts"
        names = _named([name for name in named if name in apart])
        yield Notice(Code.HOSTS_DIFFER, f"{text}: {names}", Code.HOSTS_DIFFER.facts.do)


def _epoch_warnings(cells: Sequence[CellRow]) -> Iterator[Notice]:
    epochs = [cell.epoch for cell in cells if cell.epoch is not None]
    if any(epoch.is_assumed for epoch in epochs):
        text = f"no data set is named by run.json: an epoch is {ASSUMED.name}'s {ASSUMED.samples:,} samples"
        yield Notice(Code.EPOCH_IS_ASSUMED, text)
    if any(cell.epochs and cell.epoch is not None and cell.epoch.is_synthetic for cell in cells):
        yield Notice(Code.ACCURACY_MEANS_NOTHING, DEFINITIONS["accuracy"])
