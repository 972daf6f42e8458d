"""Sections of the scaling study."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from analyzers.comparison import TOLD, CellRow, CellStep, Ratio, Scaling, StrongRow, Subtraction, WeakRow
from analyzers.notices import Code
from analyzers.run import SINGLE
from analyzers.statistics import Spread
from analyzers.step_parts import COMPUTE
from analyzers.units import percent
from tracer.views import (
    EXPOSED_PARTS,
    UNRESOLVED,
    Caution,
    Column,
    Heading,
    Paragraph,
    Section,
    Table,
    TitledTable,
    count,
    escaped,
    gbps,
    milliseconds,
    of_limit,
    rendered,
    seconds,
    sections_markdown,
)
from tracer.views.sections.results.scaling_citations import citation, epoch_ns, words

UNCERTAIN, PROFILED, OUTSIDE, FULL = "?", "p", "!", "f"
MARKS = {
    UNCERTAIN: "? uncertain: the 95 % interval of its step, or of its baseline's, is wider than 5 %",
    PROFILED: "p timed under the profiler: no step was timed without it",
    OUTSIDE: "! outside of what the 95 % interval of its step makes of an epoch",
}
# Heads of columns that a narrow terminal leaves out.
_WIDE = {
    *("95 %", "distor-\ntion", "steps of\nan epoch", "error\nms", "gradients\nMB", "transfer ms,\nsum over buckets"),
    *(
        "utili-\nzation",
        "idle for\ninput",
        "learning\nrate",
        *(part.label.replace(" ", "\n") for part in EXPOSED_PARTS),
    ),
}
FEW = "few launches: what launches differ by is known from three on (--rounds)"
UNTOLD = (
    "cannot be told: its 95 % interval reaches further than a tenth of it, on either side; more --rounds, in a new "
    "folder, may tell"
)


def scaling_text(study: Scaling, width: int | None = None, color: bool = False) -> str:
    """Write the study for a terminal; prose wrapped at `width` columns if given."""
    sections: list[Section] = [
        [Paragraph(scaling_title(study))],
        [Heading(study.verdict), *map(Paragraph, study.limits)],
        [Caution(str(warning)) for warning in study.warnings],
        *(shown.blocks for shown in scaling_tables(study)),
    ]
    return rendered(sections, width, color)


def as_markdown(study: Scaling, pictures: Collection[str] = ()) -> str:
    """Write the study as a markdown file, with links to the pictures next to it, and what each figure means."""
    warnings = [f"* {escaped(str(warning))}" for warning in study.warnings]
    meanings = [f"* **{name}**: {escaped(definition)}" for name, definition in study.definitions.items()]
    parts = [f"# {escaped(scaling_title(study))}", f"**{escaped(study.verdict)}**"]
    parts += ["\n".join(f"* {escaped(limit)}" for limit in study.limits)] if study.limits else []
    parts += ["**Warnings**", "\n".join(warnings)] if warnings else []
    for shown in scaling_tables(study):
        parts.append(sections_markdown([shown.blocks], level=2).rstrip())
        parts += [f"![{shown.title}]({picture_of(shown)})"] if picture_of(shown) in pictures else []
    return "\n\n".join([*parts, "## What the figures mean", "\n".join(meanings)]) + "\n"


def picture_of(shown: TitledTable) -> str:
    """Return the name of a table's picture, where there is one."""
    return f"{shown.name}.png"


def scaling_title(study: Scaling) -> str:
    """Say in one line what was swept."""
    done = [cell for cell in study.cells if cell.step.median_ns]
    models = dict.fromkeys(model for cell in done if (model := cell.workload.get("model")))
    devices = dict.fromkeys(device for cell in done for device in cell.devices)
    facts = [study.name, *models, f"{len(done)} of {count(len(study.cells), 'cell')}", *devices]
    return " · ".join(["Scaling", *facts])


