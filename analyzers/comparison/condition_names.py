"""Figures for `--fail-on` conditions and metric loggers, by name."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from analyzers.collectives import CollectiveRow, GroupWindow, UnmatchedRow, WaitingRow
from analyzers.comparison.change import Change
from analyzers.comparison.conditions import Condition, Figure, Names
from analyzers.comparison.document import CellChange, Comparison, SweepComparison
from analyzers.comparison.runs import BUSBW, CONTROLS, STEP
from analyzers.comparison.sweeps import MEASURES
from analyzers.layers import BucketRow, LayerRow
from analyzers.reporting import Report, Window, gradient_bandwidth
from analyzers.statistics import Spread
from analyzers.step_parts import COMM, COMPUTE, COPY, EXPOSED, IDLE, IDLE_PARTS, SPLIT_PARTS, fields_of
from analyzers.units import NS_PER_MS


class KnownFigure(NamedTuple):
    """A figure of a report: how it is had, and where it stands in the JSON, in words."""

    of: Callable[[Report], float | None]
    stands: str


_MEDIANS = {"step_ns": "span_ns"} | {
    name: name
    for name in (
        *(COMPUTE.field, "comm_ns", "copy_ns", "packing_ns", "overlapped_comm_ns"),
        *(*fields_of((COMM, *EXPOSED, COPY, IDLE, *IDLE_PARTS)), "overlap"),
    )
}
_SHARES = {
    "exposed_share" if part is COMM else f"{part.field.removesuffix('_ns')}_share": part.field
    for part in (COMPUTE, COMM, *EXPOSED, COPY, IDLE, *IDLE_PARTS)
}
_CONTROLS = ("unprofiled_step_ns", "nosync_step_ns", "profiled_step_ns", "distortion", "sync_cost_ns")
# The lists whose columns a condition may look over, with the type of their rows.
LISTS: dict[str, type[msgspec.Struct]] = {
    "windows": Window,
    "collectives": CollectiveRow,
    "unmatched": UnmatchedRow,
    "waiting": WaitingRow,
    "groups": GroupWindow,
    "buckets": BucketRow,
    "layers": LayerRow,
}
# Under which names a comparison judges the figures that conditions have.
_JUDGED = {"step_ns": "span_ns", "busbw_gbps": "gradients_busbw_gbps"}


def _median(measure: str) -> KnownFigure:
    return KnownFigure(
        lambda report: report.summary.windows.get(measure, Spread(0)).median, f"summary.windows.{measure}.median"
    )


def _share(part: str) -> KnownFigure:
    return KnownFigure(lambda report: report.summary.shares.get(part), f"summary.shares.{part}")


def _control(name: str) -> KnownFigure:
    def look_up(report: Report) -> float | None:
        value: float | None = getattr(report.run.controls, name)
        return value

    return KnownFigure(look_up, f"run.controls.{name}")


def _gradients(name: str, stands: str) -> KnownFigure:
    def look_up(report: Report) -> float | None:
        value: float | None = getattr(gradient_bandwidth(report.collectives, None), name).median
        return value

    return KnownFigure(look_up, stands)


FIGURES: dict[str, KnownFigure] = {
    **{name: _median(measure) for name, measure in _MEDIANS.items()},
    **{name: _share(part) for name, part in _SHARES.items()},
    **{name: _control(name) for name in _CONTROLS},
    "busbw_gbps": _gradients("busbw_gbps", "bytes x factor over transfer of a step's gradients, the median over steps"),
    "utilization": _gradients("utilization", "the same as a share of what calibration measured"),
    "peak_memory_bytes": KnownFigure(
        lambda report: max(report.run.memory.peak_bytes.values(), default=None) if report.run.memory else None,
        "run.memory.peak_bytes, the greatest",
    ),
    "input_idle_ns": KnownFigure(
        lambda report: report.summary.input.idle_ns.median if report.summary.input else None,
        "summary.input.idle_ns.median",
    ),
    "unmatched_share": KnownFigure(lambda report: report.summary.unmatched_share, "summary.unmatched_share"),
    "gradient_bytes": KnownFigure(lambda report: report.traffic.get("gradients"), "traffic.gradients"),
    "world_size": KnownFigure(lambda report: report.run.world_size, "run.world_size"),
    "ranks": KnownFigure(lambda report: len(report.run.ranks), "run.ranks, how many there are"),
}
# What is logged of a run: few enough for a dashboard.
LOGGED = (
    *("step_ns", "unprofiled_step_ns", "distortion", "sync_cost_ns", "input_idle_ns"),
    *(name for name, part in _SHARES.items() if part not in fields_of(IDLE_PARTS)),
    *("overlap", "busbw_gbps", "utilization", "peak_memory_bytes"),
)


def headline_figures(report: Report) -> dict[str, float]:
    """Return a run's main figures under the conditions' names, times in ms; figures that are null are left out."""
    values = {name: FIGURES[name].of(report) for name in LOGGED}
    return {_in_ms(name): _scaled(name, value) for name, value in values.items() if value is not None}


def _in_ms(name: str) -> str:
    return f"{name.removesuffix('_ns')}_ms" if name.endswith("_ns") else name


def _scaled(name: str, value: float) -> float:
    return value / NS_PER_MS if name.endswith("_ns") else float(value)


def names(*, of_comparison: bool) -> Names:
    """Return what conditions on a report, or on a comparison of two, may name."""
    columns = {name: _numeric(kind) for name, kind in LISTS.items()}
    judged = {*CONTROLS, *STEP, *fields_of((*SPLIT_PARTS, *IDLE_PARTS)), BUSBW}
    changing = [name for name in FIGURES if _JUDGED.get(name, name) in judged] if of_comparison else []
    return Names(list(FIGURES), columns, changing, of_comparison)


def _numeric(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return a row's columns that are numbers or null, under the JSON's names, each with the field's own name."""
    hints = get_type_hints(kind)
    return {field.encode_name: field.name for field in msgspec.structs.fields(kind) if _is_number(hints[field.name])}


