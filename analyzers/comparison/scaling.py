"""Weak and strong scaling of a sweep's cells, with the subtraction estimate.

    weak    b = 32 on each GPU    T_1(32)  against  T_4(32)      4 times the work on 4 times the GPUs
    strong  B = 128 in all        T_1(128) against  T_4(32)      the same work on 4 times the GPUs

The same cell stands in both, against another baseline. Definitions and sources: DEFINITIONS in scaling_document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from analyzers.comparison.scaling_cell import ASSUMED, WIDE, measured, missing
from analyzers.comparison.scaling_document import (
    DEFINITIONS,
    SCALING_SCHEMA,
    CellRow,
    CellStep,
    Ratio,
    Scaling,
    StrongRow,
    Subtraction,
    WeakRow,
    definitions,
    device_noun,
    scaling_from_json,
)
from analyzers.errors import TracerError, UnreadableDocument
from analyzers.notices import Code, Notice
from analyzers.paths import Place, read_file
from analyzers.rank import RunSummary, summarize
from analyzers.run import HIGH_DISTORTION, RESULTS, SINGLE, SWEEP, Cell, Sweep, cell_folder, read_sweep
from analyzers.statistics import LEAST_SHARE
from analyzers.step_parts import COMPUTE, COPY, IDLE, TRANSFER, UNRESOLVED, WAITING
from analyzers.texts import AND_MORE, listed
from analyzers.units import ms, percent

# Why a cell that is not done has no figures, where its sweep.json does not say.
NOT_DONE = {
    "out_of_memory": "out of memory",
    "failed": "its recording failed",
    "skipped": "it was skipped",
    "pending": "it is not recorded yet",
}
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
    of_cells = list(_warnings(cells))
    sweep = Sweep(name=written.name, command=written.command, settings=written.settings)
    return scaling(sweep, cells, [warning for warning in written.warnings if warning not in of_cells])


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
    single = _singles(cells)
    weak, strong = [_weak(single, cell) for cell in cells], [_strong(single, cell) for cell in cells]
    return Scaling(
        schema=SCALING_SCHEMA,
        name=sweep.name,
        command=sweep.command,
        settings=sweep.settings,
        cells=list(cells),
        weak=weak,
        strong=strong,
        definitions=definitions(device_noun(cells)),
        warnings=[*warnings, *_warnings(cells)],
        verdict=verdict(cells, weak, strong),
        limits=limits(cells, weak),
    )


@dataclass(frozen=True)
class _Pair:
    """A cell and its baseline, both with a step's time of the same sort."""

    cell: CellRow
    baseline: CellRow
    one: CellStep
    many: CellStep
    one_ns: float
    many_ns: float

    def ratio(self, factor: float) -> Ratio:
        """Return `factor` x T_1 / T_N."""
        one, many, value = self.one, self.many, factor * self.one_ns / self.many_ns
        if self.cell is self.baseline:
            return Ratio(value, value, value, uncertain=False)
        return Ratio(
            value=value,
            low=_over(one.low_ns, many.high_ns, factor),
            high=_over(one.high_ns, many.low_ns, factor),
            uncertain=one.uncertain or many.uncertain,
            profiled=many.is_profiled,
            few_blocks=self.cell.has_few_launches or self.baseline.has_few_launches,
        )

    def subtraction(self, share: float) -> Subtraction:
        """Subtract `share` of T_1 from T_N, and say what follows from it, beside what was measured."""
        one, many, gradients = self.one, self.many, self.cell.gradients
        estimate_ns = self.many_ns - share * self.one_ns
        measured_ns = self.cell.exposed_mean_ns
        busbw, why = _subtracted_busbw(gradients.bus_bytes, estimate_ns)
        true, utilization = gradients.busbw_gbps.median, gradients.utilization.median
        return Subtraction(
            estimate_ns=estimate_ns,
            low_ns=_less(many.low_ns, one.high_ns, share),
            high_ns=_less(many.high_ns, one.low_ns, share),
            uncertain=one.uncertain or many.uncertain,
            measured_ns=measured_ns,
            error_ns=None if measured_ns is None else estimate_ns - measured_ns,
            ratio=estimate_ns / measured_ns if measured_ns else None,
            busbw_gbps=busbw,
            # The same calibrated peak as the measured figure has.
            utilization=busbw * utilization / true if busbw and utilization and true else None,
            why=why,
            profiled=many.is_profiled,
        )


