"""Tables of a comparison of two runs or two sweeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from analyzers.comparison import CellChange, Change, Comparison, FigureOf, SweepComparison
from analyzers.texts import AND_MORE, listed
from analyzers.units import between_ms, relative_change
from tracer.views import (
    COMM,
    IDLE_PARTS,
    SPLIT_PARTS,
    Field,
    Table,
    TitledTable,
    count,
    figure,
    sentence,
    size,
    table,
    texts,
)
from tracer.views.sections import BUCKET_FIGURES, LAYER_FIGURES, line_title

# How many rows a table of layers, buckets or collectives has on a terminal; the page and the JSON have all.
MOST_ROWS = 16
# How many of what only one run has, or of what came apart, are named.
NAMED = 6
LABELS = {
    "unprofiled_step_ns": "step, no profiler",
    "nosync_step_ns": "step, no sync",
    "profiled_step_ns": "step, profiled",
    "span_ns": "step in the trace",
    "comm_ns": "communication",
    "gradients_busbw_gbps": "gradients' busbw",
    **{part.field: part.label for part in (COMM, *SPLIT_PARTS, *IDLE_PARTS)},
    **{name: shown.title for name, shown in (BUCKET_FIGURES | LAYER_FIGURES).items()},
    "busbw_gbps": "busbw",
    "step_ns": "step",
    "weak_efficiency": "weak efficiency",
    "strong_efficiency": "strong efficiency",
}
# Of these nobody can say whether they changed.
UNTOLD = ("correlated", "too_few")
VERDICTS = {
    "changed": "changed",
    "small": "below 1 %",
    "correlated": "steps correlated",
    "within": "not told apart",
    "too_few": "too few to tell",
    "same": "same",
    "only_a": "only in A",
    "only_b": "only in B",
}


def comparison_tables(comparison: Comparison | SweepComparison, most: int | None = None) -> list[TitledTable]:
    """Return all tables that have rows or notes; with `most`, long ones have the first rows, and say so."""
    tables = _of_runs(comparison, most) if isinstance(comparison, Comparison) else _of_sweeps(comparison)
    return [shown for shown in tables if shown.table.rows or shown.notes]


def every_row(comparison: Comparison) -> list[FigureOf]:
    """Return the rows of all tables of two runs."""
    of_step = (comparison.controls, comparison.step, comparison.parts, comparison.idle)
    subjects: list[tuple[str, str, Mapping[str, Change]]] = [
        *(("step", "", measures) for measures in of_step),
        ("totals", "all buckets", comparison.totals),
        *(("buckets", _bucket(one.bucket, one.bytes), one.measures) for one in comparison.buckets),
        *(("groups", line_title(one.name), one.measures) for one in comparison.groups),
        *(
            ("collectives", _collective(one.kind, one.group_size, one.bytes), one.measures)
            for one in comparison.collectives
        ),
        *(("layers", one.layer, one.measures) for one in comparison.layers),
    ]
    return [row for name, subject, measures in subjects for row in _rows(name, subject, measures)]


def _of_runs(comparison: Comparison, most: int | None) -> list[TitledTable]:
    every = every_row(comparison)
    rows: dict[str, list[FigureOf]] = defaultdict(list)
    for row in every:
        rows[row.table].append(row)
    first = first_rows(rows["buckets"], most)
    step = figures_table("step", "The step, and what it is made of while profiled: medians, ms", "", rows["step"])
    return [
        _changed(every),
        _different(comparison),
        replace(step, notes=_intervals(comparison.controls)),
        _buckets(comparison, rows["totals"] + first, len(rows["buckets"]) - len(first)),
        _listed(rows, "groups", "Process groups, each while it alone communicates: medians, ms", most),
        _listed(rows, "collectives", "Collectives of one kind, group size and bytes: medians, ms and GB/s", most),
        _listed(rows, "layers", "Layers: medians, ms", most),
    ]


def told_tables(comparison: Comparison | SweepComparison) -> list[TitledTable]:
    """Return the tables without what cannot be told: what changed first, then those with a change, then the others."""
    tables = comparison_tables(comparison)
    if isinstance(comparison, SweepComparison):
        return tables
    first, *others = (_only_told(shown) for shown in tables)
    return [first, *sorted(others, key=lambda shown: (shown.name != "settings", not shown.table.marked))]


def _only_told(shown: TitledTable) -> TitledTable:
    """Leave out the figures that cannot be told; settings have none."""
    if not shown.table.items:
        return shown
    return replace(shown, table=shown.table.where(lambda row: row.change.state not in UNTOLD))


def untold_table(comparison: Comparison | SweepComparison) -> TitledTable | None:
    """Return the figures that cannot be told, largest relative difference first; None where there are none."""
    if isinstance(comparison, SweepComparison):
        return None
    rows = [row for row in every_row(comparison) if row.change.state in UNTOLD]
    rows.sort(key=lambda row: -abs(row.change.relative or 0))
    title = f"What cannot be told: {count(len(rows), 'figure')}"
    return _titled("untold", title, [SUBJECT, *FIGURES, *_JUDGED], rows) if rows else None


def _intervals(controls: Mapping[str, Change]) -> list[str]:
    """Say what the differences of controls lie between, where there are blocks enough to tell."""
    told = [
        f"{LABELS[name]} {between_ms(change.interval)}"
        for name, change in controls.items()
        if change.interval is not None
    ]
    return [f"Differences, 95 % intervals: {', '.join(told)}."] if told else []


def _rows(table: str, subject: str, measures: Mapping[str, Change]) -> list[FigureOf]:
    return [FigureOf(table, subject, measure, change) for measure, change in measures.items()]


def _bucket(number: int, nbytes: int | None) -> str:
    return f"bucket {number}" + ("" if nbytes is None else f" ({size(nbytes)})")


def _collective(kind: str, group_size: int, nbytes: int | None) -> str:
    return f"{kind} of {group_size}" + ("" if nbytes is None else f", {size(nbytes)}")


def _changed(every: Sequence[FigureOf]) -> TitledTable:
    """List what changed by more than its steps' own spread, the largest change first."""
    marked = marked_rows(every)
    title = "Changed by more than the steps' own spread: medians, ms and GB/s"
    shown = table([SUBJECT, *FIGURES, *_JUDGED], marked)
    return TitledTable("changes", title, shown, [] if marked else ["Nothing.", *_apart(every)])


