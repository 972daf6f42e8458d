"""Tables of comparisons and scaling studies, for DataFrames and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from analyzers.comparison.change import Change
from analyzers.comparison.document import Comparison, FigureOf
from analyzers.comparison.scaling_document import MEASURES, CellRow, Scaling, StrongRow, WeakRow
from analyzers.reporting import Column, Table, columns, computed
from analyzers.run import Epoch
from analyzers.statistics import Spread
from analyzers.step_parts import SPLIT_PARTS, fields_of

CHANGES: Table[Comparison] = Table(
    "changes",
    "one row per figure that is compared",
    {**columns(FigureOf, "table", "of", "measure"), **columns(Change, of=("change",))},
    Comparison.figures,
)


class _EpochOf(NamedTuple):
    cell: str
    epoch: Epoch


def _epochs(study: Scaling) -> Iterator[_EpochOf]:
    return (_EpochOf(row.name, epoch) for row in study.cells for epoch in row.epochs)


def _last_loss(row: CellRow) -> float | None:
    return row.epochs[-1].loss if row.epochs else None


def _last_accuracy(row: CellRow) -> float | None:
    return row.epochs[-1].accuracy if row.epochs else None


def _spread(name: str, spread_of: Callable[[CellRow], Spread]) -> dict[str, Column]:
    """Return columns of a median and its quartiles."""

    def at(end: str, row: CellRow) -> float | None:
        return attrgetter(end)(spread_of(row))  # type: ignore[no-any-return]

    ends = {name: "median", f"{name}_low": "low", f"{name}_high": "high"}
    return {column: Column(partial(at, end), float) for column, end in ends.items()}


def _measured(name: str) -> dict[str, Column]:
    return _spread(name, lambda row: row.measured.get(name, Spread(0)))


def _share(field: str) -> Column:
    return Column(lambda row: row.shares.get(field), float)


_CELL: dict[str, Column] = {
    **columns(CellRow, "name", "strategy", "gpus", "batch", "global_batch", "accumulation", "state", "why", "step"),
    **columns(CellRow, "distortion", "distortion_uncertain", "epoch", "samples_per_s", "peak_memory_bytes"),
    **computed(last_loss=_last_loss, last_accuracy=_last_accuracy),
    **{name: column for measure in MEASURES for name, column in _measured(measure).items()},
    **{f"{field.removesuffix('_ns')}_share": _share(field) for field in fields_of(SPLIT_PARTS)},
    "gradient_bytes": Column(attrgetter("gradients.bytes"), int),
    "gradient_bus_bytes": Column(attrgetter("gradients.bus_bytes"), float),
    **_spread("gradient_transfer_ns", attrgetter("gradients.transfer_ns")),
    **_spread("gradient_busbw_gbps", attrgetter("gradients.busbw_gbps")),
    **_spread("gradient_utilization", attrgetter("gradients.utilization")),
}
# In the order of their files.
_OF_SWEEP: tuple[Table[Scaling], ...] = (
    Table("cells", "one row per recording, medians with quartiles", _CELL),
    Table("weak", "one row per recording, at its batch per GPU", columns(WeakRow)),
    Table("strong", "one row per recording, at its global batch", columns(StrongRow)),
    Table(
        "epochs",
        "one row per epoch of each recording",
        {**columns(_EpochOf, "cell"), **columns(Epoch, of=("epoch",))},
        _epochs,
    ),
)
SWEEP_TABLES: Mapping[str, Table[Scaling]] = {table.name: table for table in _OF_SWEEP}