def _over(one_ns: float | None, many_ns: float | None, factor: float) -> float | None:
    return factor * one_ns / many_ns if one_ns and many_ns else None


def _less(many_ns: float | None, one_ns: float | None, share: float) -> float | None:
    return many_ns - share * one_ns if one_ns is not None and many_ns is not None else None


def _subtracted_busbw(bus_bytes: float | None, estimate_ns: float) -> tuple[float | None, str | None]:
    """Return the gradients' bus bandwidth if they took as long as subtraction says, or why there is none."""
    if not bus_bytes:
        return None, "the bytes that gradients put on the bus are not known"
    if estimate_ns <= 0:
        return None, "the subtracted time is not positive"
    return bus_bytes / estimate_ns, None


@dataclass(frozen=True)
class _Singles:
    """The cells on one device, which others are compared with: by batch, then by strategy; and a device's noun."""

    by_batch: Mapping[int, Mapping[str, CellRow]]
    noun: str


def _singles(cells: Sequence[CellRow]) -> _Singles:
    by_batch: dict[int, dict[str, CellRow]] = {}
    for cell in cells:
        if cell.gpus == 1:
            by_batch.setdefault(cell.batch, {})[cell.strategy] = cell
    return _Singles(by_batch, device_noun(cells))


def _weak(single: _Singles, cell: CellRow) -> WeakRow:
    """Compare a cell with one GPU that has the same batch."""
    blank = WeakRow(cell.name, cell.strategy, cell.gpus, cell.batch)
    pair = _pair(single, cell, cell.batch)
    if isinstance(pair, str):
        return replace(blank, why=pair)
    steps = cell.epoch.steps if cell.epoch is not None else None
    return replace(
        blank,
        baseline=pair.baseline.name,
        step_ns=pair.many_ns,
        ideal_step_ns=pair.one_ns,
        epoch_ns=steps * pair.many_ns if steps else None,
        ideal_epoch_ns=steps * pair.one_ns if steps else None,
        scaled_speedup=pair.ratio(cell.gpus),
        efficiency=pair.ratio(1),
        subtraction=pair.subtraction(1) if cell.gpus > 1 else None,
    )


def _strong(single: _Singles, cell: CellRow) -> StrongRow:
    """Compare a cell with one GPU that has the whole global batch."""
    blank = StrongRow(cell.name, cell.strategy, cell.gpus, cell.batch, cell.global_batch)
    pair = _pair(single, cell, cell.batch * cell.gpus)
    if isinstance(pair, str):
        return replace(blank, why=pair)
    return replace(
        blank,
        baseline=pair.baseline.name,
        step_ns=pair.many_ns,
        ideal_step_ns=pair.one_ns / cell.gpus,
        speedup=pair.ratio(1),
        efficiency=pair.ratio(1 / cell.gpus),
        subtraction=pair.subtraction(1 / cell.gpus) if cell.gpus > 1 else None,
    )


def _pair(single: _Singles, cell: CellRow, batch: int) -> _Pair | str:
    """Return a cell with its baseline, the 1-GPU cell for a batch; or why there is none to compare it with."""
    if not cell.step.median_ns:
        return cell.why or "no step of it was timed"
    of_batch, one = single.by_batch.get(batch, {}), f"1-{single.noun} cell of batch {batch}"
    # The one that all strategies share comes before the strategy's own.
    baseline = cell if cell.gpus == 1 else of_batch.get(SINGLE) or of_batch.get(cell.strategy)
    if baseline is None:
        others = [other.name for other in of_batch.values()]
        return f"no {one}" + (
            f" (of strategy {SINGLE} or {cell.strategy}; {others[0]} is of another)" if others else ""
        )
    if not baseline.step.median_ns:
        return f"the {one} has no time: {baseline.why or 'no step of it was timed'}"
    return _like(cell, baseline)


def _like(cell: CellRow, baseline: CellRow) -> _Pair | str:
    """Return two cells that are timed, or why they cannot be compared."""
    if not cell.step.median_ns or not baseline.step.median_ns:
        return "no step of one was timed"
    if different := _different(baseline, cell):
        return f"{baseline.name} is of another {different}"
    if baseline.step.source != cell.step.source:
        without, under = (baseline, cell) if cell.step.is_profiled else (cell, baseline)
        return f"{without.name} is timed without the profiler, {under.name} only under it"
    return _Pair(cell, baseline, baseline.step, cell.step, baseline.step.median_ns, cell.step.median_ns)