def scaling_tables(study: Scaling) -> list[TitledTable]:
    """Return all tables that have anything to say."""
    tables = (_times(study), _weak(study), _strong(study), _parts(study), _subtraction(study), _bandwidth(study))
    shown = [table for table in (*tables, _epochs(study)) if table.table.rows or table.notes]
    return [replace(table, notes=[*_cited(study, table), *table.notes]) for table in shown]


def _cited(study: Scaling, table: TitledTable) -> list[str]:
    """Return what a report may cite from a table, and what its heads mean."""
    return (
        [text for text in (citation(study, table.name), words(study, table.name)) if text] if table.table.rows else []
    )


def _columns(study: Scaling, *heads: str) -> list[Column]:
    """Return the columns that say which cell a row is of, and those with these heads."""
    noun = study.device_noun
    places = (f"{noun}s", f"batch\n/ {noun}")
    return [Column("strategy", is_text=True), *(Column(head, wide=head in _WIDE) for head in (*places, *heads))]


def _place(row: CellRow | WeakRow | StrongRow) -> list[str]:
    return [row.strategy, str(row.gpus), str(row.batch)]


def grouped(study: Scaling) -> list[tuple[CellRow, WeakRow, StrongRow]]:
    """Return each cell with its rows: baselines, then by strategy, and in each by batch."""
    strategies = list(dict.fromkeys([SINGLE, *(cell.strategy for cell in study.cells)]))
    rows = zip(study.cells, study.weak, study.strong, strict=True)
    return sorted(rows, key=lambda row: (strategies.index(row[0].strategy), row[0].batch, row[0].gpus))


def _is_compared(cell: CellRow) -> bool:
    """Whether the tables of speedup have a line for a cell: baselines and unmeasured cells have none."""
    return cell.gpus > 1 and cell.step.median_ns is not None


def _times(study: Scaling) -> TitledTable:
    heads = ("global\nbatch", "step\nms", "95 %", "distor-\ntion", "samples\n/ s", "steps of\nan epoch")
    columns = _columns(study, *heads, "epoch s\nderived", "epoch s\nmeasured", "peak\nGB")
    cells = [cell for cell, _, _ in grouped(study)]
    found = [_mark(cell.step.uncertain, cell.step.is_profiled) for cell in cells]
    found += [_mark(cell.distortion_uncertain) for cell in cells if cell.distortion is not None]
    found += [OUTSIDE * cell.contradicts_epoch for cell in cells]
    notes = [*_marks(found), *_reasons([(cell.name, cell.why) for cell in study.cells])]
    sources = dict.fromkeys(cell.memory_source for cell in study.cells if cell.memory_source)
    notes += [f"Peak memory: the fullest rank's, as {source} has it." for source in sources]
    return TitledTable("time", "Time of a step and of an epoch", Table(columns, [list(map(_time, cells))]), notes)


def _time(cell: CellRow) -> list[str]:
    epoch = cell.epoch
    return [
        *(*_place(cell), str(cell.global_batch) if cell.step.median_ns else "-"),
        milliseconds(cell.step.median_ns) + _mark(cell.step.uncertain, cell.step.is_profiled),
        *(_reach(cell.step), _distortion(cell)),
        *(_number(cell.samples_per_s), f"{epoch.steps:,}" if epoch else "-"),
        seconds(epoch.derived_ns if epoch else None),
        seconds(epoch.measured_ns if epoch else None) + f" {OUTSIDE}" * cell.contradicts_epoch,
        "-" if cell.peak_memory_bytes is None else f"{cell.peak_memory_bytes / 1e9:.2f}",
    ]


def _reach(step: CellStep) -> str:
    """Write how far a step's interval reaches to either side; its ends where that is far, since it is seldom even."""
    if step.spread is None or step.low_ns is None or step.high_ns is None:
        return "-"
    if step.spread > 2 * TOLD:
        return f"{milliseconds(step.low_ns)} to {milliseconds(step.high_ns)}"
    return f"±{percent(step.spread / 2)}"


