"""Sections of a comparison of two runs or two sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analyzers.comparison import Change, Comparison, SweepComparison
from analyzers.units import between_ms, percent
from tracer.views import (
    IDLE_PARTS,
    Caution,
    Column,
    Heading,
    Paragraph,
    Section,
    Table,
    TitledTable,
    count,
    gbps,
    milliseconds,
    rendered,
    size,
)
from tracer.views.sections.groups import line_title

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
    "exposed_comm_ns": "exposed comm",
    "gradients_busbw_gbps": "gradients' busbw",
    "compute_ns": "compute",
    "exposed_wait_ns": "exposed waiting",
    "exposed_transfer_ns": "exposed transfer",
    "exposed_unresolved_ns": "exposed unresolved",
    "exposed_copy_ns": "exposed copies",
    "idle_ns": "idle",
    **{part.field: part.label for part in IDLE_PARTS},
    "wait_ns": "waiting",
    "transfer_ns": "transfer",
    "queued_ns": "queued",
    "overlapped_ns": "hidden",
    "exposed_ns": "exposed",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "busbw_gbps": "busbw",
    "step_ns": "step",
    "weak_efficiency": "weak efficiency",
    "strong_efficiency": "strong efficiency",
}
VERDICTS = {
    "changed": "changed",
    "small": "below 1 %",
    "correlated": "steps correlated",
    "within": "not told apart",
    "too_few": "too few steps",
    "same": "same",
    "only_a": "only in A",
    "only_b": "only in B",
}
_FIGURES = (Column("figure", is_text=True), Column("A"), Column("B"), Column("difference", wide=True), Column("change"))
_JUDGED = (Column("steps", wide=True), Column("p", wide=True), Column("verdict", is_text=True))


@dataclass(frozen=True)
class Row:
    """One figure with the table and the thing that it is of; nothing where it is of the whole step."""

    table: str
    of: str
    measure: str
    change: Change


def comparison_text(comparison: Comparison | SweepComparison, width: int | None = None, color: bool = False) -> str:
    """Write the comparison for a terminal, what changed first; prose wrapped at `width` columns if given."""
    parts: list[Section] = [
        [Paragraph(comparison_title(comparison))],
        [Heading(comparison.verdict)],
        [Caution(str(warning)) for warning in comparison.warnings],
        *(shown.blocks for shown in comparison_tables(comparison, MOST_ROWS)),
        [Paragraph(sentence) for sentence in changed_means(comparison)],
    ]
    return rendered(parts, width, color)


def comparison_title(comparison: Comparison | SweepComparison) -> str:
    """Say which two were compared."""
    return f"A: {comparison.a} · B: {comparison.b}"


def comparison_tables(comparison: Comparison | SweepComparison, most: int | None = None) -> list[TitledTable]:
    """Return all tables that have rows or notes; with `most`, long ones have the first rows, and say so."""
    tables = _of_runs(comparison, most) if isinstance(comparison, Comparison) else _of_sweeps(comparison)
    return [shown for shown in tables if shown.table.rows or shown.notes]


def _of_runs(comparison: Comparison, most: int | None) -> list[TitledTable]:
    step = [
        *_rows("step", "", comparison.controls),
        *_rows("step", "", comparison.step),
        *_rows("step", "", comparison.parts),
        *_rows("step", "", comparison.idle),
    ]
    totals = _rows("buckets", "all buckets", comparison.totals)
    buckets = [
        row
        for bucket in comparison.buckets
        for row in _rows("buckets", _bucket(bucket.bucket, bucket.bytes), bucket.measures)
    ]
    groups = [
        row
        for collective in comparison.collectives
        for row in _rows(
            "collectives", _collective(collective.kind, collective.group_size, collective.bytes), collective.measures
        )
    ]
    lines = [row for line in comparison.groups for row in _rows("groups", line_title(line.name), line.measures)]
    layers = [row for layer in comparison.layers for row in _rows("layers", layer.layer, layer.measures)]
    every = [*step, *totals, *buckets, *lines, *groups, *layers]
    return [
        _changed(every),
        _different(comparison),
        replace(
            _table("step", "The step, and what it is made of under the profiler: medians, ms", "", step),
            notes=_intervals(comparison.controls),
        ),
        _buckets(comparison, totals + _first(buckets, most), len(buckets) - len(_first(buckets, most))),
        _listed("groups", "Process groups, each while it alone communicates: medians, ms", lines, most),
        _listed("collectives", "Collectives of one kind, group size and bytes: medians, ms and GB/s", groups, most),
        _listed("layers", "Layers: medians, ms", layers, most),
    ]


def _intervals(controls: Mapping[str, Change]) -> list[str]:
    """Say what the differences of controls lie between, where there are blocks enough to tell."""
    told = [
        f"{LABELS[name]} {between_ms(change.limits)}" for name, change in controls.items() if change.limits is not None
    ]
    return [f"Differences, 95 % intervals: {', '.join(told)}."] if told else []


def _rows(table: str, subject: str, measures: Mapping[str, Change]) -> list[Row]:
    return [Row(table, subject, measure, change) for measure, change in measures.items()]


def _bucket(number: int, nbytes: int | None) -> str:
    return f"bucket {number}" + ("" if nbytes is None else f" ({size(nbytes)})")


def _collective(kind: str, group_size: int, nbytes: int | None) -> str:
    return f"{kind} of {group_size}" + ("" if nbytes is None else f", {size(nbytes)}")


def _changed(every: Sequence[Row]) -> TitledTable:
    """List what changed by more than its steps' own spread, the largest change first."""
    marked = sorted((row for row in every if row.change.is_marked), key=lambda row: -abs(row.change.relative or 1))
    shown = _table("changes", "Changed by more than the steps' own spread: medians, ms and GB/s", "of", marked)
    lines = [[row.of or "step", *cells[1:]] for row, cells in zip(marked, shown.table.rows, strict=True)]
    notes = [] if marked else ["Nothing.", *_apart(every)]
    return replace(shown, table=Table(shown.table.columns, [lines]), notes=notes)