def marked_rows(every: Sequence[FigureOf]) -> list[FigureOf]:
    """Return the rows that changed: times by their difference, then the rest by its share."""
    marked = [row for row in every if row.change.is_marked]
    times = [row for row in marked if row.measure.endswith("_ns")]
    others = [row for row in marked if row not in times]
    times.sort(key=lambda row: -abs(row.change.difference or 0))
    return times + sorted(others, key=lambda row: -abs(row.change.relative or 1))


def _apart(rows: Sequence[FigureOf]) -> list[str]:
    """Say what would be marked if there were more steps."""
    apart = [row for row in rows if row.change.apart and row.change.state == "too_few"]
    if not apart:
        return []
    named = [f"{' '.join(filter(None, (row.of, _label(row))))} {relative(row.change)}" for row in apart]
    return [
        "Too few steps to tell, though every step of one run lies beyond all of the other's: "
        f"{count(len(apart), 'figure')}, {listed(named, NAMED, AND_MORE)}."
    ]


def _label(row: FigureOf) -> str:
    return LABELS.get(row.measure, row.measure)


def relative(change: Change) -> str:
    """Write a difference as a share of A's figure, or as a factor."""
    return "-" if change.relative is None else relative_change(change.relative)


def _different(comparison: Comparison) -> TitledTable:
    rows = [[setting.what, setting.a or "-", setting.b or "-"] for setting in comparison.different]
    return TitledTable("settings", "Settings and versions that differ", Table(texts("setting", "A", "B"), [rows]))


def _buckets(comparison: Comparison, rows: Sequence[FigureOf], left_out: int) -> TitledTable:
    notes = [sentence(comparison.layouts.why)] if comparison.layouts.why else []
    shown = figures_table("buckets", "DDP's buckets, per step and rank: medians, ms", "of", rows)
    return replace(shown, notes=[*notes, *_left(left_out)])


def _listed(rows_of: Mapping[str, list[FigureOf]], name: str, heading: str, most: int | None) -> TitledTable:
    """Build a long table: with `most`, the rows that changed or differ most; name what only one run has."""
    rows = rows_of[name]
    both = [row for row in rows if row.change.difference is not None]
    first = first_rows(both, most)
    shown = figures_table(name, heading, "of", first)
    notes = [*_left(len(both) - len(first)), *_alone("A", "only_a", rows), *_alone("B", "only_b", rows)]
    return replace(shown, notes=notes)