def _distortion(cell: CellRow) -> str:
    return "-" if cell.distortion is None else f"x{cell.distortion:.3f}" + _mark(cell.distortion_uncertain)


def _weak(study: Scaling) -> TitledTable:
    columns = _columns(study, "T_1(b)\nms", "T_N(b)\nms", "scaled\nspeedup", "95 %", "efficiency")
    compared = [row for cell, row, _ in grouped(study) if _is_compared(cell)]
    rows = [(row, [*_place(row), milliseconds(row.ideal_step_ns)]) for row in compared]
    title = f"Weak scaling: the batch per {study.device_noun}, b, is fixed; scaled speedup N x T_1(b) / T_N(b)"
    return _speedups("weak", title, columns, rows)


def _strong(study: Scaling) -> TitledTable:
    columns = _columns(study, "T_1(B)\nms", "T_N(B/N)\nms", "speedup", "95 %", "efficiency")
    columns.insert(2, Column("global\nbatch"))
    compared = [row for cell, _, row in grouped(study) if _is_compared(cell)]
    strategies = list(dict.fromkeys(row.strategy for row in compared))
    rows = []
    for row in sorted(compared, key=lambda row: (strategies.index(row.strategy), row.global_batch, row.gpus)):
        one_ns = row.ideal_step_ns * row.gpus if row.ideal_step_ns is not None else None
        place = (row.strategy, str(row.gpus), str(row.global_batch), str(row.batch))
        rows.append((row, [*place, milliseconds(one_ns)]))
    return _speedups(
        "strong", "Strong scaling: the global batch, B, is fixed; speedup T_1(B) / T_N(B/N)", columns, rows
    )


def _speedups(
    name: str, title: str, columns: Sequence[Column], rows: Sequence[tuple[WeakRow | StrongRow, list[str]]]
) -> TitledTable:
    """Arrange rows, each behind its place and T_1: those without a speedup say why below."""
    shown = [
        [*first, milliseconds(row.step_ns), *_ratio(row.speedup, _factor), _ratio(row.efficiency, percent, "")[0]]
        for row, first in rows
        if row.speedup is not None
    ]
    notes = [*_ratio_notes(row.speedup for row, _ in rows), *_reasons([(row.cell, row.why) for row, _ in rows])]
    return TitledTable(name, title, Table(columns, [shown]), notes)


def _parts(study: Scaling) -> TitledTable:
    done = [cell for cell, _, _ in grouped(study) if cell.measured]
    has_input = any("input_idle_ns" in cell.measured for cell in done)
    exposed = [part for part in EXPOSED_PARTS if part is not UNRESOLVED or _any_of(done, part.field)]
    shown = {
        "span_ns": "step",
        "compute_ns": "compute",
        "comm_ns": "comm",
        "exposed_comm_ns": "exposed\ncomm",
        **{part.field: part.label.replace(" ", "\n") for part in exposed},
        "exposed_copy_ns": "exposed\ncopy",
        "idle_ns": "idle",
        **({"input_idle_ns": "idle for\ninput"} if has_input else {}),
    }
    columns = _columns(study, *shown.values(), "overlap", "compute s\nan epoch", "exposed comm\ns an epoch")
    rows = [
        [
            *(*_place(cell), *(_measured(cell, name) for name in shown)),
            percent(cell.measured.get("overlap", Spread(0)).median),
            *(seconds(epoch_ns(cell, part)) for part in (COMPUTE.field, "exposed_comm_ns")),
        ]
        for cell in done
    ]
    notes = [f"{FULL} {text}" for text in dict.fromkeys(text for cell in done for text in _full_windows(cell))]
    notes += [
        "In every window compute + exposed comm + exposed copy + idle = step. Medians do not add up; the page's bars "
        "and the subtraction below are of means, in which a step that waits long counts in full."
    ]
    title = "Where the step's time goes, measured from the traces: medians over typical windows, ms"
    return TitledTable("shares", title, Table(columns, [rows]), notes)