def _apart(rows: Sequence[Row]) -> list[str]:
    """Say what would be marked if there were more steps."""
    apart = [row for row in rows if row.change.apart and row.change.state == "too_few"]
    if not apart:
        return []
    named = [f"{' '.join(filter(None, (row.of, _label(row))))} {_relative(row.change)}" for row in apart]
    return [
        "Too few steps to tell, though every step of one run lies beyond all of the other's: "
        f"{count(len(apart), 'figure')}, {_shortened(named)}."
    ]


def _shortened(names: Sequence[str]) -> str:
    """Join the first names, and say how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _label(row: Row) -> str:
    return LABELS.get(row.measure, row.measure)


def _relative(change: Change) -> str:
    return "-" if change.relative is None else f"{100 * change.relative:+.1f} %"


def _different(comparison: Comparison) -> TitledTable:
    rows = [[setting.what, setting.a or "-", setting.b or "-"] for setting in comparison.different]
    columns = (Column("setting", is_text=True), Column("A", is_text=True), Column("B", is_text=True))
    return TitledTable("settings", "Settings and versions that differ", Table(columns, [rows]))


def _buckets(comparison: Comparison, rows: Sequence[Row], left_out: int) -> TitledTable:
    notes = [_sentence(comparison.layouts.why)] if comparison.layouts.why else []
    shown = _table("buckets", "DDP's buckets, a step and rank: medians, ms", "of", rows)
    return replace(shown, notes=[*notes, *_left(left_out)])


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _listed(name: str, heading: str, rows: Sequence[Row], most: int | None) -> TitledTable:
    """Build a long table: with `most`, the rows that changed or differ most; name what only one run has."""
    both = [row for row in rows if row.change.difference is not None]
    first = _first(both, most)
    shown = _table(name, heading, "of", first)
    notes = [*_left(len(both) - len(first)), *_alone("A", "only_a", rows), *_alone("B", "only_b", rows)]
    return replace(shown, notes=notes)


def _alone(name: str, state: str, rows: Sequence[Row]) -> list[str]:
    """Name what only one run has, each with its first figure."""
    first = {row.of: row for row in reversed(rows) if row.change.state == state}
    if not first:
        return []
    figures = [(row, row.change.a if row.change.b is None else row.change.b) for row in reversed(first.values())]
    named = [f"{row.of} ({_label(row)} {_value(row.measure, value)})" for row, value in figures]
    return [f"Only in {name}: {_shortened(named)}."]


def _first(rows: Sequence[Row], most: int | None) -> list[Row]:
    if most is None or len(rows) <= most:
        return list(rows)
    return sorted(rows, key=_weight, reverse=True)[:most]


def _weight(row: Row) -> tuple[bool, bool, float]:
    """Rank what is shown first: what changed, what came apart; then by the difference."""
    return row.change.is_marked, row.change.apart, abs(row.change.difference or 0)


def _left(number: int) -> list[str]:
    return [f"and {count(number, 'more figure')} that differ less: --json or --html has all"] if number else []


def _table(name: str, heading: str, subject_head: str, rows: Sequence[Row]) -> TitledTable:
    """Build a table of figures; with a head for their subjects, if one is given."""
    columns = (*([Column(subject_head, is_text=True)] if subject_head else []), *_FIGURES, *_JUDGED)
    lines = [[*([row.of] if subject_head else []), *_words(row.measure, row.change)] for row in rows]
    marked = {number for number, row in enumerate(rows) if row.change.is_marked}
    return TitledTable(name, heading, Table(columns, [lines], marked))


def _words(measure: str, change: Change) -> list[str]:
    steps = f"{change.a_steps}, {change.b_steps}"
    p = "-" if change.adjusted_p is None else f"{change.adjusted_p:.3f}" if change.adjusted_p >= 0.0005 else "<0.001"
    values = [_value(measure, value) for value in (change.a, change.b)]
    difference = "-" if change.difference is None else _signed(measure, change.difference)
    return [LABELS.get(measure, measure), *values, difference, _relative(change), steps, p, _verdict(change)]


def _value(measure: str, value: float | None) -> str:
    if measure.endswith("_ns"):
        return milliseconds(value)
    return gbps(value) if measure.endswith("_gbps") else percent(value)


def _signed(measure: str, value: float) -> str:
    """Write a difference; of shares in percentage points."""
    figure = _value(measure, abs(value))
    return f"{'-' if value < 0 else '+'}{figure.replace('%', 'points')}"


def _verdict(change: Change) -> str:
    return VERDICTS[change.state] + (", apart" if change.apart and change.state == "too_few" else "")


def _of_sweeps(comparison: SweepComparison) -> list[TitledTable]:
    named = [(f"{cell.strategy}{cell.gpus} at {cell.batch}", cell) for cell in comparison.cells]
    rows = [row for name, cell in named for row in _rows("cells", name, cell.measures)]
    shown = _table("cells", "Cells: steps (medians, ms) and efficiency", "cell", rows)
    notes = [f"- {name}: {why}" for name, cell in named for why in cell.why]
    return [_changed(rows), replace(shown, notes=notes)]


def changed_means(comparison: Comparison | SweepComparison) -> list[str]:
    """Say what it takes for a figure to count as changed, in sentences."""
    test = comparison.test
    return [
        f"Test: {test.method}. Marked as changed: p at most {percent(test.level)}, and at least "
        f"{percent(test.least_change)} of A's figure. If nothing changed in a table, the chance of any mark in it is "
        f"at most {percent(test.level)}."
    ]