def _different(baseline: CellRow, cell: CellRow) -> str | None:
    """Return what two cells do not have in common though they must, where both say it."""
    settings = {
        name: (baseline.workload[name], cell.workload[name]) for name in baseline.workload if name in cell.workload
    }
    settings["accumulation"] = (str(baseline.accumulation), str(cell.accumulation))
    return next((f"{name} ({mine}, not {its})" for name, (mine, its) in settings.items() if mine != its), None)


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


def _epoch_warnings(cells: Sequence[CellRow]) -> Iterator[Notice]:
    epochs = [cell.epoch for cell in cells if cell.epoch is not None]
    if any(epoch.is_assumed for epoch in epochs):
        text = f"no data set is named by run.json: an epoch is {ASSUMED.name}'s {ASSUMED.samples:,} samples"
        yield Notice(Code.EPOCH_IS_ASSUMED, text)
    if any(cell.epochs and cell.epoch is not None and cell.epoch.is_synthetic for cell in cells):
        yield Notice(Code.ACCURACY_MEANS_NOTHING, DEFINITIONS["accuracy"])


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
    best, noun = _best(weak), device_noun(cells)
    launches = "one launch each" if {cell.launches for cell in cells} <= {None, 1} else "so few launches"
    if best is None:
        fixed = _best(strong)
        if fixed is None:
            timed = [cell for cell in cells if cell.step.median_ns]
            return f"{len(timed)} cells are timed, but none on one {noun} and on several that can be compared."
        return _sentence(fixed, noun, "the global batch fixed", launches)
    sentence = _sentence(best, noun, f"{best.batch:,} samples per {noun}", launches)
    fixed_row = next((row for row in strong if row.cell == best.cell), None)
    if fixed_row is None or fixed_row.speedup is None:
        return sentence
    times, told = _times(fixed_row.speedup), fixed_row.speedup.is_told
    also = f"it is {times} as fast" if told else f"that cannot be told: {times} as fast"
    return f"{sentence} With the global batch of {fixed_row.global_batch:,} fixed {also}."


def _best(rows: Sequence[WeakRow] | Sequence[StrongRow]) -> WeakRow | StrongRow | None:
    """Return the most efficient row among those on the most devices, by the least that its efficiency may be."""
    known = [(row, row.efficiency) for row in rows if row.gpus > 1 and row.efficiency is not None]
    most = max((row.gpus for row, _ in known), default=0)
    compared = [(_least(efficiency), row) for row, efficiency in known if row.gpus == most]
    return max(compared, key=lambda each: each[0])[1] if compared else None


def _least(efficiency: Ratio) -> float:
    return efficiency.value if efficiency.low is None else efficiency.low


def _sentence(row: WeakRow | StrongRow, noun: str, what: str, launches: str) -> str:
    speedup = row.scaled_speedup if isinstance(row, WeakRow) else row.speedup
    assert speedup is not None
    assert row.efficiency is not None
    devices, how = f"{row.gpus} {noun}s", f"({row.strategy}, {what})"
    train = f"{devices} train {_times(speedup)} as fast as one {how}"
    if speedup.few_blocks:
        return f"{train} in {launches}: it is not known whether other launches would."
    efficiency = f"an efficiency of {percent(row.efficiency.value)}"
    return f"{train}: {efficiency if speedup.is_told else 'nothing nearer can be told'}."


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
        if isinstance(row, WeakRow) and row.baseline is not None and row.efficiency is not None:
            name = f"{row.strategy} on {row.gpus} {device_noun(cells)}s at batch {row.batch:,}"
            cell = by_name[row.cell]
            limit = _better_strategy(cell, cells) or _limit(row.efficiency, cell, by_name[row.baseline])
            said.append(f"{name}: {limit}.")
    return said


def _better_strategy(cell: CellRow, cells: Sequence[CellRow]) -> str | None:
    """Say of a cell of DataParallel how much faster DDP is, where that is told."""
    twin = next(
        (each for each in cells if (each.strategy, each.gpus, each.batch) == ("ddp", cell.gpus, cell.batch)), None
    )
    pair = _like(twin, cell) if twin is not None and cell.strategy == "dp" else None
    if not isinstance(pair, _Pair):
        return None
    ratio = pair.ratio(1)
    return f"use DDP: {_times(ratio)} as fast" if ratio.is_told and (ratio.low or 0) > 1 else None


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
    by = f"by about {ms(grown[part])} per profiled step of {ms(span_ns)}"
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