def _alone(name: str, state: str, rows: Sequence[FigureOf]) -> list[str]:
    """Name what only one run has, each with its first figure."""
    first = {row.of: row for row in reversed(rows) if row.change.state == state}
    if not first:
        return []
    figures = [(row, row.change.a if row.change.b is None else row.change.b) for row in reversed(first.values())]
    named = [f"{row.of} ({_label(row)} {figure(row.measure, value)})" for row, value in figures]
    return [f"Only in {name}: {listed(named, NAMED, AND_MORE)}."]


def first_rows(rows: Sequence[FigureOf], most: int | None) -> list[FigureOf]:
    """Return the rows that changed or differ most, if there are too many."""
    if most is None or len(rows) <= most:
        return list(rows)
    return sorted(rows, key=_weight, reverse=True)[:most]


def _weight(row: FigureOf) -> tuple[bool, bool, float]:
    """Rank what is shown first: what changed, what came apart; then by the difference."""
    return row.change.is_marked, row.change.apart, abs(row.change.difference or 0)


def _left(number: int) -> list[str]:
    return [f"and {count(number, 'more figure')} that differ less: --json or --html has all"] if number else []


def figures_table(name: str, heading: str, subject_head: str, rows: Sequence[FigureOf]) -> TitledTable:
    """Build a table of figures; with a head for their subjects, if one is given."""
    subject: list[Field[FigureOf]] = [Field(subject_head, True, cell=lambda row: row.of)] if subject_head else []
    return _titled(name, heading, [*subject, *FIGURES, *_JUDGED], rows)


def _titled(name: str, heading: str, fields: Sequence[Field[FigureOf]], rows: Sequence[FigureOf]) -> TitledTable:
    return TitledTable(name, heading, table(fields, rows, is_marked=lambda row: row.change.is_marked))


def _difference(row: FigureOf) -> str:
    return "-" if row.change.difference is None else signed_figure(row.measure, row.change.difference)


def _p(row: FigureOf) -> str:
    p = row.change.adjusted_p
    return "-" if p is None else f"{p:.3f}" if p >= 0.0005 else "<0.001"


def _verdict(row: FigureOf) -> str:
    change = row.change
    return VERDICTS[change.state] + (", apart" if change.apart and change.state == "too_few" else "")


# What a figure is of, where figures of several tables stand together.
SUBJECT: Field[FigureOf] = Field("of", True, cell=lambda row: row.of or "step")
SIDES: Sequence[Field[FigureOf]] = (
    Field("figure", True, cell=_label),
    Field("A", cell=lambda row: figure(row.measure, row.change.a)),
    Field("B", cell=lambda row: figure(row.measure, row.change.b)),
)
CHANGE: Field[FigureOf] = Field("change", cell=lambda row: relative(row.change))
FIGURES: Sequence[Field[FigureOf]] = (*SIDES, Field("difference", wide=True, cell=_difference), CHANGE)
_JUDGED: Sequence[Field[FigureOf]] = (
    Field("steps", wide=True, cell=lambda row: f"{row.change.a_steps}, {row.change.b_steps}"),
    Field("p", wide=True, cell=_p),
    Field("verdict", True, cell=_verdict),
)


def signed_figure(measure: str, value: float) -> str:
    """Write a difference; of shares in percentage points."""
    written = figure(measure, abs(value))
    return f"{'-' if value < 0 else '+'}{written.replace('%', 'points')}"


def _of_sweeps(comparison: SweepComparison) -> list[TitledTable]:
    named = [(cell_name(cell), cell) for cell in comparison.cells]
    rows = [row for name, cell in named for row in _rows("cells", name, cell.measures)]
    shown = figures_table("cells", "Cells: steps (medians, ms) and efficiency", "cell", rows)
    notes = [f"- {name}: {why}" for name, cell in named for why in cell.why]
    return [_changed(rows), replace(shown, notes=notes)]


def cell_name(cell: CellChange) -> str:
    """Name a sweep's cell."""
    return f"{cell.strategy}{cell.gpus} at {cell.batch}"
