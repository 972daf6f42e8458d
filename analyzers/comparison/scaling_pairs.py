"""Speedup, efficiency and subtraction estimate of a sweep's cells.

    weak    b = 32 on each GPU    T_1(32)  against  T_4(32)      4 times the work on 4 times the GPUs
    strong  B = 128 in all        T_1(128) against  T_4(32)      the same work on 4 times the GPUs

The same cell stands in both, against another baseline. Definitions and sources: DEFINITIONS in scaling_document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from analyzers.comparison.scaling_document import CellRow, Ratio, StrongRow, Subtraction, WeakRow, device_noun
from analyzers.run import SINGLE

Row = TypeVar("Row", WeakRow, StrongRow)


@dataclass(frozen=True)
class Pair:
    """A cell and what it is compared with, T_N and T_1, both with a step's time of the same sort."""

    cell: CellRow
    baseline: CellRow
    one_ns: float
    many_ns: float

    def ratio(self, factor: float) -> Ratio:
        """Return `factor` x T_1 / T_N."""
        one, many, value = self.baseline.step, self.cell.step, factor * self.one_ns / self.many_ns
        if self.cell is self.baseline:
            return Ratio(value, value, value, uncertain=False)
        return Ratio(
            value=value,
            low=factor * one.low_ns / many.high_ns if one.low_ns and many.high_ns else None,
            high=factor * one.high_ns / many.low_ns if one.high_ns and many.low_ns else None,
            uncertain=one.uncertain or many.uncertain,
            profiled=many.is_profiled,
            few_blocks=self.cell.has_few_launches or self.baseline.has_few_launches,
        )

    def subtraction(self, share: float) -> Subtraction | None:
        """Subtract `share` of T_1 from T_N, and say what follows from it, beside what was measured."""
        if self.cell.gpus == 1:
            return None
        one, many, gradients = self.baseline.step, self.cell.step, self.cell.gradients
        estimate_ns, measured_ns = self.many_ns - share * self.one_ns, self.cell.exposed_mean_ns
        busbw, why = _subtracted_busbw(gradients.bus_bytes, estimate_ns)
        return Subtraction(
            estimate_ns=estimate_ns,
            low_ns=many.low_ns - share * one.high_ns if many.low_ns and one.high_ns else None,
            high_ns=many.high_ns - share * one.low_ns if many.high_ns and one.low_ns else None,
            uncertain=one.uncertain or many.uncertain,
            measured_ns=measured_ns,
            error_ns=None if measured_ns is None else estimate_ns - measured_ns,
            ratio=estimate_ns / measured_ns if measured_ns else None,
            busbw_gbps=busbw,
            utilization=busbw / gradients.calibrated_gbps if busbw and gradients.calibrated_gbps else None,
            why=why,
            profiled=many.is_profiled,
        )


def _subtracted_busbw(bus_bytes: float | None, estimate_ns: float) -> tuple[float | None, str | None]:
    """Return the gradients' bus bandwidth if they took as long as subtraction says, or why there is none."""
    if not bus_bytes:
        return None, "the bytes that gradients put on the bus are not known"
    if estimate_ns <= 0:
        return None, "the subtracted time is not positive"
    return bus_bytes / estimate_ns, None


@dataclass(frozen=True)
class Singles:
    """The cells on one device, which others are compared with: by batch, then by strategy; and a device's noun."""

    by_batch: dict[int, dict[str, CellRow]]
    noun: str

    @classmethod
    def of(cls, cells: Sequence[CellRow]) -> Singles:
        """Find them."""
        by_batch: dict[int, dict[str, CellRow]] = {}
        for cell in cells:
            if cell.gpus == 1:
                by_batch.setdefault(cell.batch, {})[cell.strategy] = cell
        return cls(by_batch, device_noun(cells))

    def pair(self, cell: CellRow, batch: int) -> Pair | str:
        """Return a cell with its baseline, the 1-GPU cell for a batch; or why there is none to compare it with."""
        if not cell.step.median_ns:
            return cell.why or "no step of it was timed"
        of_batch, one = self.by_batch.get(batch, {}), f"1-{self.noun} cell of batch {batch}"
        # The one that all strategies share comes before the strategy's own.
        baseline = cell if cell.gpus == 1 else of_batch.get(SINGLE) or of_batch.get(cell.strategy)
        if baseline is None:
            other = next((f"; {each.name} is of another)" for each in of_batch.values()), None)
            return f"no {one}" + (f" (of strategy {SINGLE} or {cell.strategy}{other}" if other else "")
        if not baseline.step.median_ns:
            return f"the {one} has no time: {baseline.why or 'no step of it was timed'}"
        return paired(cell, baseline)

    def weak(self, cell: CellRow) -> WeakRow:
        """Compare a cell with one GPU that has the same batch."""
        row, pair = self._scaled(WeakRow(cell.name, cell.strategy, cell.gpus, cell.batch), cell, cell.batch, 1)
        if pair is None:
            return row
        steps = cell.epoch.steps if cell.epoch is not None and cell.epoch.steps else None
        return replace(
            row,
            epoch_ns=steps and steps * pair.many_ns,
            ideal_epoch_ns=steps and steps * pair.one_ns,
            scaled_speedup=pair.ratio(cell.gpus),
        )

    def strong(self, cell: CellRow) -> StrongRow:
        """Compare a cell with one GPU that has the whole global batch."""
        blank = StrongRow(cell.name, cell.strategy, cell.gpus, cell.batch, cell.global_batch)
        row, pair = self._scaled(blank, cell, cell.batch * cell.gpus, 1 / cell.gpus)
        return row if pair is None else replace(row, speedup=pair.ratio(1))

    def _scaled(self, blank: Row, cell: CellRow, batch: int, share: float) -> tuple[Row, Pair | None]:
        """Fill in what both scalings have: ideally a cell takes `share` of its baseline, which has `batch`."""
        pair = self.pair(cell, batch)
        if isinstance(pair, str):
            return replace(blank, why=pair), None
        told = {"baseline": pair.baseline.name, "step_ns": pair.many_ns, "ideal_step_ns": share * pair.one_ns}
        return replace(blank, **told, efficiency=pair.ratio(share), subtraction=pair.subtraction(share)), pair


def paired(cell: CellRow, baseline: CellRow) -> Pair | str:
    """Return two cells that are timed, or why they cannot be compared."""
    one, many = baseline.step, cell.step
    if not many.median_ns or not one.median_ns:
        return "no step of one was timed"
    if different := _different(baseline, cell):
        return f"{baseline.name} is of another {different}"
    if one.source != many.source:
        without, under = (baseline, cell) if many.is_profiled else (cell, baseline)
        return f"{without.name} is timed without the profiler, {under.name} only under it"
    return Pair(cell, baseline, one.median_ns, many.median_ns)


def _different(baseline: CellRow, cell: CellRow) -> str | None:
    """Return what two cells do not have in common though they must, where both say it."""
    settings = {
        name: (baseline.workload[name], cell.workload[name]) for name in baseline.workload if name in cell.workload
    }
    settings["accumulation"] = (str(baseline.accumulation), str(cell.accumulation))
    return next((f"{name} ({mine}, not {its})" for name, (mine, its) in settings.items() if mine != its), None)