def _measured(cell: CellRow, name: str) -> str:
    """Write a length in a cell's windows; of a step and its compute also that the windows are not the light ones."""
    mark = f" {FULL}" if name in ("span_ns", COMPUTE.field) and _full_windows(cell) else ""
    return milliseconds(cell.measured.get(name, Spread(0)).median) + mark


def _full_windows(cell: CellRow) -> list[str]:
    """Return why a cell's windows are of the full profile, where others' are of the light one."""
    return [warning.text for warning in cell.warnings if warning.code == Code.LIGHT_WINDOW_DOES_NOT_FIT]


def _any_of(cells: Sequence[CellRow], name: str) -> bool:
    return any(cell.measured[name].median for cell in cells if name in cell.measured)


def _subtraction(study: Scaling) -> TitledTable:
    estimates = ("T_N - T_1\nms", "error\nms", "ratio", "T_N - T_1/N\nms", "error\nms", "ratio")
    columns = _columns(study, "measured\nms", *estimates)
    rows = []
    for _, weak, strong in grouped(study):
        measured = weak.subtraction or strong.subtraction
        if measured is not None:
            subtracted = (*_subtracted(weak.subtraction), *_subtracted(strong.subtraction))
            rows.append([*_place(weak), milliseconds(measured.measured_ns), *subtracted])
    found = [one for _, weak, strong in grouped(study) for one in (weak.subtraction, strong.subtraction) if one]
    marks = _marks(_mark(one.uncertain, one.profiled) for one in found)
    notes = [*marks, "Ratio: the subtracted time over the measured. " + CAVEAT] if rows else []
    title = "Exposed communication: measured, and what subtraction would have said"
    return TitledTable("subtraction", title, Table(columns, [rows]), notes)


CAVEAT = (
    "Subtraction counts whatever else changed with the devices (packing, contention, a busier CPU, noise) as "
    "communication; T is timed without the profiler (unless marked p), exposed communication under it, the mean over "
    "typical windows."
)


def _subtracted(subtraction: Subtraction | None) -> list[str]:
    if subtraction is None:
        return ["-", "-", "-"]
    ratio = "-" if subtraction.ratio is None else f"{subtraction.ratio:.2f}"
    return [
        milliseconds(subtraction.estimate_ns) + _mark(subtraction.uncertain, subtraction.profiled),
        milliseconds(subtraction.error_ns),
        ratio,
    ]


def _bandwidth(study: Scaling) -> TitledTable:
    heads = ("gradients\nMB", "transfer ms,\nsum over buckets", "measured\nbusbw GB/s", "utilization,\nof GB/s")
    estimates = ("T_N - T_1\nGB/s", "utili-\nzation", "T_N - T_1/N\nGB/s", "utili-\nzation")
    columns = _columns(study, *heads, *estimates)
    several = [compared for compared in grouped(study) if compared[0].gpus > 1 and compared[0].measured]
    rows = [_bandwidth_row(cell, weak.subtraction, strong.subtraction) for cell, weak, strong in several]
    whys = [(cell.name, cell.gradients.why) for cell, _, _ in several]
    whys += [(cell.name, _no_bandwidth(row)) for cell, weak, strong in several for row in (weak, strong)]
    bounded = any(cell.gradients.bound for cell, _, _ in several)
    bounds = ["~ from the last start to the last end: a bound"] if bounded else []
    title = "Bandwidth of the gradients' reduction, sums over buckets: measured, and what subtraction would have said"
    return TitledTable("bandwidth", title, Table(columns, [rows]), [*bounds, *_reasons(whys)])


def _no_bandwidth(row: WeakRow | StrongRow) -> str | None:
    subtraction, name = row.subtraction, "T_N - T_1" if isinstance(row, WeakRow) else "T_N - T_1/N"
    return None if subtraction is None or subtraction.why is None else f"{subtraction.why} ({name})"