def _is_number(hint: Any) -> bool:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return set(parts) <= {int, float, type(None)}


@dataclass(frozen=True, eq=False)
class RunFigures:
    """Looks up figures of a run, of its baseline, and whether they changed; of several launches their median."""

    launches: Sequence[Report]
    baselines: Sequence[Report] = ()
    comparison: Comparison | None = None

    def __call__(self, figure: Figure) -> float | None:
        """Return a figure; None where it is null."""
        if figure.of == "change":
            return self._changed(figure.name)
        reports = self.launches if figure.of == "run" or not self.baselines else self.baselines
        if len(reports) == 1:
            return _figure(reports[0], figure)
        return _over("median", [_figure(report, figure) for report in reports])

    @cached_property
    def _changes(self) -> Mapping[str, Change]:
        comparison = self.comparison
        if comparison is None:
            return {}
        return {**comparison.controls, **comparison.step, **comparison.parts, **comparison.idle}

    def _changed(self, name: str) -> bool | None:
        change = self._changes.get(_JUDGED.get(name, name))
        return None if change is None else change.changed


def _figure(report: Report, figure: Figure) -> float | None:
    if figure.rows is None or figure.over is None:
        return FIGURES[figure.name].of(report)
    field = _numeric(LISTS[figure.rows])[figure.name]
    return _over(figure.over, [getattr(row, field) for row in getattr(report, figure.rows)])


def _over(how: str, values: list[float | None]) -> float | None:
    """Reduce a list's column to one number: from the rows that know it, but a sum from all or none."""
    known = [value for value in values if value is not None]
    if how == "count":
        return len(known)
    if not known or (how == "sum" and len(known) < len(values)):
        return None
    over: dict[str, Callable[[list[float]], float]] = {"max": max, "min": min, "sum": sum}
    numpys: dict[str, Callable[[list[float]], Any]] = {"mean": np.mean, "median": np.median}
    return over[how](known) if how in over else float(numpys[how](known))


def cell_names() -> Names:
    """Return what conditions on a comparison of two sweeps may name: each is judged in every cell."""
    return Names(MEASURES, {}, MEASURES, True)


def judged_cells(
    comparison: SweepComparison, gate: Condition
) -> Iterator[tuple[str, Callable[[Figure], float | None]]]:
    """Yield the cells that a condition is judged in, in words, with figures; all of them where none has what it names.

    Cells are passed over which by their place have no such figure in either sweep, as an efficiency of one GPU.
    """
    names = {figure.name for figure in gate.figures()}
    concerned = [cell for cell in comparison.cells if names & cell.measures.keys()]
    for cell in concerned or comparison.cells[:1]:
        yield f"{cell.strategy}{cell.gpus} at batch {cell.batch}", _figures_of(cell)


def _figures_of(cell: CellChange) -> Callable[[Figure], float | None]:
    def look_up(figure: Figure) -> float | None:
        change = cell.measures.get(figure.name)
        if change is None:
            return None
        return {"run": change.b, "baseline": change.a, "change": change.changed}[figure.of]

    return look_up