def _bandwidth_row(cell: CellRow, *subtracted: Subtraction | None) -> list[str]:
    gradients = cell.gradients
    true = gradients.busbw_gbps.median
    shown = [
        *(*_place(cell), "-" if gradients.bytes is None else f"{gradients.bytes / 1e6:,.1f}"),
        *(milliseconds(gradients.transfer_ns.median), "~" * (gradients.bound and true is not None) + gbps(true)),
        of_limit(gradients.utilization.median, gradients.calibrated_gbps),
    ]
    for estimate in subtracted:
        shown += [gbps(estimate.busbw_gbps if estimate else None), percent(estimate.utilization if estimate else None)]
    return shown


def _epochs(study: Scaling) -> TitledTable:
    is_synthetic = any(cell.epoch and cell.epoch.is_synthetic and cell.epochs for cell in study.cells)
    accuracy = [] if is_synthetic else ["accuracy"]
    columns = _columns(study, "epoch", "time\ns", "loss", *accuracy, "learning\nrate")
    rows = [
        [
            *(*_place(cell), str(epoch.epoch), seconds(epoch.time_ns) + (" w" if epoch is cell.epochs[0] else "")),
            "-" if epoch.loss is None else f"{epoch.loss:.4f}",
            *(percent(epoch.accuracy) for _ in accuracy),
            f"{epoch.learning_rate:g}",
        ]
        for cell, _, _ in grouped(study)
        for epoch in cell.epochs
    ]
    notes = ["w warm-up: its time is no measurement"] if rows else []
    if is_synthetic:
        notes.append(f"No accuracy: {study.definitions.get('accuracy', '')}")
    title = f"Epochs as trained: loss{' and accuracy' * (not is_synthetic)}"
    return TitledTable("epochs", title, Table(columns, [rows]), notes)


def _ratio(ratio: Ratio | None, shown: Callable[[float], str], untold: str = "cannot be told: ") -> list[str]:
    """Write a ratio and what it lies between; of one that cannot be told, that alone."""
    if ratio is None:
        return ["-", ""]
    if ratio.few_blocks:
        return [f"{untold}few launches" if untold else "-", ""]
    if ratio.low is None or ratio.high is None:
        return [untold.rstrip(": ") or "-", ""]
    between = f"{shown(ratio.low)} to {shown(ratio.high)}"
    profiled = _mark(False, ratio.profiled)
    return [shown(ratio.value) + profiled, between] if ratio.is_told else [untold + between + profiled, ""]


def _ratio_notes(ratios: Iterable[Ratio | None]) -> list[str]:
    known = [ratio for ratio in ratios if ratio is not None]
    marks = _marks(_mark(False, ratio.profiled) for ratio in known)
    few, untold = (ratio.few_blocks for ratio in known), (not ratio.is_told and not ratio.few_blocks for ratio in known)
    return [*marks, *([FEW] if any(few) else []), *([UNTOLD] if any(untold) else [])]


def _mark(uncertain: bool, profiled: bool = False) -> str:
    marks = (PROFILED if profiled else "") + (UNCERTAIN if uncertain else "")
    return f" {marks}" if marks else ""


def _marks(found: Iterable[str]) -> list[str]:
    """Explain the marks that follow any figure."""
    marks = "".join(found)
    return [meaning for mark, meaning in MARKS.items() if mark in marks]


def _reasons(whys: Sequence[tuple[str, str | None]]) -> list[str]:
    """Say why rows have no figures: each reason once, with the cells it applies to."""
    cells: dict[str, list[str]] = {}
    for name, why in whys:
        if why:
            cells.setdefault(why, []).append(name)
    return [f"- {', '.join(names)}: {why}" for why, names in cells.items()]


def _factor(value: float) -> str:
    return f"x{value:.2f}"


def _number(value: float | None) -> str:
    """Write a count with the digits that matter."""
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
